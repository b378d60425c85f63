//! `/check` and `/nginx`: a proxy sends each of its requests here and forwards the answer.

mod original;

use std::time::SystemTime;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use plimsoll_client::internals::{Decided, DecidingTogether};
use plimsoll_client::{Reason, Request as KeyRequest, TraceId, Verdict};
use plimsoll_core::names::check_name;
use plimsoll_tower::{Head, RefusalFormat, RefusalOf, quota_fields};

use self::original::{Names, Original};
use super::counts::{Endpoint, Mistake, Outcome};
use super::{Begun, Service, empty};
use crate::limits::Http;
use crate::rules::{BUCKET_HEADER, COST_HEADER};

/// Header of an admitted request with a refusal that was not applied, and its value.
const SHADOW: HeaderName = HeaderName::from_static("x-plimsoll-shadow");
const SHADOW_DROP: HeaderValue = HeaderValue::from_static("drop");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Form of requests and answers that a kind of proxy understands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Style {
    endpoint: Endpoint,
    names: Names,
    allowed: StatusCode,
    refused: StatusCode,
    /// True if a refusal has a body: the proxy forwards it.
    has_body: bool,
}

impl Style {
    /// Proxies that forward every answer except 2xx unchanged: Caddy, Traefik, HAProxy with a
    /// script.
    pub(super) const VERBATIM: Self = Self {
        endpoint: Endpoint::Check,
        names: Names::CADDY_AND_TRAEFIK,
        allowed: StatusCode::OK,
        refused: StatusCode::TOO_MANY_REQUESTS,
        has_body: true,
    };
    /// nginx. Its `auth_request` knows only 401 and 403, and drops bodies.
    pub(super) const NGINX: Self = Self {
        endpoint: Endpoint::Nginx,
        names: Names::NGINX,
        allowed: StatusCode::NO_CONTENT,
        refused: StatusCode::FORBIDDEN,
        has_body: false,
    };
}

/// A request for a bucket with exact quotas, which waits for them. Every other request is answered immediately.
pub(super) struct Asking {
    style: Style,
    deciding: DecidingTogether,
    /// Bucket, tenant and plan of each key.
    keys: Vec<[String; 3]>,
}

/// Begins the answer to a request of a proxy. Never an error: a request without a usable bucket is admitted, and
/// other mistakes have defaults.
pub(super) fn begin(port: &Service, style: Style, head: Parts) -> Begun {
    by_keys(port, style, head).unwrap_or_else(|| {
        port.counts.count(style.endpoint, Outcome::Passed);
        Begun::Answered(empty(style.allowed))
    })
}

impl Asking {
    pub(super) async fn answer(self, port: &Service) -> Response<Full<Bytes>> {
        let Self {
            style,
            deciding,
            keys,
        } = self;
        let (at, decided) = deciding.await;
        let keys = keys
            .iter()
            .map(|[bucket, tenant, plan]| KeyRequest::new(bucket.as_str(), tenant).plan(plan));
        let mut response = respond(port, style, keys.clone().nth(at), &decided);
        if response.status() == style.allowed {
            let left = keys.filter_map(|key| port.limits.limiter().quota_left(&key));
            if let Some(left) = left.min_by_key(|left| left.remaining) {
                response.headers_mut().extend(quota_fields(&left));
            }
        }
        response
    }
}

/// Begins the answer to a request by its keys; `None` if it passes without a decision.
fn by_keys(port: &Service, style: Style, head: Parts) -> Option<Begun> {
    let in_force = port.limits.in_force();
    match &in_force.http {
        Http::Headers {
            tenant,
            plan,
            wiring,
        } => {
            let request = Request::from_parts(head, ());
            let head = Head::of(&request);
            // Here the key is in headers: the original path is not needed, and the original method only to recognise a
            // preflight.
            if original::is_preflight(head, style.names) {
                return None;
            }
            let (tenant, found) = tenant.of(head);
            let (key, mistake) = by_headers(head, tenant, |name| in_force.rules.takes(name));
            if let (Some(_), Some(found)) = (&key, found) {
                wiring.on_tenant(found);
            }
            mistake
                .into_iter()
                .for_each(|mistake| port.counts.mistake(mistake));
            let plan = plan.as_ref().and_then(|plan| head.header(plan));
            key.map(|key| decide(port, style, head, &key.plan(plan.unwrap_or_default())))
        }
        Http::Rules(rules) => {
            let Original { request, mistakes } = Original::of(head, style.names);
            mistakes
                .into_iter()
                .flatten()
                .for_each(|mistake| port.counts.mistake(mistake));
            let head = Head::of(&request);
            rules.ask(head, |key| decide(port, style, head, key)).ok()
        }
    }
}

