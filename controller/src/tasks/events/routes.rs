//! `/events` on the admin port: a page of the list.

use axum::Json;
use axum::extract::State;
use axum::http::Method;
use plimsoll_admin::access::Routes;
use plimsoll_admin::body::Parameters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Event;
use crate::admin::{Answer, Commands, invalid};

/// The route of [`EventPage`].
pub const EVENTS: &str = "/events";
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

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventQuery {
    /// The earliest time, in milliseconds since 1970.
    since: Option<i64>,
    /// The number of the last event that is known.
    after: Option<u64>,
    /// The maximum if absent.
    #[schemars(range(min = 1, max = PAGE_MAX))]
    limit: Option<usize>,
}

pub(crate) fn routes() -> Routes<Commands> {
    Routes::new().viewer(Method::GET, EVENTS, page)
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
