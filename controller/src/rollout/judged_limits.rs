//! The lowest limits that evidence of a stage was counted under, for buckets with a limit that
//! moves by itself.
//!
//! A limit counts as judged once no higher one was active for a window of the gate. Else many small
//! steps would pass on the evidence of the first.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_core::names::Bucket;
use plimsoll_core::quantity::Rate;

use super::tightening::DRIFT_MAX;

#[derive(Clone, Debug, Default)]
pub(super) struct JudgedLimits {
    by_bucket: BTreeMap<Bucket, JudgedLimit>,
}

#[derive(Clone, Copy, Debug)]
struct JudgedLimit {
    /// The lowest limit judged so far; at first the limit when the evidence began.
    lowest: Rate,
    /// The highest limit in the present window.
    highest: Rate,
    /// The time with requests when the present window began.
    from: Duration,
}

// === impl JudgedLimits ===

impl JudgedLimits {
    /// Restores the lowest limits. The present window begins anew.
    pub(super) fn restored(lowest: &BTreeMap<Bucket, Rate>, with_data: Duration) -> Self {
        let limits = lowest
            .iter()
            .map(|(bucket, lowest)| (bucket.clone(), JudgedLimit::new(*lowest, with_data)));
        Self {
            by_bucket: limits.collect(),
        }
    }

    pub(super) fn lowest(&self) -> BTreeMap<Bucket, Rate> {
        self.by_bucket
            .iter()
            .map(|(bucket, limit)| (bucket.clone(), limit.lowest))
            .collect()
    }

    /// Notes the present limit of a bucket after so much time with requests. Returns the lowest limit judged
    /// so far, if the present one is too far below it for this evidence.
    pub(super) fn note(
        &mut self,
        bucket: &Bucket,
        limit: Rate,
        with_data: Duration,
        window: Duration,
    ) -> Option<Rate> {
        let begun = JudgedLimit::new(limit, with_data);
        let Some(judged) = self.by_bucket.get_mut(bucket) else {
            self.by_bucket.insert(bucket.clone(), begun);
            return None;
        };
        judged.highest = judged.highest.max(limit);
        if with_data.saturating_sub(judged.from) >= window {
            *judged = JudgedLimit {
                lowest: judged.lowest.min(judged.highest),
                ..begun
            };
        }
        let is_far = limit.per_second() < judged.lowest.per_second() * (1.0 - DRIFT_MAX);
        is_far.then_some(judged.lowest)
    }
}

impl JudgedLimit {
    const fn new(limit: Rate, from: Duration) -> Self {
        Self {
            lowest: limit,
            highest: limit,
            from,
        }
    }
}
