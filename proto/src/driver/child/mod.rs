//! The child's end of a stream: sends reports at the child's interval, applies directives, and reconnects
//! with jitter.

mod later_leader;
mod observer;
mod renewal;
mod search;
mod stream;
pub mod traffic;

use std::collections::VecDeque;
use std::future::{pending, ready};
use std::pin::pin;
use std::sync::Arc;

use plimsoll_core::directive::Directives;
use plimsoll_core::exchange::Child;
use plimsoll_core::exchange::backoff;
use plimsoll_core::exchange::liveness::{self, CATCH_UP, Liveness};
use plimsoll_host::Shared;
use tokio::sync::{mpsc, watch};
use tokio::time::{Duration, Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tonic::Streaming;

use self::later_leader::later_leader;
pub use self::observer::{Observer, StreamError};
use self::renewal::renewed;
use self::search::{Candidate, Search};
use self::stream::Stream;
use self::traffic::Traffic;
use crate::transport::ParentList;
use crate::{DirectivesDecoder, ReportEncoder, wire};

/// Minimum report interval from which the maximum silence of a young stream is computed.
const YOUNG_INTERVAL: Duration = Duration::from_secs(1);
/// Messages of the parent until a stream stops being young.
const YOUNG_MESSAGES: u32 = 20;
/// Maximum time of each wait of an orderly stop: for a stream that is being opened, for each part of a report to be
/// sent, for the answer to a greeting, and for the parent to close.
const FAREWELL: Duration = Duration::from_secs(1);

/// Exchanges reports and directives with a parent, over one stream after the other, until `shutdown` is cancelled. Then
/// it sends the last report, if a stream is open. Of several addresses of the parent it finds the one that leads.
pub async fn run<C: Child + Send + 'static>(
    child: Shared<C>,
    parents: impl Into<ParentList>,
    shutdown: CancellationToken,
    observer: impl Observer,
) {
    run_metered(child, parents, None, shutdown, observer).await;
}

/// Does the same as [`run`] and counts all bytes of its connections in `traffic`, if there is one.
pub async fn run_metered<C: Child + Send + 'static>(
    child: Shared<C>,
    parents: impl Into<ParentList>,
    traffic: Option<Arc<Traffic>>,
    shutdown: CancellationToken,
    mut observer: impl Observer,
) {
    let parents = parents.into();
    let mut certificates = parents.certificate_changes();
    let mut search = Search::new(&parents);
    loop {
        search.begin();
        mark_seen(&mut certificates);
        let mut renewal: Option<Box<Renewal>> = None;
        let was_connected = loop {
            let candidate = match &renewal {
                Some(renewal) => renewal.stream.candidate,
                None => tokio::select! {
                    () = too_late(&shutdown) => return,
                    candidate = search.next() => match candidate {
                        Some(candidate) => candidate,
                        None => break false,
                    },
                },
            };
            let mut driver = Driver {
                child: &child,
                observer: &mut observer,
                search: &mut search,
                candidate,
                traffic: traffic.as_ref(),
                connected: renewal.is_some(),
                encoder: ReportEncoder::default(),
                outgoing: VecDeque::new(),
            };
            match driver.converse(renewal.take(), &shutdown).await {
                Ok(End::Stopped) => return,
                Ok(End::Renewed(next)) => {
                    mark_seen(&mut certificates);
                    renewal = Some(next);
                }
                Err(error) => {
                    let was_connected = driver.connected;
                    search.on_failure(candidate, error, was_connected, draw());
                    if was_connected || shutdown.is_cancelled() {
                        break was_connected;
                    }
                }
            }
        };
        for (authority, error) in search.take_failures() {
            observer.on_parent(&authority);
            observer.on_disconnected(&error, was_connected);
        }
        let wait = search.wait(draw());
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = sleep(wait) => {}
            // The old certificate may have been the cause.
            () = changed(&mut certificates) => {
                search.end_rests();
                sleep(wait.min(backoff::FIRST)).await;
            }
        }
    }
}

/// Without entropy the backoff has no jitter, but it is still a wait.
fn draw() -> u32 {
    getrandom::u32().unwrap_or(u32::MAX / 2)
}

/// Completes a moment after a stop, which waits for a stream that is being opened: there may be counts to report.
async fn too_late(shutdown: &CancellationToken) {
    shutdown.cancelled().await;
    sleep(FAREWELL).await;
}

fn mark_seen(certificates: &mut Option<watch::Receiver<u64>>) {
    if let Some(changes) = certificates {
        changes.mark_unchanged();
    }
}

