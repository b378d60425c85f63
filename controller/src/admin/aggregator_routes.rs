//! Aggregators on the admin port: operators forget one that does not return.

use axum::Json;
use axum::extract::State;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use plimsoll_admin::access::Routes;
use plimsoll_admin::body::{JsonBody, error_response};
use plimsoll_core::names::{Name, Zone};
use plimsoll_proto::shared::Shared;
use serde::{Deserialize, Serialize};

use crate::admin::{BrainState, in_effect};
use crate::brain::{Brain, ForgetError};

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
pub(crate) fn routes(brain: Shared<Brain>) -> Routes {
    Routes::new().operator(Method::POST, FORGET, forget).with_state(brain)
}

async fn forget(State(brain): BrainState, JsonBody(asked): JsonBody<Forget>) -> Response {
    match brain.with(|brain, _| brain.forget(&asked.aggregator)) {
        Ok((zone, name)) => {
            tracing::warn!(%zone, aggregator = %name, "aggregator forgotten by command: its share is free");
            let saved = in_effect(&brain).await;
            Json(Forgotten { zone, name, saved }).into_response()
        }
        Err(error @ ForgetError::Unknown { .. }) => error_response(StatusCode::BAD_REQUEST, error),
        Err(error @ ForgetError::Connected(_)) => error_response(StatusCode::CONFLICT, error),
    }
}
