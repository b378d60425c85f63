//! The fleet in motion: who lives, who is connected to whom, and what happens next. It carries messages and lets
//! time pass; what is decided is decided by the tiers.

use plimsoll_controller::durable::Durable;
use plimsoll_core::directive::Directives;
use plimsoll_core::report::Report;
use rand::rngs::SmallRng;

use crate::clock::{SimTime, micros};
use crate::draws::{Purpose, generator, span};
use crate::engine::System;
use crate::fleet::{Aggregator, Client, Controller, Fleet};
use crate::link::{Link, Quality};
use crate::queue::Queue;
use crate::scenario::Scenario;
use crate::series::Answer;
use crate::trace::TraceHash;

/// A child of some parent: a client's is its zone's aggregator, an aggregator's is the controller, or an upper one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Child {
    Client(u32),
    Zone(u32),
}

/// What is going to happen. `life` tells the processes of one place apart: what was planned for one that has died
/// does not happen.
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
    Report(usize),
    Heartbeat(usize),
    Up(usize),
    Down(usize),
    ParentEnds(usize),
    /// The child may find its parent again by itself: nothing is broken.
    ChildEnds {
        stream: usize,
        retries: bool,
    },
    Keepalive {
        child: Child,
        fault: usize,
    },
    FaultBegins(usize),
    FaultEnds(usize),
}

/// A place where a process may run.
#[derive(Debug)]
pub(crate) struct Slot<P> {
    pub(crate) process: Option<P>,
    pub(crate) life: u32,
    /// It will not come back.
    pub(crate) dead: bool,
    /// How many faults cut the way to its parent.
    pub(crate) cuts: u32,
    /// Its stream to its parent, as long as its own end is open.
    pub(crate) uplink: Option<usize>,
    /// Streams of its children that have greeted, as long as its own end is open.
    pub(crate) below: Vec<usize>,
    /// The zone it belongs to.
    pub(crate) zone: u32,
}

/// One stream between a child and its parent. Either end may close before the other knows.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) child: Child,
    pub(crate) up: Link<Report>,
    pub(crate) down: Link<Directives>,
    pub(crate) child_open: bool,
    pub(crate) parent_open: bool,
    pub(crate) greeted: bool,
}

/// Everything there is.
#[derive(Debug)]
pub(crate) struct World<'a> {
    pub(crate) scenario: &'a Scenario,
    pub(crate) fleet: Fleet<'a>,
    pub(crate) queue: Queue<Event>,
    pub(crate) processes: SmallRng,
    pub(crate) network: SmallRng,
    /// When the scenario's own time begins.
    pub(crate) zero: SimTime,
    pub(crate) controller: Slot<Controller>,
    pub(crate) durable: Durable,
    pub(crate) zones: Vec<Slot<Aggregator>>,
    pub(crate) clients: Vec<Slot<Client>>,
    pub(crate) streams: Vec<Stream>,
    pub(crate) refusals: Vec<String>,
}

impl<P> Slot<P> {
    fn empty(zone: u32) -> Self {
        Self { process: None, life: 0, dead: false, cuts: 0, uplink: None, below: Vec::new(), zone }
    }
}

impl<'a> World<'a> {
    /// A fleet whose tiers start by the scenario, long before its time zero unless it says otherwise.
    pub(crate) fn new(scenario: &'a Scenario, seed: u64, zero: SimTime) -> Self {
        let mut world = Self {
            scenario,
            fleet: Fleet::new(scenario, seed),
            queue: Queue::default(),
            processes: generator(seed, Purpose::Processes),
            network: generator(seed, Purpose::Network),
            zero,
            controller: Slot::empty(0),
            durable: Durable::first_start(),
            zones: (0..scenario.aggregators()).map(Slot::empty).collect(),
            clients: scenario.members().into_iter().map(|(_, zone)| Slot::empty(zone)).collect(),
            streams: Vec::new(),
            refusals: Vec::new(),
        };
        world.plan_script();
        world
    }

