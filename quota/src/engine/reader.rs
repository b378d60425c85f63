//! The threads that read buckets from the store. All reads of one bucket are made by one thread, so that an old row never
//! replaces a newer state: between its read and its entry nobody else enters the bucket.

use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use tokio::sync::Notify;

use super::shared::{Place, Shared};
use crate::operation::Unavailable;
use crate::store::{Row, StoreError};

/// The threads that read.
pub(super) const READERS: usize = 4;
/// The runs that wait for one of them, at most.
pub const READS_MAX: usize = 1_024;
/// The buckets that wait for all of them, at most. A run has far fewer; one that no longer waits keeps its part of the
/// queue until a reader comes to it.
pub const READ_BUCKETS_MAX: usize = 65_536;

/// Buckets to read, and the run that waits for them.
#[derive(Debug)]
pub(super) struct Job {
    places: Vec<Place>,
    loading: Arc<Loading>,
    /// The buckets of all jobs.
    queued: Arc<AtomicUsize>,
}

impl Drop for Job {
    fn drop(&mut self) {
        self.queued.fetch_sub(self.places.len(), Ordering::Relaxed);
    }
}

/// The state of the reads of one run.
#[derive(Debug, Default)]
struct Loading {
    left: AtomicUsize,
    is_failed: AtomicBool,
    is_full: AtomicBool,
    /// True once the run does not wait any more, and nobody needs what is not read yet.
    is_abandoned: AtomicBool,
    done: Notify,
}

/// A run that waits for its reads.
struct Waiter(Arc<Loading>);

impl Deref for Waiter {
    type Target = Loading;

    fn deref(&self) -> &Loading {
        &self.0
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.0.is_abandoned.store(true, Ordering::Relaxed);
    }
}

/// How reads ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loaded {
    /// All buckets are in memory, or were.
    All,
    /// Some found no room: a commit must make some first.
    Full,
    /// Some cannot be read.
    Failed,
}

/// The queues of the readers.
#[derive(Clone, Debug)]
pub(super) struct Readers {
    senders: Vec<SyncSender<Job>>,
    queued: Arc<AtomicUsize>,
}

impl Readers {
    /// Makes the queues, and their ends for [`read_all`].
    pub(super) fn new() -> (Self, Vec<Receiver<Job>>) {
        let (senders, receivers) = (0..READERS).map(|_| sync_channel(READS_MAX)).unzip();
        (Self { senders, queued: Arc::default() }, receivers)
    }

    /// Reads buckets into memory.
    ///
    /// # Errors
    /// When they are not there by `deadline`, or too many runs or buckets wait.
    pub(super) async fn load(
        &self,
        places: Vec<Place>,
        deadline: tokio::time::Instant,
    ) -> Result<Loaded, Unavailable> {
        let mut parts: Vec<Vec<Place>> = self.senders.iter().map(|_| Vec::new()).collect();
        for place in places {
            if let Some(part) = parts.get_mut(place.shard % READERS) {
                part.push(place);
            }
        }
        let loading = Waiter(Arc::new(Loading::default()));
        loading.left.store(parts.iter().filter(|part| !part.is_empty()).count(), Ordering::Relaxed);
        for (reader, places) in self.senders.iter().zip(parts).filter(|(_, places)| !places.is_empty()) {
            let count = places.len();
            let queued = self.queued.fetch_add(count, Ordering::Relaxed);
            let job = Job { places, loading: Arc::clone(&loading.0), queued: Arc::clone(&self.queued) };
            if queued + count > READ_BUCKETS_MAX {
                return Err(Unavailable::Busy);
            }
            match reader.try_send(job) {
                Ok(()) => {}
                Err(TrySendError::Full(_)) => return Err(Unavailable::Busy),
                Err(TrySendError::Disconnected(_)) => return Err(Unavailable::Store),
            }
        }
        let done = tokio::time::timeout_at(deadline, loading.done.notified()).await;
        done.map_err(|_| Unavailable::Store)?;
        Ok(if loading.is_failed.load(Ordering::Acquire) {
            Loaded::Failed
        } else if loading.is_full.load(Ordering::Acquire) {
            Loaded::Full
        } else {
            Loaded::All
        })
    }
}

/// Reads what is queued, until the last sender is gone.
pub(super) fn read_all(shared: &Shared, jobs: &Receiver<Job>) {
    while let Ok(job) = jobs.recv() {
        let loading = &job.loading;
        for place in &job.places {
            // The time of the readers is for the runs that still wait: a burst must not delay those after it.
            if loading.is_abandoned.load(Ordering::Relaxed) {
                break;
            }
            if shared.lock(place.shard).find(place.hash, &place.key).is_some() {
                continue;
            }
            match get(shared, place) {
                Ok(row) => {
                    let state = row.map(|row| row.state);
                    let saved = shared.saved();
                    let mut shard = shared.lock(place.shard);
                    if shard.insert(place.hash, &place.key, state, saved).is_err() {
                        loading.is_full.store(true, Ordering::Release);
                    }
                }
                Err(error) => {
                    shared.counters.failed();
                    tracing::error!(%error, "a bucket cannot be read");
                    loading.is_failed.store(true, Ordering::Release);
                }
            }
        }
        if loading.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            loading.done.notify_one();
        }
    }
}

/// Reads a row. The database panics on some damaged tables.
fn get(shared: &Shared, place: &Place) -> Result<Option<Row>, StoreError> {
    catch_unwind(AssertUnwindSafe(|| shared.store.get(&place.key)))
        .unwrap_or_else(|_| Err(StoreError::Failed("the database panicked; a table is damaged".to_owned())))
}
