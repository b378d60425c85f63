//! The figures of an engine, as its metrics show them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The upper bounds of a [`Latency`] in seconds.
pub(crate) const LATENCY_BOUNDS: [f64; 17] = [
    0.000_05, 0.000_1, 0.000_15, 0.000_2, 0.000_3, 0.000_5, 0.000_7, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05,
    0.1, 0.5, 1.0, 5.0,
];

/// The figures of an engine.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stats {
    /// The buckets in memory.
    pub(crate) buckets: u64,
    /// The bytes of the buckets in memory.
    pub(crate) cache_bytes: u64,
    /// The bytes of the buckets in memory, at most.
    pub(crate) cache_bytes_max: u64,
    /// Look-ups that found the bucket in memory.
    pub(crate) hits: u64,
    /// Look-ups that asked the store.
    pub(crate) misses: u64,
    /// Commits that are on disk.
    pub(crate) commits: u64,
    /// The buckets that these saved.
    pub(crate) saved: u64,
    /// The time of a commit from its beginning until it is on disk.
    pub(crate) commit: Latency,
    /// The part of it that is the synchronisation of the journal.
    pub(crate) sync: Latency,
    /// Operations that wait for the store.
    pub(crate) waiting: u64,
    /// Reads, writes and synchronisations that failed.
    pub(crate) store_errors: u64,
    /// Operations that were answered [`Unavailable`](crate::operation::Unavailable).
    pub(crate) unavailable: u64,
    /// The time since the last commit that is on disk.
    pub(crate) since_commit: Option<Duration>,
    /// The age of the oldest debit that is not on disk.
    pub(crate) unsaved: Option<Duration>,
    /// The bytes of the store on disk.
    pub(crate) disk_bytes: u64,
    /// Steps of the wall clock.
    pub(crate) clock_steps: u64,
    /// 1 if the server began after more than an hour that only the wall clock told.
    pub(crate) clock_unsure: u64,
}

/// A histogram of times.
#[derive(Clone, Debug, Default)]
pub(crate) struct Latency {
    /// The observations up to each of [`LATENCY_BOUNDS`] and above the bound before, and then those above all.
    pub(crate) counts: [u64; LATENCY_BOUNDS.len() + 1],
    /// The sum of all observations in seconds.
    pub(crate) sum: f64,
}

impl Latency {
    fn observe(&mut self, time: Duration) {
        let seconds = time.as_secs_f64();
        let at = LATENCY_BOUNDS.iter().position(|bound| seconds <= *bound).unwrap_or(LATENCY_BOUNDS.len());
        if let Some(count) = self.counts.get_mut(at) {
            *count += 1;
        }
        self.sum += seconds;
    }
}

/// The counters behind the figures.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) hits: AtomicU64,
    pub(super) misses: AtomicU64,
    pub(super) unavailable: AtomicU64,
    errors: AtomicU64,
    commits: Mutex<Commits>,
}

/// The figures of commits.
#[derive(Clone, Debug, Default)]
struct Commits {
    saved: u64,
    commits: u64,
    commit: Latency,
    sync: Latency,
    last: Option<Instant>,
}

impl Counters {
    /// Counts an error of the store.
    pub(super) fn failed(&self) {
        self.errors.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a commit that is on disk.
    pub(super) fn committed(&self, saved: usize, took: Duration, sync: Duration) {
        let mut commits = self.commits.lock().unwrap_or_else(PoisonError::into_inner);
        commits.saved += saved as u64;
        commits.commits += 1;
        commits.commit.observe(took);
        commits.sync.observe(sync);
        commits.last = Some(Instant::now());
    }

    /// Returns the figures that are counted here.
    pub(super) fn stats(&self) -> Stats {
        let Commits { saved, commits, commit, sync, last } =
            self.commits.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Stats {
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            unavailable: self.unavailable.load(Ordering::Relaxed),
            store_errors: self.errors.load(Ordering::Relaxed),
            saved,
            commits,
            commit,
            sync,
            since_commit: last.map(|last| last.elapsed()),
            ..Stats::default()
        }
    }
}
