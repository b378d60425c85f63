//! Evidence: what this instance saw of each bucket since its last report, for the gates of a rollout.

use std::collections::HashMap;

use plimsoll_core::decision::Mode;
use plimsoll_core::names::Bucket;
use plimsoll_core::report::{COHORTS_MAX, CohortKey, Counts, Evidence, Outcomes, Side};

use crate::hot::table::{KeyPlace, Table};
use crate::responses::{Reported, Snapshot};

/// Both sides of a canary.
const SIDES: [Side; 2] = [Side::Control, Side::Canary];

/// Counts and responses that were not reported as evidence yet.
#[derive(Debug, Default)]
pub(super) struct EvidenceCollector {
    /// By the id of a bucket's default key.
    counts: Vec<Counts>,
    /// By bucket: its mode and this instance's side at the last collection.
    cohorts: Vec<Option<(Mode, Side)>>,
    /// By bucket and side: the responses collected so far.
    responses: HashMap<(usize, Side), Reported>,
}

/// The responses of one bucket in one cohort, for metrics.
#[derive(Clone, Debug)]
pub(crate) struct BucketResponses {
    pub(crate) bucket: Bucket,
    /// The label of the cohort; empty outside of canary.
    pub(crate) cohort: &'static str,
    pub(crate) responses: Snapshot,
}

impl EvidenceCollector {
    /// Adds the decisions on a key.
    #[inline]
    pub(super) fn add(&mut self, places: &[KeyPlace], key: u32, new: Counts) {
        let place = places.get(key as usize);
        debug_assert!(place.is_some(), "key {key} was reported and has a place");
        let Some(place) = place else { return };
        let at = place.default_key as usize;
        if self.counts.len() <= at {
            self.counts.resize(at + 1, Counts::ZERO);
        }
        self.counts[at] = self.counts[at].plus(new);
    }

    /// Moves what was seen of a bucket into `evidence`. `cohort` is its present mode and this instance's
    /// side, if there is a directive. What was seen partly in another mode or on the other side is dropped:
    /// no one can say how much of it.
    pub(super) fn collect(
        &mut self,
        table: &Table,
        id: usize,
        bucket: &Bucket,
        cohort: Option<(Mode, Side)>,
        evidence: &mut Evidence,
    ) {
        self.cohorts.resize(self.cohorts.len().max(id + 1), None);
        let before = std::mem::replace(&mut self.cohorts[id], cohort);
        let counts = table.default_key(id as u32).and_then(|key| self.counts.get_mut(key as usize));
        let counts = counts.map(std::mem::take).unwrap_or_default();
        for side in SIDES {
            let collected = self.responses.entry((id, side)).or_default();
            let (failed, latency) = table.responses.since(id, side, collected);
            let Some((mode, own_side)) = cohort.filter(|_| cohort == before) else { continue };
            let outcomes = Outcomes {
                offered: counts.offered,
                refused: counts.refused(),
                would_dropped: counts.would_dropped,
                failed,
                latency,
                ..Outcomes::default()
            };
            if side == own_side && !outcomes.is_empty() {
                evidence.add(&CohortKey { bucket: bucket.clone(), mode, side }, &outcomes, COHORTS_MAX);
            }
        }
    }
}

/// Returns all responses that were watched, by bucket and cohort.
pub(super) fn responses(table: &Table, buckets: &[Bucket]) -> Vec<BucketResponses> {
    let of = |(id, bucket): (usize, &Bucket)| {
        let bucket = bucket.clone();
        let all = table.responses.snapshots(id).into_iter();
        all.map(move |(cohort, responses)| BucketResponses { bucket: bucket.clone(), cohort, responses })
    };
    buckets.iter().enumerate().flat_map(of).collect()
}
