//! Requests that arrive together in groups at one client.

use rand::rngs::SmallRng;
use serde::Deserialize;

use super::Arrivals;
use crate::rng::unit;

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Groups {
    /// Number of requests in a group.
    pub(crate) of: u32,
    /// True for a constant time between the groups of a client, false for a mean time.
    #[serde(default)]
    pub(crate) periodic: bool,
}

/// Elapsed part of the time to the next group at one client, for periodic groups.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Phase(f64);

impl Phase {
    /// Draws the phase at the start.
    pub(crate) fn draw(generator: &mut SmallRng) -> Self {
        Self(unit(generator))
    }
}

impl Groups {
    /// Returns the requests that arrive in a step with this mean number of requests.
    pub(crate) fn arrivals(&self, mean: f64, phase: &mut Phase, generator: &mut SmallRng) -> u32 {
        let groups = mean / f64::from(self.of);
        if !self.periodic {
            return Arrivals::of(groups).draw(generator) * self.of;
        }
        phase.0 += groups;
        let whole = phase.0.floor();
        phase.0 -= whole;
        whole as u32 * self.of
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Purpose, generator};

    /// Returns the steps of 100,000 with arrivals, at a mean of 0.5 requests in a step.
    fn arrivals(groups: Groups) -> Vec<(usize, u32)> {
        let mut rng = generator(5, Purpose::Traffic);
        let mut phase = Phase::draw(&mut rng);
        let counts = (0..100_000).map(|step| (step, groups.arrivals(0.5, &mut phase, &mut rng)));
        counts.filter(|(_, count)| *count > 0).collect()
    }

    #[test]
    fn periodic_groups_arrive_at_equal_times() {
        let all = arrivals(Groups {
            of: 10,
            periodic: true,
        });
        assert_eq!(all.len(), 5_000);
        assert!(
            all.windows(2)
                .all(|pair| pair[1].0 - pair[0].0 == 20 && pair[1].1 == 10)
        );
    }

    #[test]
    fn random_groups_keep_the_mean_rate() {
        let all = arrivals(Groups {
            of: 10,
            periodic: false,
        });
        assert!(all.iter().all(|(_, count)| count % 10 == 0));
        let groups: u32 = all.iter().map(|(_, count)| count / 10).sum();
        assert!((4_700..5_300).contains(&groups), "{groups}");
        let apart: Vec<usize> = all.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
        assert!(apart.iter().any(|steps| *steps < 5) && apart.iter().any(|steps| *steps > 60));
    }
}