/// Completes at the next renewal of the certificate files; never without certificates.
async fn changed(certificates: &mut Option<watch::Receiver<u64>>) {
    if let Some(changes) = certificates
        && changes.changed().await.is_ok()
    {
        return;
    }
    pending().await
}

struct Driver<'a, 'p, C, O> {
    child: &'a Shared<C>,
    observer: &'a mut O,
    search: &'a mut Search<'p>,
    candidate: Candidate,
    traffic: Option<&'a Arc<Traffic>>,
    /// True after the first message of the parent on this stream, and on a stream that continues
    /// another one.
    connected: bool,
    encoder: ReportEncoder,
    /// The parts of the current report that are not sent yet.
    outgoing: VecDeque<wire::Report>,
}

/// End of a stream that has not failed.
enum End {
    /// `shutdown` was cancelled.
    Stopped,
    /// Another stream continues it.
    Renewed(Box<Renewal>),
}

struct Renewal {
    /// The new stream, to the same address with a renewed certificate or to a later leader. It has not greeted.
    stream: Stream,
    /// Open until the parent has answered the greeting on the new stream. So the parent never sees this child without
    /// a stream.
    old: Stream,
    /// The time of the next report, as the old stream has planned it.
    next_report: Instant,
}

impl<C: Child, O: Observer> Driver<'_, '_, C, O> {
    async fn converse(
        &mut self,
        renewal: Option<Box<Renewal>>,
        shutdown: &CancellationToken,
    ) -> Result<End, StreamError> {
        if let Some(renewal) = renewal {
            let Renewal {
                stream,
                old,
                next_report,
            } = *renewal;
            self.greet();
            return self
                .exchange(stream, Some(old), Some(next_report), shutdown)
                .await;
        }
        let dial = self.search.dial(self.candidate);
        let opened = Stream::open(dial, self.candidate, self.traffic, || {
            self.greet();
            self.outgoing.pop_front()
        });
        let stream = tokio::select! {
            () = too_late(shutdown) => return Ok(End::Stopped),
            stream = opened => stream?,
        };
        self.exchange(stream, None, None, shutdown).await
    }

    fn greet(&mut self) {
        let greeting = self.child.with(|child, now| {
            child.on_open(now);
            child.report(now)
        });
        self.outgoing.extend(self.encoder.encode(&greeting));
    }

