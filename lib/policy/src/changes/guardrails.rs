//! Guardrails: the reasons to hold a changed policy back until an operator confirms it. They judge the effect on
//! the traffic of the last minutes, and the protection that a change takes away.

use std::collections::BTreeSet;

use plimsoll_core::decision::Mode;
use plimsoll_core::names::{Bucket, DEFAULT_TENANT, Tenant};
use plimsoll_core::quantity::{Limit, Rate};

use super::effect::{BucketEffect, Effect, Offered, Regime, Terms, effects};
use super::quotas::by_quotas;
use crate::Policy;

/// The share of the requests of a bucket or a tenant that a change may refuse in addition to those refused now.
pub const REFUSED_MORE_MAX: f64 = 0.1;
/// The share of the requests admitted now, of a bucket or a tenant, that is too much to refuse. It counts in heavy
/// overload, where nearly all requests are refused already.
pub const ADMITTED_LOST_MIN: f64 = 0.5;
/// Maximum factor of a raised limit in one change.
pub const LIMIT_FACTOR_MAX: f64 = 2.0;
/// Maximum share of the listed tenants removed in one change.
pub const TENANTS_REMOVED_MAX: f64 = 0.2;
/// Maximum share of the rows of the catalogue removed or changed in one change.
pub const CATALOGUE_CHANGED_MAX: f64 = 0.1;
/// Rows that may always change.
const CATALOGUE_CHANGED_MIN: usize = 20;
/// Maximum number of reasons given: the first ones. One line more has the number of the others.
pub const REASONS_MAX: usize = 20;
/// Maximum number of tenants named for one bucket: those who would lose most.
const TENANTS_NAMED_MAX: usize = 3;

/// Returns the reasons to hold `after` back while `before` is active, none if there are none.
/// `traffic` is what was offered at several moments of the last minutes. An entry that is in shadow
/// under `after` gives no reason. An entry without traffic is judged only by its limits, quotas and stage.
pub fn reasons_to_hold<'t>(
    before: &Regime<'_>,
    after: &Regime<'_>,
    traffic: impl IntoIterator<Item = &'t Offered>,
    unix_s: i64,
) -> Vec<String> {
    let effects = effects(before, after, traffic, unix_s);
    let mut reasons = Vec::new();
    for (bucket, effect) in &effects {
        effect.reasons(bucket, &mut reasons);
    }
    let policies = [before.policy, after.policy];
    let names: BTreeSet<&Bucket> = policies
        .iter()
        .flat_map(|policy| policy.exact_buckets())
        .map(|(name, _)| name)
        .collect();
    for name in names {
        let has_traffic = effects.contains_key(name);
        let (from, to) = (before.of_bucket(name), after.of_bucket(name));
        by_terms(
            name.as_str(),
            from,
            to,
            has_traffic,
            after.policy,
            &mut reasons,
        );
        if let Some((from, to)) = from.zip(to) {
            for (class, one, other) in limits_of_plans(policies, name) {
                let label = format!("limit of plan {}", class.plan().unwrap_or(DEFAULT_TENANT));
                by_limits(
                    name.as_str(),
                    &label,
                    (from, to),
                    (one, other),
                    has_traffic,
                    &mut reasons,
                );
            }
        }
    }
    let covered: BTreeSet<String> = effects
        .keys()
        .filter_map(|bucket| after.policy.entry(bucket))
        .collect();
    let (one, other) = (before.of_patterns(), after.of_patterns());
    for pattern in one.keys().chain(other.keys()).collect::<BTreeSet<_>>() {
        let (from, to) = (one.get(pattern).copied(), other.get(pattern).copied());
        by_terms(
            pattern,
            from,
            to,
            covered.contains(pattern),
            after.policy,
            &mut reasons,
        );
    }
    reasons.extend(removed_tenants(before.policy, after.policy));
    reasons.extend(changed_rows(before.policy, after.policy));
    if reasons.len() > REASONS_MAX {
        let more = reasons.len() - REASONS_MAX;
        reasons.truncate(REASONS_MAX);
        reasons.push(format!("and {more} more"));
    }
    reasons
}

impl BucketEffect {
    fn reasons(&self, bucket: &Bucket, reasons: &mut Vec<String>) {
        if self.all.is_held() {
            let (after, before) = self.all.percentages();
            reasons.push(format!(
                "{bucket}: {after} % of all requests would be refused, {before} % now"
            ));
        }
        if self.tenants.len() < 2 {
            return;
        }
        let mut tenants: Vec<_> = self
            .tenants
            .iter()
            .filter(|(_, effect)| effect.is_held())
            .collect();
        tenants.sort_by(|(_, one), (_, other)| other.lost().total_cmp(&one.lost()));
        for (tenant, effect) in tenants.iter().take(TENANTS_NAMED_MAX) {
            let (after, before) = effect.percentages();
            reasons.push(format!(
                "{bucket}: tenant {tenant} would be refused {after} % of its requests, {before} % now"
            ));
        }
        if let Some(more @ 1..) = tenants.len().checked_sub(TENANTS_NAMED_MAX) {
            reasons.push(format!(
                "{bucket}: {more} more tenants would be refused more"
            ));
        }
    }
}

impl Effect {
    fn is_held(&self) -> bool {
        // Sums of rates are not exact.
        const NOISE: f64 = 1e-9;
        let more = (self.after - self.before) / self.offered;
        more > REFUSED_MORE_MAX + NOISE || self.lost() >= ADMITTED_LOST_MIN - NOISE
    }

    fn percentages(&self) -> (f64, f64) {
        let [before, after] = self.shares().map(|share| (share * 1000.0).round() / 10.0);
        (after, before)
    }
}

