//! The answer to why a tenant is refused, in a sentence.

use std::collections::BTreeSet;

use plimsoll_core::decision::Mode;
use plimsoll_core::names::Tenant;
use plimsoll_core::quota::{OnStoreError, QuotaKey};
use plimsoll_policy::UnixSeconds;

use super::Why;
use crate::admin::status::QuotaStatus;
use crate::bucket::Refusals;

/// Maximum number of quotas in a sentence.
const QUOTAS_MAX: usize = 5;

/// A tenant or a class, as operators call it.
pub(super) fn owner(tenant: &Tenant) -> String {
    match tenant.as_str().strip_prefix("%~") {
        Some(plan) => format!("plan {plan}"),
        None => tenant.to_string(),
    }
}

pub(super) fn summary(why: &Why, is_store_down: bool) -> String {
    let bucket = &why.bucket;
    let mut subject = why.tenant.to_string();
    if why.counted_as != why.tenant {
        subject = format!(
            "{subject} has no terms of its own: it counts for {}, which",
            owner(&why.counted_as)
        );
    }
    let Some(requests) = &why.requests else {
        return format!(
            "{subject} is not recorded in {bucket} at {}: it had no requests then, or fewer than others",
            UnixSeconds::from_secs(why.at_s)
        );
    };
    if requests.refused() == 0 {
        return format!(
            "{subject} is not refused in {bucket}{}",
            without_refusals(why, requests)
        );
    }
    let since = why.refused_since_s.map(|since_s| {
        let or_before = match why.refused_before {
            true => " or before, when this controller has no record",
            false => "",
        };
        format!(" since {}{or_before}", UnixSeconds::from_secs(since_s))
    });
    format!(
        "{subject} is refused in {bucket}{}, {:.1} % in the ten seconds to {}: {}",
        since.unwrap_or_default(),
        requests.ratio() * 100.0,
        UnixSeconds::from_secs(why.at_s),
        cause(why, requests, is_store_down)
    )
}

fn without_refusals(why: &Why, requests: &Refusals) -> String {
    let would = match requests.would_ratio() >= Refusals::SHOWN_MIN {
        true => format!(
            "; in enforce it would be refused {:.1} %",
            requests.would_ratio() * 100.0
        ),
        false => String::new(),
    };
    let because = match (why.killed, why.mode) {
        (true, _) => ", because it is killed",
        (false, Mode::Shadow) => ", which is in shadow",
        (false, Mode::Canary) => ", which is in canary",
        (false, Mode::Enforce) => "",
    };
    format!("{because}{would}")
}

/// The most frequent reason in words.
fn cause(why: &Why, requests: &Refusals, is_store_down: bool) -> String {
    let per_s = |requests: &Refusals| requests.per_second(requests.asked);
    let reasons = requests.reasons();
    let reason = reasons.first().map(|(reason, _)| *reason);
    if let (Some(since_s), Some(reason)) = (why.policy_since_s, reason) {
        let since = UnixSeconds::from_secs(since_s);
        return format!(
            "{reason}, while another policy was in force: the present one is since {since}"
        );
    }
    match reason {
        Some("overload") => {
            let limit = why.limit_rps.unwrap_or_default();
            let part = why.allocated_rps.map(|allocated| {
                let weight = why.grants.weight * why.boost.unwrap_or(1.0);
                format!("; by weight {weight} it may pass {allocated:.0}/s of its {:.0}/s", per_s(requests))
            });
            let asked = per_s(&why.of_bucket);
            let (of, limit) = match asked < limit {
                true => (", below the limit of", format!("{limit:.0}/s on average: they ask more for moments")),
                false => (" of a limit of", format!("{limit:.0}/s ({})", why.limit_source)),
            };
            format!("all tenants ask {asked:.0}/s{of} {limit}{}", part.unwrap_or_default())
        }
        Some("tenant limit") => {
            let of = why.grants.limit_of.as_deref().unwrap_or("bucket");
            let limit = why.grants.limit_rps.unwrap_or_default();
            format!("it asks {:.0}/s, above its own limit of {limit:.0}/s, set by its {of}", per_s(requests))
        }
        Some("guard") => "requests arrive faster for moments than its part of the limit lets pass, and the guard of each \
             client refuses those; `Too little passes` in the runbook has the causes"
            .to_owned(),
        Some(_) if is_store_down => without_store(&why.quotas),
        Some(_) => used_up(&why.tenant, &why.quotas),
        None => "too few to tell the reason".to_owned(),
    }
}

/// The quotas of the bucket, and the command that has the next refill, which only the store knows.
fn used_up(tenant: &Tenant, quotas: &[QuotaStatus]) -> String {
    let terms = |it: &QuotaStatus| {
        format!(
            "{} ({}, {} more every {})",
            it.name, it.max, it.refill, it.every
        )
    };
    let terms: Vec<String> = quotas.iter().map(terms).collect();
    let key = |it: &QuotaStatus| match it.key {
        QuotaKey::Global => Some(format!("{{*}}:{}", it.name)),
        QuotaKey::Tenant if tenant.is_class() => None,
        QuotaKey::Tenant => Some(format!("{{{tenant}}}:{}", it.name)),
    };
    let remedy = match quotas.iter().find_map(key) {
        Some(key) => format!("`plimsoll quota get '{key}'` has its next refill"),
        None => "`plimsoll quota top` has its keys".to_owned(),
    };
    format!("it has used up a quota: {}; {remedy}", terms.join(", "))
}

fn without_store(quotas: &[QuotaStatus]) -> String {
    format!(
        "clients get no answer from their store of exact quotas, and {}; `plimsoll status` has the remedy",
        on_store_error(quotas)
    )
}

/// What quotas do while their store is away.
pub(crate) fn on_store_error<'a>(quotas: impl IntoIterator<Item = &'a QuotaStatus>) -> String {
    let quotas = quotas.into_iter().map(|it| {
        let does = match it.on_store_error {
            OnStoreError::AllowBounded => "admits a few, then refuses",
            OnStoreError::Allow => "admits",
            OnStoreError::Deny => "refuses",
        };
        format!("{} {does}", it.name)
    });
    let quotas: BTreeSet<String> = quotas.collect();
    let quotas: Vec<String> = quotas.into_iter().take(QUOTAS_MAX).collect();
    format!("`on_store_error` decides: {}", quotas.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quota(key: QuotaKey) -> QuotaStatus {
        QuotaStatus {
            name: "exports".to_owned(),
            max: 10,
            refill: 5,
            every: "1h".to_owned(),
            key,
            on_store_error: OnStoreError::Deny,
            lease: 1,
        }
    }

    #[test]
    fn quotas_without_their_store_are_not_called_used_up() {
        assert_eq!(
            without_store(&[quota(QuotaKey::Tenant)]),
            "clients get no answer from their store of exact quotas, and `on_store_error` decides: exports refuses; \
             `plimsoll status` has the remedy"
        );
    }

    #[test]
    fn used_up_quota_leads_to_its_next_refill() {
        for (tenant, key, command) in [
            (
                "acme",
                QuotaKey::Tenant,
                "`plimsoll quota get '{acme}:exports'` has its next refill",
            ),
            (
                "acme",
                QuotaKey::Global,
                "`plimsoll quota get '{*}:exports'` has its next refill",
            ),
            (
                "default",
                QuotaKey::Tenant,
                "`plimsoll quota top` has its keys",
            ),
        ] {
            assert_eq!(
                used_up(&Tenant::new(tenant).unwrap(), &[quota(key)]),
                format!("it has used up a quota: exports (10, 5 more every 1h); {command}")
            );
        }
    }
}
