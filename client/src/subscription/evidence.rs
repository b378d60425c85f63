//! What this limiter has seen of each bucket since it last said so: what the gates of a rollout judge by. Pure.

use std::collections::HashMap;
use std::time::Duration;

use plimsoll_core::names::Bucket;
use plimsoll_core::directive::Posted;
use plimsoll_core::report::{Batches, CohortKey, Counts, Evidence, Outcomes, Report, STANDS_MAX, Side};
use plimsoll_core::decision::Mode;
use plimsoll_core::quantity::MonoTime;

use super::Subscription;
use crate::responses::Told;
use crate::assignment::EndpointId;
use crate::hot::table::KeyPlace;

/// How often evidence is told: once in each of the controller's cycles is enough.
const TESTIFY_EVERY: Duration = Duration::from_millis(500);

/// What was seen and not told yet.
#[derive(Debug, Default)]
pub(super) struct Witness {
    /// By the key of a bucket's default class.
    counts: Vec<Counts>,
    /// By bucket: where it stood when it was last looked at.
    stood: Vec<Option<(Mode, Side)>>,
    /// Which responses were told of.
    told: HashMap<(usize, Side), Told>,
}

/// The responses of one bucket on one side, for metrics.
#[derive(Clone, Debug)]
pub(crate) struct Watched {
    pub(crate) bucket: Bucket,
    pub(crate) side: Side,
    /// By code: how many.
    pub(crate) codes: Vec<(String, u64)>,
    pub(crate) durations: crate::responses::Durations,
}

impl Witness {
    /// Requests of a key were decided.
    #[inline]
    pub(super) fn note(&mut self, places: &[KeyPlace], key: u32, new: Counts) {
        let Some(place) = places.get(key as usize) else { return };
        let at = place.default_key as usize;
        if self.counts.len() <= at {
            self.counts.resize(at + 1, Counts::ZERO);
        }
        if let Some(counts) = self.counts.get_mut(at) {
            *counts = counts.plus(new);
        }
    }
}

impl Subscription {
    /// On which side of its bucket's canary this instance stands.
    pub(super) fn side(&self, posted: &Posted) -> Side {
        if posted.terms().cohort.contains(&self.identity.name) { Side::Canary } else { Side::Control }
    }

    /// Puts what was seen of the buckets that are told of here into a report, if it is time.
    pub(super) fn testify(&mut self, id: EndpointId, now: MonoTime, report: &mut Report) {
        let Some(strand) = self.strands.get_mut(&id) else { return };
        let is_due = strand.testified.is_none_or(|at| now.since(at) >= TESTIFY_EVERY);
        if report.time.is_none() || !is_due {
            return;
        }
        strand.testified = Some(now);
        let mut evidence = Evidence::default();
        for bucket in 0..self.buckets.len() {
            if self.several.as_ref().is_none_or(|several| several.owner(bucket) == Some(id)) {
                self.testify_of(bucket, &mut evidence);
            }
        }
        report.evidence = Batches::one(report.seq, evidence);
    }

    fn testify_of(&mut self, bucket: usize, evidence: &mut Evidence) {
        let Some(name) = self.buckets.get(bucket) else { return };
        let stands = self.board.get(name).map(|posted| (self.mode(name, posted.terms()), self.side(posted)));
        self.witness.stood.resize(self.buckets.len(), None);
        let stood = self.witness.stood.get_mut(bucket).and_then(|held| std::mem::replace(held, stands));
        let default_key = self.table.default_key(bucket as u32);
        let counts = default_key.and_then(|key| self.witness.counts.get_mut(key as usize));
        let counts = counts.map(std::mem::take).unwrap_or_default();
        for side in [Side::Control, Side::Canary] {
            let told = self.witness.told.entry((bucket, side)).or_default();
            let (failed, latency) = self.table.responses.since(bucket, side, told);
            let Some((mode, own)) = stands.filter(|_| stands == stood) else {
                // Some of it was in another mode, or on the other side: nobody can tell how much.
                continue;
            };
            let mut outcomes = Outcomes { failed, latency, ..Outcomes::default() };
            if side == own {
                outcomes.offered = counts.offered;
                outcomes.refused = counts.refused();
                outcomes.would_dropped = counts.would_dropped;
            }
            if side == own && !outcomes.is_empty() {
                let stand = CohortKey { bucket: name.clone(), mode, side };
                evidence.add(&stand, &outcomes, STANDS_MAX);
            }
        }
    }

    /// The responses that were watched so far.
    pub(crate) fn watched(&self) -> Vec<Watched> {
        let sides = [Side::Control, Side::Canary];
        let all = self.buckets.iter().enumerate();
        let all = all.flat_map(|(at, bucket)| sides.map(|side| (at, bucket, side)));
        all.filter_map(|(at, bucket, side)| {
            let (codes, durations) = self.table.responses.figures(at, side)?;
            Some(Watched { bucket: bucket.clone(), side, codes, durations })
        })
        .collect()
    }
}
