//! The child's end of a stream: sends reports at the child's interval, applies directives, and reconnects
//! with jitter.

mod observer;
pub mod traffic;

use std::collections::VecDeque;
use std::future::ready;
use std::sync::Arc;

use plimsoll_core::directive::Directives;
use plimsoll_core::exchange::Child;
use plimsoll_core::exchange::backoff::Backoff;
use plimsoll_core::exchange::liveness::{self, Liveness};
use tokio::sync::mpsc;
use tokio::time::{Duration, Instant, sleep, sleep_until, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::Streaming;
use tonic::transport::Endpoint;

pub use self::observer::{Observer, StreamError};
use self::traffic::{Traffic, connect_metered};
use crate::driver::{ZONE_METADATA, passed_while_running};
use crate::shared::Shared;
use crate::transport::Dial;
use crate::wire::exchange_client::ExchangeClient;
use crate::{DirectivesDecoder, MESSAGE_BYTES_MAX, ReportEncoder, wire};

/// The longest time that the child waits for a parent to answer a new stream. A parent that restarts may have
/// thousands of children to answer first.
const ANSWER_MAX: Duration = Duration::from_secs(15);
/// The report interval whose longest silence applies to a young stream.
const YOUNG_INTERVAL: Duration = Duration::from_secs(1);
/// The messages of the parent until a stream is not young any more.
const YOUNG_MESSAGES: u32 = 20;
/// The longest time that an orderly stop waits, for the last report to be sent and again for the parent to
/// close.
const FAREWELL: Duration = Duration::from_millis(250);

/// Exchanges reports and directives with the parent at an address, over one stream after the other, until
/// `shutdown` is cancelled. Then it sends the last report.
pub async fn run<C: Child + Send + 'static>(
    child: Shared<C>,
    parent: impl Into<Dial>,
    shutdown: CancellationToken,
    observer: impl Observer,
) {
    run_metered(child, parent, None, shutdown, observer).await;
}

/// Does the same as [`run`] and counts all bytes of its connections in `traffic`, if there is one.
pub async fn run_metered<C: Child + Send + 'static>(
    child: Shared<C>,
    parent: impl Into<Dial>,
    traffic: Option<Arc<Traffic>>,
    shutdown: CancellationToken,
    mut observer: impl Observer,
) {
    let dial = parent.into();
    let mut backoff = Backoff::default();
    loop {
        let mut driver = Driver {
            child: &child,
            observer: &mut observer,
            backoff: &mut backoff,
            traffic: traffic.clone(),
            connected: false,
            parent_zone: None,
            encoder: ReportEncoder::default(),
            outgoing: VecDeque::new(),
        };
        let Err(error) = driver.converse(&dial.endpoint, &shutdown).await else { return };
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
        }
    }
}

struct Driver<'a, C, O> {
    child: &'a Shared<C>,
    observer: &'a mut O,
    backoff: &'a mut Backoff,
    traffic: Option<Arc<Traffic>>,
    /// True after the first message of the parent on this stream.
    connected: bool,
    parent_zone: Option<String>,
    encoder: ReportEncoder,
    /// Unsent parts of the current report.
    outgoing: VecDeque<wire::Report>,
}

impl<C: Child, O: Observer> Driver<'_, C, O> {
    /// Runs one stream from the greeting to its end. Returns `Ok` on shutdown only.
    async fn converse(
        &mut self,
        endpoint: &Endpoint,
        shutdown: &CancellationToken,
    ) -> Result<(), StreamError> {
        let traffic = self.traffic.clone();
        let connect = async {
            match traffic {
                None => endpoint.connect().await,
                Some(traffic) => connect_metered(endpoint, traffic).await,
            }
        };
        let channel = tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            channel = connect => channel?,
        };
        let mut client = ExchangeClient::new(channel)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        let (reports, receiver) = mpsc::channel(1);
        // The greeting travels with the request, which spares a busy parent a round trip.
        let greeting = self.child.with(|child, now| {
            child.on_open(now);
            child.report(now)
        });
        self.outgoing.extend(self.encoder.encode(&greeting));
        if let Some(part) = self.outgoing.pop_front() {
            reports.try_send(part).map_err(|_| StreamError::Ended)?;
        }
        let answer = tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            answer = client.converse(ReceiverStream::new(receiver)) => answer,
            () = passed_while_running(ANSWER_MAX) => return Err(StreamError::Silent(ANSWER_MAX)),
        };
        let answer = answer.map_err(|status| StreamError::Closed(Box::new(status)))?;
        let zone = answer.metadata().get(ZONE_METADATA).and_then(|zone| zone.to_str().ok());
        self.parent_zone = zone.map(str::to_owned);
        self.exchange(answer.into_inner(), reports, shutdown).await
    }

    /// Sends reports and applies directives until the stream ends.
    async fn exchange(
        &mut self,
        mut directives: Streaming<wire::Directives>,
        reports: mpsc::Sender<wire::Report>,
        shutdown: &CancellationToken,
    ) -> Result<(), StreamError> {
        let mut decoder = DirectivesDecoder::default();
        let mut interval = self.child.with(|child, _| child.report_interval());
        let mut next_report = Instant::now() + interval;
        let mut liveness = Liveness::new(self.child.now());
        let mut messages = 0_u32;
        loop {
            // Many children may greet at once, and the parent knows its load, and the interval that it can bear,
            // only after it has answered some of them.
            let is_young = messages < YOUNG_MESSAGES;
            let expected = if is_young { interval.max(YOUNG_INTERVAL) } else { interval };
            let is_silent = liveness.is_dead(self.child.now(), expected);
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                () = sleep_until(next_report), if self.outgoing.is_empty() => {
                    let report = self.child.with(|child, now| {
                        interval = child.report_interval();
                        child.report(now)
                    });
                    self.outgoing.extend(self.encoder.encode(&report));
                    // Missed reports are skipped: counts are cumulative.
                    next_report = (next_report + interval).max(Instant::now());
                }
                permit = reports.reserve(), if !self.outgoing.is_empty() => {
                    let permit = permit.map_err(|_| StreamError::Ended)?;
                    if let Some(part) = self.outgoing.pop_front() {
                        permit.send(part);
                    }
                }
                message = directives.message() => {
                    let message = message
                        .map_err(|status| StreamError::Closed(Box::new(status)))?
                        .ok_or(StreamError::Ended)?;
                    liveness.on_message(self.child.now());
                    messages = messages.saturating_add(1);
                    if !self.connected {
                        self.connected = true;
                        self.backoff.reset();
                        self.observer.on_connected(self.parent_zone.as_deref());
                    }
                    if let Some(message) = decoder.decode(message)? {
                        // A shorter interval applies at once, not after the longer one has passed.
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
        }
        self.send_last_report(directives, reports).await;
        Ok(())
    }

    /// Applies directives and returns the longest time to wait for the next report.
    fn apply(&mut self, directives: Directives, interval: &mut Duration) -> Duration {
        let (applied, wait) = self.child.with(|child, now| {
            let applied = child.on_directives(now, directives);
            *interval = child.report_interval();
            (applied, if child.is_report_due() { Duration::ZERO } else { *interval })
        });
        match applied {
            // The process may have children of its own, which wait for the change.
            Ok(()) if self.child.with(|child, _| child.has_downstream_changes()) => self.child.notify(),
            Ok(()) => {}
            Err(stale) => self.observer.on_rejected(&stale),
        }
        wait
    }

    /// Sends the last report and waits until the parent closes the stream.
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
        let _ = timeout(FAREWELL, async { while let Ok(Some(_)) = directives.message().await {} }).await;
    }
}
