//! The counts of how requests ended.

use std::ops::Add;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

/// The outcomes of all requests and the time they took.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Figures {
    #[serde(flatten)]
    pub(crate) outcomes: Outcomes,
    /// The 99th percentile of the time to an answer or to the timeout, in milliseconds.
    pub(crate) p99_ms: f64,
    /// The longest time to an answer or to the timeout, in milliseconds.
    pub(crate) max_ms: f64,
}

/// Requests by outcome since the start. Sent requests that are in no other count wait for their answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Outcomes {
    /// Requests sent.
    pub(crate) sent: u64,
    /// Answered with 200 in time: the useful answers.
    pub(crate) served: u64,
    /// Answered with 429.
    pub(crate) refused: u64,
    /// Answered with another status, too late or not at all.
    pub(crate) failed: u64,
    /// Failed because no answer came in time.
    pub(crate) timed_out: u64,
    /// Due but not sent, because too many requests waited for an answer.
    pub(crate) not_sent: u64,
}

/// [`Outcomes`] while requests are running.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) sent: AtomicU64,
    pub(super) served: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) timed_out: AtomicU64,
    pub(super) not_sent: AtomicU64,
}

impl Counts {
    pub(super) fn read(&self) -> Outcomes {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Outcomes {
            sent: read(&self.sent),
            served: read(&self.served),
            refused: read(&self.refused),
            failed: read(&self.failed),
            timed_out: read(&self.timed_out),
            not_sent: read(&self.not_sent),
        }
    }
}

impl Add for Outcomes {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            sent: self.sent + other.sent,
            served: self.served + other.served,
            refused: self.refused + other.refused,
            failed: self.failed + other.failed,
            timed_out: self.timed_out + other.timed_out,
            not_sent: self.not_sent + other.not_sent,
        }
    }
}
