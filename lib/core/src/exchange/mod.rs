//! The exchange between a parent and its children. One protocol serves every hop: client to aggregator,
//! aggregator to aggregator, and aggregator to controller.
//!
//! Both sides are traits, so that one driver per side serves every tier over gRPC, and the simulator drives
//! the same state machines. Nothing here waits, sends or reads a clock.

pub mod admission;
pub mod authority;
pub mod backoff;
pub mod liveness;
pub mod other_controllers;
pub(crate) mod path;
mod peer_id;
mod room;
pub mod sessions;
mod source;

pub use path::Path;
pub use peer_id::{InvalidPeerId, PeerId, PeerRole};
pub use room::{Asked, LatestNames, NAMES_MAX, UNUSED};
pub use source::{ChildrenBySource, Source, is_loopback, names_loopback};

use std::fmt::Debug;
use std::time::Duration;

use crate::directive::{Directives, Message, StaleDirective};
use crate::names::Name;
use crate::quantity::MonoTime;
use crate::report::{Identity, InvalidReport, Report};

/// The number of one stream at a parent; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u64);

/// The state machine that answers reports with directives.
pub trait Parent {
    /// Takes a report. The first one on a stream is the greeting, which carries the child's identity. Returns
    /// true if the report changed the directives of other children.
    ///
    /// # Errors
    /// If the stream must be closed; nothing of the report was counted.
    fn on_report(
        &mut self,
        now: MonoTime,
        stream: StreamId,
        report: Report,
    ) -> Result<bool, StreamRejected>;

    /// Handles the end of a stream, for any cause.
    fn on_close(&mut self, now: MonoTime, stream: StreamId);

    /// Returns the changes that were not sent on this stream yet, with the updates it shares with others.
    /// `None` if there are none; ask again after the next change. They count as sent.
    fn message(&mut self, now: MonoTime, stream: StreamId) -> Option<Message>;

    /// Returns the same message as the child decodes it.
    fn directives(&mut self, now: MonoTime, stream: StreamId) -> Option<Directives> {
        self.message(now, stream).map(Directives::from)
    }

    /// Returns true if a stream should end: a newer one of the same child replaced it, or its child was removed. Also true
    /// before the greeting and after the end.
    fn is_superseded(&self, stream: StreamId) -> bool;

    /// Maximum number of connected children. At most half of them may be from one source.
    fn children_max(&self) -> usize {
        usize::MAX
    }
}

/// The state machine that reports and applies directives.
pub trait Child {
    /// Begins a new stream; the next report is its greeting.
    fn on_open(&mut self, now: MonoTime);

    /// Returns the next report to the parent.
    fn report(&mut self, now: MonoTime) -> Report;

    /// Takes a message of the parent.
    ///
    /// # Errors
    /// If it must not be applied: it was counted as refused, and of it at most kill generations, drills and acknowledgements
    /// were taken.
    fn on_directives(
        &mut self,
        now: MonoTime,
        directives: Directives,
    ) -> Result<(), StaleDirective>;

    /// The time between reports.
    fn report_interval(&self) -> Duration;

    /// Returns true if the parent waits for an acknowledgement, so that the next report should be sent before
    /// its interval is over.
    fn is_report_due(&self) -> bool {
        false
    }

    /// Returns true if the children of this child have something new to read since the last call, so that its driver
    /// wakes their streams. A leaf always returns true.
    fn has_downstream_changes(&mut self) -> bool {
        true
    }

    /// The last report of an orderly stop.
    fn farewell(&mut self, now: MonoTime) -> Report {
        Report {
            leaving: true,
            ..self.report(now)
        }
    }

    /// Records that the parent has read the last report of an orderly stop, and with it all before.
    fn on_farewell_read(&mut self, _now: MonoTime) {}
}

/// Observer of the streams that a parent does not admit, or closes with a cause.
pub trait OnRejected: Send + Sync + Debug + 'static {
    /// Called when a stream is turned away or closed.
    fn on_rejected(&self, rejection: Rejection<'_>);
}

/// The end of a stream by the parent.
#[derive(Clone, Copy, Debug)]
pub struct Rejection<'a> {
    /// The value of a metric label.
    pub reason: &'static str,
    /// The cause, as sent to the child.
    pub cause: &'a str,
    /// The child with the refused report; `None` if it has not greeted, or no report was refused.
    pub child: Option<&'a Identity>,
}

/// The reason why a parent closes a stream.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamRejected {
    /// The report violates the protocol.
    #[error(transparent)]
    Broken(#[from] InvalidReport),
    /// The first report of a stream, and only that one, carries an identity.
    #[error("the first report of a stream must carry an identity, and only that one")]
    Greeting,
    /// The child belongs to another tier, or its instance has greeted with another role, zone or service.
    #[error("{0}")]
    WrongTier(&'static str),
    /// The parent is the child itself, or below it.
    #[error(
        "aggregators are connected in a loop: this one is below the one that connects; point one of them at a \
         controller, or at an aggregator that leads to one"
    )]
    Loop,
    /// Too many aggregators between clients and their controller.
    #[error(
        "{aggregators} aggregators in a chain exceed the maximum of {}; connect the lowest one nearer to the \
         controller",
        Path::IDS_MAX + 1
    )]
    TooDeep {
        /// The length of the chain, as far as the parent knows.
        aggregators: usize,
    },
    /// The parent has no room for another child.
    #[error("{0} children are connected, the maximum of this parent")]
    Full(usize),
    /// The parent has no room for another child of this source.
    #[error("{0} children are connected from this address, half of the maximum of this parent")]
    SourceFull(usize),
    /// The clients of a service have too many keys.
    #[error(
        "the clients of {service} have more keys at this parent than {keys_max}, or all services too many; let the service \
         take tenant names from fewer values, or run more aggregators in the zone"
    )]
    NoKeyRoom {
        /// The service.
        service: Name,
        /// The bound for one service.
        keys_max: usize,
    },
    /// The stream is unknown, or has ended.
    #[error("this stream has ended; open a new one")]
    Unknown,
}

impl StreamRejected {
    /// The value of a metric label.
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Broken(_) => "broken",
            Self::Greeting => "greeting",
            Self::WrongTier(_) => "wrong_tier",
            Self::Loop => "loop",
            Self::TooDeep { .. } => "too_deep",
            Self::Full(_) | Self::SourceFull(_) | Self::NoKeyRoom { .. } => "full",
            Self::Unknown => "unknown",
        }
    }
}
