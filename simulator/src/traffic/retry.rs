//! Retries of refused requests.

use std::collections::BTreeMap;

use plimsoll_policy::Number;
use rand::rngs::SmallRng;
use serde::Deserialize;

use crate::results::BIN_S;
use crate::rng::unit;

/// The retry behaviour of one entry of `traffic`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Retry {
    /// The share of refused requests that are retried.
    pub(crate) probability: Number,
    /// The mean wait before a retry, in seconds.
    pub(crate) backoff_s: Number,
    /// The spread of that wait, as a share of it to either side.
    #[serde(default)]
    pub(crate) jitter: Number,
}

/// Planned retries as client and entry of `traffic`, by step.
#[derive(Debug, Default)]
pub(crate) struct PendingRetries {
    steps: BTreeMap<usize, Vec<(u32, u32)>>,
}

impl PendingRetries {
    /// Plans the retry of a request of `entry` that was refused at `client` in `step`, with the entry's
    /// probability.
    pub(crate) fn plan(&mut self, retry: &Retry, step: usize, client: u32, entry: u32, rng: &mut SmallRng) {
        if unit(rng) >= retry.probability.0 {
            return;
        }
        let wait = retry.backoff_s.0 * (1.0 + retry.jitter.0 * (2.0 * unit(rng) - 1.0));
        let later = ((wait / BIN_S).round() as usize).max(1);
        self.steps.entry(step + later).or_default().push((client, entry));
    }

    /// Removes and returns the retries of `step`, ordered by client.
    pub(crate) fn due(&mut self, step: usize) -> Vec<(u32, u32)> {
        let mut due = self.steps.remove(&step).unwrap_or_default();
        due.sort_unstable();
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Purpose, generator};

    #[test]
    fn refused_requests_are_retried_once_within_the_jitter() {
        let retry = Retry { probability: Number(0.8), backoff_s: Number(1.0), jitter: Number(0.5) };
        let mut rng = generator(1, Purpose::Retries);
        let mut retries = PendingRetries::default();
        for client in 0..10_000 {
            retries.plan(&retry, 7, client, 3, &mut rng);
        }
        let mut count = 0;
        for step in 0..300 {
            let due = retries.due(step);
            assert!(due.is_empty() || (57..=157).contains(&step), "{step}");
            assert!(due.is_sorted() && due.iter().all(|(_, entry)| *entry == 3));
            count += due.len();
            assert!(retries.due(step).is_empty());
        }
        assert!((7_800..8_200).contains(&count), "{count}");
        retries.plan(&Retry { probability: Number(1.0), ..retry }, 299, 0, 0, &mut rng);
        assert!((0..300).all(|step| retries.due(step).is_empty()), "none is due before its step");
    }
}
