//! The simulated world: the running processes, the streams between them and the queue of future events. It
//! carries messages and advances time; the tiers' own code makes every decision.

use std::time::Duration;

use plimsoll_controller::state::DurableState;
use plimsoll_core::directive::Directives;
use plimsoll_core::exchange::{self, liveness::CATCH_UP};
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::report::Report;
use plimsoll_core::stats::AdmissionFigures;
use plimsoll_policy::Number;
use rand::rngs::SmallRng;

use super::Request;
use super::clock::{ProcessClock, SimTime, micros, micros_of};
use super::event_queue::EventQueue;
use super::fleet::{Aggregator, Client, Controller, Fleet};
use super::link::{Link, Quality};
use crate::results::{Answer, TraceHash};
use crate::rng::{Purpose, generator, span};
use crate::scenario::{Fault, FaultKind, Scenario};

/// A process with a parent: a client, or an aggregator by its index, the zones' first and then the upper
/// ones. The parent of a client is its zone's aggregator, the parent of an aggregator is the controller or
/// an upper aggregator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Child {
    Client(u32),
    Zone(u32),
}

/// A future event. `life` numbers the processes in one slot: an event for a process that has died
/// is dropped. A `usize` is the index of a stream, or of a fault.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    StartController,
    StartZone(u32),
    StartClient(u32),
    BrainTick {
        life: u32,
    },
    ZoneTick {
        zone: u32,
        life: u32,
    },
    Connect {
        child: Child,
        life: u32,
    },
    /// The child sends a report.
    Report(usize),
    Heartbeat(usize),
    /// A report arrives at the parent.
    Up(usize),
    /// Directives arrive at the child.
    Down(usize),
    /// The parent's end closes.
    ParentEnds(usize),
    /// The child's end closes. With `retries` the child reconnects by itself, since no fault
    /// prevents it.
    ChildEnds {
        stream: usize,
        retries: bool,
    },
    /// Both ends of a cut link have been silent for too long.
    Keepalive {
        child: Child,
        fault: usize,
    },
    FaultBegins(usize),
    FaultEnds(usize),
    Reload,
}

/// A place for one process at a time.
#[derive(Debug)]
pub(crate) struct Slot<P> {
    pub(crate) process: Option<P>,
    pub(crate) port: Port,
    /// No process starts here again.
    pub(crate) dead: bool,
    /// Streams of children that have greeted, as long as the process's own end is open.
    pub(crate) below: Vec<usize>,
    /// Zone of a client.
    pub(crate) zone: u32,
}

/// A slot as seen by the stream to its parent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Port {
    pub(crate) life: u32,
    /// Number of faults that cut the link to the parent.
    pub(crate) cuts: u32,
    /// Stream to the parent, as long as the process's own end is open.
    pub(crate) uplink: Option<usize>,
}

#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) child: Child,
    pub(crate) up: Link<Report>,
    pub(crate) down: Link<Directives>,
    pub(crate) child_open: bool,
    pub(crate) parent_open: bool,
    pub(crate) greeted: bool,
}

#[derive(Debug)]
pub(crate) struct World<'a> {
    pub(crate) scenario: &'a Scenario,
    pub(crate) fleet: Fleet<'a>,
    pub(crate) queue: EventQueue<Event>,
    pub(crate) processes_rng: SmallRng,
    pub(crate) network_rng: SmallRng,
    pub(crate) zero: SimTime,
    pub(crate) controller: Slot<Controller>,
    /// Controller's state as saved when its last process died.
    pub(crate) durable: DurableState,
    /// Aggregators by index, the upper ones last.
    pub(crate) zones: Vec<Slot<Aggregator>>,
    pub(crate) clients: Vec<Slot<Client>>,
    pub(crate) streams: Vec<Stream>,
    /// Streams that a parent rejected, and processes that could not start.
    pub(crate) rejections: Vec<String>,
}

impl<P> Slot<P> {
    fn empty(zone: u32) -> Self {
        Self {
            process: None,
            port: Port::default(),
            dead: false,
            below: Vec::new(),
            zone,
        }
    }
}

