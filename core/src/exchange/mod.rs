//! One conversation on every hop: an aggregator is to the controller what a client is to an aggregator, and so is it to
//! another aggregator.
//!
//! The two sides are traits, so that one driver per side serves every tier over gRPC, and another drives the very
//! same state machines in simulation. Nothing here waits, sends or reads a clock.

pub mod backoff;
mod path;
pub mod sessions;

pub use path::Path;

use std::time::Duration;

use crate::directive::{Directives, Epoch, Message, StaleDirective};
use crate::kill::{JUMP_MAX, KillGeneration, Kills};
use crate::quantity::MonoTime;
use crate::report::{InvalidReport, Report};

/// One stream at a parent, numbered by whoever accepts streams; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u64);

/// The state machine that answers reports with directives.
pub trait Parent {
    /// Takes a report. The first on a stream is the greeting and says who speaks. True when it changed what others
    /// have to hear.
    ///
    /// # Errors
    /// When the stream must be closed; nothing of the report was entered.
    fn on_report(&mut self, now: MonoTime, stream: StreamId, report: Report) -> Result<bool, StreamRejected>;

    /// The stream ended, in whatever way.
    fn on_close(&mut self, now: MonoTime, stream: StreamId);

    /// What the child has not been told yet, with what it shares with others. `None`: nothing for now, ask again after
    /// the next change.
    fn message(&mut self, now: MonoTime, stream: StreamId) -> Option<Message>;

    /// The same as the child will read it.
    fn directives(&mut self, now: MonoTime, stream: StreamId) -> Option<Directives> {
        self.message(now, stream).map(Directives::from)
    }

    /// Whether the stream was replaced by a newer one of the same child and should end.
    fn is_superseded(&self, stream: StreamId) -> bool;
}

/// The state machine that reports and applies directives.
pub trait Child {
    /// A new stream begins; the next report is its greeting.
    fn on_open(&mut self, now: MonoTime);

    /// What to tell the parent now.
    fn report(&mut self, now: MonoTime) -> Report;

    /// Takes a message of the parent.
    ///
    /// # Errors
    /// When it must not be applied: it was counted, and what was held stays.
    fn on_directives(&mut self, now: MonoTime, directives: Directives) -> Result<(), StaleDirective>;

    /// How long to wait between reports.
    fn report_interval(&self) -> Duration;

    /// Whether something was heard that the parent waits to know of, so that the next report should not wait for its
    /// interval to be over.
    fn is_report_due(&self) -> bool {
        false
    }

    /// Whether those below have something to hear since this was last asked. One that has nobody below never minds.
    fn has_news(&mut self) -> bool {
        true
    }

    /// The last report of an orderly stop.
    fn farewell(&mut self, now: MonoTime) -> Report {
        Report { leaving: true, ..self.report(now) }
    }
}

/// Why a parent will not go on with a stream.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamRejected {
    /// The report cannot have come from a sound peer.
    #[error(transparent)]
    Broken(#[from] InvalidReport),
    /// The first report of a stream must say who speaks.
    #[error("the first report of a stream must carry an identity, and only that one")]
    Greeting,
    /// The child belongs to another tier.
    #[error("{0}")]
    WrongTier(&'static str),
    /// The parent is the child itself, or stands below it.
    #[error(
        "aggregators are connected in a loop: this one stands below the one that asks; point one of them at a \
         controller, or at an aggregator that leads to one"
    )]
    Loop,
    /// Too many aggregators on the way from clients to their controller.
    #[error(
        "{aggregators} aggregators one above the other are too many, {} may be; connect the lowest nearer to the \
         controller",
        Path::IDS_MAX + 1
    )]
    TooDeep {
        /// How many there would be, as far as the parent knows.
        aggregators: usize,
    },
    /// There is no room for another child.
    #[error("{0} children are connected, which is the most this parent takes")]
    Full(usize),
    /// The epoch a child claims to have heard cannot be true.
    #[error("the child claims epoch {claimed}, which is too far above {own}")]
    EpochJump {
        /// What the child says.
        claimed: u64,
        /// The controller's own.
        own: u64,
    },
    /// A kill generation that cannot be true.
    #[error("the child claims kill generation {claimed:?}, which is too far above {own:?}")]
    KillJump {
        /// What the child says.
        claimed: KillGeneration,
        /// The parent's own.
        own: KillGeneration,
    },
    /// The stream is not known, or no longer.
    #[error("this stream has ended; open a new one")]
    Unknown,
}

impl StreamRejected {
    /// Holds what a report claims to have heard against what its parent knows, before it is passed on: a child may well
    /// have heard of a later epoch or kill, but not of one so much later that it would bar all that are to come.
    ///
    /// # Errors
    /// When a claim cannot be true.
    pub fn check_claims(report: &Report, epoch: Option<Epoch>, kills: &Kills) -> Result<(), Self> {
        let number = |epoch: Option<Epoch>| epoch.map_or(0, |epoch| epoch.0);
        let (claimed, own) = (number(report.epoch), number(epoch));
        if claimed.saturating_sub(own) > JUMP_MAX {
            return Err(Self::EpochJump { claimed, own });
        }
        let jump = |(own, claimed)| Self::KillJump { claimed, own };
        kills.check(report.kill, &report.kills).map_err(jump)
    }

    /// A short word for a metric label.
    #[must_use]
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Broken(_) => "broken",
            Self::Greeting => "greeting",
            Self::WrongTier(_) => "wrong_tier",
            Self::Loop => "loop",
            Self::TooDeep { .. } => "too_deep",
            Self::Full(_) => "full",
            Self::EpochJump { .. } => "epoch_jump",
            Self::KillJump { .. } => "kill_jump",
            Self::Unknown => "unknown",
        }
    }
}
