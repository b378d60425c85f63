//! Evidence that begins anew within its stage, because more can be refused than when it was counted.

use std::collections::BTreeMap;

use plimsoll_core::names::Bucket;
use plimsoll_core::quantity::Rate;
use plimsoll_policy::{BucketPolicy, Policy};

use super::{Rollouts, tightening, window};
use crate::state::{Cause, DurableState};

#[derive(Clone, Copy, Debug)]
pub(crate) struct MovingLimit<'a> {
    pub(crate) entry: &'a str,
    pub(crate) bucket: &'a Bucket,
    pub(crate) limit: Rate,
}

// === impl Rollouts ===

impl Rollouts {
    /// Begins the evidence of entries anew if their settings in `to` can refuse more than in
    /// `from`.
    pub(crate) fn on_edit(
        &self,
        durable: &mut DurableState,
        from: &Policy,
        to: &Policy,
        unix_s: i64,
    ) {
        let tightened = tightening::tightenings(from, to, unix_s);
        let entries = |policy| Policy::entries(policy).collect::<BTreeMap<_, _>>();
        let (before, after) = (entries(from), entries(to));
        // The stage follows the mode by rules of its own.
        let is_same = |one: &BucketPolicy, other: &BucketPolicy| {
            let mode = other.mode;
            BucketPolicy {
                mode,
                ..one.clone()
            } == *other
        };
        durable.note_edits(|entry| {
            let both = before.get(entry).zip(after.get(entry));
            tightened.contains_key(entry) || !both.is_some_and(|(one, other)| is_same(one, other))
        });
        for (entry, why) in tightened {
            self.renew(durable, &entry, Cause::Edit, why);
        }
    }

    /// Begins the evidence of every entry with a limit anew, if boosts ended after `from_s` and up to `to_s`, and
    /// the share of a tenant fell far.
    pub(crate) fn on_boosts_ended(
        &self,
        durable: &mut DurableState,
        policy: &Policy,
        from_s: i64,
        to_s: i64,
    ) {
        let why = tightening::of_ended_boosts(policy, from_s, to_s);
        if why.is_empty() {
            return;
        }
        for (entry, _) in policy
            .entries()
            .filter(|(_, entry)| tightening::is_shared(entry))
        {
            self.renew(durable, &entry, Cause::Drift, why.clone());
        }
    }

    /// Notes a limit that moves by itself, and begins the evidence of its entry anew if it is far below
    /// the lowest one judged so far.
    pub(crate) fn on_limit(
        &mut self,
        durable: &mut DurableState,
        policy: &Policy,
        moving: MovingLimit<'_>,
    ) {
        let MovingLimit {
            entry,
            bucket,
            limit,
        } = moving;
        let Some(stage) = durable.stages.get(entry) else {
            return;
        };
        let stats = self
            .stats
            .get_mut(entry)
            .filter(|stats| stats.change == stage.change);
        // Only an entry with evidence is looked up in the policy.
        let Some((stats, of_bucket)) =
            stats.and_then(|stats| Some((stats, policy.bucket(bucket)?)))
        else {
            return;
        };
        let window = window(stage.stage, &of_bucket.rollout);
        if let Some(lowest) = stats.on_limit(bucket, limit, window) {
            let (lowest, limit) = (lowest.per_second(), limit.per_second());
            let why = format!("limit of {bucket} {lowest:.1} -> {limit:.1}");
            self.renew(durable, entry, Cause::Drift, vec![why]);
        }
    }

    /// Begins the evidence of an entry anew, if it has any.
    fn renew(&self, durable: &mut DurableState, entry: &str, cause: Cause, why: Vec<String>) {
        let change = durable.stages.get(entry).map(|stage| stage.change);
        if self
            .stats
            .get(entry)
            .is_some_and(|stats| Some(stats.change) == change)
        {
            durable.renew_evidence(entry, cause, why);
        }
    }
}
