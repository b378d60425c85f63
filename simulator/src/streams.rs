//! How messages pass between the processes of the world: what the shells around the tiers do over sockets.

use std::time::Duration;

use plimsoll_core::directive::Directives;
use plimsoll_core::exchange::{Child as _, Parent as _, StreamId};
use plimsoll_core::report::Report;
use plimsoll_core::roster::HEARTBEAT;

use crate::clock::{SimTime, micros};
use crate::link::Link;
use crate::trace::TraceHash;
use crate::world::{Child, Event, Stream, World};

/// How long a child whose stream was refused waits before it tries again, in seconds.
const RETRY_S: (f64, f64) = (0.5, 1.0);
/// Refusals of streams that are kept word for word.
const REFUSALS_MAX: usize = 20;

impl World<'_> {
    pub(crate) fn open(&mut self, child: Child) -> usize {
        let (up, down) = self.quality(child);
        self.streams.push(Stream {
            child,
            up: Link::new(up),
            down: Link::new(down),
            child_open: true,
            parent_open: true,
            greeted: false,
        });
        self.streams.len() - 1
    }

    /// The child reports: a greeting at once, and then at its interval with a phase of its own.
    pub(crate) fn report(&mut self, now: SimTime, stream: usize) {
        let Stream { child, child_open: true, .. } = self.streams[stream] else { return };
        let made = match child {
            Child::Client(client) => self.clients[client as usize].process.as_mut().map(|process| {
                let report = process.subscription.report(process.clock.read(now));
                (report, process.subscription.report_interval())
            }),
            Child::Zone(zone) => self.zones[zone as usize].process.as_mut().map(|process| {
                let report = process.zone.report(process.clock.read(now));
                (report, process.zone.report_interval())
            }),
        };
        let Some((report, interval)) = made else { return };
        let is_greeting = report.identity.is_some();
        let cut = self.ends(child).cut;
        if let Some(arrival) = self.streams[stream].up.send(now, report, cut, &mut self.network) {
            self.queue.plan(arrival, Event::Up(stream));
        }
        let next = if is_greeting { self.first_report(now, child, interval) } else { micros_of(interval) };
        self.queue.plan(now.plus(next), Event::Report(stream));
    }

    /// How long after the greeting the first report comes.
    fn first_report(&mut self, now: SimTime, child: Child, interval: Duration) -> u64 {
        let micros = micros_of(interval);
        if self.scenario.align_rollups && matches!(child, Child::Zone(_)) {
            let wait = (self.zero.0 % micros + micros - now.0 % micros) % micros;
            return if wait == 0 { micros } else { wait };
        }
        self.phase(interval)
    }

    pub(crate) fn up(&mut self, now: SimTime, stream: usize, trace: &mut TraceHash) {
        let Some(report) = self.streams[stream].up.take() else { return };
        let Stream { child, parent_open: true, greeted, .. } = self.streams[stream] else { return };
        hash_report(trace, now, stream, &report);
        let id = StreamId(stream as u64 + 1);
        let came = match self.above(child) {
            Some(zone) => {
                let process = self.zones[zone as usize].process.as_mut();
                process.map(|process| process.zone.on_report(process.clock.read(now), id, report))
            }
            None => self.controller.process.as_mut().map(|process| {
                let came = process.brain.on_report(process.clock.read(now), id, report);
                process.saved();
                came
            }),
        };
        match came {
            None => {}
            Some(Err(refused)) => {
                if self.refusals.len() < REFUSALS_MAX {
                    self.refusals.push(format!("{child:?}: {refused}"));
                }
                self.refuse(now, stream);
            }
            Some(Ok(news)) => {
                if !greeted {
                    self.streams[stream].greeted = true;
                    self.ends(child).below.push(stream);
                    self.queue.plan(now.plus(micros_of(HEARTBEAT)), Event::Heartbeat(stream));
                    // The first state answers the greeting at once.
                    self.ask(now, stream);
                }
                if news {
                    self.ring_parent_of(now, child);
                }
            }
        }
    }

    pub(crate) fn down(&mut self, now: SimTime, stream: usize, trace: &mut TraceHash) {
        let Some(directives) = self.streams[stream].down.take() else { return };
        let Stream { child, child_open: true, .. } = self.streams[stream] else { return };
        hash_directives(trace, now, stream, &directives);
        match child {
            Child::Client(client) => {
                if let Some(process) = &mut self.clients[client as usize].process {
                    // What is refused is counted by the subscription; what was held stays.
                    let _ = process.subscription.on_directives(process.clock.read(now), directives);
                }
            }
            Child::Zone(zone) => {
                let process = self.zones[zone as usize].process.as_mut();
                let applied =
                    process.map(|process| process.zone.on_directives(process.clock.read(now), directives));
                if matches!(applied, Some(Ok(()))) {
                    self.ring_zone(now, zone);
                }
            }
        }
    }

    pub(crate) fn heartbeat(&mut self, now: SimTime, stream: usize) {
        if self.streams[stream].parent_open {
            self.ask(now, stream);
            self.queue.plan(now.plus(micros_of(HEARTBEAT)), Event::Heartbeat(stream));
        }
    }

    /// Sends the child what it has not been told yet.
    fn ask(&mut self, now: SimTime, stream: usize) {
        let Stream { child, parent_open: true, .. } = self.streams[stream] else { return };
        let id = StreamId(stream as u64 + 1);
        // A stream that was replaced is told apart from one with nothing to say.
        let said = match self.above(child) {
            Some(zone) => self.zones[zone as usize].process.as_mut().map(|process| {
                let superseded = process.zone.is_superseded(id);
                (superseded, (!superseded).then(|| process.zone.directives(process.clock.read(now), id)))
            }),
            None => self.controller.process.as_mut().map(|process| {
                let superseded = process.brain.is_superseded(id);
                (superseded, (!superseded).then(|| process.brain.directives(process.clock.read(now), id)))
            }),
        };
        match said {
            Some((true, _)) => self.refuse(now, stream),
            Some((false, Some(Some(directives)))) => {
                let cut = self.ends(child).cut;
                let link = &mut self.streams[stream].down;
                if let Some(arrival) = link.send(now, directives, cut, &mut self.network) {
                    self.queue.plan(arrival, Event::Down(stream));
                }
            }
            _ => {}
        }
    }

    pub(crate) fn ring_zone(&mut self, now: SimTime, zone: u32) {
        self.ring(now, |world| &world.zones[zone as usize].below);
    }

    pub(crate) fn ring_controller(&mut self, now: SimTime) {
        self.ring(now, |world| &world.controller.below);
    }

    /// Every child that hears this bell is sent what it has not been told yet.
    fn ring(&mut self, now: SimTime, below: impl Fn(&Self) -> &[usize]) {
        let mut at = 0;
        while let Some(stream) = below(self).get(at).copied() {
            self.ask(now, stream);
            // A stream that ended meanwhile has left the list, and the next one taken its place.
            at += usize::from(below(self).get(at) == Some(&stream));
        }
    }

    fn ring_parent_of(&mut self, now: SimTime, child: Child) {
        match self.above(child) {
            Some(zone) => self.ring_zone(now, zone),
            None => self.ring_controller(now),
        }
    }

    /// The parent ends a stream, and the child finds out.
    fn refuse(&mut self, now: SimTime, stream: usize) {
        let noticed = self.streams[stream].down.ends(now);
        self.parent_ends(now, stream);
        self.queue.plan(noticed, Event::ChildEnds { stream, retries: true });
    }

    /// The parent's end of a stream closes while the parent lives.
    pub(crate) fn parent_ends(&mut self, now: SimTime, stream: usize) {
        let Stream { child, parent_open: true, .. } = self.streams[stream] else { return };
        self.streams[stream].parent_open = false;
        self.ends(child).below.retain(|other| *other != stream);
        let id = StreamId(stream as u64 + 1);
        match self.above(child) {
            Some(zone) => {
                if let Some(process) = &mut self.zones[zone as usize].process {
                    process.zone.on_close(process.clock.read(now), id);
                }
            }
            None => {
                if let Some(process) = &mut self.controller.process {
                    process.brain.on_close(process.clock.read(now), id);
                }
            }
        }
        self.ring_parent_of(now, child);
    }

    /// The child's end of a stream closes.
    pub(crate) fn child_ends(&mut self, now: SimTime, stream: usize, retries: bool) {
        let Stream { child, child_open: true, .. } = self.streams[stream] else { return };
        self.streams[stream].child_open = false;
        let ends = self.ends(child);
        if *ends.uplink == Some(stream) {
            *ends.uplink = None;
        }
        let life = ends.life;
        if retries {
            let wait = micros(RETRY_S.0) + self.phase(Duration::from_secs_f64(RETRY_S.1 - RETRY_S.0));
            self.queue.plan(now.plus(wait), Event::Connect { child, life });
        }
    }

    /// The child's process is gone: its parent finds out.
    pub(crate) fn child_dies(&mut self, now: SimTime, child: Child) {
        if let Some(stream) = self.ends(child).uplink.take() {
            self.streams[stream].child_open = false;
            let noticed = self.streams[stream].up.ends(now);
            self.queue.plan(noticed, Event::ParentEnds(stream));
        }
    }

    /// The parent's process is gone: its child finds out.
    pub(crate) fn parent_dies(&mut self, now: SimTime, child: Child) {
        if let Some(stream) = *self.ends(child).uplink {
            self.streams[stream].parent_open = false;
            let noticed = self.streams[stream].down.ends(now);
            self.queue.plan(noticed, Event::ChildEnds { stream, retries: false });
        }
    }
}

fn micros_of(span: Duration) -> u64 {
    // No interval of zero: time must pass between two events that beget each other.
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX).max(1)
}

fn hash_report(trace: &mut TraceHash, now: SimTime, stream: usize, report: &Report) {
    for word in [now.0, stream as u64, report.seq] {
        trace.write(word);
    }
    for (id, tally) in report.tallies.iter() {
        trace.write(u64::from(id.0));
        trace.write(tally.counts.offered);
        trace.write(tally.counts.dropped);
        trace.write(tally.counts.would_dropped);
    }
}

fn hash_directives(trace: &mut TraceHash, now: SimTime, stream: usize, directives: &Directives) {
    for word in [now.0, stream as u64, directives.seq, directives.echo.confirmed] {
        trace.write(word);
    }
    for key in directives.buckets.iter().flat_map(|bucket| &bucket.keys) {
        trace.write(key.values.ratio.map_or(u64::MAX, |ratio| u64::from(ratio.units())));
    }
}
