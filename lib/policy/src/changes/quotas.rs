//! Guardrails of exact quotas: changes of a definition that refuse much more, or protect hardly at all.

use plimsoll_core::quota::{Quota, QuotaKey};

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
        let shown = |quota: &Quota| {
            format!(
                "{} and {} every {}",
                quota.rate.max(),
                quota.rate.refill(),
                every_text(quota.rate)
            )
        };
        let change = || format!("{} -> {}", shown(from), shown(quota));
        let (tokens, speed) = factors(from, quota);
        if quota.key == QuotaKey::Global && from.key == QuotaKey::Tenant {
            add(
                quota,
                "all tenants share what each had by itself".to_owned(),
            );
        }
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

/// Returns the factors of change of a quota's size and of its tokens per time.
fn factors(from: &Quota, to: &Quota) -> (f64, f64) {
    let speed = |quota: &Quota| quota.rate.refill() as f64 / quota.rate.every_ms() as f64;
    (
        to.rate.max() as f64 / from.rate.max() as f64,
        speed(to) / speed(from),
    )
}
