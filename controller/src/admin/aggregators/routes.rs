//! Aggregators on the admin port: operators forget one that does not return.

use axum::extract::State;
use axum::http::Method;
use axum::{Extension, Json};
use plimsoll_admin::access::{AdminCaller, Routes};
use plimsoll_admin::body::JsonBody;
use plimsoll_core::names::{Name, Zone};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::admin::{Answer, Commands, conflict, invalid};
use crate::audit::Entry;
use crate::brain::ForgetError;
use crate::tasks::events::{Event, EventKind};

/// The route that forgets an aggregator.
pub const FORGET: &str = "/aggregators/forget";

/// A request to forget an aggregator.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Forget {
    /// The aggregator, as `ZONE/NAME`.
    pub aggregator: String,
}

/// The aggregator that was forgotten.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Forgotten {
    /// Its zone.
    pub zone: Zone,
    /// Its name.
    pub name: Name,
    /// True once it is saved and survives a restart.
    pub saved: bool,
}

pub(crate) fn routes() -> Routes<Commands> {
    Routes::new().operator(Method::POST, FORGET, forget)
}

async fn forget(
    State(commands): State<Commands>,
    Extension(caller): Extension<AdminCaller>,
    JsonBody(asked): JsonBody<Forget>,
) -> Answer<Json<Forgotten>> {
    let forgotten = commands
        .brain
        .with(|brain, _| brain.forget(&asked.aggregator));
    let (zone, name) = forgotten.map_err(|error| match error {
        ForgetError::Unknown { .. } => invalid(error),
        ForgetError::Connected(_) => conflict(error),
    })?;
    let text = format!("aggregator {zone}/{name} forgotten: its share is free");
    let event = Event::new(EventKind::AggregatorForgotten, &asked.aggregator, text);
    commands.events.add(event.by(&caller.name));
    let change = Entry {
        what: format!("forget {}", asked.aggregator),
        before: "known".to_owned(),
        after: "forgotten".to_owned(),
        why: String::new(),
    };
    let saved = commands.note(&caller, change).await;
    Ok(Json(Forgotten { zone, name, saved }))
}
