//! Tracks which commits are on disk, how old the oldest unsaved debit is, and which runs wait for
//! the disk.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::operation::Unavailable;

/// Maximum number of runs that wait for a commit or a read.
const WAITING_MAX: usize = 16_384;

const NONE: u64 = u64::MAX;

#[derive(Debug)]
pub(in crate::engine) struct Progress {
    began: Instant,
    /// Last commit on disk; those before it are, too, or had no changes.
    durable: AtomicU64,
    /// Commit that takes the next changes.
    next: AtomicU64,
    /// Tasks that wait for a commit with an even and with an odd number. Unless a commit failed, at
    /// most two commits have waiting tasks.
    waits: [Notify; 2],
    /// Runs that wait for a commit or a read.
    waiting: AtomicUsize,
    /// Times of the oldest debit of the current commit and of the next one, in microseconds since
    /// `began`; `NONE` without one.
    oldest_saving: AtomicU64,
    oldest: AtomicU64,
    /// True from a failed save or settling until the next commit is on disk.
    is_failed: AtomicBool,
}

#[derive(Debug)]
pub(in crate::engine) struct Waiting<'a>(&'a Progress);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Progress {
    pub(in crate::engine) fn new(durable: u64) -> Self {
        Self {
            began: Instant::now(),
            durable: AtomicU64::new(durable),
            next: AtomicU64::new(durable + 1),
            waits: [Notify::new(), Notify::new()],
            waiting: AtomicUsize::new(0),
            oldest_saving: AtomicU64::new(NONE),
            oldest: AtomicU64::new(NONE),
            is_failed: AtomicBool::new(false),
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).unwrap_or(NONE - 1)
    }

    pub(in crate::engine) fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// Returns the number of the next commit: all changes so far are saved once it is on disk.
    pub(in crate::engine) fn next(&self) -> u64 {
        self.next.load(Ordering::Acquire)
    }

    pub(in crate::engine) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    pub(in crate::engine) fn is_failed(&self) -> bool {
        self.is_failed.load(Ordering::Relaxed)
    }

    /// Notes a change that is not saved. Returns true for the first one of the next commit.
    pub(in crate::engine) fn note_change(&self) -> bool {
        self.oldest.load(Ordering::Relaxed) == NONE
            && self
                .oldest
                .compare_exchange(NONE, self.now(), Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
    }

    /// Returns the age of the oldest debit that is not on disk; `None` if all are.
    pub(in crate::engine) fn unsaved(&self) -> Option<Duration> {
        let oldest = self
            .oldest
            .load(Ordering::Acquire)
            .min(self.oldest_saving.load(Ordering::Acquire));
        (oldest != NONE).then(|| Duration::from_micros(self.now().saturating_sub(oldest)))
    }

    /// Begins a commit, and returns its number. Must be called before the changes are gathered:
    /// debits in between count for the next commit, so that the age is never too low.
    pub(in crate::engine) fn begin(&self) -> u64 {
        // At every moment each debit is in at least one of the two.
        self.oldest_saving
            .fetch_min(self.oldest.load(Ordering::Acquire), Ordering::AcqRel);
        let oldest = self.oldest.swap(NONE, Ordering::AcqRel);
        self.oldest_saving.fetch_min(oldest, Ordering::AcqRel);
        self.next.fetch_add(1, Ordering::AcqRel)
    }

    pub(in crate::engine) fn end(&self, number: u64) {
        self.oldest_saving.store(NONE, Ordering::Release);
        // Before callers are answered: a failure after their answers belongs to a later commit, and
        // must stay noted.
        let was_failed = self.is_failed.swap(false, Ordering::AcqRel);
        self.durable.store(number, Ordering::Release);
        self.waits[usize::from(!number.is_multiple_of(2))].notify_waiters();
        // This commit contains the changes of an earlier commit that failed.
        if was_failed {
            self.waits[usize::from(number.is_multiple_of(2))].notify_waiters();
        }
    }

    pub(in crate::engine) fn fail(&self) {
        self.is_failed.store(true, Ordering::Relaxed);
    }

    /// Counts a waiting run until the guard is dropped.
    ///
    /// # Errors
    /// When too many wait.
    pub(in crate::engine) fn enter(&self) -> Result<Waiting<'_>, Unavailable> {
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= WAITING_MAX {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            return Err(Unavailable::Busy);
        }
        Ok(Waiting(self))
    }

    /// Waits until a commit is on disk.
    ///
    /// # Errors
    /// When it is not by `deadline`, or too many runs wait.
    pub(in crate::engine) async fn wait(
        &self,
        number: u64,
        deadline: tokio::time::Instant,
    ) -> Result<(), Unavailable> {
        if self.durable() >= number {
            return Ok(());
        }
        let _waiting = self.enter()?;
        let waits = &self.waits[usize::from(!number.is_multiple_of(2))];
        until(waits, deadline, || self.durable() >= number).await
    }
}

/// Waits until a condition holds, which is checked at each notification.
///
/// # Errors
/// When it does not by `deadline`.
pub(super) async fn until(
    notify: &Notify,
    deadline: tokio::time::Instant,
    is_reached: impl Fn() -> bool,
) -> Result<(), Unavailable> {
    let reached = async {
        loop {
            let mut notified = std::pin::pin!(notify.notified());
            // From here on a notification is not missed.
            notified.as_mut().enable();
            if is_reached() {
                return;
            }
            notified.await;
        }
    };
    tokio::time::timeout_at(deadline, reached)
        .await
        .map_err(|_| Unavailable::Store)
}
