//! The current directives, and their way over restarts: what the next process restores, and whether
//! it is saved yet.

use plimsoll_core::kill::drill::Drill;
use std::collections::BTreeSet;

use plimsoll_core::directive::{
    Board, BucketDirective, Directives, Epoch, Leader, Posted, SentLead, StaleDirective,
};
use plimsoll_core::kill::{KillNews, Kills};
use plimsoll_core::names::Bucket;

use crate::hot::table::BUCKETS_MAX;

/// The versions of all that is saved: equal to the saved ones if nothing is unsaved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Version {
    directives: u64,
    pub(super) epoch: Option<Epoch>,
    kills: u64,
}

#[derive(Default)]
pub(crate) struct DirectiveCache {
    board: Board,
    /// The highest leader of any message accepted or restored.
    pub(super) leader: Option<Leader>,
    /// True until the first directive of this process replaces directives saved by an earlier one.
    pub(crate) is_restored: bool,
    /// The version in the file.
    pub(crate) saved: Version,
}

impl DirectiveCache {
    pub(super) fn get(&self, bucket: &Bucket) -> Option<&Posted> {
        self.board.get(bucket)
    }

    /// Returns true if the directive changed anything.
    pub(super) fn apply(&mut self, directive: &BucketDirective) -> bool {
        self.is_restored = false;
        self.board.apply(directive)
    }

    /// Refuses a controller at the epoch of a greater one.
    pub(super) fn check_leader(&self, got: Option<Leader>) -> Result<(), StaleDirective> {
        match self.leader.zip(got) {
            Some((held, got)) if got < held && got.is_rival_of(held) => {
                Err(StaleDirective::Rival { held, got })
            }
            _ => Ok(()),
        }
    }

    pub(super) fn follow(&mut self, leader: Option<Leader>) {
        self.leader = self.leader.max(leader);
    }

    pub(crate) fn epoch(&self) -> Option<Epoch> {
        Some(self.leader?.epoch)
    }

    /// Returns the epoch of restored directives, below which a new session accepts none.
    pub(super) fn restored_epoch(&self) -> Option<Epoch> {
        self.epoch().filter(|_| self.is_restored)
    }

    pub(super) fn restore(&mut self, saved: Directives, kills: &Kills) {
        self.follow(saved.lead.leader);
        for mut directive in saved.buckets {
            kills.cap_knowledge(&mut directive);
            self.board.apply(&directive);
        }
        self.is_restored = true;
        self.saved = self.version(kills);
    }

    /// Returns all that is to be saved. If there are too many buckets, the buckets in `used_first`
    /// have precedence.
    pub(super) fn snapshot(&self, used_first: &[Bucket], kills: &Kills) -> Directives {
        let is_used: BTreeSet<&Bucket> = used_first.iter().collect();
        let others = self
            .board
            .iter()
            .map(|(bucket, _)| bucket)
            .filter(|bucket| !is_used.contains(bucket));
        let whole = used_first
            .iter()
            .chain(others)
            .filter_map(|bucket| self.board.since(bucket, 0));
        Directives {
            lead: SentLead {
                leader: self.epoch().map(Leader::from),
                ..SentLead::default()
            },
            seq: 1,
            kills: KillNews {
                drill: Drill::default(),
                ..kills.news(0)
            },
            buckets: whole.take(BUCKETS_MAX).collect(),
            ..Directives::default()
        }
    }

    pub(super) fn unsaved(&self, kills: &Kills) -> Option<Version> {
        Some(self.version(kills)).filter(|version| *version != self.saved)
    }

    pub(super) fn unsaved_kills(&self, kills: &Kills) -> Option<u64> {
        Some(kills.version()).filter(|version| *version != self.saved.kills)
    }

    fn version(&self, kills: &Kills) -> Version {
        Version {
            directives: self.board.version(),
            epoch: self.epoch(),
            kills: kills.version(),
        }
    }
}

#[cfg(test)]
#[cfg(not(feature = "loom"))]
mod tests {
    use plimsoll_core::directive::Terms;

    use super::*;

    fn directive(bucket: &str) -> BucketDirective {
        let bucket = Bucket::new(bucket).unwrap();
        BucketDirective {
            bucket,
            whole: true,
            terms: Terms::default(),
            keys: Vec::new(),
        }
    }

    #[test]
    fn snapshot_lists_used_buckets_first() {
        let (mut cache, kills) = (DirectiveCache::default(), Kills::default());
        assert_eq!(cache.unsaved(&kills), None);
        ["a", "b", "c"]
            .iter()
            .for_each(|bucket| assert!(cache.apply(&directive(bucket))));
        let version = cache.unsaved(&kills).unwrap();
        let snapshot = cache.snapshot(&[Bucket::new("c").unwrap()], &kills);
        let names: Vec<&str> = snapshot
            .buckets
            .iter()
            .map(|directive| directive.bucket.as_str())
            .collect();
        assert_eq!(names, ["c", "a", "b"]);
        cache.saved = version;
        assert_eq!(cache.unsaved(&kills), None);
        cache.follow(Some(Epoch(1).into()));
        assert!(cache.unsaved(&kills).is_some());
    }

    #[test]
    fn restored_directives_count_as_saved() {
        let kills = Kills::default();
        let mut cache = DirectiveCache::default();
        let buckets = vec![directive("a")];
        cache.restore(
            Directives {
                lead: Epoch(5).into(),
                buckets,
                ..Directives::default()
            },
            &kills,
        );
        assert_eq!(
            (cache.is_restored, cache.restored_epoch()),
            (true, Some(Epoch(5)))
        );
        assert_eq!(cache.unsaved(&kills), None);
        cache.apply(&directive("b"));
        assert_eq!(
            (cache.is_restored, cache.restored_epoch(), cache.epoch()),
            (false, None, Some(Epoch(5)))
        );
        assert!(cache.unsaved(&kills).is_some());
    }
}
