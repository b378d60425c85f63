//! Routes of the admin port for operators to look up, list and reset buckets.

use axum::extract::State;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use plimsoll_admin::access::{AdminCaller, Routes};
use plimsoll_admin::body::{JsonBody, Parameters, error_response};
use plimsoll_core::quota::QuotaTime;
use serde::Deserialize;

use super::api::{
    BucketStatus, Buckets, GET, Holds, LIST, PAGE_DEFAULT, PAGE_MAX, RESET, RESET_KEYS_MAX, Reset,
    ResetDone, TOP, TOP_DEFAULT, TOP_MAX, Top, TopKey,
};
use super::key_text::{InvalidKey, decode, escape, unescape};
use crate::engine::{Bucket, Engine};
use crate::operation::Unavailable;
use crate::store::{Kind, State as BucketState};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ListQuery {
    #[serde(default)]
    prefix: String,
    after: Option<String>,
    limit: Option<usize>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GetQuery {
    key: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TopQuery {
    limit: Option<usize>,
}

type Answer<T> = Result<Json<T>, Response>;

pub(super) fn routes(engine: Engine) -> Routes {
    Routes::new()
        .viewer(Method::GET, LIST, list)
        .viewer(Method::GET, GET, get)
        .viewer(Method::GET, TOP, top)
        .operator(Method::POST, RESET, reset)
        .with_state(engine)
}

async fn list(
    State(engine): State<Engine>,
    Parameters(query): Parameters<ListQuery>,
) -> Answer<Buckets> {
    let prefix = key("prefix", unescape(&query.prefix))?;
    let after = query.after.as_deref().map(decode).transpose();
    let after = after.map_err(|_| invalid("after: give the `next` of the page before"))?;
    let limit = limit(query.limit, PAGE_DEFAULT, PAGE_MAX)?;
    let now = engine.now();
    let (buckets, next) = engine
        .list(&prefix, after, limit)
        .await
        .map_err(unavailable)?;
    Ok(page(&buckets, next, now))
}

async fn get(
    State(engine): State<Engine>,
    Parameters(query): Parameters<GetQuery>,
) -> Answer<Buckets> {
    let key = key("key", unescape(&query.key))?;
    let now = engine.now();
    let buckets = engine.get(&key).await.map_err(unavailable)?;
    if buckets.is_empty() {
        return Err(unknown(&query.key));
    }
    Ok(page(&buckets, None, now))
}

fn page(buckets: &[Bucket], next: Option<Vec<u8>>, now: QuotaTime) -> Json<Buckets> {
    Json(Buckets {
        buckets: buckets.iter().map(|bucket| status(bucket, now)).collect(),
        next: next.map(|next| escape(&next)),
    })
}

async fn top(State(engine): State<Engine>, Parameters(query): Parameters<TopQuery>) -> Answer<Top> {
    let limit = limit(query.limit, TOP_DEFAULT, TOP_MAX)?;
    // Reads every bucket in memory, which takes a while for millions.
    let top = tokio::task::spawn_blocking(move || engine.top(limit)).await;
    let top = top.map_err(|error| error_response(StatusCode::INTERNAL_SERVER_ERROR, error))?;
    let [asked, refused] = top.map(|keys| {
        keys.iter()
            .map(|(key, count)| TopKey {
                key: escape(key),
                count: u64::from(*count),
            })
            .collect()
    });
    Ok(Json(Top { asked, refused }))
}

async fn reset(
    State(engine): State<Engine>,
    Extension(caller): Extension<AdminCaller>,
    JsonBody(asked): JsonBody<Reset>,
) -> Result<Response, Response> {
    let (what, text) = match &asked {
        Reset::Key(key) => ("key", key),
        Reset::Prefix(prefix) if prefix.is_empty() => {
            return Err(invalid("prefix: an empty one would reset every quota"));
        }
        Reset::Prefix(prefix) => ("prefix", prefix),
    };
    let bytes = key(what, unescape(text))?;
    let (text, is_prefix) = (escape(&bytes), what == "prefix");
    // Runs to its end, even if the caller disconnects.
    let carried_out = tokio::spawn(async move {
        let done = async {
            let keys = if is_prefix {
                keys(&engine, &bytes, &text).await?
            } else {
                vec![bytes]
            };
            reset_all(&engine, &keys).await
        };
        let done = done.await;
        let (by, role, from) = (&*caller.name, &caller.role, &caller.from);
        match &done {
            Ok(buckets) => tracing::warn!(
                key = text, is_prefix, buckets, by, %role, %from,
                "quotas reset by command: their buckets are full again"
            ),
            Err((_, error)) => {
                tracing::warn!(key = text, is_prefix, by, %role, %from, error, "reset of quotas failed");
            }
        }
        match done {
            Ok(0) => unknown(&text),
            Ok(buckets) => Json(ResetDone { buckets }).into_response(),
            Err((status, error)) => error_response(status, error),
        }
    });
    carried_out
        .await
        .map_err(|error| error_response(StatusCode::INTERNAL_SERVER_ERROR, error))
}

type ResetFailed = (StatusCode, String);

async fn keys(engine: &Engine, prefix: &[u8], text: &str) -> Result<Vec<Vec<u8>>, ResetFailed> {
    let mut keys: Vec<Vec<u8>> = Vec::new();
    let mut after = None;
    loop {
        let page = engine.list(prefix, after, PAGE_MAX).await;
        let (buckets, next) = page.map_err(|error| incomplete(error, 0))?;
        keys.extend(buckets.into_iter().map(|bucket| bucket.key));
        // A key has one bucket for each set of parameters, usually next to each other. Only a longer key
        // with a zero byte after this key may lie between.
        keys.dedup();
        if keys.len() > RESET_KEYS_MAX {
            let error = format!(
                "more than {RESET_KEYS_MAX} keys begin with `{text}`, and nothing was reset: give a longer beginning"
            );
            return Err((StatusCode::CONFLICT, error));
        }
        if next.is_none() {
            return Ok(keys);
        }
        after = next;
    }
}

async fn reset_all(engine: &Engine, keys: &[Vec<u8>]) -> Result<u64, ResetFailed> {
    let mut buckets = 0;
    for key in keys {
        let done = engine.reset(engine.now().ms, key).await;
        buckets += done.map_err(|error| incomplete(error, buckets))?;
    }
    Ok(buckets)
}

fn incomplete(error: Unavailable, buckets: u64) -> ResetFailed {
    let error = format!(
        "{error}. {buckets} buckets are full again, and others may be once it does: repeat the command"
    );
    (StatusCode::SERVICE_UNAVAILABLE, error)
}

fn status(bucket: &Bucket, now: QuotaTime) -> BucketStatus {
    let holds = match (bucket.kind, bucket.state) {
        (Kind::Tokens(rate), BucketState::Tokens(balance)) => {
            let balance = balance.refilled(rate, now.ms);
            let is_full = balance.tokens >= rate.max();
            let unless_full =
                |time: Option<u64>| time.filter(|_| !is_full).map(|time| now.wall_of(time));
            Holds::Tokens {
                tokens: balance.tokens,
                max: rate.max(),
                refill: rate.refill(),
                every_ms: rate.every_ms(),
                next_refill_ms: unless_full(Some(balance.next_refill_ms(rate))),
                full_at_ms: unless_full(balance.holds_at_ms(rate, rate.max())),
            }
        }
        (_, BucketState::Throttle(gcra)) => Holds::Throttle {
            at_rest_ms: now.wall_of(gcra.arrival_ns / 1_000_000),
        },
        // A throttle never has tokens.
        (Kind::Throttle, BucketState::Tokens(_)) => Holds::Throttle { at_rest_ms: 0 },
    };
    BucketStatus {
        key: escape(&bucket.key),
        holds,
    }
}

fn key(parameter: &str, key: Result<Vec<u8>, InvalidKey>) -> Result<Vec<u8>, Response> {
    key.map_err(|error| invalid(format!("{parameter}: {error}")))
}

fn limit(limit: Option<usize>, default: usize, max: usize) -> Result<usize, Response> {
    let limit = limit.unwrap_or(default);
    let is_within = (1..=max).contains(&limit);
    let refused = || invalid(format!("limit: give 1 to {max}"));
    is_within.then_some(limit).ok_or_else(refused)
}

fn invalid(text: impl std::fmt::Display) -> Response {
    error_response(StatusCode::BAD_REQUEST, text)
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
