//! The counts of a RESP port, for its metrics and for `INFO`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Commands that are counted separately, as the label `command`.
pub(crate) const COMMANDS: [&str; 7] = [
    "reduce",
    "get",
    "sessionize",
    "throttle",
    "take",
    "give",
    "other",
];
/// Results of a command, as the label `result`.
pub(crate) const RESULTS: [&str; 5] = ["granted", "refused", "unavailable", "busy", "error"];

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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Granted,
    Refused,
    Unavailable,
    Busy,
    Error,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Tally([[u32; RESULTS.len()]; COMMANDS.len()]);

#[derive(Debug, Default)]
pub(crate) struct Counters {
    operations: [[AtomicU64; RESULTS.len()]; COMMANDS.len()],
    /// Connections so far, and open ones.
    pub(crate) connections: AtomicU64,
    pub(crate) open: AtomicU64,
    /// Connections that were closed because their client did not read its replies, finish a command or
    /// authenticate in time, or sent nothing for two hours.
    pub(crate) slow: AtomicU64,
}

/// A connection that is counted as open until this is dropped.
#[derive(Debug)]
pub(super) struct Open(Arc<Counters>);

impl Tally {
    pub(super) fn add(&mut self, command: Counted, outcome: Outcome) {
        if let Some(count) = self
            .0
            .get_mut(command as usize)
            .and_then(|results| results.get_mut(outcome as usize))
        {
            *count = count.saturating_add(1);
        }
    }
}

impl Counters {
    /// Returns the number of answers for each of [`COMMANDS`] and [`RESULTS`].
    pub(crate) fn operations(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
        COMMANDS
            .iter()
            .zip(&self.operations)
            .flat_map(|(command, results)| {
                let results = RESULTS.iter().zip(results);
                results.map(|(result, count)| (*command, *result, count.load(Ordering::Relaxed)))
            })
    }

    pub(super) fn add(&self, tally: &Tally) {
        for (count, of_batch) in self
            .operations
            .as_flattened()
            .iter()
            .zip(tally.0.as_flattened())
        {
            if *of_batch > 0 {
                count.fetch_add(u64::from(*of_batch), Ordering::Relaxed);
            }
        }
    }

    /// Counts a connection, and returns its number with the guard of its end.
    pub(super) fn on_open(self: &Arc<Self>) -> (u64, Open) {
        self.open.fetch_add(1, Ordering::Relaxed);
        (
            1 + self.connections.fetch_add(1, Ordering::Relaxed),
            Open(self.clone()),
        )
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}