    fn plan_script(&mut self) {
        let zero = self.zero;
        let at = |seconds: f64| zero.plus(micros(seconds));
        let start = self.scenario.start;
        let of = |seconds: Option<f64>| seconds.map_or(SimTime::default(), at);
        self.queue.plan(of(start.map(|start| start.controller_s)), Event::StartController);
        for zone in 0..self.scenario.aggregators() {
            self.queue.plan(of(start.map(|start| start.zones_s)), Event::StartZone(zone));
        }
        for client in 0..self.scenario.clients {
            self.queue.plan(of(start.map(|start| start.clients_s)), Event::StartClient(client));
        }
        let mut next = self.scenario.clients;
        for join in &self.scenario.joins {
            for client in next..next + join.clients {
                self.queue.plan(at(join.at_s), Event::StartClient(client));
            }
            next += join.clients;
        }
        for (index, fault) in self.scenario.faults.iter().enumerate() {
            self.queue.plan(at(fault.at_s), Event::FaultBegins(index));
            if let Some(until) = fault.until_s {
                self.queue.plan(at(until), Event::FaultEnds(index));
            }
        }
    }

    /// A random part of a span.
    pub(crate) fn phase(&mut self, span_of: std::time::Duration) -> u64 {
        span(&mut self.processes, u64::try_from(span_of.as_micros()).unwrap_or(u64::MAX))
    }

    pub(crate) fn quality(&self, child: Child) -> (Quality, Quality) {
        let network = &self.scenario.network;
        let delay = match child {
            Child::Client(_) => network.client_delay_s,
            Child::Zone(_) => network.uplink_delay_s,
        };
        let with = |loss| Quality { delay: micros(delay), jitter: micros(network.jitter_s), loss };
        (with(network.report_loss), with(network.directive_loss))
    }

    /// The aggregator above a child; `None` where that is the controller.
    pub(crate) fn above(&self, child: Child) -> Option<u32> {
        match child {
            Child::Client(client) => Some(self.clients[client as usize].zone),
            Child::Zone(zone) => self.scenario.above(zone),
        }
    }

    /// The places of both ends, as far as streams are concerned: the child's uplink, life and cuts.
    pub(crate) fn ends(&mut self, child: Child) -> Ends<'_> {
        match (child, self.above(child).map(|zone| zone as usize)) {
            (Child::Client(client), Some(above)) => {
                ends_of(&mut self.clients[client as usize], &mut self.zones[above])
            }
            (Child::Client(client), None) => {
                ends_of(&mut self.clients[client as usize], &mut self.controller)
            }
            (Child::Zone(zone), None) => ends_of(&mut self.zones[zone as usize], &mut self.controller),
            (Child::Zone(zone), Some(above)) => {
                // Upper ones come after all others.
                let (zones, upper) = self.zones.split_at_mut(above);
                ends_of(&mut zones[zone as usize], &mut upper[0])
            }
        }
    }

    fn handle(&mut self, now: SimTime, event: Event, trace: &mut TraceHash) {
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
        }
    }
}

/// What streams need to know of the places at their ends.
#[derive(Debug)]
pub(crate) struct Ends<'w> {
    pub(crate) lives: bool,
    pub(crate) life: u32,
    pub(crate) cut: bool,
    pub(crate) uplink: &'w mut Option<usize>,
    pub(crate) parent_lives: bool,
    pub(crate) below: &'w mut Vec<usize>,
}

fn ends_of<'w, C, P>(child: &'w mut Slot<C>, parent: &'w mut Slot<P>) -> Ends<'w> {
    Ends {
        lives: child.process.is_some(),
        life: child.life,
        cut: child.cuts > 0,
        uplink: &mut child.uplink,
        parent_lives: parent.process.is_some(),
        below: &mut parent.below,
    }
}

impl System for World<'_> {
    fn advance(&mut self, now: SimTime, trace: &mut TraceHash) {
        while let Some((at, event)) = self.queue.next(now) {
            self.handle(at, event, trace);
        }
        for client in self.clients.iter_mut().filter_map(|slot| slot.process.as_mut()) {
            client.tick(now);
        }
    }

    #[inline]
    fn decide(&mut self, client: u32, source: usize) -> Answer {
        let process = self.clients.get_mut(client as usize).and_then(|slot| slot.process.as_mut());
        process.map_or(Answer::Admitted, |process| process.decide(source))
    }

    fn refusals(self) -> Vec<String> {
        self.refusals
    }
}
