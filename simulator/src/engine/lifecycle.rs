//! The start and end of processes and links, by plan or by fault.

use plimsoll_core::exchange::Child as _;

use super::clock::{SimTime, micros};
use super::fleet::ZONE_TICK;
use super::world::{Child, Event, World};
use crate::rng::span;
use crate::scenario::Failure;

/// The time after which both ends close a stream whose link is cut, in microseconds.
const KEEPALIVE_US: u64 = 3_000_000;

impl World<'_> {
    /// Starts a controller. Its children reconnect within `within_s`, a span in seconds.
    pub(crate) fn start_controller(&mut self, now: SimTime, within_s: (f64, f64)) {
        if self.controller.process.is_some() {
            return;
        }
        let durable = self.durable.clone();
        let controller = self.fleet.controller(now, durable, &mut self.processes_rng);
        self.controller.process = Some(controller);
        self.controller.life += 1;
        let first = now.plus(self.phase(self.scenario.tick));
        self.queue.plan(first, Event::BrainTick { life: self.controller.life });
        for zone in self.below_controller() {
            self.reconnect(now, Child::Zone(zone), within_s);
        }
    }

    /// Starts an aggregator. Its children reconnect within `within_s`, a span in seconds.
    pub(crate) fn start_zone(&mut self, now: SimTime, zone: u32, within_s: (f64, f64)) {
        let slot = &mut self.zones[zone as usize];
        if slot.dead || slot.process.is_some() {
            return;
        }
        match self.fleet.aggregator(now, zone, &mut self.processes_rng) {
            Ok(process) => slot.process = Some(process),
            Err(error) => return self.rejections.push(error.to_string()),
        }
        slot.life += 1;
        let life = slot.life;
        let first = now.plus(self.phase(ZONE_TICK));
        self.queue.plan(first, Event::ZoneTick { zone, life });
        self.queue.plan(now, Event::Connect { child: Child::Zone(zone), life });
        for child in self.below_zone(zone) {
            self.reconnect(now, child, within_s);
        }
    }

    pub(crate) fn start_client(&mut self, now: SimTime, client: u32) {
        let slot = &mut self.clients[client as usize];
        if slot.dead || slot.process.is_some() {
            return;
        }
        match self.fleet.client(now, (client, slot.life, slot.zone), &mut self.processes_rng) {
            Ok(process) => slot.process = Some(process),
            Err(error) => return self.rejections.push(error.to_string()),
        }
        slot.life += 1;
        self.queue.plan(now, Event::Connect { child: Child::Client(client), life: slot.life });
    }

    pub(crate) fn brain_tick(&mut self, now: SimTime, life: u32) {
        if life != self.controller.life {
            return;
        }
        let Some(controller) = &mut self.controller.process else { return };
        controller.tick(now);
        self.notify_below_controller(now);
        self.queue.plan(now.plus(micros(self.scenario.tick.as_secs_f64())), Event::BrainTick { life });
    }

    pub(crate) fn zone_tick(&mut self, now: SimTime, zone: u32, life: u32) {
        let slot = &mut self.zones[zone as usize];
        let Some(aggregator) = slot.process.as_mut().filter(|_| slot.life == life) else { return };
        if aggregator.tick(now) {
            self.notify_below_zone(now, zone);
        }
        self.queue.plan(now.plus(micros(ZONE_TICK.as_secs_f64())), Event::ZoneTick { zone, life });
    }

    /// Plans a connection attempt of a child without a stream, at a random time within a span in seconds.
    fn reconnect(&mut self, now: SimTime, child: Child, (from, to): (f64, f64)) {
        let ends = self.ends(child);
        let (lives, life, uplink) = (ends.lives, ends.life, *ends.uplink);
        let connected = uplink.is_some_and(|stream| self.streams[stream].parent_open);
        if !lives || connected {
            return;
        }
        let wait =
            micros(from) + if to > from { span(&mut self.processes_rng, micros(to - from)) } else { 0 };
        self.queue.plan(now.plus(wait), Event::Connect { child, life });
    }

    pub(crate) fn fault_begins(&mut self, now: SimTime, fault: usize) {
        match self.scenario.faults[fault].failure {
            Failure::ControllerDown => {
                let Some(controller) = self.controller.process.take() else { return };
                self.durable = controller.brain.durable().clone();
                self.controller.life += 1;
                self.controller.below.clear();
                for zone in self.below_controller() {
                    self.parent_dies(now, Child::Zone(zone));
                }
            }
            Failure::ControllerCut => {
                for zone in self.below_controller() {
                    self.cut(now, Child::Zone(zone), fault);
                }
            }
            Failure::ZonePartition(zone) => self.cut(now, Child::Zone(zone), fault),
            Failure::ClientPartition(client) => self.cut(now, Child::Client(client), fault),
            Failure::ZoneCrash(zone) => self.zone_dies(now, zone),
            Failure::ZoneDead(zone) => {
                self.zone_dies(now, zone);
                self.zones[zone as usize].dead = true;
                for slot in self.clients.iter_mut().filter(|slot| slot.zone == zone) {
                    (slot.process, slot.uplink, slot.dead) = (None, None, true);
                }
            }
            Failure::ClientCrash(client) => {
                self.clients[client as usize].process = None;
                self.clients[client as usize].life += 1;
                self.child_dies(now, Child::Client(client));
            }
        }
    }

    pub(crate) fn fault_ends(&mut self, now: SimTime, fault: usize) {
        let fault = self.scenario.faults[fault];
        match fault.failure {
            Failure::ControllerDown => self.start_controller(now, fault.reconnect_s),
            Failure::ControllerCut => {
                for zone in self.below_controller() {
                    self.mend(now, Child::Zone(zone), fault.reconnect_s);
                }
            }
            Failure::ZonePartition(zone) => self.mend(now, Child::Zone(zone), fault.reconnect_s),
            Failure::ClientPartition(client) => self.mend(now, Child::Client(client), fault.reconnect_s),
            Failure::ZoneCrash(zone) => self.start_zone(now, zone, fault.reconnect_s),
            Failure::ZoneDead(_) => {}
            Failure::ClientCrash(client) => self.start_client(now, client),
        }
    }

    fn zone_dies(&mut self, now: SimTime, zone: u32) {
        let slot = &mut self.zones[zone as usize];
        slot.process = None;
        slot.life += 1;
        slot.below.clear();
        self.child_dies(now, Child::Zone(zone));
        for child in self.below_zone(zone) {
            self.parent_dies(now, child);
        }
    }

    /// Returns the aggregators that connect to the controller.
    fn below_controller(&self) -> Vec<u32> {
        let scenario = self.scenario;
        (0..scenario.aggregators()).filter(|zone| scenario.above(*zone).is_none()).collect()
    }

    /// Returns the children of an aggregator.
    fn below_zone(&self, zone: u32) -> Vec<Child> {
        let zones = (0..self.scenario.aggregators()).map(Child::Zone);
        let clients = (0..self.clients.len() as u32).map(Child::Client);
        zones.chain(clients).filter(|child| self.above(*child) == Some(zone)).collect()
    }

    /// Cuts the link of a child to its parent: messages are lost, and both ends close the stream when their
    /// keepalive expires.
    fn cut(&mut self, now: SimTime, child: Child, fault: usize) {
        self.change_cuts(child, |cuts| cuts + 1);
        self.queue.plan(now.plus(KEEPALIVE_US), Event::Keepalive { child, fault });
    }

    fn mend(&mut self, now: SimTime, child: Child, within_s: (f64, f64)) {
        self.change_cuts(child, |cuts| cuts - 1);
        self.reconnect(now, child, within_s);
    }

    fn change_cuts(&mut self, child: Child, change: impl FnOnce(u32) -> u32) {
        let cuts = match child {
            Child::Client(client) => &mut self.clients[client as usize].cuts,
            Child::Zone(zone) => &mut self.zones[zone as usize].cuts,
        };
        *cuts = change(*cuts);
    }

    pub(crate) fn keepalive(&mut self, now: SimTime, child: Child, fault: usize) {
        let until = self.scenario.faults[fault].until_s;
        if until.is_some_and(|until| self.zero.plus(micros(until)) <= now) {
            return;
        }
        if let Some(stream) = *self.ends(child).uplink {
            self.child_ends(now, stream, false);
            self.parent_ends(now, stream);
        }
    }

    /// Opens a stream if both processes run and the link between them is not cut.
    pub(crate) fn connect(&mut self, now: SimTime, child: Child, life: u32) {
        let ends = self.ends(child);
        let (possible, uplink) =
            (ends.life == life && ends.lives && ends.parent_lives && !ends.cut, *ends.uplink);
        if !possible {
            return;
        }
        if let Some(stream) = uplink {
            if self.streams[stream].parent_open {
                return;
            }
            // The child has not noticed the end of its old stream; the new one replaces it.
            self.child_ends(now, stream, false);
        }
        let stream = self.open(child);
        *self.ends(child).uplink = Some(stream);
        match child {
            Child::Client(client) => {
                if let Some(process) = &mut self.clients[client as usize].process {
                    process.subscription.on_open(process.clock.read(now));
                }
            }
            Child::Zone(zone) => {
                if let Some(process) = &mut self.zones[zone as usize].process {
                    process.zone.on_open(process.clock.read(now));
                }
            }
        }
        self.report(now, stream);
    }
}
