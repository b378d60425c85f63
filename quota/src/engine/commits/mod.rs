//! The thread that saves changes: one commit after the other, each with the latest state of every
//! changed bucket.

mod progress;
mod settling;

pub(super) use progress::Progress;
pub(super) use settling::{Settling, settle_all};

use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use super::shared::Shared;
use crate::args::Durability;
use crate::store::{Committed, Rows, StoreError, caught};

pub(super) const REOPEN_DELAY: Duration = Duration::from_secs(1);

/// Number of buckets gathered without a pause, and length of a pause. Operations on the same core
/// run meanwhile.
const ROWS_AT_ONCE: usize = 512;
const PAUSE: Duration = Duration::from_micros(50);

/// Maximum synchronisation time that counts for the pause between commits, which is half of it.
const SYNC_MAX: Duration = Duration::from_millis(1);

/// Number of buckets of a commit from which the processor is the bottleneck rather than the disk, so
/// a pause that makes commits fewer and larger pays. With fewer buckets half of the callers are
/// answered while the others wait for the disk.
const LARGE_COMMIT: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Committer {
    rows: Rows,
    /// Slots of the rows, shard after shard, and where the slots of each shard end.
    gathered: Vec<u32>,
    ends: Vec<usize>,
    /// Time of the slowest commit lately: it decays by a tenth with each commit.
    took: Duration,
    /// Earliest time of the next commit under `always`, after a large one.
    next_at: Option<Instant>,
    /// Last attempt to open the store again.
    reopened: Option<Instant>,
}

impl Committer {
    pub(super) fn run(mut self, shared: &Shared) {
        while !shared.is_stopped.load(Ordering::Acquire) {
            match self.due(shared) {
                Some(Duration::ZERO) => self.commit(shared),
                Some(wait) => thread::park_timeout(wait),
                None => thread::park(),
            }
        }
    }

    /// Returns the time until the next commit; `None` if none is due before a wake-up.
    fn due(&self, shared: &Shared) -> Option<Duration> {
        if shared.is_wanted.swap(false, Ordering::AcqRel) {
            return Some(Duration::ZERO);
        }
        let age = shared.progress.unsaved()?;
        match shared.durability {
            Durability::Always => Some(self.next_at.map_or(Duration::ZERO, |next_at| {
                next_at.saturating_duration_since(Instant::now())
            })),
            Durability::Interval(interval) => {
                // Late enough to save many debits of a bucket together, and early enough to end in
                // time.
                let reserve = (self.took * 3 / 2).clamp(interval / 10, interval / 2);
                Some((interval - reserve).saturating_sub(age))
            }
            Durability::None => None,
        }
    }

    fn commit(&mut self, shared: &Shared) {
        let began = Instant::now();
        let number = shared.progress.begin();
        match caught(|| self.save(shared, number, began)) {
            Ok(Some(committed)) => {
                let took = began.elapsed();
                // Callers that this commit answers return with new requests, and share the next
                // one.
                let is_large = self.rows.len() >= LARGE_COMMIT;
                let rest = committed.sync.min(SYNC_MAX) / 2;
                self.next_at = is_large.then(|| Instant::now() + rest);
                self.took = took.max(self.took * 9 / 10);
                // Answered callers see the commit counted.
                shared
                    .counters
                    .committed(self.rows.len(), took, committed.sync);
                shared.settling.note_logged(committed.bytes);
                shared.progress.end(number);
            }
            Ok(None) => shared.progress.end(number),
            Err(error) => self.fail(shared, number, &error),
        }
    }

    /// Saves the changes. Returns `None` if there are none, and the last save did not fail.
    fn save(
        &mut self,
        shared: &Shared,
        number: u64,
        began: Instant,
    ) -> Result<Option<Committed>, StoreError> {
        self.rows.clear();
        self.gathered.clear();
        self.ends.clear();
        let mut pause = || {
            // The rest of the interval is a reserve, and under `always` callers wait.
            if let Durability::Interval(interval) = shared.durability
                && began.elapsed() < interval * 2 / 5
            {
                thread::sleep(PAUSE);
            }
        };
        let mut paused = 0;
        for nth in 0..shared.shards.len() {
            shared
                .lock(nth)
                .gather(number, &mut self.rows, &mut self.gathered);
            self.ends.push(self.gathered.len());
            if self.gathered.len() >= paused + ROWS_AT_ONCE {
                paused = self.gathered.len();
                pause();
            }
        }
        if self.rows.len() == 0 && !shared.progress.is_failed() {
            return Ok(None);
        }
        shared
            .store
            .commit(number, &self.rows, &mut pause)
            .map(Some)
    }

    /// Returns the gathered changes to the next commit, and opens the store again. Ends once it is open
    /// or the engine is stopped.
    fn fail(&mut self, shared: &Shared, number: u64, error: &StoreError) {
        shared.progress.fail();
        shared.counters.failed();
        tracing::error!(%error, "balances cannot be saved; operations that need the disk are refused until they can be");
        let mut from = 0;
        for (shard, &end) in self.ends.iter().enumerate() {
            for &slot in self.gathered.get(from..end).unwrap_or_default() {
                shared.lock(shard).put_back(number, slot);
            }
            from = end;
        }
        loop {
            // A store that opens and fails again is not tried more often than a store that does not
            // open.
            if let Some(reopened) = self.reopened {
                shared.park_until(reopened + REOPEN_DELAY);
            }
            if shared.is_stopped.load(Ordering::Acquire) {
                return;
            }
            self.reopened = Some(Instant::now());
            let _no_group = shared.settling.between_groups();
            match shared.store.reopen() {
                Ok(()) => {
                    tracing::info!("the store is open again");
                    // Opening wrote the log to the rows, also over later states of these buckets.
                    for nth in 0..shared.shards.len() {
                        shared.lock(nth).unsettle_changed();
                    }
                    return shared.want_commit();
                }
                Err(error) => {
                    shared.counters.failed();
                    tracing::error!(%error, "the store cannot be opened again");
                }
            }
        }
    }
}
