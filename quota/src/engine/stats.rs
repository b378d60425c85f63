//! Statistics of an engine for its metrics.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Upper bounds of a [`Latency`] in seconds.
pub(crate) const LATENCY_BOUNDS: [f64; 17] = [
    0.000_05, 0.000_1, 0.000_15, 0.000_2, 0.000_3, 0.000_5, 0.000_7, 0.001, 0.002, 0.005, 0.01,
    0.02, 0.05, 0.1, 0.5, 1.0, 5.0,
];

#[derive(Clone, Debug, Default)]
pub(crate) struct Stats {
    /// Buckets in memory, the bytes of them, and the bound of these.
    pub(crate) buckets: u64,
    pub(crate) cache_bytes: u64,
    pub(crate) cache_bytes_max: u64,
    /// Operations less misses.
    pub(crate) hits: u64,
    /// Buckets that were not in memory when a run first looked for them.
    pub(crate) misses: u64,
    /// Commits on disk, and rows in them.
    pub(crate) commits: u64,
    pub(crate) saved: u64,
    /// Time of a commit until it is on disk.
    pub(crate) commit: Latency,
    /// Part of that time for the synchronisation of the journal.
    pub(crate) sync: Latency,
    /// Batches and requests of operators that wait for a commit or a read.
    pub(crate) waiting: u64,
    pub(crate) store_errors: u64,
    /// Operations that were answered [`Unavailable`](crate::operation::Unavailable).
    pub(crate) unavailable: u64,
    /// Time since the last commit; `None` before the first.
    pub(crate) since_commit: Option<Duration>,
    /// Age of the oldest debit that is not on disk; `None` if all are.
    pub(crate) unsaved: Option<Duration>,
    /// 0 if not known.
    pub(crate) disk_bytes: u64,
    /// Steps of the wall clock by a second or more.
    pub(crate) clock_steps: u64,
    /// 1 if the server started after more than an hour that is known only from the wall clock.
    pub(crate) clock_unsure: u64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Latency {
    /// Observations between each of [`LATENCY_BOUNDS`] and the bound before, then those above all.
    pub(crate) counts: [u64; LATENCY_BOUNDS.len() + 1],
    /// Sum of all observations, in seconds.
    pub(crate) sum: f64,
}

impl Latency {
    fn observe(&mut self, time: Duration) {
        let seconds = time.as_secs_f64();
        let at = LATENCY_BOUNDS.partition_point(|bound| *bound < seconds);
        if let Some(count) = self.counts.get_mut(at) {
            *count += 1;
        }
        self.sum += seconds;
    }
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) hits: AtomicU64,
    pub(super) misses: AtomicU64,
    pub(super) unavailable: AtomicU64,
    errors: AtomicU64,
    commits: Mutex<Commits>,
}

#[derive(Debug, Default)]
struct Commits {
    saved: u64,
    commits: u64,
    commit: Latency,
    sync: Latency,
    last: Option<Instant>,
}

impl Counters {
    pub(super) fn failed(&self) {
        self.errors.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn committed(&self, saved: usize, took: Duration, sync: Duration) {
        let mut commits = self.commits.lock().unwrap_or_else(PoisonError::into_inner);
        commits.saved += saved as u64;
        commits.commits += 1;
        commits.commit.observe(took);
        commits.sync.observe(sync);
        commits.last = Some(Instant::now());
    }

    pub(super) fn stats(&self) -> Stats {
        let commits = self.commits.lock().unwrap_or_else(PoisonError::into_inner);
        Stats {
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            unavailable: self.unavailable.load(Ordering::Relaxed),
            store_errors: self.errors.load(Ordering::Relaxed),
            saved: commits.saved,
            commits: commits.commits,
            commit: commits.commit.clone(),
            sync: commits.sync.clone(),
            since_commit: commits.last.map(|last| last.elapsed()),
            ..Stats::default()
        }
    }
}
