//! The parent's end of a conversation: carries reports to a state machine and its directives back, for as many
//! streams as there are.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use plimsoll_core::exchange::{Parent, Refused, StreamId};
use plimsoll_core::roster::HEARTBEAT;
use tokio::sync::mpsc;
use tokio::time::{Duration, MissedTickBehavior, interval, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status, Streaming};

use crate::shared::Shared;
use crate::{Invalid, Part, Parts, ReportDecoder, encode_directives, wire};

/// How long a stream may take to say who it is.
const GREETING_TIMEOUT: Duration = Duration::from_secs(5);

/// How long the reason for an end waits for a reader that has not taken what came before it.
const LAST_WORD: Duration = Duration::from_secs(1);

/// Serves a [`Parent`] state machine over gRPC.
#[derive(Debug)]
pub struct ParentService<P> {
    shared: Shared<P>,
    streams: Arc<Streams>,
}

/// What all streams of one parent share.
#[derive(Debug)]
struct Streams {
    next: AtomicU64,
    closing: CancellationToken,
    refused: Box<dyn OnRefused>,
}

/// Is told of every stream that was refused, by a short word for a metric.
pub trait OnRefused: Send + Sync + std::fmt::Debug + 'static {
    /// A stream was closed for this reason.
    fn on_refused(&self, reason: &'static str);
}

impl<P: Parent + Send + 'static> ParentService<P> {
    /// Serves `shared`; streams end when `closing` is cancelled.
    pub fn new(shared: Shared<P>, closing: CancellationToken, refused: impl OnRefused) -> Self {
        let streams = Streams { next: AtomicU64::new(1), closing, refused: Box::new(refused) };
        Self { shared, streams: Arc::new(streams) }
    }
}

impl<P> Clone for ParentService<P> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone(), streams: Arc::clone(&self.streams) }
    }
}

impl<P: Parent + Send + 'static> ParentService<P> {
    /// Begins a conversation; what is to be sent comes out of the answer.
    pub(crate) fn converse(&self, reports: Streaming<wire::Report>) -> ReceiverStream<Result<Part, Status>> {
        // One place: what a slow reader has not taken is conflated in the state machine, never queued here.
        let (sender, receiver) = mpsc::channel(1);
        let conversation = Conversation {
            stream: StreamId(self.streams.next.fetch_add(1, Ordering::Relaxed)),
            shared: self.shared.clone(),
            streams: Arc::clone(&self.streams),
            decoder: ReportDecoder::default(),
            outgoing: None,
        };
        tokio::spawn(conversation.run(reports, sender));
        ReceiverStream::new(receiver)
    }
}

/// One stream.
struct Conversation<P: Parent> {
    stream: StreamId,
    shared: Shared<P>,
    streams: Arc<Streams>,
    decoder: ReportDecoder,
    /// What is left of a message that has begun to be sent.
    outgoing: Option<Parts>,
}

/// Why a conversation ended.
enum End {
    /// The child went away, or the reader did.
    Gone,
    /// The child broke a rule.
    Refused(Refused),
    /// A message was out of range.
    Invalid(Invalid),
    /// What came is no message, or too large to be one.
    Unreadable(Box<Status>),
    /// It never said who it is.
    Silent,
    /// A newer stream of the same child took over.
    Superseded,
    /// This parent stops.
    Closing,
}

impl<P: Parent> Conversation<P> {
    async fn run(
        mut self,
        mut reports: Streaming<wire::Report>,
        directives: mpsc::Sender<Result<Part, Status>>,
    ) {
        let closing = self.streams.closing.clone();
        let greeted = tokio::select! {
            () = closing.cancelled() => Err(End::Closing),
            greeted = timeout(GREETING_TIMEOUT, self.greeting(&mut reports)) => {
                greeted.unwrap_or(Err(End::Silent))
            }
        };
        let end = match greeted {
            Err(end) => end,
            Ok(()) => match self.talk(&mut reports, &directives).await {
                Err(end) => end,
                Ok(never) => match never {},
            },
        };
        // No bell: nobody has to hear of it at once, and when many go together, each would wake all the others.
        self.shared.with(|parent, now| parent.on_close(now, self.stream));
        if let Some((reason, status)) = end.status() {
            self.streams.refused.on_refused(reason);
            tracing::debug!(stream = self.stream.0, reason, status = status.message(), "stream ended");
            // The reader may be slow or gone: waiting for it longer would keep the task alive for nothing.
            let _ = timeout(LAST_WORD, directives.send(Err(status))).await;
        }
    }

