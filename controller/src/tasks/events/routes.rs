//! `/events` on the admin port: a page of the list, and what happened elsewhere.

use axum::extract::State;
use axum::http::Method;
use axum::{Extension, Json};
use plimsoll_admin::access::{AdminCaller, Routes};
use plimsoll_admin::body::{JsonBody, Parameters};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Event, EventKind, TEXT_BYTES_MAX};
use crate::admin::status::counted;
use crate::admin::{Answer, Commands, invalid};
use crate::audit::{Entry, cut};

/// The route of [`EventPage`].
pub const EVENTS: &str = "/events";
/// The route of [`QuotaReset`].
pub const QUOTA_RESET: &str = "/events/quota-reset";
/// Maximum number of events of a page.
pub const PAGE_MAX: usize = 1_000;

/// Some events, the oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EventPage {
    /// The events.
    pub events: Vec<Event>,
    /// True if there are more: ask again `after` the number of the last one.
    pub more: bool,
}

/// An operator has reset quotas at a quota server, which no controller hears of otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct QuotaReset {
    /// The key as the quota server shows it, or the beginning of the keys.
    pub key: String,
    /// True if all keys with this beginning were reset.
    pub is_prefix: bool,
    /// The number of token buckets that are full again.
    pub buckets: u64,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventQuery {
    /// The earliest time, in milliseconds since 1970, inclusive.
    since: Option<i64>,
    /// The number of the last event that is known; those after it are answered. Absent, from the first one kept.
    after: Option<u64>,
    /// The maximum if absent.
    #[schemars(range(min = 1, max = PAGE_MAX))]
    limit: Option<usize>,
}

pub(crate) fn routes() -> Routes<Commands> {
    Routes::new()
        .viewer(Method::GET, EVENTS, page)
        .operator(Method::POST, QUOTA_RESET, quota_reset)
}

async fn page(
    State(Commands { events, .. }): State<Commands>,
    Parameters(query): Parameters<EventQuery>,
) -> Answer<Json<EventPage>> {
    let limit = query.limit.unwrap_or(PAGE_MAX);
    if !(1..=PAGE_MAX).contains(&limit) {
        return Err(invalid(format_args!("limit: must be from 1 to {PAGE_MAX}")));
    }
    let (after, since_ms) = (query.after.unwrap_or(0), query.since.unwrap_or(i64::MIN));
    Ok(Json(events.page(after, since_ms, limit)))
}

async fn quota_reset(
    State(commands): State<Commands>,
    Extension(caller): Extension<AdminCaller>,
    JsonBody(reset): JsonBody<QuotaReset>,
) -> Json<Event> {
    let QuotaReset {
        key,
        is_prefix,
        buckets,
    } = reset;
    let keys = if is_prefix { "keys from" } else { "key" };
    let what = format!("quota reset, {keys} {}", cut(key, TEXT_BYTES_MAX / 2));
    let after = format!("{} full again", counted(buckets, "bucket"));
    let text = format!("{what}: {after}");
    let event = Event::new(EventKind::QuotaReset, "quotas", text).by(&caller.name);
    commands.events.add(event.clone());
    let change = Entry {
        what,
        after,
        ..Entry::default()
    };
    commands.note(&caller, change).await;
    Json(event)
}
