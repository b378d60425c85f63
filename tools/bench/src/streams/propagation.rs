//! The time from a decision of the controller to its application at each client.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;

#[derive(Debug, Default)]
pub(crate) struct Propagation(Mutex<Latest>);

#[derive(Debug, Default)]
struct Latest {
    decision: Option<(u64, Instant)>,
    /// Clients that were connected at the decision.
    due: usize,
    applied: Vec<Duration>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct PropagationFigures {
    /// Clients that were connected at the decision and still are.
    pub(crate) due: usize,
    pub(crate) applied: usize,
    /// Milliseconds until half of the due clients had applied it. A client that has not applied it
    /// counts as if it did so now.
    pub(crate) p50_ms: f64,
    /// Milliseconds until 99 % of the due clients had applied it.
    pub(crate) p99_ms: f64,
    /// Milliseconds until all due clients had applied it.
    pub(crate) max_ms: f64,
}

impl Propagation {
    fn latest(&self) -> MutexGuard<'_, Latest> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes decision `number`, made while `due` clients are connected.
    pub(crate) fn on_decision(&self, number: u64, at: Instant, due: usize) {
        *self.latest() = Latest {
            decision: Some((number, at)),
            due,
            applied: Vec::with_capacity(due),
        };
    }

    /// Notes that a client has applied decision `number`. Only the latest one counts.
    pub(crate) fn on_applied(&self, number: u64, now: Instant) {
        let mut latest = self.latest();
        if let Some((latest_number, at)) = latest.decision
            && latest_number == number
        {
            latest.applied.push(now.saturating_duration_since(at));
        }
    }

    pub(crate) fn figures(&self, now: Instant, connected: usize) -> PropagationFigures {
        let latest = self.latest();
        let Some((_, at)) = latest.decision else {
            return PropagationFigures::default();
        };
        let applied = latest.applied.len();
        let due = latest.due.min(connected).max(applied);
        let mut times = latest.applied.clone();
        drop(latest);
        times.resize(due, now.saturating_duration_since(at));
        times.sort_unstable();
        let ms = |share| quantile(&times, share).unwrap_or_default().as_secs_f64() * 1e3;
        PropagationFigures {
            due,
            applied,
            p50_ms: ms(0.5),
            p99_ms: ms(0.99),
            max_ms: ms(1.0),
        }
    }
}

/// Minimum of the ascending values that at least this share of them does not exceed.
pub(super) fn quantile<T: Copy>(ascending: &[T], share: f64) -> Option<T> {
    let rank = (share * ascending.len() as f64).ceil() as usize;
    ascending.get(rank.saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(figure: f64, due: f64) -> bool {
        (figure - due).abs() <= due * 0.002
    }

    #[test]
    fn unapplied_decision_counts_as_the_slowest() {
        let propagation = Propagation::default();
        let at = Instant::now();
        propagation.on_decision(7, at, 100);
        (1..=98).for_each(|ms| propagation.on_applied(7, at + Duration::from_millis(ms)));
        propagation.on_applied(6, at + Duration::from_secs(9));
        let figures = propagation.figures(at + Duration::from_secs(1), 100);
        assert_eq!((figures.due, figures.applied), (100, 98));
        assert!(
            near(figures.p50_ms, 50.0) && near(figures.p99_ms, 1_000.0),
            "{figures:?}"
        );
        // The two clients that have not applied it disconnect, and are not due anymore.
        let figures = propagation.figures(at + Duration::from_secs(1), 98);
        assert!(
            near(figures.p99_ms, 98.0) && near(figures.max_ms, 98.0),
            "{figures:?}"
        );
        propagation.on_decision(8, at, 0);
        assert_eq!(propagation.figures(at, 0), PropagationFigures::default());
    }
}
