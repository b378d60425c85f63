//! Judges if this client admits what its directives let pass. The client does not know its part of
//! the limit, so it judges one case: the coin refuses nothing, and yet the guards refuse.

use plimsoll_core::directive::Posted;
use plimsoll_core::names::Bucket;
use plimsoll_core::quantity::{DropRatio, MonoTime, Rate};
use plimsoll_core::report::Counts;
use plimsoll_core::stats::AdmissionFigures;

use super::super::Subscription;

impl Subscription {
    pub(crate) fn check_admissions(&mut self, now: MonoTime) {
        for (bucket, check) in self.buckets.iter().zip(&mut self.refusals.admissions) {
            let posted = self.directives.get(bucket);
            let is_killed = self.enforcement.observes || self.enforcement.kills.of(bucket).is_on();
            check.on_tick(now, |counts| {
                let is_judged =
                    !is_killed && is_by_guards(counts) && posted.is_some_and(refuses_none);
                is_judged.then_some(f64::INFINITY)
            });
        }
    }

    /// Returns what the counts of the last seconds show of each bucket.
    pub fn admission_figures(&self) -> impl Iterator<Item = (&Bucket, AdmissionFigures)> {
        self.buckets
            .iter()
            .zip(self.refusals.admissions.iter().map(|check| check.figures()))
    }
}

/// Returns true if guards decided every refusal: a ratio may have been active between two looks at
/// the directives.
const fn is_by_guards(counts: Counts) -> bool {
    counts.refused().saturating_add(counts.would_dropped) == counts.guarded()
}

fn refuses_none(posted: &Posted) -> bool {
    let is_limited = posted
        .terms()
        .limit
        .per_second()
        .is_some_and(|limit| limit > Rate::ZERO);
    let mut keys = posted.keys().peekable();
    is_limited
        && keys.peek().is_some()
        && keys.all(|(_, values)| values.ratio == Some(DropRatio::NONE))
}
