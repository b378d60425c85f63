//! `/history` on the admin port: what was offered goes out as CSV, and comes in.

use std::time::{SystemTime, UNIX_EPOCH};

use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use plimsoll_policy::learning::{Day, Filed, Minute};
use plimsoll_core::names::Bucket;
use plimsoll_policy::UnixSeconds;
use plimsoll_proto::local::{Refusal, local, refuse};
use plimsoll_proto::shared::Shared;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use crate::brain::Brain;
use crate::history::MinuteSamples;
use crate::history::csv::{self, HEADER, Rows};
use crate::history::learning::{Learner, log_limits};

/// What may be imported at once.
const IMPORT_BYTES_MAX: usize = 32 << 20;
/// What is sent at once.
const CHUNK_BYTES: usize = 64 << 10;

#[derive(Clone, Debug)]
struct Parts {
    brain: Shared<Brain>,
    learner: Learner,
}

/// What is asked of an export.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    /// Names with commas between; all buckets when absent.
    buckets: Option<String>,
    /// The first minute; the oldest when absent.
    from: Option<String>,
    /// The minute after the last one; the newest, when absent.
    to: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct How {
    /// Days that are known are replaced.
    #[serde(default)]
    replace: bool,
}

/// What became of an import.
#[derive(Debug, Serialize)]
struct Imported {
    /// Minutes that were taken.
    minutes: usize,
    /// Rows of the present day, which is still being counted: they were left out.
    rows_of_today: usize,
    /// Rows of minutes in which nothing was offered: they were left out.
    rows_of_nothing: usize,
    /// What became of each day of each bucket.
    days: Vec<ImportedDay>,
}

#[derive(Debug, Serialize)]
struct ImportedDay {
    bucket: Bucket,
    /// `2026-11-21`
    day: String,
    result: &'static str,
}

/// The routes; only for who speaks from this machine.
pub(crate) fn routes(brain: Shared<Brain>, learner: Learner) -> Router {
    let history = get(export).post(import).layer(DefaultBodyLimit::max(IMPORT_BYTES_MAX));
    let routes = Router::new().route("/history", history).with_state(Parts { brain, learner });
    local(routes)
}

async fn export(State(parts): State<Parts>, Query(wanted): Query<Wanted>) -> Response {
    let minute = |text: Option<&String>, otherwise: i64| match text {
        None => Ok(Minute(otherwise)),
        Some(text) => UnixSeconds::parse(text).map(|time| Minute::of_unix(time.as_secs())),
    };
    let (Ok(from), Ok(to)) = (minute(wanted.from.as_ref(), i64::MIN), minute(wanted.to.as_ref(), i64::MAX))
    else {
        return refuse(
            StatusCode::BAD_REQUEST,
            "from and to are points in time such as 2026-12-01T00:00:00Z",
        );
    };
    let names = wanted.buckets.iter().flat_map(|names| names.split(','));
    let buckets: Vec<Bucket> = match names.map(Bucket::new).collect() {
        Ok(buckets) => buckets,
        Err(error) => return refuse(StatusCode::BAD_REQUEST, error),
    };
    let open = move || parts.learner.with_store(&parts.brain, |store| Ok(store.range(from, to)));
    let rows = match tokio::task::spawn_blocking(open).await {
        Ok(Ok(rows)) => rows,
        Ok(Err(error)) => return refuse(StatusCode::SERVICE_UNAVAILABLE, error),
        Err(error) => return refuse(StatusCode::INTERNAL_SERVER_ERROR, error),
    };
    let (sender, receiver) = mpsc::channel::<Result<String, std::io::Error>>(2);
    tokio::task::spawn_blocking(move || {
        let mut text = format!("{HEADER}\n");
        for row in rows {
            match row {
                Ok(row) => csv::write(&row, &buckets, &mut text),
                // The connection breaks off, so that nobody takes this for all there is.
                Err(error) => {
                    let _ = sender.blocking_send(Err(std::io::Error::other(error)));
                    return;
                }
            }
            if text.len() >= CHUNK_BYTES && sender.blocking_send(Ok(std::mem::take(&mut text))).is_err() {
                return;
            }
        }
        // Who has gone away misses nothing.
        let _ = sender.blocking_send(Ok(text));
    });
    let csv = [(header::CONTENT_TYPE, "text/csv; charset=utf-8")];
    (csv, Body::from_stream(ReceiverStream::new(receiver))).into_response()
}

async fn import(
    State(parts): State<Parts>,
    Query(how): Query<How>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    // A form on some web page cannot send this type unasked.
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    if !kind.is_some_and(|kind| kind.starts_with("text/csv")) {
        return refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, "send it as content-type text/csv");
    }
    let imported = tokio::task::spawn_blocking(move || take_in(&parts, how.replace, &body)).await;
    match imported {
        Ok(Ok(imported)) => Json(imported).into_response(),
        Ok(Err((status, refusal))) => (status, Json(refusal)).into_response(),
        Err(error) => refuse(StatusCode::INTERNAL_SERVER_ERROR, error),
    }
}

fn take_in(parts: &Parts, replace: bool, body: &[u8]) -> Result<Imported, (StatusCode, Refusal)> {
    let refused = |status, error: String, line| (status, Refusal { error, line });
    let text = std::str::from_utf8(body)
        .map_err(|error| refused(StatusCode::BAD_REQUEST, error.to_string(), None))?;
    let policy = parts.brain.with(|brain, _| brain.policy().clone());
    let today = present_day();
    let rows = Rows::parse(text, &policy, today)
        .map_err(|fault| refused(StatusCode::BAD_REQUEST, fault.why, Some(fault.line)))?;
    let days = rows.days();
    // Written first: what cannot be kept is not taken in.
    let minutes = rows.minutes.iter();
    let minutes =
        minutes.map(|(minute, samples)| MinuteSamples { minute: *minute, samples: samples.clone() });
    let kept = parts.learner.with_store(&parts.brain, |store| store.merge(minutes, replace));
    kept.map_err(|error| refused(StatusCode::INSUFFICIENT_STORAGE, error, None))?;
    let (filed, closed, changes) = parts.brain.with(|brain, _| brain.import_history(&days, today, replace));
    log_limits(&changes);
    parts.brain.ring();
    let kept = parts.learner.with_store(&parts.brain, |store| store.write_closed(&closed, &[]));
    kept.map_err(|error| {
        let error = format!("it is in force, and will be forgotten with the next restart: {error}");
        refused(StatusCode::INSUFFICIENT_STORAGE, error, None)
    })?;
    let day = |day: Day| UnixSeconds::from_secs(day.first_minute().as_unix()).to_string()[..10].to_owned();
    let days = filed.into_iter().map(|(bucket, at, filed)| ImportedDay {
        bucket,
        day: day(at),
        result: match filed {
            Some(Filed::Added) => "added",
            Some(Filed::Replaced) => "replaced",
            Some(Filed::Kept) => "kept",
            Some(Filed::TooFew) => "too_few_minutes",
            Some(Filed::Cut) => "cut",
            Some(Filed::TooOld) => "too_old",
            None => "no_room",
        },
    });
    let days = days.collect();
    Ok(Imported {
        minutes: rows.minutes.len(),
        rows_of_today: rows.of_today,
        rows_of_nothing: rows.empty,
        days,
    })
}

fn present_day() -> Day {
    let unix_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    Minute::of_unix(i64::try_from(unix_s).unwrap_or(i64::MAX)).day()
}
