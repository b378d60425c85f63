//! When clients took up the latest kill generation, by the time of day, so that whoever ordered it in another process of this
//! machine can tell how long that took.

use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use plimsoll_core::kill::KillGeneration;
use serde::Serialize;

/// The generation that is in the air, as the clients of one aggregator hear it.
#[derive(Debug, Default)]
pub(crate) struct Killed {
    inner: Mutex<(KillGeneration, Vec<f64>)>,
}

/// How the clients took it up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct TakenUp {
    /// Odd means killed.
    pub(crate) generation: u64,
    /// Clients that have.
    pub(crate) heard: usize,
    /// When half of those had, in milliseconds since 1970; null if nobody has.
    pub(crate) p50_at_ms: Option<f64>,
    /// The same for 99 in a hundred.
    pub(crate) p99_at_ms: Option<f64>,
    /// The same for all.
    pub(crate) last_at_ms: Option<f64>,
}

impl Killed {
    /// A client has taken up a generation just now. What is earlier than the latest was overtaken and is not counted.
    pub(crate) fn on_taken_up(&self, generation: KillGeneration) {
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64() * 1e3;
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if generation > inner.0 {
            *inner = (generation, Vec::new());
        }
        if generation == inner.0 {
            inner.1.push(at);
        }
    }

    /// How the latest one was taken up so far.
    pub(crate) fn figures(&self) -> TakenUp {
        let (generation, mut times) = self.inner.lock().unwrap_or_else(PoisonError::into_inner).clone();
        times.sort_by(f64::total_cmp);
        let quantile = |share: f64| {
            let rank = (share * times.len() as f64).ceil() as usize;
            times.get(rank.saturating_sub(1)).copied()
        };
        TakenUp {
            generation: generation.0,
            heard: times.len(),
            p50_at_ms: quantile(0.5),
            p99_at_ms: quantile(0.99),
            last_at_ms: quantile(1.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_generation_counts() {
        let killed = Killed::default();
        assert_eq!(killed.figures(), TakenUp::default());
        [1, 1, 2, 1, 2, 2].into_iter().for_each(|generation| killed.on_taken_up(KillGeneration(generation)));
        let figures = killed.figures();
        assert_eq!((figures.generation, figures.heard), (2, 3));
        assert!(figures.p50_at_ms <= figures.p99_at_ms && figures.p99_at_ms <= figures.last_at_ms);
    }
}
