//! Guardrails of exact quotas: changes of a definition that refuse much more, or protect hardly at all.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use plimsoll_core::names::{DEFAULT_TENANT, Tenant};
use plimsoll_core::quota::{Quota, QuotaKey, QuotaRate};

use super::guardrails::LIMIT_FACTOR_MAX;
use crate::buckets::quotas::every_text;
use crate::{BucketPolicy, Policy};

/// Adds the reasons that follow from the quotas of one entry that refuses after the change. `protects` is true if the
/// entry before the change refuses as well. A quota that several entries attach gives each reason once.
pub(super) fn by_quotas(
    before: &BucketPolicy,
    after: &BucketPolicy,
    protects: bool,
    policy: &Policy,
    reasons: &mut Vec<String>,
) {
    let mut add = |quota: &Quota, why: String| {
        let reason = format!("quota {}: {why}", quota.name);
        if !reasons.contains(&reason) {
            reasons.push(reason);
        }
    };
    for quota in before.quotas.iter().filter(|_| protects) {
        let kept = after.quotas.iter().any(|other| other.name == quota.name);
        if !kept && policy.quota(quota.name.as_str()).is_none() {
            add(quota, "it is removed".to_owned());
        } else if !kept {
            add(
                quota,
                "a bucket that refuses no longer attaches it".to_owned(),
            );
        }
    }
    for quota in after.quotas.iter() {
        let Some(from) = before.quotas.iter().find(|other| other.name == quota.name) else {
            if protects {
                add(
                    quota,
                    "it is new to a bucket that refuses; nothing was counted to judge by"
                        .to_owned(),
                );
            }
            continue;
        };
        if quota.key == QuotaKey::Global && from.key == QuotaKey::Tenant {
            add(
                quota,
                "all tenants share what each had by itself".to_owned(),
            );
        }
        for ([from, to], entries) in changes(from, quota) {
            let whose = whose(&entries);
            let change = || format!("{} -> {}{whose}", shown(from), shown(to));
            let (tokens, speed) = factors(from, to);
            if tokens.min(speed) * LIMIT_FACTOR_MAX <= 1.0 {
                add(quota, format!("{} is half or less", change()));
            }
            if protects && tokens.max(speed) > LIMIT_FACTOR_MAX {
                add(
                    quota,
                    format!("{} is more than {LIMIT_FACTOR_MAX} times up", change()),
                );
            }
        }
    }
}

/// Returns the rates before and after a change: those of the definition, without entries, and each other pair with the
/// tenants and classes that have it.
fn changes<'a>(
    from: &'a Arc<Quota>,
    to: &'a Arc<Quota>,
) -> BTreeMap<[QuotaRate; 2], Vec<&'a Tenant>> {
    let quotas = [from, to];
    let own = quotas.map(|quota| quota.rate);
    let mut changes = BTreeMap::from([(own, Vec::new())]);
    let entries: BTreeSet<&Tenant> = quotas
        .iter()
        .flat_map(|quota| quota.overrides().keys())
        .collect();
    for entry in entries {
        let plan = entry.plan().unwrap_or_default();
        let rates = quotas.map(|quota| quota.of_tenant(entry.as_str(), plan).rate);
        if rates != own {
            changes.entry(rates).or_default().push(entry);
        }
    }
    changes
}

fn whose(entries: &[&Tenant]) -> String {
    let Some((first, others)) = entries.split_first() else {
        return String::new();
    };
    let first = match first.plan() {
        None if first.as_str() == DEFAULT_TENANT => format!("`{first}`"),
        None => format!("tenant {first}"),
        Some(plan) => format!("plan {plan}"),
    };
    match others.len() {
        0 => format!(" for {first}"),
        more => format!(" for {first} and {more} more"),
    }
}

fn shown(rate: QuotaRate) -> String {
    let (max, refill, every) = (rate.max(), rate.refill(), every_text(rate));
    format!("{max} and {refill} every {every}")
}

/// Returns the factors of change of a quota's size and of its tokens per time.
fn factors(from: QuotaRate, to: QuotaRate) -> (f64, f64) {
    let speed = |rate: QuotaRate| rate.refill() as f64 / rate.every_ms() as f64;
    (to.max() as f64 / from.max() as f64, speed(to) / speed(from))
}
