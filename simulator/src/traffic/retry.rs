//! Retries of refused requests.

use rand::rngs::SmallRng;

use crate::rng::unit;

/// The retry behaviour of one entry of `traffic`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Retry {
    /// The share of refused requests that are retried.
    pub(crate) probability: f64,
    /// The mean wait before a retry, in seconds.
    pub(crate) backoff_s: f64,
    /// The spread of that wait, as a share of it to either side.
    pub(crate) jitter: f64,
}

/// Planned retries as client and entry of `traffic`, by step.
#[derive(Debug)]
pub(crate) struct PendingRetries {
    steps: Vec<Vec<(u32, u32)>>,
    step_s: f64,
}

impl PendingRetries {
    /// Creates the plan of a run with so many steps of `step_s` seconds.
    pub(crate) fn new(steps: usize, step_s: f64) -> Self {
        Self { steps: vec![Vec::new(); steps], step_s }
    }

    /// Plans the retry of a request of `entry` that was refused at `client` in `step`, with the entry's
    /// probability. A retry after the end of the run is dropped.
    pub(crate) fn plan(&mut self, retry: &Retry, step: usize, client: u32, entry: u32, rng: &mut SmallRng) {
        if unit(rng) >= retry.probability {
            return;
        }
        let wait = retry.backoff_s * (1.0 + retry.jitter * (2.0 * unit(rng) - 1.0));
        let later = ((wait / self.step_s).round() as usize).max(1);
        if let Some(due) = self.steps.get_mut(step + later) {
            due.push((client, entry));
        }
    }

    /// Removes and returns the retries of `step`, ordered by client.
    pub(crate) fn due(&mut self, step: usize) -> Vec<(u32, u32)> {
        let mut due = self.steps.get_mut(step).map(std::mem::take).unwrap_or_default();
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
        let retry = Retry { probability: 0.8, backoff_s: 1.0, jitter: 0.5 };
        let mut rng = generator(1, Purpose::Retries);
        let mut retries = PendingRetries::new(300, 0.01);
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
        retries.plan(&Retry { probability: 1.0, ..retry }, 299, 0, 0, &mut rng);
        assert!((0..300).all(|step| retries.due(step).is_empty()), "dropped after the end of the run");
    }
}
