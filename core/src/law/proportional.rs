//! The simplest law: refuse the excess in proportion, `(offered - limit) / offered`, with no memory.

use std::time::Duration;

use super::{Demand, Law};
use crate::rate::Rate;
use crate::ratio::DropRatio;

/// One ratio for the whole bucket: the share of all offered requests that exceeds the limit. Both sides are per
/// second and over all zones; a count of half a second against a limit of a whole one would admit twice the limit,
/// and one zone's count against the whole limit as many times the limit as there are zones.
#[derive(Clone, Copy, Debug, Default)]
pub struct Proportional;

impl Law for Proportional {
    fn on_tick(
        &mut self,
        _since_last: Duration,
        limit: Rate,
        demands: &[Demand],
        ratios: &mut Vec<DropRatio>,
    ) {
        let offered: Rate = demands.iter().map(|demand| demand.offered).sum();
        let ratio = if limit == Rate::ZERO { DropRatio::ALL } else { DropRatio::of_excess(offered, limit) };
        ratios.clear();
        ratios.resize(demands.len(), ratio);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ratio(limit: f64, offered: &[f64]) -> f64 {
        let demands: Vec<Demand> =
            offered.iter().map(|rate| Demand { offered: Rate::new(*rate).unwrap() }).collect();
        let mut ratios = vec![DropRatio::ALL; 7];
        let limit = Rate::new(limit).unwrap();
        Proportional.on_tick(Duration::from_millis(500), limit, &demands, &mut ratios);
        assert_eq!(ratios.len(), demands.len());
        assert!(ratios.windows(2).all(|pair| pair[0] == pair[1]));
        ratios.first().map_or(0.0, |ratio| ratio.as_f64())
    }

    #[test]
    fn the_excess_is_refused_in_proportion() {
        for (limit, offered, expected) in [
            (1000.0, &[500.0, 499.0][..], 0.0),
            (1000.0, &[2000.0, 2000.0], 0.75),
            (1000.0, &[0.0, 0.0], 0.0),
            (0.0, &[0.0], 1.0), // a limit of zero denies whatever the demand
            (0.0, &[5.0], 1.0),
        ] {
            let got = ratio(limit, offered);
            assert!((got - expected).abs() < 1e-9, "{offered:?} against {limit}: {got}");
        }
    }

    proptest! {
        #[test]
        fn what_is_left_is_the_limit(limit in 1.0..1e6, offered in prop::collection::vec(0.0..1e6, 1..8)) {
            let sum: f64 = offered.iter().sum();
            let left = sum * (1.0 - ratio(limit, &offered));
            prop_assert!((left - sum.min(limit)).abs() <= 1e-8 * sum.max(1.0), "{left} of {sum} at {limit}");
        }
    }
}
