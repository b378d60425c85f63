//! The bodies of requests and answers. docs/reference/sidecar-openapi.json describes them for callers.

use std::borrow::Cow;

use plimsoll_policy::Number;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use super::object::objects;

/// A text that is borrowed from the body unless it has escapes.
#[derive(Clone, Debug, Deserialize)]
#[serde(transparent)]
pub(in crate::http) struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl Text<'_> {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

/// A request to decide about.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct Check<'a> {
    /// The bucket: 1 to 128 bytes of `A-Z a-z 0-9 . _ : / @ -`. If the rules of the sidecar list buckets, one of them.
    #[serde(borrow)]
    pub(super) bucket: Text<'a>,
    /// The tenant. Any text; by default, and if it is empty, the class `default`.
    #[serde(borrow)]
    pub(super) tenant: Option<Text<'a>>,
    /// The number of requests that this one counts as: it is admitted or refused as a whole. By default 1. More than
    /// 10,000 count as so many, except for exact quotas.
    #[serde(default, deserialize_with = "cost")]
    pub(super) cost: Option<u32>,
    /// The header `traceparent` of the request (W3C Trace Context). Where the coin of the bucket is coherent, all services
    /// decide alike about the requests of one trace. A malformed one is as none.
    #[serde(borrow)]
    pub(super) traceparent: Option<Text<'a>>,
}

/// Reads a cost: a whole number, which may have the form 218.0.
fn cost<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    let Some(Number(cost)) = Option::deserialize(deserializer)? else { return Ok(None) };
    if cost.fract() != 0.0 || !(1.0..=f64::from(u32::MAX)).contains(&cost) {
        let fault = format_args!("{cost} is not a whole number from 1 to {}", u32::MAX);
        return Err(D::Error::custom(fault));
    }
    Ok(Some(cost as u32))
}

/// Requests to decide about.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct CheckBatch<'a> {
    /// The requests.
    #[serde(borrow, deserialize_with = "objects")]
    pub(super) requests: Vec<Check<'a>>,
    /// True if the requests are parts of one, such as a request that counts for a workspace and for a user: all are
    /// admitted or none is, by one draw, and the first `traceparent` is that of all. By default each is decided on its
    /// own.
    pub(super) together: Option<bool>,
}

/// A decision.
#[derive(Clone, Debug, Serialize)]
pub(in crate::http) struct CheckAnswer {
    /// True if the request is admitted. In a batch with `together` this is the decision of this key alone.
    pub(super) allowed: bool,
    /// The reason of a refusal, such as `cluster_overload`, `tenant_limit` or `tenant_quota_exceeded`. There may be new
    /// ones in the future.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<&'static str>,
    /// The time after which the caller may try again, in milliseconds, with a random part so that refused callers do not
    /// all return at once; for a quota that is used up, the time until it has tokens again. Only for refusals.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) retry_after_ms: Option<u64>,
    /// The limit of the bucket over all zones in requests/s, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) limit_rps: Option<f64>,
    /// The exact quota that refused the request, or would have; if none, the one with the least left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) quota: Option<QuotaAnswer>,
    /// The reason of a refusal that was decided but not carried out: in shadow mode, while killed, or outside of the
    /// canary. The request is admitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) withheld: Option<&'static str>,
}

/// An exact quota.
#[derive(Clone, Debug, Serialize)]
pub(in crate::http) struct QuotaAnswer {
    /// The name.
    pub(super) name: String,
    /// The requests of a full quota.
    pub(super) max: u64,
    /// The requests that each refill adds.
    pub(super) refill: u64,
    /// The time between two refills, in milliseconds.
    pub(super) every_ms: u64,
    /// The requests left after this one. Only for admitted requests, and only while the store answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) remaining: Option<u64>,
    /// The time until the next refill, in milliseconds. With `remaining`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reset_ms: Option<u64>,
}

/// Decisions, in the order of the requests.
#[derive(Clone, Debug, Serialize)]
pub(in crate::http) struct BatchAnswer {
    /// The decision about all requests. Only with `together`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) allowed: Option<bool>,
    /// The decision about each request.
    pub(super) results: Vec<CheckAnswer>,
}

/// The response to an admitted request, as the caller observed it. Either `status` or `failed` is given.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct Report<'a> {
    /// The bucket of the request.
    #[serde(borrow)]
    pub(super) bucket: Text<'a>,
    /// The tenant of the request.
    #[serde(borrow)]
    pub(super) tenant: Option<Text<'a>>,
    /// The HTTP status of the response. One from 500 is a failure.
    pub(super) status: Option<u16>,
    /// True if the service failed, for protocols without an HTTP status.
    pub(super) failed: Option<bool>,
    /// The time from the check to the response, in milliseconds. Without it the gates of a rollout cannot compare latency.
    pub(super) latency_ms: Option<f64>,
}

/// Responses to admitted requests.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct ReportBatch<'a> {
    /// The responses.
    #[serde(borrow, deserialize_with = "objects")]
    pub(super) reports: Vec<Report<'a>>,
}
