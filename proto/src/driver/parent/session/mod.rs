//! The parent's task of one stream: enters its reports and sends its directives, as far as the certificate of the
//! child allows.

mod end;

use std::convert::Infallible;
use std::future::ready;
use std::pin::pin;
use std::sync::Arc;

use plimsoll_core::exchange::liveness::{self, Liveness, Waited};
use plimsoll_core::exchange::sessions::HEARTBEAT;
use plimsoll_core::exchange::{Parent, Rejection, StreamId};
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::report::{Identity, Role};
use plimsoll_host::Shared;
use tokio::sync::mpsc;
use tokio::task::yield_now;
use tokio::time::{Duration, Instant, sleep, timeout};
use tonic::{Status, Streaming};

use self::end::End;
use super::Streams;
use crate::driver::passed_while_running;
use crate::transport::{Certified, ConnectionGuard, Greeted};
use crate::{MessagePart, Parts, ReportDecoder, encode_directives, wire};

/// Maximum time from the opening of a stream to the greeting, while this process runs.
const GREETING_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum time from the first part of a report to the last.
const REPORT_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum time that the final status waits for a child that has not read the messages before it.
const FINAL_STATUS_TIMEOUT: Duration = Duration::from_secs(1);

pub(super) struct Session<P: Parent> {
    stream: StreamId,
    shared: Shared<P>,
    streams: Arc<Streams>,
    decoder: ReportDecoder,
    /// The time since the first part of an incomplete report.
    unfinished: Option<Waited>,
    /// The parts of the current message that are not sent yet.
    outgoing: Option<Parts>,
    /// The report interval that the parent last asked of the child; `HEARTBEAT` until it asks for one.
    interval: Duration,
    /// The parent has accepted the first report.
    has_greeted: bool,
    /// The certificates of the connection; `None` in plaintext.
    certified: Option<Certified>,
    /// Closes the connection if no stream greets; `None` without a connection, and after the greeting.
    guard: Option<ConnectionGuard>,
    /// Keeps the connection open as long as this stream.
    greeted: Option<Greeted>,
    /// The child as its greeting names it, accepted or not.
    child: Option<Identity>,
    /// The parent has accepted a farewell report.
    is_leaving: bool,
}

impl<P: Parent> Session<P> {
    pub(super) fn new(
        stream: StreamId,
        shared: Shared<P>,
        streams: Arc<Streams>,
        guard: Option<ConnectionGuard>,
    ) -> Self {
        Self {
            stream,
            shared,
            streams,
            decoder: ReportDecoder::default(),
            unfinished: None,
            outgoing: None,
            interval: HEARTBEAT,
            has_greeted: false,
            certified: guard.as_ref().and_then(ConnectionGuard::certified),
            guard,
            greeted: None,
            child: None,
            is_leaving: false,
        }
    }

    pub(super) async fn run(
        mut self,
        mut reports: Streaming<wire::Report>,
        directives: mpsc::Sender<Result<MessagePart, Status>>,
    ) {
        let closing = self.streams.closing.clone();
        let greeted = tokio::select! {
            () = closing.cancelled() => Err(End::Closing),
            greeted = self.greeting(&mut reports) => greeted,
            () = passed_while_running(GREETING_TIMEOUT) => Err(End::NoGreeting),
        };
        let end = match greeted {
            Err(end) => end,
            Ok(()) => match self.exchange(&mut reports, &directives).await {
                Err(end) => end,
                Ok(never) => match never {},
            },
        };
        let end = if self.is_replaced() {
            End::Replaced
        } else {
            end
        };
        // No notification: a departure is not urgent, and when many children leave together each would wake
        // all others.
        self.shared
            .with(|parent, now| parent.on_close(now, self.stream));
        if let Some(child) = &self.child {
            self.streams
                .children
                .with(|children, _| children.close(child.instance, self.stream));
        }
        self.log_end(&end);
        if let Some((reason, status)) = end.status() {
            // A child that renews its certificate breaks no rule.
            if !matches!(end, End::Replaced) {
                let child = self.child.as_ref().filter(|_| end.is_refused_report());
                self.streams.rejected.on_rejected(Rejection {
                    reason,
                    cause: status.message(),
                    child,
                });
            }
            tracing::debug!(
                stream = self.stream.0,
                reason,
                status = status.message(),
                "stream rejected"
            );
            // The child may be slow or lost; the task must not outlive it.
            let _ = timeout(FINAL_STATUS_TIMEOUT, directives.send(Err(status))).await;
        }
    }

