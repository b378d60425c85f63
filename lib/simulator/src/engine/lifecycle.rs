//! The start and end of processes and links, by plan or by fault.

use super::clock::{SimTime, micros};
use super::fleet::ZONE_TICK;
use super::world::{Child, Event, Port, World};
use crate::rng::span;
use crate::scenario::{Fault, FaultKind};

/// Silence after which an end closes its stream, in microseconds.
const KEEPALIVE_US: u64 = 3_000_000;

impl World<'_> {
    /// Starts a controller. Its children reconnect within `within_s`, a span in seconds.
    pub(crate) fn start_controller(&mut self, now: SimTime, within_s: (f64, f64)) {
        if self.controller.process.is_some() {
            return;
        }
        let durable = self.durable.clone();
        let policy = self.scenario.policy_at(self.seconds(now));
        let controller = self
            .fleet
            .controller(now, durable, policy, &mut self.processes_rng);
        self.controller.process = Some(controller);
        self.controller.port.life += 1;
        let first = now.plus(self.phase(self.scenario.tick));
        self.queue.plan(
            first,
            Event::BrainTick {
                life: self.controller.port.life,
            },
        );
        self.reconnect_all(now, None, within_s);
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
        slot.port.life += 1;
        let life = slot.port.life;
        let first = now.plus(self.phase(ZONE_TICK));
        self.queue.plan(first, Event::ZoneTick { zone, life });
        self.queue.plan(
            now,
            Event::Connect {
                child: Child::Zone(zone),
                life,
            },
        );
        self.reconnect_all(now, Some(zone), within_s);
    }

    pub(crate) fn start_client(&mut self, now: SimTime, client: u32) {
        let slot = &mut self.clients[client as usize];
        if slot.dead || slot.process.is_some() {
            return;
        }
        match self.fleet.client(
            now,
            (client, slot.port.life, slot.zone),
            &mut self.processes_rng,
        ) {
            Ok(process) => slot.process = Some(process),
            Err(error) => return self.rejections.push(error.to_string()),
        }
        slot.port.life += 1;
        self.queue.plan(
            now,
            Event::Connect {
                child: Child::Client(client),
                life: slot.port.life,
            },
        );
    }

    pub(crate) fn brain_tick(&mut self, now: SimTime, life: u32) {
        if life != self.controller.port.life {
            return;
        }
        let Some(controller) = &mut self.controller.process else {
            return;
        };
        controller.tick(now);
        let wait = controller.clock.wait(self.scenario.tick);
        self.notify(now, None);
        self.queue.plan(now.plus(wait), Event::BrainTick { life });
    }

    pub(crate) fn reload(&mut self, now: SimTime) {
        let policy = self.scenario.policy_at(self.seconds(now));
        let Some(controller) = &mut self.controller.process else {
            return;
        };
        controller.brain.on_policy(std::sync::Arc::clone(policy));
        controller.save();
        self.notify(now, None);
    }

    pub(crate) fn zone_tick(&mut self, now: SimTime, zone: u32, life: u32) {
        let slot = &mut self.zones[zone as usize];
        let Some(aggregator) = slot.process.as_mut().filter(|_| slot.port.life == life) else {
            return;
        };
        let wait = aggregator.clock.wait(ZONE_TICK);
        if aggregator.zone.on_tick(aggregator.clock.read(now)) {
            self.notify(now, Some(zone));
        }
        self.queue
            .plan(now.plus(wait), Event::ZoneTick { zone, life });
    }

    /// Plans a connection attempt of a child whose parent holds no stream of it, at a random time within a
    /// span in seconds.
    fn reconnect(&mut self, now: SimTime, child: Child, (from, to): (f64, f64)) {
        let Port { life, uplink, .. } = *self.port(child);
        let connected = uplink.is_some_and(|stream| self.streams[stream].parent_open);
        if connected || self.child_end(child).is_none() {
            return;
        }
        let wait = micros(from) + span(&mut self.processes_rng, micros(to - from));
        self.queue
            .plan(now.plus(wait), Event::Connect { child, life });
    }

    fn reconnect_all(&mut self, now: SimTime, parent: Option<u32>, within_s: (f64, f64)) {
        for child in self.children(parent) {
            self.reconnect(now, child, within_s);
        }
    }

    /// Returns the children whose links to their parents a fault cuts.
    fn cut_by(&self, fault: Fault) -> Vec<Child> {
        match fault.kind {
            FaultKind::ControllerDown if fault.keep_state => self.children(None),
            FaultKind::ZonePartition => vec![Child::Zone(fault.target)],
            FaultKind::ClientPartition => vec![Child::Client(fault.target)],
            _ => Vec::new(),
        }
    }

    pub(crate) fn fault_begins(&mut self, now: SimTime, index: usize) {
        let fault = self.scenario.faults[index];
        // Messages are lost, and both ends close the stream after `KEEPALIVE_US`.
        for child in self.cut_by(fault) {
            self.port(child).cuts += 1;
            self.queue.plan(
                now.plus(KEEPALIVE_US),
                Event::Keepalive {
                    child,
                    fault: index,
                },
            );
        }
        match fault.kind {
            FaultKind::ClientPause => self.pauses(now, Some(Child::Client(fault.target)), fault),
            FaultKind::ZonePause => self.pauses(now, Some(Child::Zone(fault.target)), fault),
            FaultKind::ControllerPause => self.pauses(now, None, fault),
            FaultKind::ControllerDown if !fault.keep_state => {
                let Some(controller) = self.controller.process.take() else {
                    return;
                };
                self.durable = controller.brain.durable().clone();
                self.controller.port.life += 1;
                self.parent_dies(now, None);
            }
            FaultKind::ZoneCrash => self.zone_dies(now, fault.target),
            FaultKind::ZoneDead => {
                self.zone_dies(now, fault.target);
                self.zones[fault.target as usize].dead = true;
                for slot in self
                    .clients
                    .iter_mut()
                    .filter(|slot| slot.zone == fault.target)
                {
                    (slot.process, slot.port.uplink, slot.dead) = (None, None, true);
                }
            }
            FaultKind::ClientCrash => {
                let slot = &mut self.clients[fault.target as usize];
                slot.process = None;
                slot.port.life += 1;
                self.child_dies(now, Child::Client(fault.target));
            }
            // Their links are cut, or callers wait.
            FaultKind::ControllerDown
            | FaultKind::ZonePartition
            | FaultKind::ClientPartition
            | FaultKind::ClientStall => {}
        }
    }

    pub(crate) fn fault_ends(&mut self, now: SimTime, fault: usize) {
        let fault = self.scenario.faults[fault];
        for child in self.cut_by(fault) {
            self.port(child).cuts -= 1;
            self.reconnect(now, child, fault.reconnect_s);
        }
        match fault.kind {
            FaultKind::ControllerDown if !fault.keep_state => {
                self.start_controller(now, fault.reconnect_s);
            }
            FaultKind::ZoneCrash => self.start_zone(now, fault.target, fault.reconnect_s),
            FaultKind::ClientCrash => self.start_client(now, fault.target),
            _ => {}
        }
    }

    /// Ends the streams of a process that pauses for longer than its peers wait: they notice after
    /// that time, and the process at the end of its pause.
    fn pauses(&mut self, now: SimTime, process: Option<Child>, fault: Fault) {
        let noticed = now.plus(KEEPALIVE_US);
        let until = fault.until_s.map(|until| self.zero.plus(micros(until)));
        let Some(until) = until.filter(|until| noticed < *until) else {
            return;
        };
        if let Some(stream) = process.and_then(|process| self.port(process).uplink) {
            self.queue.plan(noticed, Event::ParentEnds(stream));
            self.queue.plan(
                until,
                Event::ChildEnds {
                    stream,
                    retries: true,
                },
            );
        }
        let below = match process {
            Some(Child::Client(_)) => Vec::new(),
            Some(Child::Zone(zone)) => self.below(Some(zone)).clone(),
            None => self.below(None).clone(),
        };
        for stream in below {
            self.queue.plan(
                noticed,
                Event::ChildEnds {
                    stream,
                    retries: true,
                },
            );
            self.queue.plan(until, Event::ParentEnds(stream));
        }
    }

    fn zone_dies(&mut self, now: SimTime, zone: u32) {
        let slot = &mut self.zones[zone as usize];
        slot.process = None;
        slot.port.life += 1;
        self.child_dies(now, Child::Zone(zone));
        self.parent_dies(now, Some(zone));
    }

    /// Closes both ends of the stream over a cut link, unless the fault has ended.
    pub(crate) fn keepalive(&mut self, now: SimTime, child: Child, fault: usize) {
        let until = self.scenario.faults[fault].until_s;
        if until.is_some_and(|until| self.zero.plus(micros(until)) <= now) {
            return;
        }
        if let Some(stream) = self.port(child).uplink {
            self.child_ends(now, stream, false);
            self.parent_ends(now, stream);
        }
    }

    /// Opens a stream if both processes run and the link between them is not cut.
    pub(crate) fn connect(&mut self, now: SimTime, child: Child, life: u32) {
        let port = *self.port(child);
        let both_live = self.child_end(child).is_some() && self.parent_end(now, child).is_some();
        if port.life != life || port.cuts > 0 || !both_live {
            return;
        }
        if let Some(stream) = port.uplink {
            if self.streams[stream].parent_open {
                return;
            }
            // The child has not noticed the end of its old stream; the new one replaces it.
            self.child_ends(now, stream, false);
        }
        let stream = self.open(child);
        self.port(child).uplink = Some(stream);
        if let Some((process, clock)) = self.child_end(child) {
            process.on_open(clock.read(now));
        }
        self.report(now, stream);
    }
}
