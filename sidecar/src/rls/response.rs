//! The response to a request: a status for each descriptor, and what Envoy adds to the request or
//! to its refusal.

use std::time::SystemTime;

use bytes::Bytes;
use plimsoll_client::{Refusal, Verdict};
use plimsoll_core::quota::Quota;
use plimsoll_tower::quota_fields;
use prost_types::Duration;

use super::counters::Overall;
use super::decision::{Decision, Decisions, overall};
use super::messages::{Code, DescriptorStatus, HeaderValue, RateLimit, RateLimitResponse, Unit};
use super::refusal;

/// Header of an admitted request with a refusal that was not carried out, and its value.
const SHADOW: (&str, &str) = ("x-plimsoll-shadow", "drop");

/// Returns the response for the decisions on a request, and the encoded fields that follow it. `at`
/// is called only for refusals.
pub(super) fn of(
    decisions: &Decisions<'_>,
    at: impl Fn() -> SystemTime,
) -> (RateLimitResponse, Bytes) {
    let statuses = decisions
        .iter()
        .map(|decision| decision.as_ref().map_or(PASSED, status))
        .collect();
    let mut response = RateLimitResponse {
        overall_code: Code::Ok.into(),
        statuses,
        ..RateLimitResponse::default()
    };
    let mut more = Bytes::new();
    match overall(decisions) {
        Overall::Ok => response.response_headers_to_add = of_quota(decisions),
        Overall::Withheld => {
            let (key, value) = SHADOW;
            response.request_headers_to_add = vec![refusal::header(key, value)];
            let withheld = decisions
                .iter()
                .flatten()
                .find_map(|of| Some((of.bucket, of.decided.withheld?)));
            response.dynamic_metadata =
                withheld.map(|(bucket, reason)| refusal::metadata("shadow", reason, bucket));
        }
        Overall::OverLimit => {
            response.overall_code = Code::OverLimit.into();
            if let Some((refused, refusal)) = longest(decisions) {
                more = refusal::encoded(refused, refusal, at());
            }
        }
    }
    (response, more)
}

/// Status of a descriptor that counts for no key.
const PASSED: DescriptorStatus = DescriptorStatus {
    code: Code::Ok as i32,
    current_limit: None,
    limit_remaining: 0,
    duration_until_reset: None,
};

fn status(decision: &Decision<'_>) -> DescriptorStatus {
    let Verdict::Refuse(refusal) = decision.decided.verdict else {
        if let Some(left) = &decision.left {
            return DescriptorStatus {
                current_limit: of_exact(&left.quota),
                limit_remaining: u32::try_from(left.remaining).unwrap_or(u32::MAX),
                duration_until_reset: Some(duration(left.reset)),
                ..PASSED
            };
        }
        // Without an exact quota nothing is used up: the part of the limit that the present ratio admits.
        let admitted = 1.0 - decision.peek.ratio.as_f64();
        return DescriptorStatus {
            current_limit: current_limit(decision),
            limit_remaining: decision.limit.map_or(0, |limit| whole(limit * admitted)),
            ..PASSED
        };
    };
    DescriptorStatus {
        code: Code::OverLimit.into(),
        current_limit: current_limit(decision),
        duration_until_reset: Some(duration(refusal.retry_after())),
        ..PASSED
    }
}

fn duration(span: std::time::Duration) -> Duration {
    Duration {
        seconds: i64::try_from(span.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(span.subsec_nanos()).unwrap_or_default(),
    }
}

/// Returns the header fields of the exact quota with the fewest tokens left, if any.
fn of_quota(decisions: &Decisions<'_>) -> Vec<HeaderValue> {
    let all = decisions
        .iter()
        .flatten()
        .filter_map(|decision| decision.left.as_ref());
    let least = all.min_by_key(|left| left.remaining);
    least
        .map(|left| refusal::to_add(&quota_fields(left)))
        .unwrap_or_default()
}

/// Returns the limit that decided: the exact quota if it is used up, the tenant's if that refused, or else the
/// bucket's. `None` while it is unknown, and for a quota that [`of_exact`] cannot write.
fn current_limit(decision: &Decision<'_>) -> Option<RateLimit> {
    if let Some(quota) = decision.used_up() {
        return of_exact(quota);
    }
    let of_tenant = decision.tenant_limit.map(|limit| limit.per_second);
    let requests_per_unit = whole(of_tenant.or(decision.limit)?);
    Some(RateLimit {
        name: decision.bucket.to_owned(),
        requests_per_unit,
        unit: Unit::Second.into(),
    })
}

/// Returns the limit of an exact quota: a full one, by the unit that its refill interval is. `None` if it is none.
fn of_exact(quota: &Quota) -> Option<RateLimit> {
    let requests_per_unit = u32::try_from(quota.rate.max()).unwrap_or(u32::MAX);
    let unit = unit_of(quota.rate.every_ms())?;
    Some(RateLimit {
        name: quota.name.to_string(),
        requests_per_unit,
        unit: unit.into(),
    })
}

fn unit_of(every_ms: u64) -> Option<Unit> {
    Some(match every_ms {
        1_000 => Unit::Second,
        60_000 => Unit::Minute,
        3_600_000 => Unit::Hour,
        86_400_000 => Unit::Day,
        604_800_000 => Unit::Week,
        _ => return None,
    })
}

fn whole(rate: f64) -> u32 {
    // The conversion saturates.
    rate as u32
}

/// Returns the refusing descriptor with the longest wait: a caller that returns earlier is refused
/// again.
fn longest<'a, 'b>(decisions: &'a Decisions<'b>) -> Option<(&'a Decision<'b>, Refusal)> {
    let refused =
        decisions
            .iter()
            .flatten()
            .filter_map(|decision| match decision.decided.verdict {
                Verdict::Refuse(refusal) => Some((decision, refusal)),
                Verdict::Admit => None,
            });
    refused.max_by_key(|(_, refusal)| refusal.retry_after())
}
