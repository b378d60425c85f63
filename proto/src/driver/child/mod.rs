//! The child's end of a stream: sends reports at the child's interval, applies directives, and reconnects
//! with jitter.

mod observer;
mod renewal;
mod stream;
pub mod traffic;

use std::collections::VecDeque;
use std::future::{pending, ready};
use std::pin::pin;
use std::sync::Arc;

use plimsoll_core::directive::Directives;
use plimsoll_core::exchange::Child;
use plimsoll_core::exchange::backoff::{self, Backoff};
use plimsoll_core::exchange::liveness::{self, CATCH_UP, Liveness};
use plimsoll_host::Shared;
use tokio::sync::{mpsc, watch};
use tokio::time::{Duration, Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tonic::Streaming;

pub use self::observer::{Observer, StreamError};
use self::renewal::renewed;
use self::stream::Stream;
use self::traffic::Traffic;
use crate::transport::Dial;
use crate::{DirectivesDecoder, ReportEncoder, wire};

/// Minimum report interval from which the maximum silence of a young stream is computed.
const YOUNG_INTERVAL: Duration = Duration::from_secs(1);
/// Messages of the parent until a stream stops being young.
const YOUNG_MESSAGES: u32 = 20;
/// Maximum time of each wait of an orderly stop: for a stream that is being opened, for the answer to a
/// greeting, for each part of the last report to be sent, and for the parent to close.
const FAREWELL: Duration = Duration::from_secs(1);

/// Exchanges reports and directives with the parent at an address, over one stream after the other, until
/// `shutdown` is cancelled. Then it sends the last report, if a stream is open.
pub async fn run<C: Child + Send + 'static>(
    child: Shared<C>,
    dial: Dial,
    shutdown: CancellationToken,
    observer: impl Observer,
) {
    run_metered(child, dial, None, shutdown, observer).await;
}

/// Does the same as [`run`] and counts all bytes of its connections in `traffic`, if there is one.
pub async fn run_metered<C: Child + Send + 'static>(
    child: Shared<C>,
    dial: Dial,
    traffic: Option<Arc<Traffic>>,
    shutdown: CancellationToken,
    mut observer: impl Observer,
) {
    let mut certificates = dial.certificate_changes();
    let mut backoff = Backoff::default();
    let mut renewal = None;
    loop {
        let mut driver = Driver {
            child: &child,
            observer: &mut observer,
            backoff: &mut backoff,
            dial: &dial,
            traffic: traffic.as_ref(),
            connected: renewal.is_some(),
            encoder: ReportEncoder::default(),
            outgoing: VecDeque::new(),
        };
        if let Some(changes) = &mut certificates {
            changes.mark_unchanged();
        }
        let error = match driver.converse(renewal.take(), &shutdown).await {
            Ok(End::Stopped) => return,
            Ok(End::Renewed(next)) => {
                renewal = Some(*next);
                continue;
            }
            Err(error) => error,
        };
        let was_connected = driver.connected;
        observer.on_disconnected(&error, was_connected);
        // Without entropy the backoff has no jitter, but it is still a wait.
        let draw = getrandom::u32().unwrap_or(u32::MAX / 2);
        let wait = match error.asked_wait() {
            Some(asked) => backoff.next_wait_after(asked, draw),
            None => backoff.next_wait(draw),
        };
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = sleep(wait) => {}
            // The old certificate may have been the cause.
            () = changed(&mut certificates) => sleep(wait.min(backoff::FIRST)).await,
        }
    }
}

async fn changed(certificates: &mut Option<watch::Receiver<u64>>) {
    if let Some(changes) = certificates
        && changes.changed().await.is_ok()
    {
        return;
    }
    pending().await
}

struct Driver<'a, C, O> {
    child: &'a Shared<C>,
    observer: &'a mut O,
    backoff: &'a mut Backoff,
    dial: &'a Dial,
    traffic: Option<&'a Arc<Traffic>>,
    /// True after the first message of the parent on this stream, and on a stream that continues
    /// another one.
    connected: bool,
    encoder: ReportEncoder,
    /// The parts of the current report that are not sent yet.
    outgoing: VecDeque<wire::Report>,
}

enum End {
    Stopped,
    Renewed(Box<Renewal>),
}

struct Renewal {
    stream: Stream,
    /// Open until the parent has answered the greeting on the new stream. So the parent never sees this child without
    /// a stream.
    old: Stream,
    /// The time of the next report, as the old stream has planned it.
    next_report: Instant,
}

impl<C: Child, O: Observer> Driver<'_, C, O> {
    async fn converse(
        &mut self,
        renewal: Option<Renewal>,
        shutdown: &CancellationToken,
    ) -> Result<End, StreamError> {
        if let Some(Renewal {
            stream,
            old,
            next_report,
        }) = renewal
        {
            self.greet();
            return self
                .exchange(stream, Some(old), Some(next_report), shutdown)
                .await;
        }
        let (dial, traffic) = (self.dial, self.traffic);
        // A stop during the opening of the stream waits a moment for it: there may be counts to
        // report.
        let is_too_late = async {
            shutdown.cancelled().await;
            sleep(FAREWELL).await;
        };
        let stream = tokio::select! {
            () = is_too_late => return Ok(End::Stopped),
            stream = Stream::open(dial, traffic, || { self.greet(); self.outgoing.pop_front() }) => stream?,
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
        let mut renewed = pin!(renewed(self.dial, self.traffic, stream.certificate));
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
                    if !self.connected {
                        self.connected = true;
                        self.backoff.reset();
                        self.observer.on_connected(stream.parent_zone.as_deref());
                    }
                    if old.take().is_some() {
                        self.observer.on_renewed();
                    }
                    if let Some(message) = decoder.decode(message)? {
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
        if !self.connected {
            self.await_answer(&mut stream.directives, &mut decoder)
                .await;
        }
        self.send_last_report(stream.directives, stream.reports)
            .await;
        Ok(End::Stopped)
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

    /// Sends the last report and waits until the parent closes the stream, after it has read that report.
    async fn send_last_report(
        &mut self,
        mut directives: Streaming<wire::Directives>,
        reports: mpsc::Sender<wire::Report>,
    ) {
        let last = self.child.with(|child, now| child.farewell(now));
        self.outgoing.extend(self.encoder.encode(&last));
        while let Some(part) = self.outgoing.pop_front() {
            if !matches!(timeout(FAREWELL, reports.send(part)).await, Ok(Ok(()))) {
                return;
            }
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
