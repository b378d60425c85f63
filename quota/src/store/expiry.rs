//! Removes the rows of full buckets while the database merges its tables. A bucket without a row is
//! full.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fjall::compaction::filter::{
    CompactionFilter, CompactionFilterResult, Context, Factory, ItemAccessor, Verdict,
};

use super::row::{Row, SETTLED_KEY};

/// Time by the server's clock that a bucket must have been full before its row is removed.
pub(crate) const FULL_MS: u64 = 60_000;

pub(super) struct Expiry {
    /// Quota time of the last operations in milliseconds; 0 before the first.
    pub(super) clock: Arc<AtomicU64>,
}

struct Filter {
    now_ms: u64,
}

impl Factory for Expiry {
    fn name(&self) -> &str {
        "full buckets"
    }

    fn make_filter(&self, _: &Context) -> Box<dyn CompactionFilter> {
        Box::new(Filter {
            now_ms: self.clock.load(Ordering::Relaxed),
        })
    }
}

impl CompactionFilter for Filter {
    fn filter_item(&mut self, item: ItemAccessor<'_>, _: &Context) -> CompactionFilterResult {
        if **item.key() == SETTLED_KEY {
            return Ok(Verdict::Keep);
        }
        let is_expired = Row::decode(&item.value()?)
            .is_some_and(|row| row.full_at_ms.saturating_add(FULL_MS) <= self.now_ms);
        // A tombstone: an earlier row of this bucket, in a table below, must not reappear.
        Ok(if is_expired {
            Verdict::Remove
        } else {
            Verdict::Keep
        })
    }
}
