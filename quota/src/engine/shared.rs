//! State that the tasks and threads of one engine share: the shards, the store, and the commits.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;
use tokio::sync::Semaphore;

use super::apply::apply;
use super::commits::{Progress, Settling};
use super::reader::{READ_BUCKETS_MAX, READERS};
use super::shard::place::{Moment, Place};
use super::shard::{Saved, Shard};
use super::stats::Counters;
use super::{Settings, sizes};
use crate::args::Durability;
use crate::clock::Clock;
use crate::operation::{Answer, Operation};
use crate::store::{RowKey, Store};

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) store: Box<dyn Store>,
    pub(super) shards: Vec<Mutex<Shard>>,
    pub(super) progress: Progress,
    pub(super) settling: Settling,
    pub(super) counters: Counters,
    pub(super) durability: Durability,
    /// Maximum bytes of the buckets in memory.
    pub(super) cache_bytes: u64,
    pub(super) disk_bytes: AtomicU64,
    /// Quota time of the last operations, which never decreases; 0 before the first.
    pub(super) clock: Arc<AtomicU64>,
    /// Source of the quota time.
    pub(super) time: Clock,
    /// Permits of runs that read at the same time, and of the buckets that they ask for.
    pub(super) readers: Arc<Semaphore>,
    pub(super) read_buckets: Arc<Semaphore>,
    hasher: RandomState,
    /// True if the next commit must not wait until it is due.
    pub(super) is_wanted: AtomicBool,
    pub(super) is_stopped: AtomicBool,
    /// Thread of the commits, for wake-ups; empty until it has started.
    pub(super) committer: OnceLock<Thread>,
}

impl Shared {
    pub(super) fn new(
        settings: &Settings,
        store: Box<dyn Store>,
        (clock, time): (Arc<AtomicU64>, Clock),
        number: u64,
    ) -> Self {
        let (count, bytes) = sizes::shards(settings.cache_bytes);
        Self {
            store,
            shards: (0..count)
                .map(|_| Mutex::new(Shard::new(bytes, number + 1)))
                .collect(),
            progress: Progress::new(number),
            settling: Settling::new(number, sizes::log(settings.cache_bytes)),
            counters: Counters::default(),
            durability: settings.durability,
            cache_bytes: count as u64 * bytes as u64,
            disk_bytes: AtomicU64::new(0),
            clock,
            time,
            readers: Arc::new(Semaphore::new(READERS)),
            read_buckets: Arc::new(Semaphore::new(READ_BUCKETS_MAX)),
            hasher: RandomState::default(),
            is_wanted: AtomicBool::new(false),
            is_stopped: AtomicBool::new(false),
            committer: OnceLock::new(),
        }
    }

    pub(super) fn place(&self, key: RowKey) -> Place {
        let hash = self.hasher.hash_one(&*key);
        // The tables use the lowest and the highest bits.
        let shard = (hash >> 40) as usize & (self.shards.len() - 1);
        Place { key, hash, shard }
    }

    pub(super) fn lock(&self, shard: usize) -> MutexGuard<'_, Shard> {
        // The number of shards is a power of two, and places are below it.
        let shard = &self.shards[shard];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies an operation and returns its answer; `None` if a bucket is not in memory.
    pub(super) fn answer(&self, operation: &Operation<'_>, moment: &mut Moment) -> Option<Answer> {
        if let Operation::Take(demands) = operation {
            return self.take(demands, moment).map(Answer::Taken);
        }
        let (key, kind) = operation.buckets().next()?;
        let place = self.place(kind.row_key(key));
        let mut shard = self.lock(place.shard);
        let slot = shard.find(&place)?;
        let entry = shard.entry_mut(slot)?;
        let applied = apply(operation, entry.state, moment.now_ms)?;
        entry.count(moment.minute, applied.is_refused);
        if applied.state.is_some() {
            entry.set(applied.state, applied.at_ms, moment.now_ms);
            moment.note_commit(shard.set_changed(slot));
            self.note(moment);
        }
        Some(applied.answer)
    }

    /// Notes changes, and wakes the committing thread for the first one. Called while the shards are
    /// still locked: a change is noted before it can be saved.
    pub(super) fn note(&self, moment: &Moment) {
        if moment.is_changed && self.progress.note_change() && self.durability != Durability::None {
            self.unpark();
        }
    }

    pub(super) fn saved(&self) -> Saved {
        Saved {
            commit: self.progress.durable(),
            settlings: self.settling.groups(),
        }
    }

    pub(super) fn want_commit(&self) {
        if !self.is_wanted.swap(true, Ordering::AcqRel) {
            self.unpark();
        }
    }

    pub(super) fn unpark(&self) {
        if let Some(committer) = self.committer.get() {
            committer.unpark();
        }
    }

    /// Waits until a time, or until the engine is stopped. Other wake-ups are ignored.
    pub(super) fn park_until(&self, until: Instant) {
        while let Some(wait) = until.checked_duration_since(Instant::now())
            && !wait.is_zero()
            && !self.is_stopped.load(Ordering::Acquire)
        {
            thread::park_timeout(wait);
        }
    }

    /// Returns the age by which a debit should be on disk; `None` if it may have any.
    pub(super) const fn unsaved_max(&self) -> Option<Duration> {
        match self.durability {
            Durability::Always => Some(Duration::ZERO),
            Durability::Interval(interval) => Some(interval),
            Durability::None => None,
        }
    }
}
