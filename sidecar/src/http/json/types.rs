//! The bodies of requests and answers. docs/reference/sidecar-openapi.json describes them for callers.

use std::borrow::Cow;

use plimsoll_admin::object::objects;
use plimsoll_policy::Number;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

/// Borrowed from the body unless it has escapes.
#[derive(Clone, Debug, Deserialize)]
#[serde(transparent)]
pub(in crate::http) struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl Text<'_> {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct Check<'a> {
    /// 1 to 128 bytes of `A-Z a-z 0-9 . _ : / @ -`. If the rules of the sidecar list buckets, one
    /// of them.
    #[serde(borrow)]
    pub(super) bucket: Text<'a>,
    /// Any text; by default, and if it is empty, the class `default`.
    #[serde(borrow)]
    pub(super) tenant: Option<Text<'a>>,
    /// Plan of a tenant that the policy does not list.
    #[serde(borrow)]
    pub(super) plan: Option<Text<'a>>,
    /// Number of requests that this one counts as: it is admitted or refused as a whole. The
    /// default is 1, and more than 10,000 count as 10,000, except for exact quotas.
    #[serde(default, deserialize_with = "cost")]
    pub(super) cost: Option<u32>,
    /// Header `traceparent` of the request (W3C Trace Context). With a coherent coin, all services
    /// decide alike about the requests of one trace. A malformed header is ignored.
    #[serde(borrow)]
    pub(super) traceparent: Option<Text<'a>>,
    /// True if the caller has sent the request before. It changes no decision; it is counted, and left out of learned limits.
    pub(super) retried: Option<bool>,
}

/// Reads a cost: a whole number, which may have the form 218.0.
fn cost<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    let Some(Number(cost)) = Option::deserialize(deserializer)? else {
        return Ok(None);
    };
    if cost.fract() != 0.0 || !(1.0..=f64::from(u32::MAX)).contains(&cost) {
        let fault = format_args!("{cost} is not a whole number from 1 to {}", u32::MAX);
        return Err(D::Error::custom(fault));
    }
    Ok(Some(cost as u32))
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct CheckBatch<'a> {
    #[serde(borrow, deserialize_with = "objects")]
    pub(super) requests: Vec<Check<'a>>,
    /// True if the requests are parts of one, such as a request that counts for a workspace and for
    /// a user: all are admitted or none is, by one draw, and the first `traceparent` applies to
    /// all. By default each is decided separately.
    pub(super) together: Option<bool>,
}

#[derive(Clone, Debug, Serialize)]
pub(in crate::http) struct CheckAnswer {
    /// True if the request is admitted. In a batch with `together` this is the decision of this key
    /// only.
    pub(super) allowed: bool,
    /// Reason of a refusal, such as `cluster_overload`, `tenant_limit` or `tenant_quota_exceeded`.
    /// Later versions may add reasons.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<&'static str>,
    /// Milliseconds until the caller may try again, with a random part so that refused callers do
    /// not all return together; for a used-up quota, the time until it has tokens again. Only for
    /// refusals.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) retry_after_ms: Option<u64>,
    /// Limit over all zones in requests/s, if it is known: of the tenant if that refused, or else of the bucket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) limit_rps: Option<f64>,
    /// Exact quota that refused the request, or would have. For an admitted request without one, the
    /// quota with the fewest tokens left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) quota: Option<QuotaAnswer>,
    /// Reason of a refusal that was decided but not applied: in shadow mode, while killed, or
    /// outside of the canary. The request is admitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) withheld: Option<&'static str>,
}

#[derive(Clone, Debug, Serialize)]
pub(in crate::http) struct QuotaAnswer {
    pub(super) name: String,
    /// Requests of a full quota.
    pub(super) max: u64,
    /// Requests that each refill adds.
    pub(super) refill: u64,
    pub(super) every_ms: u64,
    /// Requests left after this one. Only for admitted requests, and only while the store answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) remaining: Option<u64>,
    /// Milliseconds until the next refill. With `remaining`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reset_ms: Option<u64>,
}

#[derive(Clone, Debug, Serialize)]
pub(in crate::http) struct BatchAnswer {
    /// Decision about all requests. Only with `together`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) allowed: Option<bool>,
    pub(super) results: Vec<CheckAnswer>,
}

/// Response to an admitted request, as the caller observed it. Either `status` or `failed` is
/// given.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct Report<'a> {
    #[serde(borrow)]
    pub(super) bucket: Text<'a>,
    #[serde(borrow)]
    pub(super) tenant: Option<Text<'a>>,
    /// HTTP status of the response. A status from 500 is a failure.
    pub(super) status: Option<u16>,
    /// True if the service failed, for protocols without an HTTP status.
    pub(super) failed: Option<bool>,
    /// Milliseconds from the check to the response. Without it the gates of a rollout cannot
    /// compare latency.
    pub(super) latency_ms: Option<f64>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct ReportBatch<'a> {
    #[serde(borrow, deserialize_with = "objects")]
    pub(super) reports: Vec<Report<'a>>,
}