    async fn greeting(&mut self, reports: &mut Streaming<wire::Report>) -> Result<(), End> {
        while !self.take(reports.message().await)? {}
        Ok(())
    }

    /// Enters reports and sends directives until the stream ends.
    async fn exchange(
        &mut self,
        reports: &mut Streaming<wire::Report>,
        directives: &mpsc::Sender<Result<MessagePart, Status>>,
    ) -> Result<Infallible, End> {
        let mut changes = self.shared.changes();
        let mut liveness = Liveness::new(self.shared.now());
        let mut pulse = pin!(sleep(liveness::pulse(self.interval)));
        let closing = self.streams.closing.clone();
        // One future for the whole stream: ten thousand streams wait for the same token.
        let mut closed = pin!(closing.cancelled());
        // The first message answers the greeting immediately, before any heartbeat.
        let mut is_due = true;
        loop {
            self.check_expiry()?;
            let now = self.shared.now();
            let is_silent = liveness.is_dead(now, self.interval);
            let is_overdue = self.is_overdue(now);
            tokio::select! {
                biased;
                () = &mut closed => return Err(End::Closing),
                permit = directives.reserve(), if is_due || self.outgoing.is_some() => {
                    let permit = permit.map_err(|_| End::Closed)?;
                    if self.outgoing.is_none() {
                        is_due = false;
                        self.outgoing = self.next_message()?;
                    }
                    if let Some(part) = self.outgoing.as_mut().and_then(Iterator::next) {
                        permit.send(Ok(part));
                        pulse.as_mut().reset(Instant::now() + liveness::pulse(self.interval));
                    }
                    self.outgoing.take_if(|parts| parts.is_over());
                }
                changed = changes.changed() => {
                    changed.map_err(|_| End::Closing)?;
                    is_due = true;
                }
                () = &mut pulse => {
                    is_due = true;
                    pulse.as_mut().reset(Instant::now() + liveness::pulse(self.interval));
                }
                report = reports.message() => {
                    self.take(report)?;
                    liveness.on_message(self.shared.now());
                    if self.unfinished.is_some() {
                        // Other tasks run between the parts of a large report.
                        yield_now().await;
                    }
                }
                // Last, so that a report that has arrived is read first.
                () = ready(()), if is_silent => return Err(End::Silent),
                () = ready(()), if is_overdue => return Err(End::Unfinished),
            }
        }
    }

    /// Returns true if the last part of a report has been missing for too long, while this process ran.
    fn is_overdue(&mut self, now: MonoTime) -> bool {
        let interval = self.interval;
        self.unfinished
            .as_mut()
            .is_some_and(|waited| waited.until(now, interval) > REPORT_TIMEOUT)
    }