impl<'a> World<'a> {
    /// Creates a world without processes, and plans the scenario's starts, joins and faults. Tiers
    /// start at the beginning of the settling phase unless the scenario sets their start.
    pub(crate) fn new(scenario: &'a Scenario, seed: u64, zero: SimTime) -> Self {
        let mut world = Self {
            scenario,
            fleet: Fleet::new(scenario, seed),
            queue: EventQueue::default(),
            processes_rng: generator(seed, Purpose::Processes),
            network_rng: generator(seed, Purpose::Network),
            zero,
            controller: Slot::empty(0),
            durable: DurableState::first_start(),
            zones: (0..scenario.aggregators()).map(Slot::empty).collect(),
            clients: scenario
                .members()
                .into_iter()
                .map(|(_, zone)| Slot::empty(zone))
                .collect(),
            streams: Vec::new(),
            rejections: Vec::new(),
        };
        world.plan_script();
        world
    }

    fn plan_script(&mut self) {
        let zero = self.zero;
        let at = |seconds: f64| zero.plus(micros(seconds));
        let start = self.scenario.start;
        let of =
            |seconds: Option<Number>| seconds.map_or(SimTime::default(), |seconds| at(seconds.0));
        self.queue.plan(
            of(start.map(|start| start.controller_s)),
            Event::StartController,
        );
        for zone in 0..self.scenario.aggregators() {
            self.queue
                .plan(of(start.map(|start| start.zones_s)), Event::StartZone(zone));
        }
        for client in 0..self.scenario.clients {
            self.queue.plan(
                of(start.map(|start| start.clients_s)),
                Event::StartClient(client),
            );
        }
        let mut next = self.scenario.clients;
        for join in &self.scenario.joins {
            for client in next..next + join.clients {
                self.queue.plan(at(join.at_s.0), Event::StartClient(client));
            }
            next += join.clients;
        }
        for (index, fault) in self.scenario.faults.iter().enumerate() {
            self.queue.plan(at(fault.at_s), Event::FaultBegins(index));
            if let Some(until) = fault.until_s {
                self.queue.plan(at(until), Event::FaultEnds(index));
            }
        }
        for change in &self.scenario.changes {
            self.queue.plan(at(change.at_s), Event::Reload);
        }
    }

    /// Converts a point of the run to seconds since the scenario's time zero.
    pub(crate) fn seconds(&self, now: SimTime) -> f64 {
        (now.0 as f64 - self.zero.0 as f64) / 1e6
    }

    /// Draws a random part of an interval, in microseconds.
    pub(crate) fn phase(&mut self, interval: Duration) -> u64 {
        span(
            &mut self.processes_rng,
            u64::try_from(interval.as_micros()).unwrap_or(u64::MAX),
        )
    }

    /// Returns the quality of a child's link to its parent, and of the reverse direction.
    pub(crate) fn quality(&self, child: Child) -> (Quality, Quality) {
        let network = &self.scenario.network;
        let delay = match child {
            Child::Client(_) => network.client_delay_ms,
            Child::Zone(_) => network.uplink_delay_ms,
        };
        let (delay, jitter) = (micros(delay.0 / 1e3), micros(network.jitter_ms.0 / 1e3));
        let with = |loss: Number| Quality {
            delay,
            jitter,
            loss: loss.0,
        };
        (with(network.report_loss), with(network.directive_loss))
    }

    /// Returns the aggregator above a child, or `None` if its parent is the controller.
    pub(crate) fn above(&self, child: Child) -> Option<u32> {
        match child {
            Child::Client(client) => Some(self.clients[client as usize].zone),
            Child::Zone(zone) => self.scenario.above(zone),
        }
    }

    pub(crate) fn children(&self, parent: Option<u32>) -> Vec<Child> {
        let zones = (0..self.scenario.aggregators()).map(Child::Zone);
        let clients = (0..self.clients.len() as u32).map(Child::Client);
        zones
            .chain(clients)
            .filter(|child| self.above(*child) == parent)
            .collect()
    }

