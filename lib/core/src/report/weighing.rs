//! The weight of each child in evidence: at most five times that of the median instance, for each instance
//! that it stands for. So the claims of one instance decide no gate of the fleet.

use std::collections::BTreeMap;

use super::{COHORTS_MAX, CohortKey, Evidence, Outcomes};

/// The weight of an instance in a cohort, at most, as a multiple of the median instance's.
pub const INSTANCE_WEIGHT_MAX: u64 = 5;
/// Maximum number of pairs of a cohort and a child that are remembered. The evidence of further ones is left out.
const WEIGHED_MAX: usize = 200_000;
/// The number of cohorts of each child with reserved room: the last fourth of the cohorts, and as many pairs again
/// as [`WEIGHED_MAX`].
const OF_CHILD_FIRST: u32 = 20;
/// Maximum number of instances that one child can stand for.
const INSTANCES_MAX: u32 = 10_000;
/// Number of [takes](Weighing::take) between halvings of the memory: a minute of roll-ups or ticks.
const TAKES_PER_FADE: u32 = 120;

/// Evidence of children `C`, each an instance or an aggregator of instances, on its way to a parent or a gate.
///
/// The median is taken over all instances that had requests in the last minutes, and not only over
/// the instances of the present roll-up, where a single instance may have reported.
#[derive(Debug)]
pub struct Weighing<C> {
    cohorts: BTreeMap<CohortKey, BTreeMap<C, Weighed>>,
    /// The number of pairs of a cohort and a child.
    pairs: usize,
    /// The number of cohorts of each child.
    of_child: BTreeMap<C, u32>,
    left_out: u64,
    takes: u32,
}

#[derive(Debug, Default)]
struct Weighed {
    instances: u32,
    /// The weight that it claimed in the last minutes, and the part of it that counted.
    claimed: u64,
    counted: u64,
    /// Its outcomes since the last take.
    fresh: Outcomes,
}

impl<C> Default for Weighing<C> {
    fn default() -> Self {
        Self {
            cohorts: BTreeMap::new(),
            pairs: 0,
            of_child: BTreeMap::new(),
            left_out: 0,
            takes: 0,
        }
    }
}

impl<C: Ord + Clone> Weighing<C> {
    /// Adds outcomes of a child that represents `instances`. Outcomes without weight change nothing.
    pub fn add(&mut self, child: C, instances: u32, cohort: &CohortKey, outcomes: &Outcomes) {
        if outcomes.weight() == 0 {
            return;
        }
        let is_known = self
            .cohorts
            .get(cohort)
            .is_some_and(|children| children.contains_key(&child));
        if !is_known && !self.has_room(&child, cohort) {
            self.leave_out(outcomes);
            return;
        }
        if !is_known {
            *self.of_child.entry(child.clone()).or_default() += 1;
            self.pairs += 1;
        }
        let child = self
            .cohorts
            .entry(cohort.clone())
            .or_default()
            .entry(child)
            .or_default();
        child.instances = instances.clamp(1, INSTANCES_MAX);
        child.claimed = child.claimed.saturating_add(outcomes.weight());
        child.fresh.add(outcomes);
        child.fresh.instances = 0;
    }

    fn has_room(&self, child: &C, cohort: &CohortKey) -> bool {
        let is_first = self
            .of_child
            .get(child)
            .is_none_or(|cohorts| *cohorts < OF_CHILD_FIRST);
        let (cohorts_max, pairs_max) = if is_first {
            (COHORTS_MAX, 2 * WEIGHED_MAX)
        } else {
            (COHORTS_MAX / 4 * 3, WEIGHED_MAX)
        };
        (self.cohorts.len() < cohorts_max || self.cohorts.contains_key(cohort))
            && self.pairs < pairs_max
    }

    /// Counts outcomes that are left out of the evidence.
    pub fn leave_out(&mut self, outcomes: &Outcomes) {
        self.left_out = self.left_out.saturating_add(outcomes.weight());
    }

    /// Takes the evidence since the last call, within the weights, with the number of instances that each
    /// cohort rests on.
    pub fn take(&mut self) -> Evidence {
        let mut evidence = Evidence::default();
        for (cohort, children) in &mut self.cohorts {
            if children.values().all(|child| child.fresh.is_empty()) {
                continue;
            }
            let most = INSTANCE_WEIGHT_MAX.saturating_mul(median(children.values()));
            let instances = children
                .values()
                .fold(0_u32, |sum, child| sum.saturating_add(child.instances));
            let mut sum = Outcomes {
                instances,
                ..Outcomes::default()
            };
            for child in children.values_mut() {
                let fresh = child.fresh.weight();
                let taken = child.take(most);
                self.left_out = self
                    .left_out
                    .saturating_add(fresh - taken.weight().min(fresh));
                sum.add(&taken);
            }
            evidence.put(cohort.clone(), sum);
        }
        self.takes += 1;
        if self.takes >= TAKES_PER_FADE {
            self.fade();
        }
        evidence
    }

