//! The counts of a RESP port, for its metrics and for `INFO`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The commands that are counted apart, as the label `command`.
pub const COMMANDS: [&str; 7] = ["reduce", "get", "sessionize", "throttle", "take", "give", "other"];
/// The results of a command, as the label `result`.
pub const RESULTS: [&str; 5] = ["granted", "refused", "unavailable", "busy", "error"];

/// A command that is counted apart, as an index into [`COMMANDS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counted {
    Reduce,
    Get,
    Sessionize,
    Throttle,
    Take,
    Give,
    Other,
}

/// The result of a command, as an index into [`RESULTS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Granted,
    Refused,
    Unavailable,
    Busy,
    Error,
}

/// The counts of one batch, which are added at once.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally([[u32; RESULTS.len()]; COMMANDS.len()]);

/// The counts of a port. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    operations: [[AtomicU64; RESULTS.len()]; COMMANDS.len()],
    connections: AtomicU64,
    open: AtomicU64,
    slow: AtomicU64,
}

/// A connection that is counted as open until this is dropped.
#[derive(Debug)]
pub(super) struct Open(Counters);

impl Tally {
    pub(super) fn add(&mut self, command: Counted, outcome: Outcome) {
        if let Some(count) =
            self.0.get_mut(command as usize).and_then(|results| results.get_mut(outcome as usize))
        {
            *count = count.saturating_add(1);
        }
    }
}

impl Counters {
    /// Returns the number of commands answered by command, one of [`COMMANDS`], and result, one of [`RESULTS`].
    pub fn operations(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
        COMMANDS.iter().zip(&self.inner.operations).flat_map(|(command, results)| {
            let results = RESULTS.iter().zip(results);
            results.map(|(result, count)| (*command, *result, count.load(Ordering::Relaxed)))
        })
    }

    /// Returns the number of commands answered.
    #[must_use]
    pub fn commands(&self) -> u64 {
        self.operations().map(|(_, _, count)| count).sum()
    }

    /// Returns the number of connections so far.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.inner.connections.load(Ordering::Relaxed)
    }

    /// Returns the number of connections that are open.
    #[must_use]
    pub fn open(&self) -> u64 {
        self.inner.open.load(Ordering::Relaxed)
    }

    /// Returns the number of connections that were closed because their client did not read its replies, did not
    /// finish a command, or did not authenticate in time.
    #[must_use]
    pub fn slow(&self) -> u64 {
        self.inner.slow.load(Ordering::Relaxed)
    }

    pub(super) fn add(&self, tally: &Tally) {
        for (counts, of_batch) in self.inner.operations.iter().zip(&tally.0) {
            for (count, of_batch) in counts.iter().zip(of_batch).filter(|(_, of_batch)| **of_batch > 0) {
                count.fetch_add(u64::from(*of_batch), Ordering::Relaxed);
            }
        }
    }

    /// Counts a connection, and returns its number with the guard of its end.
    pub(super) fn on_open(&self) -> (u64, Open) {
        let number = 1 + self.inner.connections.fetch_add(1, Ordering::Relaxed);
        self.inner.open.fetch_add(1, Ordering::Relaxed);
        (number, Open(self.clone()))
    }

    pub(super) fn on_slow(&self) {
        self.inner.slow.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.inner.open.fetch_sub(1, Ordering::Relaxed);
    }
}
