//! The child's end of a conversation: reports at its interval, applies what comes, and comes back with jitter when
//! the stream breaks.

use std::collections::VecDeque;
use std::error::Error as _;
use std::sync::Arc;

use plimsoll_core::backoff::Backoff;
use plimsoll_core::exchange::Child;
use tokio::sync::mpsc;
use tokio::time::{Duration, Instant, sleep, sleep_until, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::Endpoint;
use tonic::{Status, Streaming};

use crate::shared::Shared;
use crate::traffic::{Metered, Traffic};
use crate::wire::exchange_client::ExchangeClient;
use crate::{DirectivesDecoder, Invalid, MESSAGE_BYTES_MAX, ReportEncoder, wire};

/// A parent says something every half second; one that said nothing for ten times as long is not listening.
const PARENT_SILENT: Duration = Duration::from_secs(5);
/// How long an orderly stop waits for the farewell to leave.
const FAREWELL: Duration = Duration::from_millis(250);

/// Is told how the conversation goes, for logs and metrics.
pub trait Observer: Send + 'static {
    /// The first message of the parent came on a new stream.
    fn on_connected(&mut self) {}
    /// A stream ended, or could not begin; `was_connected` says which.
    fn on_disconnected(&mut self, why: &Broken, was_connected: bool) {
        let _ = (why, was_connected);
    }
    /// A message was not applied; what was held stays.
    fn on_refused(&mut self, why: &dyn std::error::Error) {
        let _ = why;
    }
}

/// Why a stream ended, or could not begin.
#[derive(Debug, thiserror::Error)]
pub enum Broken {
    /// No connection came about.
    #[error("cannot connect: {}", root_cause(.0))]
    Connect(#[from] tonic::transport::Error),
    /// The parent closed the stream.
    #[error("the parent closed the stream: {}", .0.source().map_or_else(|| .0.message().to_owned(), root_cause))]
    Closed(Box<Status>),
    /// The stream ended without a word.
    #[error("the stream ended")]
    Ended,
    /// The parent says nothing any more.
    #[error("nothing was heard of the parent for {PARENT_SILENT:?}")]
    Silent,
    /// What came cannot be a message.
    #[error("a message of the parent is out of range: {0}")]
    Invalid(#[from] Invalid),
}

/// What lies at the bottom of an error: "connection refused" says more than "transport error".
fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

/// Keeps a conversation with the parent at `endpoint` going until `shutdown` is cancelled, then says farewell.
pub async fn run<C: Child + Send + 'static>(
    child: Shared<C>,
    endpoint: Endpoint,
    shutdown: CancellationToken,
    observer: impl Observer,
) {
    run_over(child, &endpoint, None, shutdown, observer).await;
}

/// The same with all bytes of its connections counted in `traffic`.
pub async fn run_metered<C: Child + Send + 'static>(
    child: Shared<C>,
    endpoint: &Endpoint,
    traffic: Arc<Traffic>,
    shutdown: CancellationToken,
    observer: impl Observer,
) {
    run_over(child, endpoint, Some(traffic), shutdown, observer).await;
}

async fn run_over<C: Child + Send + 'static>(
    child: Shared<C>,
    endpoint: &Endpoint,
    traffic: Option<Arc<Traffic>>,
    shutdown: CancellationToken,
    mut observer: impl Observer,
) {
    let mut backoff = Backoff::default();
    loop {
        let mut driver = Driver {
            child: &child,
            observer: &mut observer,
            backoff: &mut backoff,
            traffic: traffic.clone(),
            connected: false,
            encoder: ReportEncoder::default(),
            outgoing: VecDeque::new(),
        };
        let Err(broken) = driver.converse(endpoint, &shutdown).await else { return };
        let was_connected = driver.connected;
        observer.on_disconnected(&broken, was_connected);
        // Without entropy the wait is drawn from the middle: worse spread, but never a busy loop.
        let draw = getrandom::u32().unwrap_or(u32::MAX / 2);
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = sleep(backoff.next_wait(draw)) => {}
        }
    }
}

