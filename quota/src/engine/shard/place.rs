//! The place of a bucket among the shards, and the moment of a batch of operations.

use crate::store::RowKey;

#[derive(Clone, Debug)]
pub(in crate::engine) struct Place {
    pub(in crate::engine) key: RowKey,
    pub(in crate::engine) hash: u64,
    pub(in crate::engine) shard: usize,
}

#[derive(Debug)]
pub(in crate::engine) struct Moment {
    pub(in crate::engine) now_ms: u64,
    pub(in crate::engine) minute: u16,
    /// Number of the commit that saves all changes so far; 0 for none.
    pub(in crate::engine) commit: u64,
    /// True if the current operation has changed a bucket.
    pub(in crate::engine) is_changed: bool,
}

impl Moment {
    pub(in crate::engine) const fn new(now_ms: u64) -> Self {
        Self {
            now_ms,
            minute: (now_ms / 60_000) as u16,
            commit: 0,
            is_changed: false,
        }
    }

    pub(in crate::engine) fn note_commit(&mut self, number: u64) {
        self.commit = self.commit.max(number);
        self.is_changed = true;
    }
}