    /// Returns the streams of an aggregator's greeted children, or of the controller's.
    pub(crate) fn below(&mut self, parent: Option<u32>) -> &mut Vec<usize> {
        match parent {
            Some(zone) => &mut self.zones[zone as usize].below,
            None => &mut self.controller.below,
        }
    }

    pub(crate) fn port(&mut self, child: Child) -> &mut Port {
        match child {
            Child::Client(client) => &mut self.clients[client as usize].port,
            Child::Zone(zone) => &mut self.zones[zone as usize].port,
        }
    }

    /// Returns a running child and its clock.
    pub(crate) fn child_end(
        &mut self,
        child: Child,
    ) -> Option<(&mut dyn exchange::Child, ProcessClock)> {
        Some(match child {
            Child::Client(client) => {
                let process = self.clients[client as usize].process.as_mut()?;
                (&mut process.subscription, process.clock)
            }
            Child::Zone(zone) => {
                let process = self.zones[zone as usize].process.as_mut()?;
                (&mut process.zone, process.clock)
            }
        })
    }

    /// Returns the running parent of a child and the time of the parent's clock.
    pub(crate) fn parent_end(
        &mut self,
        now: SimTime,
        child: Child,
    ) -> Option<(&mut dyn exchange::Parent, MonoTime)> {
        Some(match self.above(child) {
            Some(zone) => {
                let process = self.zones[zone as usize].process.as_mut()?;
                (&mut process.zone, process.clock.read(now))
            }
            None => {
                let process = self.controller.process.as_mut()?;
                (&mut process.brain, process.clock.read(now))
            }
        })
    }

    /// Returns the end of the current pause of a process, if it pauses. A `process` of `None` is the controller.
    fn paused_until(&self, process: Option<Child>, now: SimTime) -> Option<SimTime> {
        let is_paused = |fault: &&Fault| match (fault.kind, process) {
            (FaultKind::ControllerPause, None) => true,
            (FaultKind::ZonePause, Some(Child::Zone(at)))
            | (FaultKind::ClientPause, Some(Child::Client(at))) => fault.target == at,
            _ => false,
        };
        let pauses = self.scenario.faults.iter().filter(is_paused);
        let mut spans = pauses.filter_map(|fault| Some([fault.at_s, fault.until_s?]));
        spans.find_map(|span| {
            let [from, until] = span.map(|at| self.zero.plus(micros(at)));
            (from <= now && now < until).then_some(until)
        })
    }

    /// Returns the end of the pauses of the processes that have to run for an event.
    fn held_until(&self, event: Event, now: SimTime) -> Option<SimTime> {
        let parent = |child| self.above(child).map(Child::Zone);
        let child_of = |stream: usize| self.streams[stream].child;
        let processes = match event {
            Event::BrainTick { .. } | Event::Reload => [None; 2],
            Event::ZoneTick { zone, .. } => [Some(Child::Zone(zone)); 2],
            Event::Report(stream) | Event::Down(stream) | Event::ChildEnds { stream, .. } => {
                [Some(child_of(stream)); 2]
            }
            Event::Heartbeat(stream) | Event::Up(stream) | Event::ParentEnds(stream) => {
                [parent(child_of(stream)); 2]
            }
            Event::Connect { child, .. } => [Some(child), parent(child)],
            _ => return None,
        };
        processes
            .into_iter()
            .filter_map(|process| self.paused_until(process, now))
            .max()
    }

