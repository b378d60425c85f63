//! The header fields about limits: the IETF's structured fields, and fields with the prefix
//! `X-RateLimit-`.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName, HeaderValue};
use plimsoll_client::QuotaLeft;
use plimsoll_core::decision::Reason;
use plimsoll_core::quota::Quota as ExactQuota;
use sfv::{Integer, KeyRef, ListSerializer, StringRef};

use super::format::whole;
use super::{RATE_LIMIT_REASON, RateLimitHeaders, RefusalOf};

const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const X_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
const X_REASON: HeaderName = HeaderName::from_static(RATE_LIMIT_REASON);

/// Maximum integer of a structured field (RFC 9651).
const INTEGER_MAX: u64 = 999_999_999_999_999;

pub(super) fn insert(headers: &mut HeaderMap, families: RateLimitHeaders, refused: &RefusalOf<'_>) {
    let exact = refused.used_up();
    let quota = exact
        .map(Quota::of_exact)
        .or_else(|| refused.exceeded().map(Quota::of));
    // A used-up quota is its own policy, which buckets may share.
    let name = exact.map(|exact| exact.name.as_str()).or(refused.bucket);
    if families.has_ietf()
        && let Some((quota, name)) = quota.zip(name)
    {
        let fields = [
            (RATE_LIMIT_POLICY, quota.policy(name)),
            (RATE_LIMIT, state(name, 0, refused.wait_seconds())),
        ];
        insert_all(headers, fields);
    }
    if families.has_x() {
        if let Some(quota) = quota {
            headers.insert(X_LIMIT, HeaderValue::from(quota.requests));
            headers.insert(X_REMAINING, HeaderValue::from(0));
        }
        headers.insert(
            X_RESET,
            HeaderValue::from(reset(refused.at, refused.wait_seconds())),
        );
    }
    // Callers tell by it that a retry is useless, as by the pushback of gRPC.
    if families.has_x() || refused.reason() == Reason::TenantQuotaExceeded {
        headers.insert(
            X_REASON,
            HeaderValue::from_static(refused.reason().as_str()),
        );
    }
}

/// Returns the fields `RateLimit-Policy` and `RateLimit` for the response to a request that a quota admits, for a
/// process that answers for services.
#[must_use]
pub fn quota_fields(left: &QuotaLeft) -> HeaderMap {
    let (quota, name) = (&left.quota, left.quota.name.as_str());
    let reset = whole(left.reset, Duration::from_secs(1));
    let mut headers = HeaderMap::with_capacity(2);
    let policy = Quota::of_exact(quota).policy(name);
    insert_all(
        &mut headers,
        [
            (RATE_LIMIT_POLICY, policy),
            (RATE_LIMIT, state(name, left.remaining, reset)),
        ],
    );
    headers
}

fn insert_all(headers: &mut HeaderMap, fields: [(HeaderName, Option<String>); 2]) {
    for (name, value) in fields {
        if let Some(value) = value.and_then(|value| HeaderValue::try_from(value).ok()) {
            headers.insert(name, value);
        }
    }
}

/// A limit as header fields write it: a number of requests in a number of seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Quota {
    requests: u64,
    seconds: u64,
}

impl Quota {
    /// Returns the quota of one second, rounded down, or for a limit below one request/s, the time of one request,
    /// rounded up. Neither promises more than the limit.
    fn of(per_second: f64) -> Self {
        // Casts saturate. A limit of zero is 0 requests in a second.
        if per_second >= 1.0 || per_second <= 0.0 {
            Self {
                requests: (per_second as u64).min(INTEGER_MAX),
                seconds: 1,
            }
        } else {
            Self {
                requests: 1,
                seconds: ((1.0 / per_second).ceil() as u64).min(INTEGER_MAX),
            }
        }
    }

    /// Returns the quota of an exact one: the requests of a full one, by the time between two refills, rounded up.
    fn of_exact(quota: &ExactQuota) -> Self {
        let seconds = quota.rate.every_ms().div_ceil(1_000);
        Self {
            requests: quota.rate.max().min(INTEGER_MAX),
            seconds: seconds.min(INTEGER_MAX),
        }
    }

    /// Returns the policy of a bucket or an exact quota: `"checkout";q=1000;w=1`.
    fn policy(self, name: &str) -> Option<String> {
        list(name, [("q", self.requests), ("w", self.seconds)])
    }
}

/// Returns the state of a bucket or an exact quota: `"checkout";r=0;t=1`.
fn state(name: &str, remaining: u64, wait_seconds: u64) -> Option<String> {
    list(name, [("r", remaining), ("t", wait_seconds)])
}

fn list(name: &str, parameters: [(&'static str, u64); 2]) -> Option<String> {
    let mut list = ListSerializer::new();
    let mut item = list.bare_item(StringRef::from_str(name).ok()?);
    for (key, value) in parameters {
        let value = Integer::try_from(value.min(INTEGER_MAX)).ok()?;
        item = item.parameter(KeyRef::constant(key), value);
    }
    let _ = item.finish();
    list.finish()
}

/// Returns the Unix time of the end of a wait, rounded up.
fn reset(at: SystemTime, wait_seconds: u64) -> u64 {
    let since = at
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or(Duration::ZERO);
    since
        .as_secs()
        .saturating_add(u64::from(since.subsec_nanos() > 0))
        .saturating_add(wait_seconds)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sfv::{ListEntry, Parser};

    use super::*;

    #[test]
    fn quota_promises_no_more_than_the_limit() {
        for (limit, requests, seconds) in [
            (1_000.0, 1_000, 1),
            (2.5, 2, 1),
            (1.0, 1, 1),
            (0.5, 1, 2),
            (0.3, 1, 4),
            (0.0, 0, 1),
            (1e12, 1_000_000_000_000, 1),
            (1e-300, 1, INTEGER_MAX),
        ] {
            assert_eq!(Quota::of(limit), Quota { requests, seconds }, "{limit}");
        }
    }

    #[test]
    fn reset_is_no_earlier_than_the_wait() {
        let at = |millis| SystemTime::UNIX_EPOCH + Duration::from_millis(millis);
        assert_eq!(
            (
                reset(at(10_000), 2),
                reset(at(10_001), 2),
                reset(at(10_999), 2)
            ),
            (12, 13, 13)
        );
        assert_eq!(
            reset(SystemTime::UNIX_EPOCH - Duration::from_secs(9), 2),
            2,
            "a clock before 1970"
        );
    }

    proptest! {
        #[test]
        fn fields_are_structured_fields(
            name in "[A-Za-z0-9._:/@-]{1,128}",
            limit in prop_oneof![0.0..10.0, 0.0..1e12],
            wait in 1_u64..10_000,
        ) {
            let quota = Quota::of(limit);
            for (field, parameters) in [
                (quota.policy(&name), [("q", quota.requests), ("w", quota.seconds)]),
                (state(&name, 0, wait), [("r", 0), ("t", wait)]),
            ] {
                let members = Parser::new(&field.unwrap()).parse::<sfv::List>().unwrap();
                let [ListEntry::Item(item)] = members.as_slice() else { panic!("one item") };
                prop_assert_eq!(item.bare_item.as_string().map(|text| text.as_str()), Some(name.as_str()));
                let integer = |value: &sfv::BareItem| value.as_integer().map(i64::from);
                let found: Vec<_> = item.params.iter().map(|(key, value)| (key.as_str(), integer(value))).collect();
                let expected = parameters.map(|(key, value)| (key, i64::try_from(value).ok()));
                prop_assert_eq!(found, expected);
            }
        }
    }
}