    /// The weight of all evidence that was left out: for want of room, or above the weight of its children.
    pub const fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Drops the evidence since the last [take](Self::take).
    pub fn discard(&mut self) {
        for child in self.cohorts.values_mut().flat_map(BTreeMap::values_mut) {
            child.fresh = Outcomes::default();
        }
    }

    fn fade(&mut self) {
        self.takes = 0;
        for children in self.cohorts.values_mut() {
            children.retain(|_, child| {
                (child.claimed, child.counted) = (child.claimed / 2, child.counted / 2);
                child.claimed > 0
            });
        }
        self.cohorts.retain(|_, children| !children.is_empty());
        self.of_child.clear();
        for child in self.cohorts.values().flat_map(BTreeMap::keys) {
            *self.of_child.entry(child.clone()).or_default() += 1;
        }
        self.pairs = self.cohorts.values().map(BTreeMap::len).sum();
    }
}

impl Weighed {
    fn take(&mut self, most: u64) -> Outcomes {
        let room = most
            .saturating_mul(self.instances.into())
            .saturating_sub(self.counted);
        let outcomes = std::mem::take(&mut self.fresh).limited(room);
        self.counted = self.counted.saturating_add(outcomes.weight());
        outcomes
    }
}

/// Returns the weight of the median instance; of two in the middle the smaller one.
fn median<'a>(children: impl Iterator<Item = &'a Weighed>) -> u64 {
    let mut each: Vec<(u64, u64)> = children
        .map(|child| {
            (
                child.claimed.div_ceil(child.instances.max(1).into()),
                child.instances.into(),
            )
        })
        .collect();
    each.sort_unstable();
    let half = each
        .iter()
        .map(|(_, instances)| instances)
        .sum::<u64>()
        .div_ceil(2);
    let mut below = 0;
    let median = each.iter().find(|(_, instances)| {
        below += instances;
        below >= half
    });
    median.map_or(0, |(weight, _)| *weight)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::decision::Mode;
    use crate::names::Bucket;
    use crate::report::Side;
    use crate::stats::{Bin, Histogram};

    fn cohort() -> CohortKey {
        CohortKey {
            bucket: Bucket::new("api").unwrap(),
            mode: Mode::Canary,
            side: Side::Canary,
        }
    }

    fn outcomes(offered: u64, refused: u64) -> Outcomes {
        let mut latency = Histogram::default();
        latency.add(
            Bin::of(Duration::from_millis(if refused > 0 { 900 } else { 1 })),
            offered,
        );
        Outcomes {
            offered,
            refused,
            latency,
            ..Outcomes::default()
        }
    }

    fn take(weighing: &mut Weighing<u32>) -> Outcomes {
        weighing
            .take()
            .iter()
            .next()
            .map(|(_, outcomes)| outcomes.clone())
            .unwrap_or_default()
    }

    #[test]
    fn hostile_instance_weighs_five_medians_at_most() {
        for (honest, hostile) in [
            (outcomes(100, 100), outcomes(1_000_000_000, 0)),
            (outcomes(100, 0), outcomes(1_000_000_000, 1_000_000_000)),
            // Nothing offered, and yet refusals and latencies.
            (
                outcomes(100, 0),
                Outcomes {
                    offered: 0,
                    ..outcomes(1_000_000_000, 1_000_000_000)
                },
            ),
        ] {
            let mut weighing = Weighing::default();
            let mut total = Outcomes::default();
            for _ in 0..50 {
                (0..20).for_each(|child| weighing.add(child, 1, &cohort(), &honest));
                weighing.add(99, 1, &cohort(), &hostile);
                total.add(&take(&mut weighing));
            }
            assert_eq!(total.instances, 21);
            let of_hostile = |of: fn(&Outcomes) -> u64| of(&total) - 50 * 20 * of(&honest);
            for number in [of_hostile(|all| all.offered), of_hostile(|all| all.refused)] {
                assert!(number <= 50 * 500, "{number}");
            }
            assert!(of_hostile(|all| all.latency.samples()) <= 50 * 500);
        }
    }

    #[test]
    fn lone_instance_is_compared_with_recent_ones() {
        let mut weighing = Weighing::default();
        (0..20).for_each(|child| weighing.add(child, 1, &cohort(), &outcomes(10, 0)));
        assert_eq!(take(&mut weighing).offered, 200);
        weighing.add(99, 1, &cohort(), &outcomes(1_000_000_000, 0));
        assert_eq!(take(&mut weighing).offered, 50);
        weighing.add(99, 1, &cohort(), &outcomes(1_000_000_000, 0));
        assert_eq!(
            take(&mut weighing).offered,
            0,
            "it has weighed that already"
        );
        assert_eq!(weighing.left_out(), 2_000_000_000 - 50);
        // Long after, the stopped instances count no more.
        (0..40 * TAKES_PER_FADE).for_each(|_| drop(weighing.take()));
        weighing.add(1, 1, &cohort(), &outcomes(7, 0));
        assert_eq!((take(&mut weighing).offered, weighing.pairs), (7, 1));
    }

    #[test]
    fn aggregators_weigh_by_their_instances() {
        let mut weighing = Weighing::default();
        weighing.add(1, 8, &cohort(), &outcomes(800, 0));
        weighing.add(2, 2, &cohort(), &outcomes(5_000, 5_000));
        let all = take(&mut weighing);
        // The median instance has 100: the second aggregator weighs 2 * 500.
        assert_eq!(
            (all.instances, all.offered, all.refused),
            (10, 1_800, 1_000)
        );
        weighing.add(1, 8, &cohort(), &outcomes(800, 0));
        weighing.discard();
        assert!(weighing.take().is_empty());
    }

    #[test]
    fn idle_instances_do_not_set_the_median() {
        let mut weighing = Weighing::default();
        (0..8).for_each(|child| weighing.add(child, 1, &cohort(), &Outcomes::default()));
        weighing.add(9, 1, &cohort(), &outcomes(100, 3));
        let all = take(&mut weighing);
        assert_eq!((all.offered, all.refused, all.instances), (100, 3, 1));
        assert_eq!(weighing.left_out(), 0);
    }

    #[test]
    fn one_child_leaves_room_for_other_cohorts() {
        let cohort = |number: u32| CohortKey {
            bucket: Bucket::new(&format!("b{number}")).unwrap(),
            ..cohort()
        };
        let mut weighing = Weighing::default();
        (0..2 * COHORTS_MAX as u32)
            .for_each(|number| weighing.add(1, 1, &cohort(number), &outcomes(2, 0)));
        (0..10).for_each(|number| weighing.add(2, 1, &cohort(100_000 + number), &outcomes(7, 0)));
        let evidence = weighing.take();
        let of_second = evidence
            .iter()
            .filter(|(_, outcomes)| outcomes.offered == 7);
        assert_eq!(of_second.count(), 10);
        let in_all: u64 = evidence.iter().map(|(_, outcomes)| outcomes.offered).sum();
        assert_eq!(
            in_all + weighing.left_out(),
            2 * 2 * COHORTS_MAX as u64 + 70,
            "all is counted"
        );
        assert!(evidence.iter().len() <= COHORTS_MAX);
    }

    #[test]
    fn children_with_many_cohorts_share_room() {
        let cohort = |number: u32| CohortKey {
            bucket: Bucket::new(&format!("b{number}")).unwrap(),
            ..cohort()
        };
        let mut weighing = Weighing::default();
        let cohorts: Vec<CohortKey> = (0..2_000).map(cohort).collect();
        for child in 0..110 {
            cohorts
                .iter()
                .for_each(|cohort| weighing.add(child, 1, cohort, &outcomes(1, 0)));
        }
        weighing.add(999, 1, &cohorts[0], &outcomes(1, 0));
        let first = weighing
            .take()
            .iter()
            .next()
            .map(|(_, outcomes)| outcomes.instances);
        assert_eq!(first, Some(111));
        assert!(weighing.pairs <= 2 * WEIGHED_MAX && weighing.left_out() > 0);
    }

    proptest! {
        #[test]
        fn limited_outcomes_keep_their_proportions(
            offered in 0..1_000_000_u64, refused in 0..1_000_000_u64, bins in prop::collection::vec((0..2_048_u16, 1..1_000_u64), 0..50),
            most in 0..2_000_000_u64,
        ) {
            let mut latency = Histogram::default();
            bins.iter().for_each(|(bin, count)| latency.add(Bin::new(*bin).unwrap(), *count));
            let whole = Outcomes { offered, refused, latency, ..Outcomes::default() };
            let part = whole.clone().limited(most);
            prop_assert_eq!(part.weight(), whole.weight().min(most));
            if whole.weight() > 0 {
                let factor = part.weight() as f64 / whole.weight() as f64;
                let numbers: [fn(&Outcomes) -> u64; 3] = [|all| all.offered, |all| all.refused, |all| all.latency.samples()];
                for of in numbers {
                    prop_assert!((of(&part) as f64 - of(&whole) as f64 * factor).abs() <= 1.0);
                }
            }
        }
    }
}
