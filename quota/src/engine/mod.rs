//! The buckets in memory, in shards, and how they are saved.
//!
//! Operations change buckets in memory. One thread saves the changes in a log, commit after commit;
//! operations that need the disk wait for their commit. A second thread settles them: it writes the
//! buckets' own rows, which a few threads read when a bucket is not in memory. Every wait has a
//! deadline; then the answer is [`Unavailable`](crate::operation::Unavailable).

mod apply;
mod commits;
mod operator;
mod reader;
mod running;
mod shard;
mod shared;
mod sizes;
mod stats;
mod take;
#[cfg(test)]
mod tests;

pub(crate) use crate::store::OpenError;
pub(crate) use operator::Bucket;
pub(crate) use stats::{LATENCY_BOUNDS, Latency, Stats};

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use plimsoll_core::quota::QuotaTime;

use crate::args::Durability;
use crate::clock::Clock;
use crate::store::{DatabaseStore, Store, caught};
use commits::Committer;
use shared::Shared;

const SWEEP_EVERY: Duration = Duration::from_secs(3_600);
const SIZE_EVERY: Duration = Duration::from_secs(1);
/// Maximum wait for the threads at the end. Threads with a hanging disk are abandoned.
const STOP_WAIT: Duration = Duration::from_secs(2);

#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) data: PathBuf,
    pub(crate) durability: Durability,
    /// Memory for buckets and database, which `sizes` splits.
    pub(crate) cache_bytes: u64,
}

/// Buckets of one server. Clones share them. Dropping the last clone without [`Engine::close`]
/// loses what no commit has saved.
#[derive(Clone, Debug)]
pub(crate) struct Engine {
    shared: Arc<Shared>,
    _threads: Arc<Threads>,
}

#[derive(Debug)]
struct Threads {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.shared.is_stopped.store(true, Ordering::Release);
        for thread in &self.threads {
            thread.thread().unpark();
        }
        let until = Instant::now() + STOP_WAIT;
        while self.threads.iter().any(|thread| !thread.is_finished()) && Instant::now() < until {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Engine {
    /// Opens the store and starts the threads. Blocks.
    ///
    /// # Errors
    /// When the directory cannot be used.
    pub(crate) fn open(settings: &Settings) -> Result<Self, OpenError> {
        let clock = Arc::new(AtomicU64::new(0));
        let sizes = sizes::database(settings.cache_bytes);
        let (store, number) = DatabaseStore::open(&settings.data, clock.clone(), sizes)?;
        Self::start(settings, Box::new(store), clock, number)
    }

    fn start(
        settings: &Settings,
        store: Box<dyn Store>,
        clock: Arc<AtomicU64>,
        number: u64,
    ) -> Result<Self, OpenError> {
        let time = Clock::open(&settings.data)?;
        let shared = Arc::new(Shared::new(settings, store, (clock, time), number));
        let mut threads = Threads {
            shared: shared.clone(),
            threads: Vec::new(),
        };
        let mut spawn = |name: &str, run: fn(&Shared)| {
            let its = shared.clone();
            let builder = thread::Builder::new().name(name.to_owned());
            let spawned = builder.spawn(move || run(&its));
            let spawned = spawned.map_err(OpenError::io(&settings.data))?;
            let thread = spawned.thread().clone();
            threads.threads.push(spawned);
            Ok::<_, OpenError>(thread)
        };
        let committer = spawn("quota-commit", |shared| Committer::default().run(shared))?;
        let _ = shared.committer.set(committer);
        let settler = spawn("quota-settle", commits::settle_all)?;
        shared.settling.set_thread(settler);
        spawn("quota-sweep", sweep)?;
        Ok(Self {
            shared,
            _threads: Arc::new(threads),
        })
    }

    /// Returns the quota time, and follows a step of the wall clock.
    pub(crate) fn now(&self) -> QuotaTime {
        self.shared.time.now()
    }

    pub(crate) fn stats(&self) -> Stats {
        let shared = &self.shared;
        let (mut buckets, mut cache_bytes) = (0, 0);
        for shard in 0..shared.shards.len() {
            let shard = shared.lock(shard);
            buckets += shard.len() as u64;
            cache_bytes += shard.bytes() as u64;
        }
        Stats {
            buckets,
            cache_bytes,
            cache_bytes_max: shared.cache_bytes,
            waiting: shared.progress.waiting() as u64,
            unsaved: shared.progress.unsaved(),
            disk_bytes: shared.disk_bytes.load(Ordering::Relaxed),
            clock_steps: shared.time.steps.load(Ordering::Relaxed),
            clock_unsure: shared.time.unsure,
            ..shared.counters.stats()
        }
    }

    pub(crate) fn durability(&self) -> Durability {
        self.shared.durability
    }

    /// Returns true unless the last save or settling failed, or a debit is far too late for the
    /// durability.
    pub(crate) fn is_ready(&self) -> bool {
        let progress = &self.shared.progress;
        let late = self.shared.unsaved_max().map(|max| max + running::LATE_MAX);
        !progress.is_failed()
            && late.is_none_or(|late| progress.unsaved().is_none_or(|age| age <= late))
    }
}

/// Measures the disk and follows the clock each second, and removes the rows of full buckets each hour.
fn sweep(shared: &Shared) {
    let mut swept = Instant::now();
    while !shared.is_stopped.load(Ordering::Acquire) {
        // Waits for the disk, which no request may do.
        shared
            .disk_bytes
            .store(shared.store.disk_bytes(), Ordering::Relaxed);
        shared.time.now();
        if let Err(error) = shared.time.keep() {
            shared.counters.failed();
            tracing::error!(%error, "the clock of the server cannot be saved; a restart goes on from the last save");
        }
        thread::park_timeout(SIZE_EVERY);
        if swept.elapsed() >= SWEEP_EVERY {
            swept = Instant::now();
            if let Err(error) = caught(|| shared.store.sweep()) {
                shared.counters.failed();
                tracing::error!(%error, "the rows of full buckets cannot be removed");
            }
        }
    }
}
