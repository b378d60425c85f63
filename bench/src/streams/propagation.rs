//! The time from a decision of the controller to its application at each client.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::Serialize;

/// The longest time that the histogram resolves, in microseconds.
const LONGEST_US: u64 = 60_000_000;

/// The propagation of the latest decision to the clients of one aggregator.
#[derive(Debug)]
pub(crate) struct Propagation {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// The number and the time of the latest decision.
    decision: (u64, Instant),
    /// Clients that were connected at the decision.
    due: usize,
    /// Microseconds until each client applied it.
    applied: Histogram<u64>,
}

/// The propagation times of one decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct PropagationFigures {
    /// Clients that were connected at the decision and still are.
    pub(crate) due: usize,
    /// Clients that have applied it.
    pub(crate) applied: usize,
    /// Milliseconds until half of the due clients had applied it. A client that has not counts as if it did
    /// so now.
    pub(crate) p50_ms: f64,
    /// Milliseconds until 99 % of the due clients had applied it.
    pub(crate) p99_ms: f64,
    /// Milliseconds until all due clients had applied it.
    pub(crate) max_ms: f64,
}

impl Propagation {
    /// Starts without a decision.
    pub(crate) fn new() -> anyhow::Result<Self> {
        let applied = Histogram::new_with_bounds(1, LONGEST_US, 3)?;
        Ok(Self { inner: Mutex::new(Inner { decision: (0, Instant::now()), due: 0, applied }) })
    }

    fn with<R>(&self, f: impl FnOnce(&mut Inner) -> R) -> R {
        f(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Notes decision `number`, made while `due` clients are connected.
    pub(crate) fn on_decision(&self, number: u64, at: Instant, due: usize) {
        self.with(|inner| {
            inner.decision = (number, at);
            inner.due = due;
            inner.applied.reset();
        });
    }

    /// Notes that a client has applied decision `number`. Any other than the latest is ignored.
    pub(crate) fn on_applied(&self, number: u64, now: Instant) {
        self.with(|inner| {
            if inner.decision.0 == number {
                let took = now.saturating_duration_since(inner.decision.1);
                inner.applied.saturating_record(u64::try_from(took.as_micros()).unwrap_or(u64::MAX).max(1));
            }
        });
    }

    /// The propagation of the latest decision until now, with `connected` clients left.
    pub(crate) fn figures(&self, now: Instant, connected: usize) -> PropagationFigures {
        self.with(|inner| {
            let applied = usize::try_from(inner.applied.len()).unwrap_or(usize::MAX);
            let due = inner.due.min(connected).max(applied);
            let age = now.saturating_duration_since(inner.decision.1);
            let quantile = |share: f64| {
                let rank = (share * due as f64).ceil() as usize;
                let took = if rank > applied {
                    age
                } else {
                    let of_applied = rank as f64 / applied.max(1) as f64;
                    Duration::from_micros(inner.applied.value_at_quantile(of_applied))
                };
                took.as_secs_f64() * 1e3
            };
            if due == 0 {
                return PropagationFigures::default();
            }
            PropagationFigures {
                due,
                applied,
                p50_ms: quantile(0.5),
                p99_ms: quantile(0.99),
                max_ms: quantile(1.0),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(figure: f64, due: f64) -> bool {
        (figure - due).abs() <= due * 0.002
    }

    #[test]
    fn client_that_has_not_applied_a_decision_counts_as_the_slowest() {
        let propagation = Propagation::new().unwrap();
        let at = Instant::now();
        propagation.on_decision(7, at, 100);
        (1..=98).for_each(|ms| propagation.on_applied(7, at + Duration::from_millis(ms)));
        propagation.on_applied(6, at + Duration::from_secs(9));
        let figures = propagation.figures(at + Duration::from_secs(1), 100);
        assert_eq!((figures.due, figures.applied), (100, 98));
        assert!(near(figures.p50_ms, 50.0) && near(figures.p99_ms, 1_000.0), "{figures:?}");
        // The two clients that have not applied it disconnect, and are due no longer.
        let figures = propagation.figures(at + Duration::from_secs(1), 98);
        assert!(near(figures.p99_ms, 98.0) && near(figures.max_ms, 98.0), "{figures:?}");
        propagation.on_decision(8, at, 0);
        assert_eq!(propagation.figures(at, 0), PropagationFigures::default());
    }
}
