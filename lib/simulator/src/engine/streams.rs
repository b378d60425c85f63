//! The exchange of reports and directives between processes: the simulated counterpart of the gRPC drivers.

use std::time::Duration;

use plimsoll_core::directive::Directives;
use plimsoll_core::exchange::StreamId;
use plimsoll_core::exchange::sessions::HEARTBEAT;
use plimsoll_core::report::Report;

use super::clock::{SimTime, micros, micros_of};
use super::link::Link;
use super::world::{Child, Event, Stream, World};
use crate::results::TraceHash;

/// Minimum and maximum wait of a child before it reconnects after its stream ended, in seconds.
const RETRY_S: (f64, f64) = (0.5, 1.0);
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

    /// Sends a child's report and plans the next one. Reports after the greeting follow the child's interval,
    /// from a random phase on.
    pub(crate) fn report(&mut self, now: SimTime, stream: usize) {
        let Stream {
            child,
            child_open: true,
            ..
        } = self.streams[stream]
        else {
            return;
        };
        let Some((process, clock)) = self.child_end(child) else {
            return;
        };
        let report = process.report(clock.read(now));
        let interval = process.report_interval();
        let is_greeting = report.greeting.identity.is_some();
        let cut = self.port(child).cuts > 0;
        for arrival in self.streams[stream]
            .up
            .send(now, report, cut, &mut self.network_rng)
        {
            self.queue.plan(arrival, Event::Up(stream));
        }
        let next = match is_greeting {
            true => self.first_report(now, child, interval),
            false => clock.wait(interval),
        };
        self.queue.plan(now.plus(next), Event::Report(stream));
    }

    /// Returns the time from the greeting to the report after it, in microseconds.
    fn first_report(&mut self, now: SimTime, child: Child, interval: Duration) -> u64 {
        let micros = micros_of(interval);
        if self.scenario.align_rollups && matches!(child, Child::Zone(_)) {
            let wait = (self.zero.0 % micros + micros - now.0 % micros) % micros;
            return if wait == 0 { micros } else { wait };
        }
        self.phase(interval)
    }

    /// Delivers a report to the parent.
    pub(crate) fn up(&mut self, now: SimTime, stream: usize, trace: &mut TraceHash) {
        let Some(report) = self.streams[stream].up.take() else {
            return;
        };
        let Stream {
            child,
            parent_open: true,
            greeted,
            ..
        } = self.streams[stream]
        else {
            return;
        };
        hash_report(trace, now, stream, &report);
        let id = StreamId(stream as u64 + 1);
        let Some((process, time)) = self.parent_end(now, child) else {
            return;
        };
        let entered = process.on_report(time, id, report);
        if let (None, Some(controller)) = (self.above(child), &mut self.controller.process) {
            controller.save();
        }
        match entered {
            Err(rejected) => {
                if self.rejections.len() < REJECTIONS_MAX {
                    self.rejections.push(format!("{child:?}: {rejected}"));
                }
                self.reject(now, stream);
            }
            Ok(news) => {
                if !greeted {
                    self.streams[stream].greeted = true;
                    self.below(self.above(child)).push(stream);
                    self.queue
                        .plan(now.plus(micros_of(HEARTBEAT)), Event::Heartbeat(stream));
                    // The parent answers a greeting immediately.
                    self.send_directives(now, stream);
                }
                if news {
                    self.notify(now, self.above(child));
                }
            }
        }
    }

    /// Delivers directives to the child.
    pub(crate) fn down(&mut self, now: SimTime, stream: usize, trace: &mut TraceHash) {
        let Some(directives) = self.streams[stream].down.take() else {
            return;
        };
        let Stream {
            child,
            child_open: true,
            ..
        } = self.streams[stream]
        else {
            return;
        };
        hash_directives(trace, now, stream, &directives);
        let Some((process, clock)) = self.child_end(child) else {
            return;
        };
        // A child counts messages that it rejects, and applies only their kills and acknowledgements.
        let applied = process.on_directives(clock.read(now), directives);
        if let (Child::Zone(zone), Ok(())) = (child, applied) {
            self.notify(now, Some(zone));
        }
    }

    pub(crate) fn heartbeat(&mut self, now: SimTime, stream: usize) {
        if self.streams[stream].parent_open {
            self.send_directives(now, stream);
            self.queue
                .plan(now.plus(micros_of(HEARTBEAT)), Event::Heartbeat(stream));
        }
    }

    fn send_directives(&mut self, now: SimTime, stream: usize) {
        let Stream {
            child,
            parent_open: true,
            ..
        } = self.streams[stream]
        else {
            return;
        };
        let id = StreamId(stream as u64 + 1);
        let Some((process, time)) = self.parent_end(now, child) else {
            return;
        };
        // A superseded stream must end; a stream without news must not.
        if process.is_superseded(id) {
            return self.reject(now, stream);
        }
        let Some(directives) = process.directives(time, id) else {
            return;
        };
        let cut = self.port(child).cuts > 0;
        let link = &mut self.streams[stream].down;
        for arrival in link.send(now, directives, cut, &mut self.network_rng) {
            self.queue.plan(arrival, Event::Down(stream));
        }
    }

    /// Sends the new directives to every child of an aggregator, or of the controller.
    pub(crate) fn notify(&mut self, now: SimTime, parent: Option<u32>) {
        let mut at = 0;
        while let Some(stream) = self.below(parent).get(at).copied() {
            self.send_directives(now, stream);
            // A stream that ended meanwhile has left the list, and the next stream has moved to its index.
            at += usize::from(self.below(parent).get(at) == Some(&stream));
        }
    }

    /// Ends a stream at the parent, and plans its end at the child.
    fn reject(&mut self, now: SimTime, stream: usize) {
        let noticed = self.streams[stream].down.ends(now);
        self.parent_ends(now, stream);
        self.queue.plan(
            noticed,
            Event::ChildEnds {
                stream,
                retries: true,
            },
        );
    }

    /// Closes the parent's end of a stream while the parent runs.
    pub(crate) fn parent_ends(&mut self, now: SimTime, stream: usize) {
        let Stream {
            child,
            parent_open: true,
            ..
        } = self.streams[stream]
        else {
            return;
        };
        self.streams[stream].parent_open = false;
        let parent = self.above(child);
        self.below(parent).retain(|other| *other != stream);
        if let Some((process, time)) = self.parent_end(now, child) {
            process.on_close(time, StreamId(stream as u64 + 1));
        }
        self.notify(now, parent);
    }

    /// Closes the child's end of a stream. With `retries` the child reconnects.
    pub(crate) fn child_ends(&mut self, now: SimTime, stream: usize, retries: bool) {
        let Stream {
            child,
            child_open: true,
            ..
        } = self.streams[stream]
        else {
            return;
        };
        self.streams[stream].child_open = false;
        let port = self.port(child);
        port.uplink.take_if(|uplink| *uplink == stream);
        let life = port.life;
        if retries {
            let wait =
                micros(RETRY_S.0) + self.phase(Duration::from_secs_f64(RETRY_S.1 - RETRY_S.0));
            self.queue
                .plan(now.plus(wait), Event::Connect { child, life });
        }
    }

    /// Closes the child's end after its process died, and plans when its parent notices.
    pub(crate) fn child_dies(&mut self, now: SimTime, child: Child) {
        if let Some(stream) = self.port(child).uplink.take() {
            self.streams[stream].child_open = false;
            let noticed = self.streams[stream].up.ends(now);
            self.queue.plan(noticed, Event::ParentEnds(stream));
        }
    }

    /// Closes the parent's ends after its process died, and plans when its children notice.
    pub(crate) fn parent_dies(&mut self, now: SimTime, parent: Option<u32>) {
        self.below(parent).clear();
        for child in self.children(parent) {
            if let Some(stream) = self.port(child).uplink {
                self.streams[stream].parent_open = false;
                let noticed = self.streams[stream].down.ends(now);
                self.queue.plan(
                    noticed,
                    Event::ChildEnds {
                        stream,
                        retries: false,
                    },
                );
            }
        }
    }
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
    for word in [
        now.0,
        stream as u64,
        directives.seq,
        directives.echo.confirmed,
    ] {
        trace.write(word);
    }
    for key in directives.buckets.iter().flat_map(|bucket| &bucket.keys) {
        trace.write(
            key.values
                .ratio
                .map_or(u64::MAX, |ratio| u64::from(ratio.units())),
        );
    }
}
