//! The times at which clients applied the latest kill generation. They are times of day, so that another
//! process on this machine can compare them with the moment of its command.

use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use plimsoll_core::kill::KillGeneration;
use serde::Serialize;

use super::propagation::quantile;

/// The latest kill generation and the times at which the clients of one aggregator applied it.
#[derive(Debug, Default)]
pub(crate) struct Kills {
    inner: Mutex<(KillGeneration, Vec<f64>)>,
}

/// The application times of the latest kill generation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct KillFigures {
    /// The generation; odd means killed.
    pub(crate) generation: u64,
    /// Clients that have applied it.
    pub(crate) applied: usize,
    /// Time at which half of these clients had applied it, in milliseconds since 1970; null if none has.
    pub(crate) p50_at_ms: Option<f64>,
    /// Time at which 99 % of these clients had applied it.
    pub(crate) p99_at_ms: Option<f64>,
    /// Time at which all of these clients had applied it.
    pub(crate) last_at_ms: Option<f64>,
}

impl Kills {
    /// Notes that a client has applied a generation just now. Generations below the latest are ignored.
    pub(crate) fn on_applied(&self, generation: KillGeneration) {
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64() * 1e3;
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if generation > inner.0 {
            *inner = (generation, Vec::new());
        }
        if generation == inner.0 {
            inner.1.push(at);
        }
    }

    /// The application times of the latest generation so far.
    pub(crate) fn figures(&self) -> KillFigures {
        let (generation, mut times) = self.inner.lock().unwrap_or_else(PoisonError::into_inner).clone();
        times.sort_by(f64::total_cmp);
        KillFigures {
            generation: generation.0,
            applied: times.len(),
            p50_at_ms: quantile(&times, 0.5),
            p99_at_ms: quantile(&times, 0.99),
            last_at_ms: quantile(&times, 1.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_latest_generation_counts() {
        let kills = Kills::default();
        assert_eq!(kills.figures(), KillFigures::default());
        [1, 1, 2, 1, 2, 2].into_iter().for_each(|generation| kills.on_applied(KillGeneration(generation)));
        let figures = kills.figures();
        assert_eq!((figures.generation, figures.applied), (2, 3));
        assert!(figures.p50_at_ms <= figures.p99_at_ms && figures.p99_at_ms <= figures.last_at_ms);
    }
}
