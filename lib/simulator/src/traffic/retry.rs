//! Retries of refused requests.

use std::collections::BTreeMap;

use plimsoll_policy::Number;
use rand::rngs::SmallRng;
use serde::Deserialize;

use crate::results::BIN_S;
use crate::rng::unit;

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Retry {
    /// Share of refused requests that are retried.
    pub(crate) probability: Number,
    /// Mean wait before a retry, in seconds.
    pub(crate) backoff_s: Number,
    /// Spread of that wait, as a share of it to either side.
    #[serde(default)]
    pub(crate) jitter: Number,
    /// Maximum number of attempts, the first one included; unlimited if absent.
    pub(crate) attempts: Option<u32>,
}

impl Retry {
    /// Returns the steps until the retry after the `attempt`th refusal; `None` if the request is not
    /// retried.
    pub(crate) fn wait(&self, attempt: u32, rng: &mut SmallRng) -> Option<usize> {
        if self.attempts.is_some_and(|attempts| attempt >= attempts)
            || unit(rng) >= self.probability.0
        {
            return None;
        }
        let wait = self.backoff_s.0 * (1.0 + self.jitter.0 * (2.0 * unit(rng) - 1.0));
        Some(((wait / BIN_S).round() as usize).max(1))
    }
}

/// What is planned for later steps: retries, and answers to requests in flight.
#[derive(Debug)]
pub(crate) struct Planned<T> {
    steps: BTreeMap<usize, Vec<T>>,
}

impl<T> Default for Planned<T> {
    fn default() -> Self {
        Self {
            steps: BTreeMap::new(),
        }
    }
}

impl<T: Ord> Planned<T> {
    pub(crate) fn plan(&mut self, step: usize, planned: T) {
        self.steps.entry(step).or_default().push(planned);
    }

    /// Removes and returns what is planned for `step`, in order.
    pub(crate) fn due(&mut self, step: usize) -> Vec<T> {
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
    fn refused_requests_are_retried_within_the_jitter() {
        let [probability, backoff_s, jitter] = [0.8, 1.0, 0.5].map(Number);
        let retry = Retry {
            probability,
            backoff_s,
            jitter,
            attempts: Some(3),
        };
        let mut rng = generator(1, Purpose::Retries);
        let waits: Vec<usize> = (0..10_000)
            .filter_map(|_| retry.wait(2, &mut rng))
            .collect();
        assert!((7_800..8_200).contains(&waits.len()), "{}", waits.len());
        assert!(waits.iter().all(|wait| (50..=150).contains(wait)));
        assert_eq!(
            retry.wait(3, &mut rng),
            None,
            "the third attempt is the last"
        );
    }

    #[test]
    fn planned_is_due_once_in_order() {
        let mut planned = Planned::default();
        [3, 1, 2].into_iter().for_each(|one| planned.plan(7, one));
        assert_eq!(
            (planned.due(6), planned.due(7), planned.due(7)),
            (vec![], vec![1, 2, 3], vec![])
        );
    }
}
