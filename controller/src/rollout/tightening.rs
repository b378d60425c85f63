//! Evidence that begins anew within its stage, because more can be refused than when it was counted: after edits of the
//! policy, after boosts that took a share from a tenant, and after limits that fell by themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Debug, Display};

use plimsoll_core::names::{Bucket, Tenant};
use plimsoll_core::quantity::{Limit, Rate};
use plimsoll_policy::{BucketPolicy, LimitSource, Policy};

use super::{Rollouts, window};
use crate::state::{Cause, DurableState};

/// The share that a limit that moves by itself may fall below the lowest limit judged so far, and that the end of
/// boosts may take from a tenant. Without this room no gate of days would ever pass.
pub(crate) const DRIFT_MAX: f64 = 0.1;
const TENANTS_LISTED_MAX: usize = 5;

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
        let tightened = tightenings(from, to, unix_s);
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
        let why = of_ended_boosts(policy, from_s, to_s);
        if why.is_empty() {
            return;
        }
        for (entry, _) in policy.entries().filter(|(_, entry)| is_shared(entry)) {
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

/// Returns the changes from `from` to `to` that can refuse more, by the entries that both have.
/// `unix_s` is the time of day, for boosts.
fn tightenings(from: &Policy, to: &Policy, unix_s: i64) -> BTreeMap<String, Vec<String>> {
    let of_sharing = sharing(from, to, unix_s);
    let before: BTreeMap<String, &BucketPolicy> = from.entries().collect();
    let tightened = to.entries().filter_map(|(name, entry)| {
        let mut why = of_entry(before.get(&name)?, entry);
        why.extend(of_tenants(from, to, &name));
        if is_shared(entry) {
            why.extend(of_sharing.iter().cloned());
        }
        (!why.is_empty()).then_some((name, why))
    });
    tightened.collect()
}

/// Returns the reasons to begin evidence anew after the boosts that ended since `from_s`, up to
/// `to_s`: the tenants with a share of a limit that fell by more than [`DRIFT_MAX`].
fn of_ended_boosts(policy: &Policy, from_s: i64, to_s: i64) -> Vec<String> {
    let ended: Vec<&str> = policy
        .boosts_ending(from_s, to_s)
        .map(|(tenant, _)| tenant.as_str())
        .collect();
    if ended.is_empty() {
        return Vec::new();
    }
    let sum = |at: i64| {
        policy
            .tenants()
            .map(|(_, tenant)| tenant.weight_at(at).get())
            .sum::<f64>()
    };
    let (before, after) = (sum(from_s), sum(to_s));
    let fallen = policy.tenants().filter_map(|(name, tenant)| {
        let [before, after] = [(from_s, before), (to_s, after)]
            .map(|(at, sum)| tenant.weight_at(at).get() / sum * 100.0);
        let is_far = after < before * (1.0 - DRIFT_MAX);
        is_far.then(|| format!("share of tenant {name} {before:.1} % -> {after:.1} %"))
    });
    let fallen = abridged(fallen.collect());
    if fallen.is_empty() {
        return fallen;
    }
    let ended = abridged(ended.into_iter().map(ToOwned::to_owned).collect()).join(", ");
    [format!("the boost of {ended} ended")]
        .into_iter()
        .chain(fallen)
        .collect()
}

/// Returns true if tenants share a limit of this entry.
fn is_shared(entry: &BucketPolicy) -> bool {
    entry.source != LimitSource::Unlimited
}

fn of_entry(from: &BucketPolicy, to: &BucketPolicy) -> Vec<String> {
    let rps =
        |rate: Option<Rate>| rate.map_or("none".to_owned(), |rate| rate.per_second().to_string());
    let (burst, canary) = (
        |of: &BucketPolicy| of.burst.as_secs_f64(),
        |of: &BucketPolicy| of.rollout.canary_percent.get(),
    );
    let has_lower_tenant_limit = to
        .tenant_limit
        .is_some_and(|limit| from.tenant_limit.is_none_or(|before| limit < before));
    let mut why = Vec::new();
    let mut note = |is_tighter: bool, field: &str, from: &dyn Display, to: &dyn Display| {
        if is_tighter {
            why.push(changed(field, from, to));
        }
    };
    note(
        can_limit_more(&from.source, &to.source),
        "limit",
        &limit_text(from),
        &limit_text(to),
    );
    note(
        has_lower_tenant_limit,
        "tenant_limit",
        &rps(from.tenant_limit),
        &rps(to.tenant_limit),
    );
    note(to.burst < from.burst, "burst_s", &burst(from), &burst(to));
    note(
        to.coin != from.coin,
        "coin",
        &word(from.coin),
        &word(to.coin),
    );
    note(
        canary(to) > canary(from),
        "rollout.canary_percent",
        &canary(from),
        &canary(to),
    );
    why
}

/// The limits of tenants and plans in an entry that fell, or are new. Under a pattern any change may be one.
fn of_tenants(from: &Policy, to: &Policy, entry: &str) -> Vec<String> {
    let bucket = Bucket::new(entry).ok();
    let changes = names(from, to).into_iter().filter_map(|name| {
        let [before, after] = [from, to].map(|policy| policy.tenant(name));
        let Some(bucket) = &bucket else {
            let is_changed = !after.has_limits_of(before);
            return is_changed.then(|| format!("limits of {name} changed"));
        };
        // A limit that is removed gives way to that of the bucket, which may be lower.
        let has_own = [before, after]
            .iter()
            .any(|of| of.limit_in(bucket).is_some());
        let limit = |policy: &Policy| policy.tenant_limit(name, bucket);
        let (after, _) = limit(to).filter(|_| has_own)?;
        let before = limit(from).map(|(rate, _)| rate);
        let is_lower = before.is_none_or(|before| after < before);
        let before = before.map_or("none".to_owned(), |rate| rate.per_second().to_string());
        is_lower.then(|| changed(&format!("limit of {name}"), &before, &after.per_second()))
    });
    abridged(changes.collect())
}

/// The tenants and classes that one of two policies lists.
fn names<'a>(from: &'a Policy, to: &'a Policy) -> BTreeSet<&'a Tenant> {
    let tenants = from.tenants().chain(to.tenants());
    tenants.map(|(name, _)| name).collect()
}

fn word(name: impl Debug) -> String {
    format!("{name:?}").to_lowercase()
}

/// Returns true if a source may give a lower limit than the one before it.
fn can_limit_more(from: &LimitSource, to: &LimitSource) -> bool {
    match (from, to) {
        (_, LimitSource::Unlimited) => false,
        (LimitSource::PerSecond(from), LimitSource::PerSecond(to)) => to < from,
        (from, to) => from != to,
    }
}

fn limit_text(entry: &BucketPolicy) -> String {
    match (&entry.source, entry.limit()) {
        (LimitSource::Learned(_), _) => "learned".to_owned(),
        (LimitSource::Prometheus(_), _) => "from Prometheus".to_owned(),
        (_, Limit::PerSecond(rate)) => rate.per_second().to_string(),
        _ => "unlimited".to_owned(),
    }
}

/// The changes of how tenants share a limit. Each takes from one tenant what it gives to others. A tenant
/// that is not listed has the settings of the class `default`.
fn sharing(from: &Policy, to: &Policy, unix_s: i64) -> Vec<String> {
    let changes = names(from, to).into_iter().flat_map(|name| {
        let of = |policy: &Policy| {
            let tenant = policy.tenant(name);
            [
                ("weight", tenant.weight_at(unix_s).get()),
                ("burst_multiplier", tenant.burst_multiplier.get()),
                ("floor_rps", tenant.floor.map_or(0.0, Rate::per_second)),
            ]
        };
        let pairs = of(from)
            .into_iter()
            .zip(of(to))
            .filter(|(from, to)| from != to);
        pairs.map(move |((field, from), (_, to))| {
            changed(&format!("tenants.{name}.{field}"), &from, &to)
        })
    });
    let mut why = abridged(changes.collect());
    let floors = [from, to].map(|policy| policy.fairness().min_floor.per_second());
    if floors[0] != floors[1] {
        why.push(changed("fairness.min_floor_rps", &floors[0], &floors[1]));
    }
    why
}

fn changed(field: &str, from: &dyn Display, to: &dyn Display) -> String {
    format!("{field} {from} -> {to}")
}

fn abridged(mut texts: Vec<String>) -> Vec<String> {
    let more = texts.len().saturating_sub(TENANTS_LISTED_MAX);
    texts.truncate(TENANTS_LISTED_MAX);
    texts.extend((more > 0).then(|| format!("{more} more")));
    texts
}
