//! Those who were refused and come back.

use rand::rngs::SmallRng;

use crate::draws::unit;

/// How the refused of one source behave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Retry {
    /// Who comes back at all.
    pub(crate) probability: f64,
    /// After how many seconds on average.
    pub(crate) backoff_s: f64,
    /// Spread of that, as a share of it to either side.
    pub(crate) jitter: f64,
}

/// Requests that will come again, by step.
#[derive(Debug)]
pub(crate) struct Returns {
    steps: Vec<Vec<(u32, u32)>>,
    step_s: f64,
}

impl Returns {
    /// For a run of so many steps of `step_s` seconds.
    pub(crate) fn new(steps: usize, step_s: f64) -> Self {
        Self { steps: vec![Vec::new(); steps], step_s }
    }

    /// A request of `source` was refused to `client` in `step`: it may come again, in a later step of the run.
    pub(crate) fn refused(
        &mut self,
        retry: &Retry,
        step: usize,
        client: u32,
        source: u32,
        draws: &mut SmallRng,
    ) {
        if unit(draws) >= retry.probability {
            return;
        }
        let wait = retry.backoff_s * (1.0 + retry.jitter * (2.0 * unit(draws) - 1.0));
        let later = ((wait / self.step_s).round() as usize).max(1);
        if let Some(due) = self.steps.get_mut(step + later) {
            due.push((client, source));
        }
    }

    /// Who comes again in `step`, in the order of clients.
    pub(crate) fn due(&mut self, step: usize) -> Vec<(u32, u32)> {
        let mut due = self.steps.get_mut(step).map(std::mem::take).unwrap_or_default();
        due.sort_unstable();
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draws::{Purpose, generator};

    #[test]
    fn the_refused_come_back_once_within_the_jitter() {
        let retry = Retry { probability: 0.8, backoff_s: 1.0, jitter: 0.5 };
        let mut draws = generator(1, Purpose::Retries);
        let mut returns = Returns::new(300, 0.01);
        for client in 0..10_000 {
            returns.refused(&retry, 7, client, 3, &mut draws);
        }
        let mut back = 0;
        for step in 0..300 {
            let due = returns.due(step);
            assert!(due.is_empty() || (57..=157).contains(&step), "{step}");
            assert!(due.is_sorted() && due.iter().all(|(_, source)| *source == 3));
            back += due.len();
            assert!(returns.due(step).is_empty());
        }
        assert!((7_800..8_200).contains(&back), "{back}");
        returns.refused(&Retry { probability: 1.0, ..retry }, 299, 0, 0, &mut draws);
        assert!((0..300).all(|step| returns.due(step).is_empty()), "the run is over");
    }
}
