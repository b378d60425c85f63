//! The order of directives: a message applies only if it is newer than all applied before.

use super::Epoch;
use crate::kill::{JUMP_MAX, KillGeneration};

/// The epoch and sequence number of the last directive applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sequence {
    epoch: Option<Epoch>,
    seq: u64,
}

/// A directive that must not be applied: older than the held state, or implausibly far ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StaleDirective {
    /// An older epoch: refused always.
    #[error("epoch {got:?} is older than {held:?}")]
    Epoch {
        /// The epoch held.
        held: Epoch,
        /// The epoch received.
        got: Epoch,
    },
    /// An implausible epoch: a peer that applied it would be refused by every sound peer.
    #[error("epoch {got:?} is implausibly far above {held:?}")]
    EpochJump {
        /// The epoch held, if any.
        held: Option<Epoch>,
        /// The epoch that came.
        got: Epoch,
    },
    /// An implausible kill generation.
    #[error("kill generation {got:?} is implausibly far above {held:?}")]
    KillJump {
        /// The generation held.
        held: KillGeneration,
        /// The generation received.
        got: KillGeneration,
    },
    /// A number at or below the last one applied on this stream.
    #[error("message {got} came after message {held} of the same stream")]
    Seq {
        /// The last number applied.
        held: u64,
        /// The number received.
        got: u64,
    },
}

impl Sequence {
    /// The highest epoch applied.
    pub const fn epoch(&self) -> Option<Epoch> {
        self.epoch
    }

    /// Begins a new stream: sequence numbers start over, epochs do not.
    pub fn open(&mut self) {
        self.seq = 0;
    }

    /// Accepts a message if it is newer than all applied so far. A parent without a controller sends no
    /// epoch; its messages carry no values, so only their number is checked.
    ///
    /// # Errors
    /// If it is older or implausible; the state is unchanged then.
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