    fn dispatch(&mut self, now: SimTime, event: Event, trace: &mut TraceHash) {
        // A paused process sends nothing, and reads its messages later. It then waits for `CATCH_UP` before
        // it reports, as the driver does.
        if let Some(until) = self.held_until(event, now) {
            let catch_up = if matches!(event, Event::Report(_)) {
                CATCH_UP
            } else {
                Duration::ZERO
            };
            return self.queue.plan(until.plus(micros_of(catch_up)), event);
        }
        match event {
            Event::StartController => self.start_controller(now, (0.0, 0.0)),
            Event::StartZone(zone) => self.start_zone(now, zone, (0.0, 0.0)),
            Event::StartClient(client) => self.start_client(now, client),
            Event::BrainTick { life } => self.brain_tick(now, life),
            Event::ZoneTick { zone, life } => self.zone_tick(now, zone, life),
            Event::Connect { child, life } => self.connect(now, child, life),
            Event::Report(stream) => self.report(now, stream),
            Event::Heartbeat(stream) => self.heartbeat(now, stream),
            Event::Up(stream) => self.up(now, stream, trace),
            Event::Down(stream) => self.down(now, stream, trace),
            Event::ParentEnds(stream) => self.parent_ends(now, stream),
            Event::ChildEnds { stream, retries } => self.child_ends(now, stream, retries),
            Event::Keepalive { child, fault } => self.keepalive(now, child, fault),
            Event::FaultBegins(fault) => self.fault_begins(now, fault),
            Event::FaultEnds(fault) => self.fault_ends(now, fault),
            Event::Reload => self.reload(now),
        }
    }

    /// Handles all events up to `now`, then ticks the clients.
    pub(super) fn advance(&mut self, now: SimTime, trace: &mut TraceHash) {
        while let Some((at, event)) = self.queue.next(now) {
            self.dispatch(at, event, trace);
        }
        for index in 0..self.clients.len() {
            if self
                .paused_until(Some(Child::Client(index as u32)), now)
                .is_some()
            {
                continue;
            }
            let Some(client) = self.clients[index].process.as_mut() else {
                continue;
            };
            client.subscription.on_tick(client.clock.read(now));
        }
    }

    /// Returns the answer of a client; a client that does not run admits everything.
    #[inline]
    pub(super) fn decide(&mut self, client: u32, request: Request) -> Answer {
        let process = self
            .clients
            .get_mut(client as usize)
            .and_then(|slot| slot.process.as_mut());
        process.map_or(Answer::Admitted, |process| process.decide(request))
    }

    /// Returns the tiers that report underadmission of a bucket.
    pub(super) fn underadmitting(&self) -> Vec<&'static str> {
        let is_short = |figures: AdmissionFigures| figures.underadmitting == Some(true);
        let buckets = &self.scenario.buckets;
        let mut brains = self.controller.process.iter();
        let mut zones = self.zones.iter().filter_map(|slot| slot.process.as_ref());
        let mut clients = self.clients.iter().filter_map(|slot| slot.process.as_ref());
        let of_zone = |it: &Aggregator| {
            buckets
                .iter()
                .any(|of| is_short(it.zone.admission_figures(&of.name)))
        };
        let tiers = [
            (
                "controller",
                brains.any(|it| {
                    it.brain
                        .admission_figures()
                        .any(|(_, figures)| is_short(figures))
                }),
            ),
            ("aggregator", zones.any(of_zone)),
            (
                "client",
                clients.any(|it| {
                    it.subscription
                        .admission_figures()
                        .any(|(_, figures)| is_short(figures))
                }),
            ),
        ];
        tiers
            .into_iter()
            .filter(|(_, says)| *says)
            .map(|(tier, _)| tier)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use plimsoll_policy::Source;

    use super::*;

    #[test]
    fn paused_controller_reloads_after_its_pause() {
        let text = "{ name: x, duration_s: 9, zones: 1, clients: 1, policy: { buckets: { a: { limit: 9 } } }, \
                    traffic: [ { bucket: a, load: { constant: 9 } } ], \
                    faults: [ { kind: controller_pause, at_s: 3, until_s: 7 } ] }";
        let source = Source { name: "x", text };
        let scenario = Scenario::parse(source, Path::new("")).unwrap().remove(0);
        let world = World::new(&scenario, 1, SimTime(0));
        let held = |at: u64| world.held_until(Event::Reload, SimTime(at * 1_000_000));
        assert_eq!(held(5), Some(SimTime(7_000_000)));
        assert_eq!(held(8), None);
    }
}
