//! The part of a response with what Envoy adds to a refusal: header fields, a body, and metadata.
//! Refusals of one bucket and second with equal facts share one encoding, but for those in the form
//! of gRPC, so an overload does not encode each.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use plimsoll_client::{Reason, Refusal, TenantLimit};
use plimsoll_core::quota::Quota;
use plimsoll_tower::{RefusalFormat, RefusalOf};
use prost::Message;
use prost_types::value::Kind;
use prost_types::{Struct, Value};

use super::decision::Decision;
use super::messages::{HeaderValue, RateLimitResponse};
use crate::rules::RefusalForm;

/// Maximum number of encoded refusals that a thread keeps: those of the second of the last one.
pub(super) const REFUSALS_KEPT_MAX: usize = 64;

/// Headers of a gRPC status that Envoy sets itself.
const OF_ENVOY: [&str; 3] = ["content-type", "grpc-status", "grpc-message"];

thread_local! {
    static KEPT: RefCell<Vec<Kept>> = const { RefCell::new(Vec::new()) };
}

/// Encoded refusal, with its inputs.
struct Kept {
    facts: Facts,
    bucket: Box<str>,
    encoded: Bytes,
}

/// Inputs of an encoded refusal, except the bucket.
#[derive(Clone, PartialEq)]
struct Facts {
    reason: Reason,
    quota: Option<Arc<Quota>>,
    form: RefusalForm,
    limit: Option<f64>,
    tenant_limit: Option<TenantLimit>,
    /// Wait in seconds, rounded up.
    wait_s: u64,
    /// Unix time in seconds, rounded up.
    at_s: u64,
}

/// Returns the encoded fields of a response that refuses a request, to follow its other fields.
pub(super) fn encoded(refused: &Decision<'_>, refusal: Refusal, at: SystemTime) -> Bytes {
    if refused.form == RefusalForm::Grpc {
        // Its wait is in milliseconds, so that hardly any two are equal.
        return encode(refused, refusal, at);
    }
    let since = at
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let facts = Facts {
        reason: refusal.reason(),
        quota: refused.decided.quota.clone(),
        form: refused.form,
        limit: refused.limit,
        tenant_limit: refused.tenant_limit,
        wait_s: seconds(refusal.retry_after()),
        at_s: seconds(since),
    };
    KEPT.with_borrow_mut(|all| {
        let same = |kept: &&Kept| kept.facts == facts && *kept.bucket == *refused.bucket;
        if let Some(kept) = all.iter().find(same) {
            return kept.encoded.clone();
        }
        // The encoding of all moments that round up to this second, as the header fields do.
        let encoded = encode(
            refused,
            refusal,
            SystemTime::UNIX_EPOCH + Duration::from_secs(facts.at_s),
        );
        // Those of earlier seconds are not asked for again.
        all.retain(|kept| kept.facts.at_s == facts.at_s);
        if all.len() < REFUSALS_KEPT_MAX {
            all.push(Kept {
                facts,
                bucket: refused.bucket.into(),
                encoded: encoded.clone(),
            });
        }
        encoded
    })
}

/// Rounds up to whole seconds.
fn seconds(time: Duration) -> u64 {
    time.as_secs()
        .saturating_add(u64::from(time.subsec_nanos() > 0))
}

fn encode(refused: &Decision<'_>, refusal: Refusal, at: SystemTime) -> Bytes {
    let format = RefusalFormat::default();
    let of = RefusalOf {
        refusal,
        bucket: Some(refused.bucket),
        limit: refused.limit,
        tenant_limit: refused.tenant_limit,
        quota: refused.quota(),
        at,
    };
    let (headers, body) = match refused.form {
        RefusalForm::Problem => {
            let (head, body) = format.http(&of).into_parts();
            (head.headers, body.into())
        }
        RefusalForm::Bare => {
            let mut headers = format.http(&of).into_parts().0.headers;
            headers.remove(CONTENT_TYPE);
            (headers, Vec::new())
        }
        RefusalForm::Grpc => {
            let mut headers = format.grpc(&of).into_parts().0.headers;
            OF_ENVOY.iter().for_each(|name| drop(headers.remove(*name)));
            (headers, of.detail().as_bytes().to_vec())
        }
    };
    let fields = RateLimitResponse {
        response_headers_to_add: to_add(&headers),
        raw_body: body,
        dynamic_metadata: Some(metadata("over_limit", refusal.reason(), refused.bucket)),
        ..RateLimitResponse::default()
    };
    fields.encode_to_vec().into()
}

/// Returns header fields as Envoy's messages have them. None is left out: all values are visible ASCII.
pub(super) fn to_add(headers: &HeaderMap) -> Vec<HeaderValue> {
    let text = headers
        .iter()
        .filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)));
    text.map(|(name, value)| header(name, value)).collect()
}

pub(super) fn header(name: &str, value: &str) -> HeaderValue {
    HeaderValue {
        key: name.to_owned(),
        value: value.to_owned(),
    }
}

/// Returns metadata that Envoy keeps for its access log and for later filters.
pub(super) fn metadata(decision: &str, reason: Reason, bucket: &str) -> Struct {
    let fields = [
        ("decision", decision),
        ("reason", reason.as_str()),
        ("bucket", bucket),
    ];
    let text = |text: &str| Value {
        kind: Some(Kind::StringValue(text.to_owned())),
    };
    Struct {
        fields: fields
            .map(|(name, value)| (name.to_owned(), text(value)))
            .into(),
    }
}
