//! What outlives the process: what holds, for the next one to begin with, and what an earlier one has left.

use std::collections::BTreeSet;

use plimsoll_core::names::Bucket;

use super::session::Strand;
use super::{Subscription, Version};
use crate::cache::directive_cache::Kept;

impl Subscription {
    /// Whether decisions still rest on what an earlier process kept.
    pub(crate) const fn is_from_kept(&self) -> bool {
        self.from_kept
    }

    /// What holds, to be kept for a later process, and the name of that state; `None` while it is kept already.
    pub(crate) fn news_to_keep(&self) -> Option<(Version, Kept)> {
        let version = self.version();
        (self.kept != version).then(|| (version, self.to_keep()))
    }

    /// The version of the kill generations held, while it has not been kept.
    pub(crate) fn kills_to_keep(&self) -> Option<u64> {
        (self.kept.2 != self.kills.version()).then(|| self.kills.version())
    }

    /// The state of this name has been kept.
    pub(crate) fn on_kept(&mut self, version: Version) {
        self.kept = version;
    }

    const fn version(&self) -> Version {
        (self.board.version(), self.epoch, self.kills.version())
    }

    pub(super) fn to_keep(&self) -> Kept {
        let is_known: BTreeSet<&Bucket> = self.buckets.iter().collect();
        // Those this process has asked for first, should there be too many.
        let others = self.board.iter().map(|(bucket, _)| bucket).filter(|bucket| !is_known.contains(bucket));
        let whole = self.buckets.iter().chain(others).filter_map(|bucket| self.board.since(bucket, 0));
        Kept {
            epoch: self.epoch,
            kill: self.kills.fleet(),
            kills: self.kills.since(0),
            buckets: whole.take(Kept::BUCKETS_MAX).collect(),
        }
    }

    /// Takes up what an earlier process kept, before anybody has spoken.
    pub(crate) fn restore(&mut self, kept: Kept) {
        self.kills.merge(kept.kill, &kept.kills);
        self.epoch = self.epoch.max(kept.epoch);
        for strand in self.strands.values_mut() {
            *strand = Strand::new(self.epoch);
        }
        for mut directive in kept.buckets {
            directive.terms.kill = directive.terms.kill.at_most(self.kills.of(&directive.bucket));
            self.board.apply(&directive);
        }
        (self.from_kept, self.kept) = (true, self.version());
        self.look();
        (0..self.buckets.len()).for_each(|id| self.publish(id));
    }
}