    /// Decodes a message of the child and enters its report, or the part of one. Returns false if there is nothing
    /// to enter yet.
    fn take(&mut self, message: Result<Option<wire::Report>, Status>) -> Result<bool, End> {
        let part = message.map_err(End::from_read_error)?.ok_or(End::Closed)?;
        let decoded = self.decoder.decode(part).map_err(End::Decode)?;
        let waited = self
            .unfinished
            .unwrap_or_else(|| Waited::new(self.shared.now()));
        self.unfinished = self.decoder.is_unfinished().then_some(waited);
        let Some(report) = decoded else {
            return Ok(false);
        };
        let is_greeting = report.greeting.identity.is_some() && self.child.is_none();
        if is_greeting {
            self.child.clone_from(&report.greeting.identity);
            self.check_certificate()?;
        }
        let leaves = report.leaving;
        let guard = self.guard.as_ref().filter(|_| is_greeting);
        let source = guard.map(ConnectionGuard::source);
        let greets = self.child.as_ref().map(|child| child.instance).zip(source);
        let children = &self.streams.children;
        let changed = self.shared.with(|parent, now| {
            // The report of a stream that was replaced has no session any more, and breaks no rule.
            if self.has_greeted && parent.is_superseded(self.stream) {
                return Err(End::Superseded);
            }
            if let Some((child, source)) = greets {
                children
                    .with(|held, _| held.check(child, source, parent.children_max()))
                    .map_err(End::Rejected)?;
            }
            let changed = parent
                .on_report(now, self.stream, report)
                .map_err(End::Rejected)?;
            if let Some((child, source)) = greets {
                children.with(|held, _| held.greet(child, source, self.stream));
            }
            Ok(changed)
        });
        if changed? {
            self.shared.notify();
        }
        self.has_greeted = true;
        if let Some(guard) = self.guard.take() {
            self.greeted = Some(guard.greeted());
        }
        self.is_leaving |= leaves;
        if let Some(Identity { zone, name, .. }) = self.aggregator().filter(|_| is_greeting) {
            tracing::info!(%zone, aggregator = %name, "aggregator connected");
        }
        Ok(true)
    }

    /// Checks that the certificate of the connection allows the greeting, before anything of it counts.
    fn check_certificate(&self) -> Result<(), End> {
        self.check_expiry()?;
        match self.certified.as_ref().zip(self.child.as_ref()) {
            Some((certified, child)) => certified.check(child).map_err(End::Forbidden),
            None => Ok(()),
        }
    }

    /// Fails once the child's certificate has expired. A resumed connection has not verified it again.
    fn check_expiry(&self) -> Result<(), End> {
        match self
            .certified
            .as_ref()
            .filter(|certified| certified.is_expired())
        {
            Some(certified) => Err(End::Expired(certified.child.clone())),
            None => Ok(()),
        }
    }

    /// Returns true if the same process has greeted on a newer stream.
    fn is_replaced(&self) -> bool {
        let latest = self
            .child
            .as_ref()
            .filter(|_| self.has_greeted)
            .and_then(|child| {
                self.streams
                    .children
                    .with(|children, _| children.stream_of(child.instance))
            });
        latest.is_some_and(|latest| latest != self.stream)
    }

    fn aggregator(&self) -> Option<&Identity> {
        self.child
            .as_ref()
            .filter(|child| self.has_greeted && child.role == Role::Aggregator)
    }

    /// Logs the end of the stream of an aggregator. Clients are too many to be logged.
    fn log_end(&self, end: &End) {
        let Some(Identity { zone, name, .. }) = self.aggregator() else {
            return;
        };
        if matches!(end, End::Replaced) {
            tracing::info!(%zone, aggregator = %name, "aggregator has opened a new stream");
        } else if self.is_leaving {
            tracing::info!(%zone, aggregator = %name, "aggregator shut down cleanly: its share is free");
        } else {
            tracing::warn!(%zone, aggregator = %name, reason = end.reason(), "aggregator disconnected");
        }
    }

    /// Returns the parts of the next message; `None` if the child has all changes.
    fn next_message(&mut self) -> Result<Option<Parts>, End> {
        let message = self.shared.with(|parent, now| {
            if parent.is_superseded(self.stream) {
                return Err(End::Superseded);
            }
            Ok(parent.message(now, self.stream))
        });
        // Encoded when it is sent, after the lock of the state machine is released.
        Ok(message?.map(|message| {
            self.interval = message.head.report_interval.unwrap_or(self.interval);
            encode_directives(message)
        }))
    }
}

#[cfg(test)]
mod tests;