    /// Sends reports and applies directives until the stream ends, is renewed, or `shutdown` is cancelled. `old` is the
    /// stream that this one continues.
    async fn exchange(
        &mut self,
        mut stream: Stream,
        mut old: Option<Stream>,
        next_report: Option<Instant>,
        shutdown: &CancellationToken,
    ) -> Result<End, StreamError> {
        let dial = self.search.dial(self.candidate);
        let mut renewed = pin!(renewed(
            dial,
            self.candidate,
            self.traffic,
            stream.certificate
        ));
        let (unconfirmed, watched) = watch::channel(None);
        let parents = self.search.parents;
        let mut later = pin!(later_leader(parents, self.candidate, self.traffic, watched));
        let mut decoder = DirectivesDecoder::default();
        let mut interval = self.child.with(|child, _| child.report_interval());
        let mut next_report = next_report.unwrap_or_else(|| Instant::now() + interval);
        let mut was_late = false;
        let mut liveness = Liveness::new(self.child.now());
        let mut messages = 0_u32;
        let renewed = loop {
            // Many children may greet together, and the parent learns its load and its sustainable
            // interval only while it answers them.
            let is_young = messages < YOUNG_MESSAGES;
            let expected = if is_young {
                interval.max(YOUNG_INTERVAL)
            } else {
                interval
            };
            let is_silent = liveness.is_dead(self.child.now(), expected);
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break None,
                renewed = &mut renewed, if self.outgoing.is_empty() && old.is_none() => break Some(renewed),
                later = &mut later, if self.outgoing.is_empty() && old.is_none() => break Some(later),
                () = sleep_until(next_report), if self.outgoing.is_empty() => {
                    // Only once: a process that is always late reports too.
                    was_late = !was_late && next_report.elapsed() > interval;
                    if was_late {
                        next_report = Instant::now() + CATCH_UP;
                        continue;
                    }
                    let report = self.child.with(|child, now| {
                        interval = child.report_interval();
                        child.report(now)
                    });
                    self.outgoing.extend(self.encoder.encode(&report));
                    // Missed reports are skipped: counts are cumulative.
                    next_report = (next_report + interval).max(Instant::now());
                }
                permit = stream.reports.reserve(), if !self.outgoing.is_empty() => {
                    let permit = permit.map_err(|_| StreamError::Ended)?;
                    if let Some(part) = self.outgoing.pop_front() {
                        permit.send(part);
                    }
                }
                message = stream.directives.message() => {
                    let message = message
                        .map_err(|status| StreamError::Closed(Box::new(status)))?
                        .ok_or(StreamError::Ended)?;
                    liveness.on_message(self.child.now());
                    messages = messages.saturating_add(1);
                    if messages == 1 {
                        self.on_answer(stream.parent_zone.as_deref(), old.take().is_some());
                    }
                    if let Some(message) = decoder.decode(message)? {
                        let epoch = message.lead.leader.unwrap_or_default().epoch;
                        unconfirmed.send_replace(message.lead.unconfirmed.then_some(epoch));
                        // A shorter interval applies immediately, not after the longer one has
                        // passed.
                        let wait = self.apply(message, &mut interval);
                        next_report = next_report.min(Instant::now() + wait);
                    }
                }
                // Last, so that a message that has arrived is read first.
                () = ready(()), if is_silent => {
                    return Err(StreamError::Silent(liveness::silence_max(expected)));
                }
                () = sleep(liveness::pulse(expected)) => {}
            }
        };
        if let Some(renewed) = renewed {
            return Ok(End::Renewed(Box::new(Renewal {
                stream: renewed,
                old: stream,
                next_report,
            })));
        }
        // Also on a stream that continues another one: the child reports counts again after the answer.
        if messages == 0 {
            if !self.send_outgoing(&stream.reports).await {
                return Ok(End::Stopped);
            }
            self.await_answer(&mut stream.directives, &mut decoder)
                .await;
        }
        self.send_last_report(stream.directives, stream.reports)
            .await;
        Ok(End::Stopped)
    }

    /// Takes the first message on a stream, which may continue another one.
    fn on_answer(&mut self, zone: Option<&str>, is_renewal: bool) {
        self.search.on_connected(self.candidate);
        self.observer
            .on_parent(&self.search.dial(self.candidate).authority());
        if is_renewal {
            self.observer.on_renewed();
        } else {
            self.connected = true;
            self.observer.on_connected(zone);
        }
    }

    /// Applies directives and returns the maximum time until the next report.
    fn apply(&mut self, directives: Directives, interval: &mut Duration) -> Duration {
        let (applied, wait) = self.child.with(|child, now| {
            let applied = child.on_directives(now, directives);
            *interval = child.report_interval();
            (
                applied,
                if child.is_report_due() {
                    Duration::ZERO
                } else {
                    *interval
                },
            )
        });
        match applied {
            // The process may have its own children, which wait for the change.
            Ok(()) if self.child.with(|child, _| child.has_downstream_changes()) => {
                self.child.notify()
            }
            Ok(()) => {}
            Err(stale) => self.observer.on_rejected(&stale),
        }
        wait
    }

    /// Waits a moment for the parent to answer the greeting. Before the answer a child reports no counts.
    async fn await_answer(
        &mut self,
        directives: &mut Streaming<wire::Directives>,
        decoder: &mut DirectivesDecoder,
    ) {
        let answer = timeout(FAREWELL, async {
            loop {
                let message = directives.message().await.ok()??;
                if let Some(message) = decoder.decode(message).ok()? {
                    return Some(message);
                }
            }
        });
        if let Ok(Some(answer)) = answer.await {
            self.child
                .with(|child, now| child.on_directives(now, answer))
                .unwrap_or_else(|stale| {
                    self.observer.on_rejected(&stale);
                });
        }
    }

    /// Sends the rest of the current report. Returns false if the stream takes no more.
    async fn send_outgoing(&mut self, reports: &mpsc::Sender<wire::Report>) -> bool {
        while let Some(part) = self.outgoing.pop_front() {
            if !matches!(timeout(FAREWELL, reports.send(part)).await, Ok(Ok(()))) {
                return false;
            }
        }
        true
    }

    /// Sends the last report and waits until the parent closes the stream, after it has read that report.
    async fn send_last_report(
        &mut self,
        mut directives: Streaming<wire::Directives>,
        reports: mpsc::Sender<wire::Report>,
    ) {
        let last = self.child.with(|child, now| child.farewell(now));
        self.outgoing.extend(self.encoder.encode(&last));
        if !self.send_outgoing(&reports).await {
            return;
        }
        // The parent ends the stream after it has read the last report.
        drop(reports);
        let is_closed = async {
            loop {
                match directives.message().await {
                    Ok(Some(_)) => {}
                    // A parent that has refused a report, or stops itself, ends with a status.
                    ended => return ended.is_ok(),
                }
            }
        };
        if timeout(FAREWELL, is_closed).await == Ok(true) {
            self.child.with(|child, now| child.on_farewell_read(now));
        }
    }
}
