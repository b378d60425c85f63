//! Evidence: what this instance saw of each bucket since its last report, for the gates of a rollout.

use std::collections::HashMap;

use plimsoll_core::decision::Mode;
use plimsoll_core::names::Bucket;
use plimsoll_core::report::{COHORTS_MAX, CohortKey, Counts, Evidence, Outcomes, Side};

use super::enforcement::Division;
use crate::hot::table::{KeyPlace, Table};
use crate::responses::{Reported, Snapshot};

const SIDES: [Side; 2] = [Side::Control, Side::Canary];

#[derive(Default)]
pub(super) struct EvidenceCollector {
    /// By the id of a bucket's default key: the decisions, by the side of their key.
    counts: Vec<BySide>,
    /// By bucket: its mode and the unit of its canary at the last collection.
    cohorts: Vec<Option<(Mode, Division)>>,
    responses: HashMap<(usize, Side), Reported>,
    /// If responses are observed elsewhere, by bucket and side: the responses that exceed the
    /// admitted requests.
    pub(super) surplus: Option<HashMap<(usize, Side), u64>>,
}

/// Decisions by the side of their key; of an instance that is on one side as a whole, all on the control side.
type BySide = [Counts; SIDES.len()];

#[derive(Clone)]
pub(crate) struct BucketResponses {
    pub(crate) bucket: Bucket,
    /// The label of the cohort; empty outside of canary.
    pub(crate) cohort: &'static str,
    pub(crate) responses: Snapshot,
}

impl EvidenceCollector {
    #[inline]
    pub(super) fn add(&mut self, table: &Table, places: &[KeyPlace], key: u32, new: Counts) {
        let place = places.get(key as usize);
        debug_assert!(place.is_some(), "key {key} was reported and has a place");
        let Some(place) = place else { return };
        let at = place.default_key as usize;
        if self.counts.len() <= at {
            self.counts.resize(at + 1, BySide::default());
        }
        let counts =
            &mut self.counts[at][table.responses.side(key).unwrap_or(Side::Control) as usize];
        *counts = counts.plus(new);
    }

    /// Moves what was seen of a bucket into `evidence`. `cohort` is its present mode and the unit of its
    /// canary, if there is a directive. What was seen partly in another mode or on the other side is dropped:
    /// it is not known which part.
    pub(super) fn collect(
        &mut self,
        table: &Table,
        id: usize,
        bucket: &Bucket,
        cohort: Option<(Mode, Division)>,
        evidence: &mut Evidence,
    ) {
        self.cohorts.resize(self.cohorts.len().max(id + 1), None);
        let before = std::mem::replace(&mut self.cohorts[id], cohort);
        let counts = table
            .default_key(id as u32)
            .and_then(|key| self.counts.get_mut(key as usize));
        let counts = counts.map(std::mem::take).unwrap_or_default();
        for side in SIDES {
            let collected = self.responses.entry((id, side)).or_default();
            let (failed, latency) = table.responses.since(id, side, collected);
            let surplus = self
                .surplus
                .as_mut()
                .map(|surplus| surplus.entry((id, side)).or_default());
            let Some((mode, division)) = cohort.filter(|_| cohort == before) else {
                surplus.into_iter().for_each(|surplus| *surplus = 0);
                continue;
            };
            let counts = match division {
                Division::Whole(own) if own == side => counts[Side::Control as usize],
                Division::Whole(_) => continue,
                Division::ByKey(_) => counts[side as usize],
            };
            let outcomes = Outcomes {
                offered: counts.offered,
                refused: counts.refused(),
                would_dropped: counts.would_dropped,
                failed,
                unobserved: surplus
                    .map_or(0, |surplus| unobserved(counts, latency.samples(), surplus)),
                latency,
                ..Outcomes::default()
            };
            if !outcomes.is_empty() {
                evidence.add(
                    &CohortKey {
                        bucket: bucket.clone(),
                        mode,
                        side,
                    },
                    &outcomes,
                    COHORTS_MAX,
                );
            }
        }
    }
}

/// Returns the admitted requests without a response. Responses arrive after their decisions, and a caller may report
/// responses that were never asked about. The responses beyond the admitted requests are the `surplus`, which
/// counts for later requests.
fn unobserved(counts: Counts, responses: u64, surplus: &mut u64) -> u64 {
    let (admitted, observed) = (counts.admitted(), surplus.saturating_add(responses));
    *surplus = observed.saturating_sub(admitted);
    admitted.saturating_sub(observed)
}

pub(super) fn responses(table: &Table, buckets: &[Bucket]) -> Vec<BucketResponses> {
    let of = |(id, bucket): (usize, &Bucket)| {
        let bucket = bucket.clone();
        let all = table.responses.snapshots(id).into_iter();
        all.map(move |(cohort, responses)| BucketResponses {
            bucket: bucket.clone(),
            cohort,
            responses,
        })
    };
    buckets.iter().enumerate().flat_map(of).collect()
}
