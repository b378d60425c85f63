//! The exchange of reports and directives between processes: the simulated counterpart of the gRPC drivers.

use std::time::Duration;

use plimsoll_core::directive::Directives;
use plimsoll_core::exchange::sessions::HEARTBEAT;
use plimsoll_core::exchange::{Child as _, Parent as _, StreamId};
use plimsoll_core::report::Report;

use super::clock::{SimTime, micros};
use super::link::Link;
use super::world::{Child, Event, Stream, World};
use crate::results::TraceHash;

/// The wait of a child before it reconnects after its stream was rejected, least and most, in seconds.
const RETRY_S: (f64, f64) = (0.5, 1.0);
/// The rejections of streams that a run keeps.
const REJECTIONS_MAX: usize = 20;

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

    /// Sends a child's report: the greeting at once, further reports at the child's interval with a random
    /// phase.
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
        if let Some(arrival) = self.streams[stream].up.send(now, report, cut, &mut self.network_rng) {
            self.queue.plan(arrival, Event::Up(stream));
        }
        let next = if is_greeting { self.first_report(now, child, interval) } else { micros_of(interval) };
        self.queue.plan(now.plus(next), Event::Report(stream));
    }

    /// Returns the time from the greeting to the first report, in microseconds.
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
        let entered = match self.above(child) {
            Some(zone) => {
                let process = self.zones[zone as usize].process.as_mut();
                process.map(|process| process.zone.on_report(process.clock.read(now), id, report))
            }
            None => self.controller.process.as_mut().map(|process| {
                let entered = process.brain.on_report(process.clock.read(now), id, report);
                process.save();
                entered
            }),
        };
        match entered {
            None => {}
            Some(Err(rejected)) => {
                if self.rejections.len() < REJECTIONS_MAX {
                    self.rejections.push(format!("{child:?}: {rejected}"));
                }
                self.reject(now, stream);
            }
            Some(Ok(news)) => {
                if !greeted {
                    self.streams[stream].greeted = true;
                    self.ends(child).below.push(stream);
                    self.queue.plan(now.plus(micros_of(HEARTBEAT)), Event::Heartbeat(stream));
                    // The parent answers a greeting at once.
                    self.send_directives(now, stream);
                }
                if news {
                    self.notify_siblings(now, child);
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
                    // The subscription counts messages that it rejects, and keeps its state.
                    let _ = process.subscription.on_directives(process.clock.read(now), directives);
                }
            }
            Child::Zone(zone) => {
                let process = self.zones[zone as usize].process.as_mut();
                let applied =
                    process.map(|process| process.zone.on_directives(process.clock.read(now), directives));
                if matches!(applied, Some(Ok(()))) {
                    self.notify_below_zone(now, zone);
                }
            }
        }
    }

    pub(crate) fn heartbeat(&mut self, now: SimTime, stream: usize) {
        if self.streams[stream].parent_open {
            self.send_directives(now, stream);
            self.queue.plan(now.plus(micros_of(HEARTBEAT)), Event::Heartbeat(stream));
        }
    }

    /// Sends the child the directives it has not been sent yet.
    fn send_directives(&mut self, now: SimTime, stream: usize) {
        let Stream { child, parent_open: true, .. } = self.streams[stream] else { return };
        let id = StreamId(stream as u64 + 1);
        // A superseded stream must end; a stream without news must not.
        let answer = match self.above(child) {
            Some(zone) => self.zones[zone as usize].process.as_mut().map(|process| {
                let superseded = process.zone.is_superseded(id);
                (superseded, (!superseded).then(|| process.zone.directives(process.clock.read(now), id)))
            }),
            None => self.controller.process.as_mut().map(|process| {
                let superseded = process.brain.is_superseded(id);
                (superseded, (!superseded).then(|| process.brain.directives(process.clock.read(now), id)))
            }),
        };
        match answer {
            Some((true, _)) => self.reject(now, stream),
            Some((false, Some(Some(directives)))) => {
                let cut = self.ends(child).cut;
                let link = &mut self.streams[stream].down;
                if let Some(arrival) = link.send(now, directives, cut, &mut self.network_rng) {
                    self.queue.plan(arrival, Event::Down(stream));
                }
            }
            _ => {}
        }
    }

    pub(crate) fn notify_below_zone(&mut self, now: SimTime, zone: u32) {
        self.notify(now, |world| &world.zones[zone as usize].below);
    }

    pub(crate) fn notify_below_controller(&mut self, now: SimTime) {
        self.notify(now, |world| &world.controller.below);
    }

    /// Sends the new directives to every child of one parent.
    fn notify(&mut self, now: SimTime, below: impl Fn(&Self) -> &[usize]) {
        let mut at = 0;
        while let Some(stream) = below(self).get(at).copied() {
            self.send_directives(now, stream);
            // A stream that ended meanwhile has left the list, and the next stream has moved to its index.
            at += usize::from(below(self).get(at) == Some(&stream));
        }
    }

    /// Sends the new directives to every child of the parent of `child`.
    fn notify_siblings(&mut self, now: SimTime, child: Child) {
        match self.above(child) {
            Some(zone) => self.notify_below_zone(now, zone),
            None => self.notify_below_controller(now),
        }
    }

    /// Ends a stream at the parent, and plans its end at the child.
    fn reject(&mut self, now: SimTime, stream: usize) {
        let noticed = self.streams[stream].down.ends(now);
        self.parent_ends(now, stream);
        self.queue.plan(noticed, Event::ChildEnds { stream, retries: true });
    }

    /// Closes the parent's end of a stream while the parent runs.
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
        self.notify_siblings(now, child);
    }

    /// Closes the child's end of a stream. With `retries` the child reconnects.
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

    /// Closes the end of a child whose process died, and plans when its parent notices.
    pub(crate) fn child_dies(&mut self, now: SimTime, child: Child) {
        if let Some(stream) = self.ends(child).uplink.take() {
            self.streams[stream].child_open = false;
            let noticed = self.streams[stream].up.ends(now);
            self.queue.plan(noticed, Event::ParentEnds(stream));
        }
    }

    /// Closes the end of a parent whose process died, and plans when its child notices.
    pub(crate) fn parent_dies(&mut self, now: SimTime, child: Child) {
        if let Some(stream) = *self.ends(child).uplink {
            self.streams[stream].parent_open = false;
            let noticed = self.streams[stream].down.ends(now);
            self.queue.plan(noticed, Event::ChildEnds { stream, retries: false });
        }
    }
}

fn micros_of(span: Duration) -> u64 {
    // At least 1 us, since an event that plans its own successor must advance time.
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
