//! Evidence for rollout gates: outcomes of requests by bucket, mode and side of the canary.

use std::collections::BTreeMap;

use crate::decision::Mode;
use crate::names::Bucket;
use crate::stats::Histogram;

/// Maximum number of cohorts in one report; further ones are left out.
pub const COHORTS_MAX: usize = 4_096;

/// The side of an instance in a canary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// Outside the canary.
    Control,
    /// In the canary: it carries refusals out while the bucket is in canary.
    Canary,
}

/// A cohort of evidence: the bucket, mode and side of observed outcomes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CohortKey {
    /// The bucket.
    pub bucket: Bucket,
    /// The mode that the instance held.
    pub mode: Mode,
    /// Its side.
    pub side: Side,
}

/// The outcomes of requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Outcomes {
    /// Requests offered.
    pub offered: u64,
    /// Requests that were refused, by coin or guard. Refusals of quotas are no evidence of overload.
    pub refused: u64,
    /// Refusals decided but not carried out.
    pub would_dropped: u64,
    /// Admitted requests that ended in an error of the service or were cancelled by the caller. Only where
    /// responses are observed.
    pub failed: u64,
    /// Admitted requests with responses that the reporting instance cannot observe, such as
    /// requests that a proxy asks a sidecar about. At most `offered`.
    pub unobserved: u64,
    /// The latencies of admitted requests. Only where responses are observed.
    pub latency: Histogram,
    /// The instances that had these requests in the last minutes, as far as they are known apart.
    pub instances: u32,
}

/// Outcomes by cohort. The caller bounds the number of cohorts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    cells: BTreeMap<CohortKey, Outcomes>,
}

impl Side {
    /// The word used in metrics and tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Control => "control",
            Self::Canary => "canary",
        }
    }
}

impl Outcomes {
    /// Adds outcomes observed elsewhere, or later.
    pub fn add(&mut self, other: &Self) {
        self.offered = self.offered.saturating_add(other.offered);
        self.refused = self.refused.saturating_add(other.refused);
        self.would_dropped = self.would_dropped.saturating_add(other.would_dropped);
        self.failed = self.failed.saturating_add(other.failed);
        self.unobserved = self.unobserved.saturating_add(other.unobserved);
        self.latency.merge(&other.latency);
        // Mostly of the same instances.
        self.instances = self.instances.max(other.instances);
    }

    /// The maximum of all numbers: evidence counts by it.
    pub fn weight(&self) -> u64 {
        let Self {
            offered,
            refused,
            would_dropped,
            failed,
            unobserved,
            ref latency,
            ..
        } = *self;
        let numbers = [
            offered,
            refused,
            would_dropped,
            failed,
            unobserved,
            latency.samples(),
        ];
        numbers.into_iter().max().unwrap_or_default()
    }

    /// Reduces all numbers in proportion so that the [weight](Self::weight) is at most `most`.
    pub fn limited(self, most: u64) -> Self {
        let weight = self.weight();
        if weight <= most {
            return self;
        }
        let part =
            |number: u64| (u128::from(number) * u128::from(most) / u128::from(weight)) as u64;
        let mut latency = Histogram::default();
        let mut below = 0_u64;
        for (bin, count) in self.latency.iter() {
            let before = part(below);
            below = below.saturating_add(count);
            // Rounded as a sum, so that many small bins do not vanish.
            latency.add(bin, part(below) - before);
        }
        Self {
            offered: part(self.offered),
            refused: part(self.refused),
            would_dropped: part(self.would_dropped),
            failed: part(self.failed),
            unobserved: part(self.unobserved),
            latency,
            instances: self.instances,
        }
    }

    /// Returns true if nothing was observed.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns true if an instance that decided about `most` requests can have observed this: no number is
    /// larger, and no more requests are unobserved than were offered.
    pub fn is_plausible(&self, most: u64) -> bool {
        self.weight() <= most && self.unobserved <= self.offered
    }
}

impl Evidence {
    /// Adds the outcomes of one cohort, unless that would exceed `most` cohorts. Returns true if they were
    /// added.
    pub fn add(&mut self, cohort: &CohortKey, outcomes: &Outcomes, most: usize) -> bool {
        if let Some(held) = self.cells.get_mut(cohort) {
            held.add(outcomes);
            return true;
        }
        let has_room = self.cells.len() < most;
        if has_room {
            self.cells.insert(cohort.clone(), outcomes.clone());
        }
        has_room
    }

    /// Sets the outcomes of one cohort.
    pub fn put(&mut self, cohort: CohortKey, outcomes: Outcomes) {
        self.cells.insert(cohort, outcomes);
    }

    /// Every cohort with its outcomes.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&CohortKey, &Outcomes)> {
        self.cells.iter()
    }

    /// Adds the cohorts of another part of the same report.
    pub fn extend(&mut self, part: Self) {
        self.cells.extend(part.cells);
    }

    /// The number of latency bins in all cohorts.
    pub fn bins(&self) -> usize {
        self.cells
            .values()
            .map(|outcomes| outcomes.latency.iter().len())
            .sum()
    }

    /// Returns true if there is none.
    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stand(bucket: &str, side: Side) -> CohortKey {
        CohortKey {
            bucket: Bucket::new(bucket).unwrap(),
            mode: Mode::Canary,
            side,
        }
    }

    fn asked(offered: u64) -> Outcomes {
        Outcomes {
            offered,
            ..Outcomes::default()
        }
    }

    #[test]
    fn unobserved_requests_add_up() {
        let of = |offered, unobserved| Outcomes {
            offered,
            unobserved,
            ..Outcomes::default()
        };
        let mut sum = of(5, 3);
        sum.add(&of(4, 4));
        assert_eq!((sum.clone(), sum.limited(3)), (of(9, 7), of(3, 2)));
        for (outcomes, most, is_plausible) in [
            (of(5, 5), 5, true),
            (of(5, 0), 5, true),
            (of(5, 6), 9, false),
            (of(5, 5), 4, false),
        ] {
            assert_eq!(
                outcomes.is_plausible(most),
                is_plausible,
                "{outcomes:?} of {most}"
            );
        }
    }

    #[test]
    fn full_evidence_table_counts_known_cohorts() {
        let mut evidence = Evidence::default();
        assert!(evidence.add(&stand("a", Side::Canary), &asked(1), 1));
        assert!(!evidence.add(&stand("a", Side::Control), &asked(1), 1));
        assert!(evidence.add(&stand("a", Side::Canary), &asked(2), 1));
        assert_eq!(
            evidence
                .iter()
                .map(|(_, outcomes)| outcomes.offered)
                .collect::<Vec<_>>(),
            [3]
        );
    }
}
