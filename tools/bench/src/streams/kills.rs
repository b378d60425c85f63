//! The application times of the latest kill generation. They are times of day, for comparison with
//! the command in another process on this machine.

use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use plimsoll_core::kill::KillGeneration;
use serde::Serialize;

use super::propagation::quantile;

#[derive(Debug, Default)]
pub(crate) struct Kills {
    inner: Mutex<(KillGeneration, Vec<f64>)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct KillFigures {
    /// Odd means killed.
    pub(crate) generation: u64,
    pub(crate) applied: usize,
    /// Time when half of these clients had applied it, in milliseconds since 1970; null if none
    /// has.
    pub(crate) p50_at_ms: Option<f64>,
    /// Time when 99 % of these clients had applied it.
    pub(crate) p99_at_ms: Option<f64>,
    /// Time when all of these clients had applied it.
    pub(crate) last_at_ms: Option<f64>,
}

impl Kills {
    /// Notes that a client has just applied a generation. Generations below the latest are ignored.
    pub(crate) fn on_applied(&self, generation: KillGeneration) {
        let at = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs_f64()
            * 1e3;
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if generation > inner.0 {
            *inner = (generation, Vec::new());
        }
        if generation == inner.0 {
            inner.1.push(at);
        }
    }

    pub(crate) fn figures(&self) -> KillFigures {
        let (generation, mut times) = self
            .inner
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
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
        [1, 1, 2, 1, 2, 2]
            .into_iter()
            .for_each(|generation| kills.on_applied(KillGeneration(generation)));
        let figures = kills.figures();
        assert_eq!((figures.generation, figures.applied), (2, 3));
        assert!(figures.p50_at_ms <= figures.p99_at_ms && figures.p99_at_ms <= figures.last_at_ms);
    }
}