    async fn greeting(&mut self, reports: &mut Streaming<wire::Report>) -> Result<(), End> {
        while !self.take(reports.message().await)? {}
        Ok(())
    }

    async fn talk(
        &mut self,
        reports: &mut Streaming<wire::Report>,
        directives: &mpsc::Sender<Result<Part, Status>>,
    ) -> Result<std::convert::Infallible, End> {
        let mut bell = self.shared.bell();
        let mut heartbeat = interval(HEARTBEAT);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let closing = self.streams.closing.clone();
        // Not anew for each message: ten thousand streams wait for the one token.
        let mut closed = pin!(closing.cancelled());
        // The first state answers the greeting at once, outside any tick.
        let mut ask = true;
        loop {
            tokio::select! {
                () = &mut closed => return Err(End::Closing),
                report = reports.message() => { self.take(report)?; }
                permit = directives.reserve(), if ask || self.outgoing.is_some() => {
                    let permit = permit.map_err(|_| End::Gone)?;
                    if self.outgoing.is_none() {
                        ask = false;
                        self.outgoing = self.next_message()?;
                    }
                    if let Some(part) = self.outgoing.as_mut().and_then(Iterator::next) {
                        permit.send(Ok(part));
                    }
                    self.outgoing.take_if(|parts| parts.is_over());
                }
                rung = bell.changed() => {
                    rung.map_err(|_| End::Closing)?;
                    ask = true;
                }
                _ = heartbeat.tick() => ask = true,
            }
        }
    }

    /// Takes what came from the child; true when it completed a report.
    fn take(&mut self, came: Result<Option<wire::Report>, Status>) -> Result<bool, End> {
        let part = came.map_err(End::of_reading)?.ok_or(End::Gone)?;
        let Some(report) = self.decoder.decode(part).map_err(End::Invalid)? else { return Ok(false) };
        let news = self.shared.with(|parent, now| parent.on_report(now, self.stream, report));
        if news.map_err(End::Refused)? {
            self.shared.ring();
        }
        Ok(true)
    }

    fn next_message(&self) -> Result<Option<Parts>, End> {
        let message = self.shared.with(|parent, now| {
            if parent.is_superseded(self.stream) {
                return Err(End::Superseded);
            }
            Ok(parent.message(now, self.stream))
        });
        // Encoded when it is sent, and not while everybody else waits for the state machine.
        Ok(message?.map(encode_directives))
    }
}

impl End {
    /// A status without a source is the decoder's own word on what came; any other tells of the connection.
    fn of_reading(status: Status) -> Self {
        let of_decoder = matches!(status.code(), Code::OutOfRange | Code::Internal | Code::Unimplemented);
        if of_decoder && std::error::Error::source(&status).is_none() {
            Self::Unreadable(Box::new(status))
        } else {
            Self::Gone
        }
    }

    fn status(&self) -> Option<(&'static str, Status)> {
        Some(match self {
            Self::Gone => return None,
            Self::Refused(refused) => {
                let text = refused.to_string();
                let status = match refused {
                    Refused::Broken(_) | Refused::Greeting => Status::invalid_argument(text),
                    Refused::Full(_) => Status::resource_exhausted(text),
                    Refused::Unknown => Status::aborted(text),
                    Refused::WrongTier(_)
                    | Refused::Loop
                    | Refused::TooDeep { .. }
                    | Refused::EpochJump { .. }
                    | Refused::KillJump { .. } => Status::failed_precondition(text),
                };
                (refused.label(), status)
            }
            // Each value may be in its range, but the peer has broken the order of the stream.
            Self::Invalid(gap @ Invalid::Gap { .. }) => ("broken", Status::invalid_argument(gap.to_string())),
            Self::Invalid(invalid) => ("invalid", Status::invalid_argument(invalid.to_string())),
            Self::Unreadable(status) => ("unreadable", Status::invalid_argument(status.message())),
            Self::Silent => ("silent", Status::deadline_exceeded("no greeting came")),
            Self::Superseded => ("superseded", Status::aborted("a newer stream of this child took over")),
            Self::Closing => return Some(("closing", Status::unavailable("this parent stops"))),
        })
    }
}