struct Driver<'a, C, O> {
    child: &'a Shared<C>,
    observer: &'a mut O,
    backoff: &'a mut Backoff,
    traffic: Option<Arc<Traffic>>,
    /// The parent has spoken on this stream.
    connected: bool,
    encoder: ReportEncoder,
    /// Parts of a report that has begun to be sent.
    outgoing: VecDeque<wire::Report>,
}

impl<C: Child, O: Observer> Driver<'_, C, O> {
    /// One stream, from greeting to end. `Ok` only when this child stops.
    async fn converse(&mut self, endpoint: &Endpoint, shutdown: &CancellationToken) -> Result<(), Broken> {
        let traffic = self.traffic.clone();
        let connect = async {
            match traffic {
                None => endpoint.connect().await,
                Some(traffic) => endpoint.connect_with_connector(Metered(traffic)).await,
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
        self.child.with(|child, now| child.on_open(now));
        let answer = tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            answer = timeout(PARENT_SILENT, client.converse(ReceiverStream::new(receiver))) => answer,
        };
        let directives = answer
            .map_err(|_| Broken::Silent)?
            .map_err(|status| Broken::Closed(Box::new(status)))?
            .into_inner();
        self.talk(directives, reports, shutdown).await
    }

    async fn talk(
        &mut self,
        mut directives: Streaming<wire::Directives>,
        reports: mpsc::Sender<wire::Report>,
        shutdown: &CancellationToken,
    ) -> Result<(), Broken> {
        let mut decoder = DirectivesDecoder::default();
        let mut next_report = Instant::now();
        let mut silent_at = Instant::now() + PARENT_SILENT;
        loop {
            tokio::select! {
                () = shutdown.cancelled() => break,
                message = directives.message() => {
                    let message =
                        message.map_err(|status| Broken::Closed(Box::new(status)))?.ok_or(Broken::Ended)?;
                    silent_at = Instant::now() + PARENT_SILENT;
                    if !self.connected {
                        self.connected = true;
                        self.backoff.reset();
                        self.observer.on_connected();
                    }
                    if let Some(message) = decoder.decode(message)? {
                        let (applied, wait) = self.child.with(|child, now| {
                            let applied = child.on_directives(now, message);
                            let due = child.is_report_due();
                            (applied, if due { Duration::ZERO } else { child.report_interval() })
                        });
                        // A shorter interval holds from now on, not from the end of the long one.
                        next_report = next_report.min(Instant::now() + wait);
                        match applied {
                            // What came from above goes on to those below at once.
                            Ok(()) => if self.child.with(|child, _| child.has_news()) { self.child.ring() },
                            Err(stale) => self.observer.on_refused(&stale),
                        }
                    }
                }
                () = sleep_until(next_report), if self.outgoing.is_empty() => {
                    let (report, interval) =
                        self.child.with(|child, now| (child.report(now), child.report_interval()));
                    self.outgoing.extend(self.encoder.encode(&report));
                    // Missed reports are not made up for: the counts are cumulative.
                    next_report = (next_report + interval).max(Instant::now());
                }
                permit = reports.reserve(), if !self.outgoing.is_empty() => {
                    let permit = permit.map_err(|_| Broken::Ended)?;
                    if let Some(part) = self.outgoing.pop_front() {
                        permit.send(part);
                    }
                }
                () = sleep_until(silent_at) => return Err(Broken::Silent),
            }
        }
        self.say_farewell(directives, reports).await;
        Ok(())
    }

    async fn say_farewell(
        &mut self,
        mut directives: Streaming<wire::Directives>,
        reports: mpsc::Sender<wire::Report>,
    ) {
        let farewell = self.child.with(|child, now| child.farewell(now));
        self.outgoing.extend(self.encoder.encode(&farewell));
        while let Some(part) = self.outgoing.pop_front() {
            if !matches!(timeout(FAREWELL, reports.send(part)).await, Ok(Ok(()))) {
                return;
            }
        }
        // The parent ends the stream once it has read the farewell.
        drop(reports);
        let _ = timeout(FAREWELL, async { while let Ok(Some(_)) = directives.message().await {} }).await;
    }
}
