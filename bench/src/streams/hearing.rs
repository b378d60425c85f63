//! Who has heard which decision, and how long after it was made.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::Serialize;

/// Times are told apart to three digits up to a minute, in microseconds.
const LONGEST_US: u64 = 60_000_000;

/// The decision that is in the air, as the clients of one aggregator hear it.
#[derive(Debug)]
pub(crate) struct Hearing {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// Its number, and when it was made.
    decision: (u64, Instant),
    /// Clients that were there when it was made.
    due: usize,
    heard: Histogram<u64>,
}

/// How the clients heard one decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Heard {
    /// Clients that were there when it was made, and still are.
    pub(crate) due: usize,
    /// Those of them that have heard it.
    pub(crate) heard: usize,
    /// From the decision until half of those due had applied it; who has not heard it counts as one who heard it now.
    pub(crate) p50_ms: f64,
    /// The same for 99 in a hundred.
    pub(crate) p99_ms: f64,
    /// The same for all.
    pub(crate) max_ms: f64,
}

impl Hearing {
    /// Nobody has decided anything yet.
    pub(crate) fn new() -> anyhow::Result<Self> {
        let heard = Histogram::new_with_bounds(1, LONGEST_US, 3)?;
        Ok(Self { inner: Mutex::new(Inner { decision: (0, Instant::now()), due: 0, heard }) })
    }

    fn with<R>(&self, f: impl FnOnce(&mut Inner) -> R) -> R {
        f(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A decision is made at a moment while so many clients are there.
    pub(crate) fn on_decision(&self, number: u64, at: Instant, due: usize) {
        self.with(|inner| {
            inner.decision = (number, at);
            inner.due = due;
            inner.heard.reset();
        });
    }

    /// A client has applied decision `number`. An earlier one than the latest was overtaken and is not counted.
    pub(crate) fn on_heard(&self, number: u64, now: Instant) {
        self.with(|inner| {
            if inner.decision.0 == number {
                let took = now.saturating_duration_since(inner.decision.1);
                inner.heard.saturating_record(u64::try_from(took.as_micros()).unwrap_or(u64::MAX).max(1));
            }
        });
    }

    /// How the latest decision was heard until now, while so many clients are there.
    pub(crate) fn figures(&self, now: Instant, connected: usize) -> Heard {
        self.with(|inner| {
            let heard = usize::try_from(inner.heard.len()).unwrap_or(usize::MAX);
            let due = inner.due.min(connected).max(heard);
            let age = now.saturating_duration_since(inner.decision.1);
            let quantile = |share: f64| {
                let rank = (share * due as f64).ceil() as usize;
                let took = if rank > heard {
                    age
                } else {
                    let of_heard = rank as f64 / heard.max(1) as f64;
                    Duration::from_micros(inner.heard.value_at_quantile(of_heard))
                };
                took.as_secs_f64() * 1e3
            };
            if due == 0 {
                return Heard::default();
            }
            Heard { due, heard, p50_ms: quantile(0.5), p99_ms: quantile(0.99), max_ms: quantile(1.0) }
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
    fn who_has_not_heard_counts_as_the_slowest() {
        let hearing = Hearing::new().unwrap();
        let at = Instant::now();
        hearing.on_decision(7, at, 100);
        (1..=98).for_each(|ms| hearing.on_heard(7, at + Duration::from_millis(ms)));
        hearing.on_heard(6, at + Duration::from_secs(9));
        let figures = hearing.figures(at + Duration::from_secs(1), 100);
        assert_eq!((figures.due, figures.heard), (100, 98));
        assert!(near(figures.p50_ms, 50.0) && near(figures.p99_ms, 1_000.0), "{figures:?}");
        // Two of them have gone: nobody is left who should have heard it.
        let figures = hearing.figures(at + Duration::from_secs(1), 98);
        assert!(near(figures.p99_ms, 98.0) && near(figures.max_ms, 98.0), "{figures:?}");
        hearing.on_decision(8, at, 0);
        assert_eq!(hearing.figures(at, 0), Heard::default());
    }
}
