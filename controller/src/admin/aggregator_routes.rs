//! Aggregators on the admin port: operators forget one that does not return.

use axum::extract::State;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use plimsoll_admin::access::{Caller, Routes};
use plimsoll_admin::body::{JsonBody, error_response};
use plimsoll_core::names::{Name, Zone};
use serde::{Deserialize, Serialize};

use crate::admin::Commands;
use crate::audit::{Actor, Entry};
use crate::brain::ForgetError;

/// The route that forgets an aggregator.
pub const FORGET: &str = "/aggregators/forget";

/// A request to forget an aggregator.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Forget {
    /// The aggregator, as `ZONE/NAME`.
    pub aggregator: String,
}

/// The aggregator that was forgotten.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Forgotten {
    /// Its zone.
    pub zone: Zone,
    /// Its name.
    pub name: Name,
    /// True once it is saved and survives a restart.
    pub saved: bool,
}

/// Returns the routes.
pub(crate) fn routes(commands: Commands) -> Routes {
    Routes::new().operator(Method::POST, FORGET, forget).with_state(commands)
}

async fn forget(
    State(commands): State<Commands>,
    Extension(caller): Extension<Caller>,
    JsonBody(asked): JsonBody<Forget>,
) -> Response {
    match commands.brain.with(|brain, _| brain.forget(&asked.aggregator)) {
        Ok((zone, name)) => {
            tracing::warn!(%zone, aggregator = %name, "aggregator forgotten by command: its share is free");
            let (before, after) = ("known".to_owned(), "forgotten".to_owned());
            let change =
                Entry { what: format!("forget {}", asked.aggregator), before, after, why: String::new() };
            let noted = commands.audit.note(Actor::from(&caller), change);
            let saved = commands.in_effect(noted).await;
            Json(Forgotten { zone, name, saved }).into_response()
        }
        Err(error @ ForgetError::Unknown { .. }) => error_response(StatusCode::BAD_REQUEST, error),
        Err(error @ ForgetError::Connected(_)) => error_response(StatusCode::CONFLICT, error),
    }
}
