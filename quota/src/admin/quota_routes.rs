//! The buckets on the admin port: operators look them up, list them, see the busiest, and make them full again.

use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRequestParts, Query, State};
use axum::http::request::Parts;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use plimsoll_admin::access::{Caller, Routes};
use plimsoll_admin::body::{JsonBody, error_response};
use plimsoll_core::quota::QuotaTime;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::api::{
    BucketStatus, Buckets, GET, Holds, LIST, PAGE_DEFAULT, PAGE_MAX, RESET, RESET_KEYS_MAX, Reset, ResetDone,
    TOP, TOP_DEFAULT, TOP_MAX, Top, TopKey,
};
use super::key_text::{InvalidKey, decode, escape, unescape};
use crate::engine::{BucketKind, BucketState, Engine, TopEntry};
use crate::operation::Unavailable;

/// The parameters of a request for a page of buckets.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ListQuery {
    /// The beginning of the keys, escaped; all keys if absent.
    #[serde(default)]
    prefix: String,
    /// The place where the page before ended.
    after: Option<String>,
    limit: Option<usize>,
}

/// The parameters of a request for the buckets of one key.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GetQuery {
    key: String,
}

/// The parameters of a request for the busiest keys.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TopQuery {
    limit: Option<usize>,
}

/// The parameters of a request. Invalid ones are answered with an error in JSON.
struct Params<T>(T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Params<T> {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Response> {
        let params = Query::<T>::from_request_parts(parts, state).await;
        params
            .map(|Query(params)| Self(params))
            .map_err(|error: QueryRejection| error_response(StatusCode::BAD_REQUEST, error.body_text()))
    }
}

/// Returns the routes.
pub(super) fn routes(engine: Engine) -> Routes {
    Routes::new()
        .viewer(Method::GET, LIST, list)
        .viewer(Method::GET, GET, get)
        .viewer(Method::GET, TOP, top)
        .operator(Method::POST, RESET, reset)
        .with_state(engine)
}

async fn list(State(engine): State<Engine>, Params(query): Params<ListQuery>) -> Response {
    let prefix = match unescape(&query.prefix) {
        Ok(prefix) => prefix,
        Err(error) => return invalid("prefix", &error),
    };
    let Ok(after) = query.after.as_deref().map(decode).transpose() else {
        return error_response(StatusCode::BAD_REQUEST, "after: give the `next` of the page before");
    };
    let limit = query.limit.unwrap_or(PAGE_DEFAULT);
    if !(1..=PAGE_MAX).contains(&limit) {
        return error_response(StatusCode::BAD_REQUEST, format_args!("limit: give 1 to {PAGE_MAX}"));
    }
    let now = engine.now();
    match engine.list(now.ms, &prefix, after.as_deref(), limit).await {
        Ok(page) => Json(Buckets {
            buckets: page.entries.iter().map(|bucket| status(bucket, now)).collect(),
            next: page.next.map(|next| escape(&next)),
        })
        .into_response(),
        Err(error) => unavailable(error),
    }
}

async fn get(State(engine): State<Engine>, Params(query): Params<GetQuery>) -> Response {
    let key = match unescape(&query.key) {
        Ok(key) => key,
        Err(error) => return invalid("key", &error),
    };
    let now = engine.now();
    match engine.get(now.ms, &key).await {
        Ok(buckets) if buckets.is_empty() => unknown(&query.key),
        Ok(buckets) => {
            let buckets = buckets.iter().map(|bucket| status(bucket, now)).collect();
            Json(Buckets { buckets, next: None }).into_response()
        }
        Err(error) => unavailable(error),
    }
}

async fn top(State(engine): State<Engine>, Params(query): Params<TopQuery>) -> Response {
    let limit = query.limit.unwrap_or(TOP_DEFAULT);
    if !(1..=TOP_MAX).contains(&limit) {
        return error_response(StatusCode::BAD_REQUEST, format_args!("limit: give 1 to {TOP_MAX}"));
    }
    // It looks at every bucket in memory, which takes a while for millions.
    let (asked, refused) = match tokio::task::spawn_blocking(move || engine.top(limit)).await {
        Ok(top) => top,
        Err(error) => return error_response(StatusCode::INTERNAL_SERVER_ERROR, error),
    };
    let keys = |entries: &[TopEntry], count: fn(&TopEntry) -> u64| {
        let keys = entries.iter().map(|entry| TopKey { key: escape(&entry.key), count: count(entry) });
        keys.filter(|key| key.count > 0).collect()
    };
    Json(Top { asked: keys(&asked, |entry| entry.asked), refused: keys(&refused, |entry| entry.refused) })
        .into_response()
}

async fn reset(
    State(engine): State<Engine>,
    Extension(caller): Extension<Caller>,
    JsonBody(asked): JsonBody<Reset>,
) -> Response {
    let (text, is_prefix) = match &asked {
        Reset::Key(key) => (key, false),
        Reset::Prefix(prefix) if prefix.is_empty() => {
            return error_response(StatusCode::BAD_REQUEST, "prefix: an empty one would reset every quota");
        }
        Reset::Prefix(prefix) => (prefix, true),
    };
    let bytes = match unescape(text) {
        Ok(bytes) => bytes,
        Err(error) => return invalid(if is_prefix { "prefix" } else { "key" }, &error),
    };
    let text = escape(&bytes);
    // Carried out to its end, even if the caller goes away.
    let carried_out = tokio::spawn(async move {
        let done =
            if is_prefix { reset_all(&engine, &bytes).await } else { reset_one(&engine, &bytes).await };
        match &done {
            Ok(buckets) => tracing::warn!(
                key = text, is_prefix, buckets, by = &*caller.name, role = %caller.role, from = %caller.from,
                "quotas reset by command: their buckets are full again"
            ),
            Err(failed) => tracing::warn!(
                key = text, is_prefix, by = &*caller.name, role = %caller.role, from = %caller.from,
                error = failed.text(&text), "reset of quotas failed"
            ),
        }
        match done {
            Ok(0) => unknown(&text),
            Ok(buckets) => Json(ResetDone { buckets }).into_response(),
            Err(failed) => error_response(failed.status(), failed.text(&text)),
        }
    });
    carried_out.await.unwrap_or_else(|error| error_response(StatusCode::INTERNAL_SERVER_ERROR, error))
}

/// The reason why a reset ended early.
enum ResetFailed {
    /// The store did not answer, after this many buckets.
    Store(Unavailable, u64),
    /// More keys begin with the prefix than one request may reset. Nothing was reset.
    TooMany,
}

impl ResetFailed {
    const fn status(&self) -> StatusCode {
        match self {
            Self::Store(..) => StatusCode::SERVICE_UNAVAILABLE,
            Self::TooMany => StatusCode::CONFLICT,
        }
    }

    fn text(&self, key: &str) -> String {
        match self {
            Self::Store(error, buckets) => format!(
                "{error}. {buckets} buckets are full again, and others may be once it does: repeat the command"
            ),
            Self::TooMany => format!(
                "more than {RESET_KEYS_MAX} keys begin with `{key}`, and nothing was reset: give a longer beginning"
            ),
        }
    }
}

async fn reset_one(engine: &Engine, key: &[u8]) -> Result<u64, ResetFailed> {
    engine.reset(engine.now().ms, key).await.map_err(|error| ResetFailed::Store(error, 0))
}

async fn reset_all(engine: &Engine, prefix: &[u8]) -> Result<u64, ResetFailed> {
    let mut keys: Vec<Vec<u8>> = Vec::new();
    let mut after = None;
    loop {
        let page = engine.list(engine.now().ms, prefix, after.as_deref(), PAGE_MAX).await;
        let page = page.map_err(|error| ResetFailed::Store(error, 0))?;
        keys.extend(page.entries.into_iter().map(|bucket| bucket.key));
        // A key has one bucket for each set of parameters, and they follow each other.
        keys.dedup();
        if keys.len() > RESET_KEYS_MAX {
            return Err(ResetFailed::TooMany);
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    let mut buckets = 0;
    for key in keys {
        let done = engine.reset(engine.now().ms, &key).await;
        buckets += done.map_err(|error| ResetFailed::Store(error, buckets))?;
    }
    Ok(buckets)
}

/// Returns a bucket as operators see it, with times by the wall clock.
fn status(bucket: &BucketState, now: QuotaTime) -> BucketStatus {
    let holds = match bucket.kind {
        BucketKind::Tokens { rate, balance } => {
            let is_full = balance.tokens >= rate.max();
            let unless_full = |time: Option<u64>| time.filter(|_| !is_full).map(|time| now.wall_of(time));
            Holds::Tokens {
                tokens: balance.tokens,
                max: rate.max(),
                refill: rate.refill(),
                every_ms: rate.every_ms(),
                next_refill_ms: unless_full(Some(balance.next_refill_ms(rate))),
                full_at_ms: unless_full(balance.holds_at_ms(rate, rate.max())),
            }
        }
        BucketKind::Throttle { gcra } => {
            Holds::Throttle { at_rest_ms: now.wall_of(gcra.arrival_ns / 1_000_000) }
        }
    };
    BucketStatus { key: escape(&bucket.key), holds }
}

fn invalid(parameter: &str, error: &InvalidKey) -> Response {
    error_response(StatusCode::BAD_REQUEST, format_args!("{parameter}: {error}"))
}

fn unknown(key: &str) -> Response {
    error_response(
        StatusCode::NOT_FOUND,
        format_args!(
            "no bucket of `{key}` is known: none was ever asked for, or they have long been full again"
        ),
    )
}

fn unavailable(error: Unavailable) -> Response {
    error_response(StatusCode::SERVICE_UNAVAILABLE, error)
}
