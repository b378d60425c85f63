//! A tree of aggregators with clients at the bottom and a scripted controller at the top, advanced in tenths
//! of seconds.

use super::*;
use plimsoll_core::directive::Values;

const STEP: u64 = 100;

pub(super) struct Lower {
    pub(super) zone: Zone,
    pub(super) stream: StreamId,
    pub(super) clients: Vec<Client>,
    pub(super) cut: bool,
    next_report: u64,
}

/// One aggregator with child aggregators, its own clients, and a controller while there is one.
pub(super) struct Tree {
    pub(super) upper: Zone,
    pub(super) lowers: Vec<Lower>,
    pub(super) clients: Vec<Client>,
    pub(super) controller: Option<Script>,
    pub(super) now: u64,
    streams: u64,
    seq: u64,
}

impl Tree {
    pub(super) fn new(script: Script, below: Vec<Client>, clients: Vec<Client>) -> Self {
        let mut tree = Self {
            upper: zone(),
            lowers: Vec::new(),
            clients,
            controller: Some(script),
            now: 0,
            streams: 10_000,
            seq: 0,
        };
        for (at, client) in below.into_iter().enumerate() {
            let instance = 1_001 + at as u128;
            let clients = vec![client.of(InstanceId(instance))];
            let (zone, stream) = (aggregator(instance), StreamId(0));
            tree.lowers.push(Lower {
                zone,
                stream,
                clients,
                cut: true,
                next_report: 0,
            });
            tree.connect(at);
        }
        tree
    }

    pub(super) fn now(&self) -> MonoTime {
        at(self.now)
    }

    fn next_stream(&mut self) -> StreamId {
        self.streams += 1;
        StreamId(self.streams)
    }

    pub(super) fn connect(&mut self, lower: usize) {
        let (stream, now) = (self.next_stream(), self.now());
        let lower = &mut self.lowers[lower];
        (lower.stream, lower.cut, lower.next_report) = (stream, false, self.now);
        lower.zone.on_open(now);
    }

    pub(super) fn disconnect(&mut self, lower: usize) {
        let now = self.now();
        self.upper.on_close(now, self.lowers[lower].stream);
        self.lowers[lower].cut = true;
    }

    pub(super) fn run(&mut self, seconds: f64) {
        for _ in 0..(seconds * 10.0).round() as u64 {
            self.step();
        }
    }

    fn step(&mut self) {
        self.now += STEP;
        let now = self.now();
        for lower in &mut self.lowers {
            for client in &mut lower.clients {
                client.offer(STEP);
                client.send_report(&mut lower.zone, now);
            }
            lower.zone.on_tick(now);
            if !lower.cut && self.now >= lower.next_report {
                lower.next_report = self.now + lower.zone.report_interval().as_millis() as u64;
                let report = lower.zone.report(now);
                self.upper.on_report(now, lower.stream, report).unwrap();
            }
        }
        for client in &mut self.clients {
            client.offer(STEP);
            client.send_report(&mut self.upper, now);
        }
        self.upper.on_tick(now);
        if self.now.is_multiple_of(500) {
            self.roll_up();
        }
        for lower in &mut self.lowers {
            if !lower.cut
                && let Some(message) = self.upper.directives(now, lower.stream)
            {
                lower.zone.on_directives(now, message).unwrap();
            }
            for client in &mut lower.clients {
                client.receive(&mut lower.zone, now);
            }
        }
        for client in &mut self.clients {
            client.receive(&mut self.upper, now);
        }
    }

    fn roll_up(&mut self) {
        let now = self.now();
        let report = self.upper.report(now);
        let Some(script) = &self.controller else {
            return;
        };
        self.seq += 1;
        let message = Directives {
            catalogue: script.answer(&report.names.asked),
            ..script.message(self.seq, report.seq)
        };
        self.upper.on_directives(now, message).unwrap();
    }

    pub(super) fn values(&self, lower: usize, name: &str) -> Values {
        self.lowers[lower]
            .zone
            .board
            .get(&bucket())
            .unwrap()
            .own(name)
            .unwrap()
    }

    pub(super) fn hold(&self, lower: usize) -> Option<f64> {
        self.lowers[lower]
            .zone
            .board
            .get(&bucket())?
            .terms()
            .hold
            .map(Rate::per_second)
    }
}
