//! The rule that decides which of two controllers leads, wherever both are seen.

use super::Epoch;
use crate::kill::KillGeneration;
use crate::report::InstanceId;

/// Maximum step above its own epoch that a controller takes because a child has seen a later one.
/// Each start of a controller adds 1, so no backup is that old. An aggregator passes no larger claim on. Children
/// accept much larger steps from a parent, so that children that were away during several steps still follow.
pub const EPOCH_STEP_MAX: u64 = 1 << 20;

/// A controller, as its directives name it. Of two the greater leads: the one of the later epoch, and of two
/// at one epoch the one with the higher instance id. Children refuse the directives of the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Leader {
    /// Its epoch.
    pub epoch: Epoch,
    /// Its process; `None` if only the epoch is known.
    pub instance: Option<InstanceId>,
}

impl Leader {
    /// Returns true if the other is a second controller at the same epoch, as on a copy of one state.
    pub fn is_rival_of(self, other: Self) -> bool {
        self.epoch == other.epoch
            && self
                .instance
                .zip(other.instance)
                .is_some_and(|(own, other)| own != other)
    }
}

impl From<Epoch> for Leader {
    /// Returns a controller with only its epoch known.
    fn from(epoch: Epoch) -> Self {
        Self {
            epoch,
            instance: None,
        }
    }
}

/// What directives say about the controller that decided them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SentLead {
    /// The controller, also in the message of an aggregator. Absent if the parent has no controller
    /// yet, or is a controller that has lost the lead: the message then carries no values.
    pub leader: Option<Leader>,
    /// True while the controller cannot confirm at its store that it leads. An aggregator does not forward it.
    pub unconfirmed: bool,
    /// The hash of the current policy; absent before there is one.
    pub policy_hash: Option<u64>,
    /// Kills of buckets with a generation up to this one have ended and are forgotten. Counts only with a
    /// controller.
    pub forgotten: KillGeneration,
}

impl SentLead {
    /// Returns the epoch of the controller.
    pub fn epoch(&self) -> Option<Epoch> {
        self.leader.map(|leader| leader.epoch)
    }
}

impl From<Epoch> for SentLead {
    /// Returns the lead of a controller with only its epoch known.
    fn from(epoch: Epoch) -> Self {
        Self {
            leader: Some(epoch.into()),
            ..Self::default()
        }
    }
}
