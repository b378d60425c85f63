//! Directives only ever move forward: which message may be applied after which.

use super::Epoch;
use crate::kill::{JUMP_MAX, KillGeneration};

/// Remembers how far the messages of a parent have come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sequence {
    epoch: Option<Epoch>,
    seq: u64,
}

/// A message that must not be applied: older than what is held, or too far ahead of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StaleDirective {
    /// An older reign's word: refused always.
    #[error("epoch {got:?} is older than {held:?}")]
    Epoch {
        /// The epoch held.
        held: Epoch,
        /// The epoch that came.
        got: Epoch,
    },
    /// An epoch that cannot be true: whoever held it would be refused by every sound peer.
    #[error("epoch {got:?} is too far above {held:?} to be true")]
    EpochJump {
        /// The epoch held, if any.
        held: Option<Epoch>,
        /// The epoch that came.
        got: Epoch,
    },
    /// A kill generation that cannot be true.
    #[error("kill generation {got:?} is too far above {held:?} to be true")]
    KillJump {
        /// The generation held.
        held: KillGeneration,
        /// The generation that came.
        got: KillGeneration,
    },
    /// A number at or below the last one applied on this stream.
    #[error("message {got} came after message {held} of the same stream")]
    Seq {
        /// The last number applied.
        held: u64,
        /// The number that came.
        got: u64,
    },
}

impl Sequence {
    /// The highest epoch applied.
    #[must_use]
    pub const fn epoch(&self) -> Option<Epoch> {
        self.epoch
    }

    /// A new stream begins: numbers start over, epochs do not.
    pub fn open(&mut self) {
        self.seq = 0;
    }

    /// Takes a message if it is newer than everything applied so far. A parent that has heard no controller sends
    /// no epoch; its messages carry no values, so only their number counts.
    ///
    /// # Errors
    /// When it is older; nothing is remembered of it then.
    pub fn accept(&mut self, epoch: Option<Epoch>, seq: u64) -> Result<(), StaleDirective> {
        if seq <= self.seq {
            return Err(StaleDirective::Seq { held: self.seq, got: seq });
        }
        if let (Some(held), Some(got)) = (self.epoch, epoch)
            && got < held
        {
            return Err(StaleDirective::Epoch { held, got });
        }
        if let Some(got) = epoch
            && got.0.saturating_sub(self.epoch.map_or(0, |held| held.0)) > JUMP_MAX
        {
            return Err(StaleDirective::EpochJump { held: self.epoch, got });
        }
        self.epoch = self.epoch.max(epoch);
        self.seq = seq;
        Ok(())
    }
}