/// Returns the key in the headers of a proxy, if any, and the mistake in them.
fn by_headers<'a>(
    head: Head<'a>,
    tenant: &'a str,
    takes: impl FnOnce(&str) -> bool,
) -> (Option<KeyRequest<'a>>, Option<Mistake>) {
    let bucket = match head.header(&BUCKET_HEADER) {
        Some(bucket) if check_name(bucket).is_err() => return (None, Some(Mistake::Bucket)),
        Some(bucket) if !takes(bucket) => return (None, Some(Mistake::BucketNotListed)),
        Some(bucket) => bucket,
        None if head.headers.contains_key(&BUCKET_HEADER) => return (None, Some(Mistake::Bucket)),
        None => return (None, Some(Mistake::NoBucket)),
    };
    let cost = match head.headers.get(&COST_HEADER) {
        None => Some(1),
        Some(_) => head.header(&COST_HEADER).and_then(cost_of),
    };
    let mistake = cost.is_none().then_some(Mistake::Cost);
    (
        Some(KeyRequest::new(bucket, tenant).cost(cost.unwrap_or(1))),
        mistake,
    )
}

fn cost_of(text: &str) -> Option<u32> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|cost| is_number && *cost > 0)
}

fn decide(port: &Service, style: Style, head: Head<'_>, key: &KeyRequest<'_>) -> Begun {
    let trace = head
        .header(&TRACEPARENT)
        .and_then(|value| TraceId::of_traceparent(value.as_bytes()));
    let keys = key.keys();
    let limiter = port.limits.limiter();
    let decision = limiter.decide_together(keys, trace, true);
    // Otherwise the store, or the memory of its refusal, decides later whether the request counts as offered.
    let is_offered = decision
        .as_ref()
        .is_ok_and(|(_, decided)| decided.is_offered());
    if is_offered && head.is_retried() {
        limiter.count_retried(key);
    }
    match decision {
        Ok((at, decided)) => Begun::Answered(respond(port, style, keys.get(at).copied(), &decided)),
        Err(deciding) => {
            let names = |key: &KeyRequest<'_>| {
                [key.bucket(), key.tenant(), key.plan_name()].map(str::to_owned)
            };
            Begun::Asking(Asking {
                style,
                deciding,
                keys: keys.iter().map(names).collect(),
            })
        }
    }
}

/// Makes the answer to a decision by a key; `None` for a request of no key.
fn respond(
    port: &Service,
    style: Style,
    key: Option<KeyRequest<'_>>,
    decided: &Decided,
) -> Response<Full<Bytes>> {
    let outcome = match (decided.verdict, decided.withheld) {
        (Verdict::Refuse(refusal), _) => {
            port.counts.count(style.endpoint, Outcome::Refused);
            let limiter = port.limits.limiter();
            let at_limit = key.filter(|_| refusal.reason() == Reason::TenantLimit);
            let of = RefusalOf {
                refusal,
                bucket: key.as_ref().map(KeyRequest::bucket),
                limit: key.and_then(|key| limiter.limit(key.bucket())),
                tenant_limit: at_limit.and_then(|key| limiter.tenant_limit(&key)),
                quota: decided.quota.as_deref(),
                at: SystemTime::now(),
            };
            return refused(style, &of);
        }
        (Verdict::Admit, None) => Outcome::Allowed,
        (Verdict::Admit, Some(_)) => Outcome::Withheld,
    };
    port.counts.count(style.endpoint, outcome);
    let mut response = empty(style.allowed);
    if outcome == Outcome::Withheld {
        response.headers_mut().insert(SHADOW, SHADOW_DROP);
    }
    response
}

/// Makes the refusal. Its form is HTTP, also for gRPC requests, because only the status makes a
/// proxy refuse.
fn refused(style: Style, of: &RefusalOf<'_>) -> Response<Full<Bytes>> {
    let response = RefusalFormat::default().status(style.refused).http(of);
    if style.has_body {
        return response.map(Full::new);
    }
    let mut response = response.map(|_| Full::default());
    response.headers_mut().remove(http::header::CONTENT_TYPE);
    response
}
