//! The thread that settles buckets. It writes changed buckets, once for many commits, to the rows
//! that are read after an eviction, so that the log of the commits stays short.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::progress::until;
use crate::engine::shared::Shared;
use crate::operation::Unavailable;
use crate::store::{Rows, StoreError, caught};

/// Minimum number of rows that are written together; a group has less than twice as many.
const GROUP_ROWS: usize = 128;
/// Pause after a group while nothing waits, for the operations on the same core.
const PAUSE: Duration = Duration::from_micros(50);
const RETRY_DELAY: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(in crate::engine) struct Settling {
    /// Last commit with all changes settled; `wanted` is the last commit to settle.
    settled: AtomicU64,
    wanted: AtomicU64,
    /// True if buckets cannot be evicted before they are settled, and a run waits for that.
    is_room_wanted: AtomicBool,
    /// Attempts to write a group so far.
    groups: AtomicU64,
    /// Bytes of the log since the last settling, and bytes that start the next one.
    logged: AtomicU64,
    logged_max: u64,
    /// Notified after each settling.
    ended: Notify,
    /// Locked while a group is written.
    group: Mutex<()>,
    thread: OnceLock<Thread>,
}

#[derive(Debug, Default)]
struct Group {
    /// Shards, and slots of each.
    slots: Vec<(usize, Vec<u32>)>,
    rows: Rows,
}

impl Settling {
    pub(in crate::engine) fn new(number: u64, logged_max: u64) -> Self {
        Self {
            settled: AtomicU64::new(number),
            wanted: AtomicU64::new(0),
            is_room_wanted: AtomicBool::new(false),
            groups: AtomicU64::new(0),
            logged: AtomicU64::new(0),
            logged_max,
            ended: Notify::new(),
            group: Mutex::default(),
            thread: OnceLock::new(),
        }
    }

    pub(in crate::engine) fn set_thread(&self, thread: Thread) {
        let _ = self.thread.set(thread);
    }

    pub(in crate::engine) fn groups(&self) -> u64 {
        self.groups.load(Ordering::Acquire)
    }

    /// Waits until no group is being written. The next group waits for the end of the guard.
    pub(in crate::engine) fn between_groups(&self) -> MutexGuard<'_, ()> {
        self.group.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(in crate::engine) fn note_logged(&self, bytes: u64) {
        if self.logged.fetch_add(bytes, Ordering::Relaxed) + bytes >= self.logged_max {
            self.unpark();
        }
    }

    /// Has all changes on disk settled, so that their buckets can be evicted.
    pub(in crate::engine) fn want_room(&self) {
        self.is_room_wanted.store(true, Ordering::Release);
        self.unpark();
    }

    /// Waits until the changes up to a commit, which is on disk, are settled.
    ///
    /// # Errors
    /// When they are not by `deadline`.
    pub(in crate::engine) async fn wait(
        &self,
        number: u64,
        deadline: tokio::time::Instant,
    ) -> Result<(), Unavailable> {
        self.wanted.fetch_max(number, Ordering::AcqRel);
        self.unpark();
        let is_settled = || self.settled.load(Ordering::Acquire) >= number;
        until(&self.ended, deadline, is_settled).await
    }

    fn unpark(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    fn is_waited_for(&self) -> bool {
        self.wanted.load(Ordering::Acquire) > self.settled.load(Ordering::Acquire)
            || self.is_room_wanted.load(Ordering::Acquire)
    }

    fn is_due(&self) -> bool {
        self.is_waited_for() || self.logged.load(Ordering::Relaxed) >= self.logged_max
    }

    fn pause(&self) {
        // A log above this size grows faster than it is emptied.
        if !self.is_waited_for() && self.logged.load(Ordering::Relaxed) < 3 * self.logged_max {
            thread::sleep(PAUSE);
        }
    }
}

pub(in crate::engine) fn settle_all(shared: &Shared) {
    let mut before = shared.progress.durable();
    while !shared.is_stopped.load(Ordering::Acquire) {
        if !shared.settling.is_due() {
            thread::park();
        } else if let Err(error) = settle(shared, &mut before) {
            shared.counters.failed();
            tracing::error!(%error, "balances cannot be moved from the log; it grows until they can be");
            // Room may still be needed: this attempt cleared the flag.
            shared
                .settling
                .is_room_wanted
                .store(true, Ordering::Release);
            // The committing thread tries the store, and opens it again if it fails there, too.
            shared.progress.fail();
            shared.want_commit();
            shared.park_until(Instant::now() + RETRY_DELAY);
        }
    }
}

/// Settles the buckets whose last logged commit is `before` or earlier, and removes these commits
/// from the log. While something waits, settles all. A bucket that each commit contains is not
/// settled: the log keeps its later change. Sets `before` to the last commit on disk.
fn settle(shared: &Shared, before: &mut u64) -> Result<(), StoreError> {
    let settling = &shared.settling;
    // Later changes may be settled, too, but are not known to be.
    let (number, logged) = (
        shared.progress.durable(),
        settling.logged.load(Ordering::Relaxed),
    );
    let is_room_wanted = settling.is_room_wanted.swap(false, Ordering::AcqRel);
    let up_to = if is_room_wanted || settling.is_waited_for() {
        number
    } else {
        *before
    };
    let mut group = Group::default();
    for nth in 0..shared.shards.len() {
        let slots = shared
            .lock(nth)
            .take_unsettled(up_to, shared.progress.durable());
        let mut left = slots.chunks(GROUP_ROWS);
        while let Some(some) = left.next() {
            group.slots.push((nth, some.to_vec()));
            if group.len() < GROUP_ROWS {
                continue;
            }
            let written = group.write(shared);
            if written.is_err() {
                left.for_each(|slots| shared.lock(nth).fail_settling(slots));
                return written;
            }
            if shared.is_stopped.load(Ordering::Acquire) {
                return Ok(());
            }
            settling.pause();
        }
    }
    group.write(shared)?;
    caught(|| shared.store.forget(up_to))?;
    settling.logged.fetch_sub(logged, Ordering::Relaxed);
    settling.settled.fetch_max(up_to, Ordering::AcqRel);
    *before = number;
    settling.ended.notify_waiters();
    Ok(())
}

impl Group {
    fn len(&self) -> usize {
        self.slots.iter().map(|(_, slots)| slots.len()).sum()
    }

    fn write(&mut self, shared: &Shared) -> Result<(), StoreError> {
        // Keeps the store from being opened again in between: these rows would replace later states.
        let _group = shared.settling.between_groups();
        self.rows.clear();
        for (shard, slots) in &self.slots {
            shared.lock(*shard).begin_settling(slots, &mut self.rows);
        }
        self.rows.sort();
        let written = caught(|| shared.store.settle(&self.rows));
        for (shard, slots) in self.slots.drain(..) {
            let mut shard = shared.lock(shard);
            match written {
                Ok(()) => shard.end_settling(&slots),
                Err(_) => shard.fail_settling(&slots),
            }
        }
        shared.settling.groups.fetch_add(1, Ordering::AcqRel);
        written
    }
}
