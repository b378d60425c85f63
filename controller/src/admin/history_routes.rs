//! `/history` on the admin port: export and import of the history as CSV.

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::handler::Handler;
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::IntoResponse;
use axum::{Extension, Json};
use plimsoll_admin::access::{AdminCaller, Routes};
use plimsoll_admin::body::{ErrorBody, Parameters};
use plimsoll_core::names::Bucket;
use plimsoll_policy::UnixSeconds;
use plimsoll_policy::learning::{Day, Filed, Minute};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;

use crate::admin::{Answer, Commands, internal, invalid, on_disk, refused, streamed, unavailable};
use crate::audit::Entry;
use crate::history::csv::{self, CsvError, HEADER, Import};
use crate::tasks::history::{HistoryRecorder, LEARNED};
use crate::tasks::unix_s;

const IMPORT_BYTES_MAX: usize = 32 << 20;
const MINUTES_PER_CHUNK: usize = 16;

#[derive(Clone, Debug)]
struct RouteState {
    commands: Commands,
    recorder: HistoryRecorder,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ExportQuery {
    /// Names, separated by commas; all buckets if absent.
    buckets: Option<String>,
    /// The first minute; the oldest if absent.
    from: Option<String>,
    /// The minute after the last one; after the newest if absent.
    to: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ImportQuery {
    /// True to replace days that the history has; else they stay.
    #[serde(default)]
    replace: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Imported {
    /// Minutes of all buckets that were read, those of days that stay included.
    minutes: usize,
    /// Ignored rows of the present day, which is still being counted.
    rows_of_today: usize,
    /// Ignored rows without traffic.
    rows_of_nothing: usize,
    days: Vec<ImportedDay>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct ImportedDay {
    bucket: Bucket,
    /// The date, such as `2026-11-21`.
    day: String,
    /// `added`, `replaced`, `kept`, or why not: `too_few_minutes`, `cut` (too many were left out), `too_old`, `no_room`.
    result: &'static str,
}

pub(crate) fn routes(commands: Commands, recorder: HistoryRecorder) -> Routes {
    Routes::new()
        .viewer(Method::GET, "/history", export)
        .admin(
            Method::POST,
            "/history",
            import.layer(DefaultBodyLimit::max(IMPORT_BYTES_MAX)),
        )
        .with_state(RouteState { commands, recorder })
}

async fn export(
    State(shared): State<RouteState>,
    Parameters(query): Parameters<ExportQuery>,
) -> Answer {
    let minute = |text: Option<&String>, otherwise: i64| match text {
        None => Ok(Minute(otherwise)),
        Some(text) => UnixSeconds::parse(text).map(|time| Minute::of_unix(time.as_secs())),
    };
    let (Ok(from), Ok(to)) = (
        minute(query.from.as_ref(), i64::MIN),
        minute(query.to.as_ref(), i64::MAX),
    ) else {
        return Err(invalid(
            "from and to are points in time such as 2026-12-01T00:00:00Z",
        ));
    };
    let names = query.buckets.iter().flat_map(|names| names.split(','));
    let buckets: Vec<Bucket> = names
        .map(Bucket::new)
        .collect::<Result<_, _>>()
        .map_err(invalid)?;
    let days = move || {
        shared.recorder.with_store(&shared.commands.brain, |store| {
            Ok((store.days()?, store.clone()))
        })
    };
    let (days, store) = on_disk("the history", days).await?.map_err(unavailable)?;
    let body = streamed(move |send| {
        send(format!("{HEADER}\n"))?;
        for day in days
            .into_iter()
            .filter(|day| (from.day()..=to.day()).contains(day))
        {
            for some in store.read_day(day)?.0.chunks(MINUTES_PER_CHUNK) {
                let mut rows = String::new();
                let wanted = some
                    .iter()
                    .filter(|minute| (from..to).contains(&minute.minute));
                wanted.for_each(|minute| csv::append(&mut rows, minute, &buckets));
                send(rows)?;
            }
        }
        Ok(())
    });
    Ok(([(header::CONTENT_TYPE, "text/csv; charset=utf-8")], body).into_response())
}

async fn import(
    State(shared): State<RouteState>,
    Extension(caller): Extension<AdminCaller>,
    Parameters(query): Parameters<ImportQuery>,
    headers: HeaderMap,
    body: Bytes,
) -> Answer<Json<Imported>> {
    // A form on a web page cannot send this type without a preflight request.
    let kind = headers
        .get(header::CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    if !kind.is_some_and(|kind| kind.starts_with("text/csv")) {
        return Err(refused(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "send it as content-type text/csv",
        ));
    }
    let added = spawn_blocking(move || add_days(&shared, &caller, query.replace, &body)).await;
    added.map_err(internal)?.map(Json)
}

fn add_days(
    RouteState { commands, recorder }: &RouteState,
    caller: &AdminCaller,
    replace: bool,
    body: &[u8],
) -> Answer<Imported> {
    let brain = &commands.brain;
    let text = std::str::from_utf8(body).map_err(invalid)?;
    let policy = brain.with(|brain, _| brain.policy().clone());
    let today = Minute::of_unix(unix_s()).day();
    let import = Import::parse(text, &policy, today).map_err(|CsvError { line, reason }| {
        (
            StatusCode::BAD_REQUEST,
            Json(ErrorBody {
                error: reason,
                line: Some(line),
            }),
        )
    })?;
    let days = import.days();
    let known = if replace { "are replaced" } else { "stay" };
    let change = Entry {
        what: "history import".to_owned(),
        before: String::new(),
        after: format!(
            "{} minutes on {} days of buckets",
            import.minutes.len(),
            days.len()
        ),
        why: format!("days that the history has {known}"),
    };
    let logged = Handle::current().block_on(commands.record(caller, change))?;
    // Saved first: nothing is learned from days that a restart would lose.
    let full = |error: String| refused(StatusCode::INSUFFICIENT_STORAGE, error);
    let saved = recorder.with_store(brain, |store| store.merge(&import.minutes, replace));
    if let Err(error) = saved {
        logged.refused(&error);
        return Err(full(error.to_string()));
    }
    let (filed, closed, changes) =
        brain.with(|brain, _| brain.import_history(&days, today, replace));
    commands.events.add_limits(&changes, LEARNED);
    brain.notify();
    if let Some(closed) = closed {
        let saved = recorder.with_store(brain, |store| store.write_closed(&closed));
        saved.map_err(|error| {
            full(format!(
                "the import is in force, but the next restart loses it: {error}"
            ))
        })?;
    }
    let day = |day: Day| {
        UnixSeconds::from_secs(day.first_minute().as_unix()).to_string()[..10].to_owned()
    };
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
    Ok(Imported {
        minutes: import.minutes.len(),
        rows_of_today: import.rows_of_today,
        rows_of_nothing: import.rows_of_nothing,
        days: days.collect(),
    })
}
