//! The time before the policy of a bucket is known: whether it is over, and how many requests were decided in it.

use plimsoll_core::names::KeyId;
use plimsoll_core::quantity::DropRatio;

use super::Subscription;
use crate::hot::directive_word::DirectiveWord;

/// The decision about requests of a bucket whose policy is not known yet: before its first directive, unless an earlier
/// process has saved one or the service itself has set a [rate](crate::LimiterBuilder::cold_rps).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum BeforePolicy {
    /// They are admitted, without their quotas.
    #[default]
    Allow,
    /// They are refused, for [`Reason::ColdStart`](crate::Reason::ColdStart).
    Deny,
}

impl BeforePolicy {
    /// Returns the word in settings, metrics and status.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
        }
    }

    /// Returns the word of a bucket whose policy is not known.
    pub(crate) fn word(self) -> DirectiveWord {
        match self {
            Self::Allow => DirectiveWord::NOTHING,
            Self::Deny => DirectiveWord::new(DropRatio::ALL).cold(true).enforced(true),
        }
    }
}

impl std::str::FromStr for BeforePolicy {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let all = [Self::Allow, Self::Deny];
        all.into_iter().find(|policy| policy.as_str() == text).ok_or("write allow or deny")
    }
}

impl Subscription {
    /// Returns true if every bucket has a directive.
    pub(crate) fn are_policies_known(&mut self) -> bool {
        self.sync_names();
        self.posted().all(|(_, posted)| posted.is_some())
    }

    /// Returns the requests decided so far before the policy of their bucket was known.
    pub(crate) fn decided_before_policy(&mut self) -> u64 {
        self.sync_names();
        let decided = |id| self.decided_before.get(id).copied().flatten().unwrap_or_else(|| self.decided(id));
        (0..self.buckets.len()).map(decided).sum()
    }

    /// Notes that the policy of a bucket is known.
    pub(super) fn note_policy(&mut self, id: usize) {
        if self.decided_before.len() <= id {
            self.decided_before.resize(id + 1, None);
        }
        if self.decided_before[id].is_none() {
            self.decided_before[id] = Some(self.decided(id));
        }
    }

    fn decided(&self, id: usize) -> u64 {
        let keys = (0..self.registry.keys().len() as u32)
            .filter(|key| self.table.keys.owner_of(*key) as usize == id);
        keys.map(|key| self.registry.counts(&self.table, KeyId(key)).asked()).sum()
    }
}