/// Adds the reasons that follow from the terms of one entry. Terms are `None` where a policy lacks the entry.
fn by_terms(
    name: &str,
    before: Option<Terms<'_>>,
    after: Option<Terms<'_>>,
    has_traffic: bool,
    policy: &Policy,
    reasons: &mut Vec<String>,
) {
    let Some(before) = before else { return };
    let mut add = |why: String| reasons.push(format!("{name}: {why}"));
    let protects = before.stage > Mode::Shadow;
    let Some(after) = after else {
        if protects && before.limit.per_second().is_some() {
            add("the limit is removed".to_owned());
        }
        return;
    };
    if after.stage == Mode::Shadow {
        return;
    }
    if after.stage == Mode::Enforce
        && before.stage < Mode::Enforce
        && before.entry.rollout.require_gates
    {
        add(format!(
            "goes from {} to enforce without its gate",
            before.stage
        ));
    }
    by_quotas(before.entry, after.entry, protects, policy, reasons);
    let tenant_limit = |terms: Terms<'_>| {
        terms
            .entry
            .tenant_limit
            .map_or(Limit::Unlimited, Limit::PerSecond)
    };
    let limits = [
        ("limit", before.limit, after.limit),
        ("tenant_limit", tenant_limit(before), tenant_limit(after)),
    ];
    for (field, from, to) in limits {
        by_limits(
            name,
            field,
            (before, after),
            (from, to),
            has_traffic,
            reasons,
        );
    }
}

/// Adds the reasons that follow from one limit before and after a change.
fn by_limits(
    name: &str,
    field: &str,
    (before, after): (Terms<'_>, Terms<'_>),
    (from, to): (Limit, Limit),
    has_traffic: bool,
    reasons: &mut Vec<String>,
) {
    if after.stage == Mode::Shadow {
        return;
    }
    if let Some(why) = raised(from, to).filter(|_| before.stage > Mode::Shadow) {
        reasons.push(format!("{name}: {field} {why}"));
    }
    if let Some(why) = lowered(from, to).filter(|_| !has_traffic) {
        reasons.push(format!(
            "{name}: {field} {why}; there was no traffic to judge by"
        ));
    }
}

/// The limits in a bucket, before and after a change, of the classes whose plan sets one there in either policy.
fn limits_of_plans<'a>(
    [before, after]: [&'a Policy; 2],
    bucket: &'a Bucket,
) -> impl Iterator<Item = (&'a Tenant, Limit, Limit)> {
    let classes: BTreeSet<&Tenant> = [before, after]
        .into_iter()
        .flat_map(Policy::tenants)
        .map(|(tenant, _)| tenant)
        .filter(|tenant| tenant.is_class())
        .collect();
    let set =
        move |class| [before, after].map(|policy| policy.tenant(class).limit_in(bucket).is_some());
    let limit = move |policy: &Policy, class| {
        let limit = policy.tenant_limit(class, bucket);
        limit.map_or(Limit::Unlimited, |(rate, _)| Limit::PerSecond(rate))
    };
    let set = classes
        .into_iter()
        .filter(move |class| set(class).contains(&true));
    set.map(move |class| (class, limit(before, class), limit(after, class)))
}

/// Returns the reason why a limit rises too much, if it does.
fn raised(from: Limit, to: Limit) -> Option<String> {
    let from = from.per_second()?.per_second();
    match to.per_second().map(Rate::per_second) {
        Some(to) if to > LIMIT_FACTOR_MAX * from => Some(format!(
            "{} -> {} is more than {LIMIT_FACTOR_MAX} times up",
            shown(from),
            shown(to)
        )),
        Some(_) => None,
        None if to == Limit::Unlimited => Some(format!("{} is removed", shown(from))),
        None => Some(format!(
            "{} is replaced by one that is not known yet",
            shown(from)
        )),
    }
}

/// Returns the reason why a limit is too low to apply without traffic to judge by, if it is.
fn lowered(from: Limit, to: Limit) -> Option<String> {
    let to = to.per_second()?.per_second();
    match from {
        Limit::PerSecond(from)
            if from > Rate::ZERO && to * LIMIT_FACTOR_MAX <= from.per_second() =>
        {
            Some(format!(
                "{} -> {} is half or less",
                shown(from.per_second()),
                shown(to)
            ))
        }
        Limit::Unlimited => Some(format!("{} is new", shown(to))),
        Limit::PerSecond(_) | Limit::Unknown => None,
    }
}

/// A rate as it is shown; a learned one has many digits.
fn shown(rate: f64) -> f64 {
    (rate * 1000.0).round() / 1000.0
}

fn removed_tenants(before: &Policy, after: &Policy) -> Option<String> {
    let (before, after) = (before.written_tenants(), after.written_tenants());
    let listed = before.len();
    let removed = before.keys().filter(|tenant| !after.contains_key(*tenant));
    let removed = removed.count();
    let too_many = removed as f64 > TENANTS_REMOVED_MAX * listed as f64;
    let percent = TENANTS_REMOVED_MAX * 100.0;
    too_many.then(|| format!("{removed} of {listed} tenants are removed, more than {percent} %"))
}

fn changed_rows(before: &Policy, after: &Policy) -> Option<String> {
    let changes = after.catalogue_changes(before);
    let count = changes.removed + changes.changed;
    let most = CATALOGUE_CHANGED_MAX * changes.before as f64;
    let too_many = count as f64 > most && count > CATALOGUE_CHANGED_MIN;
    too_many.then(|| {
        format!(
            "{} of {} rows of the catalogue are removed and {} changed, more than {} %, such as {}",
            changes.removed,
            changes.before,
            changes.changed,
            CATALOGUE_CHANGED_MAX * 100.0,
            changes.names.join(", ")
        )
    })
}
