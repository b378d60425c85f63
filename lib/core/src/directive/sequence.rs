//! The order of directives: a message applies only if it is newer than all applied before.

use super::{Epoch, Leader};
use crate::kill::{EPOCH_JUMP_MAX, KillGeneration};

/// The greatest controller whose directives were applied, and the number of the last message applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sequence {
    leader: Option<Leader>,
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
    /// Another controller at the same epoch, which does not lead.
    #[error("controller {:?} does not lead at epoch {:?}: {:?} does", .got.instance, .got.epoch, .held.instance)]
    Rival {
        /// The controller that leads.
        held: Leader,
        /// The controller that sent the directive.
        got: Leader,
    },
    /// An implausible epoch: a peer that applied it would be refused by every sound peer.
    #[error("epoch {got:?} is implausibly far above {held:?}")]
    EpochJump {
        /// The epoch held, if any.
        held: Option<Epoch>,
        /// The epoch that arrived.
        got: Epoch,
    },
    /// A kill generation, of the fleet or of a bucket, that no sound process reaches.
    #[error("kill generation {got:?} is implausibly far above {held:?}")]
    KillJump {
        /// The fleet's generation here.
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
    pub fn epoch(&self) -> Option<Epoch> {
        Some(self.leader?.epoch)
    }

    /// The controller of the highest epoch applied.
    pub const fn leader(&self) -> Option<Leader> {
        self.leader
    }

    /// Begins a new stream: sequence numbers start over, epochs do not.
    pub fn open(&mut self) {
        self.seq = 0;
    }

    /// Accepts a message if it is newer than all applied so far, and its controller leads. A parent without a
    /// controller sends no epoch; its messages carry no values, so only their number is checked.
    ///
    /// # Errors
    /// If it is older or implausible; the state is unchanged then.
    pub fn accept(&mut self, leader: Option<Leader>, seq: u64) -> Result<(), StaleDirective> {
        if seq <= self.seq {
            return Err(StaleDirective::Seq {
                held: self.seq,
                got: seq,
            });
        }
        if let Some(got) = leader {
            let held = self.leader.unwrap_or_default();
            if got.epoch < held.epoch {
                return Err(StaleDirective::Epoch {
                    held: held.epoch,
                    got: got.epoch,
                });
            }
            if got < held && got.is_rival_of(held) {
                return Err(StaleDirective::Rival { held, got });
            }
            if got.epoch.0 - held.epoch.0 > EPOCH_JUMP_MAX {
                return Err(StaleDirective::EpochJump {
                    held: self.epoch(),
                    got: got.epoch,
                });
            }
        }
        self.leader = self.leader.max(leader);
        self.seq = seq;
        Ok(())
    }
}
