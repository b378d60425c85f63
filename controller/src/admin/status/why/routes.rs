//! `/why` on the admin port.

use axum::Json;
use axum::extract::State;
use axum::http::{Method, StatusCode};
use plimsoll_admin::access::Routes;
use plimsoll_admin::body::Parameters;
use plimsoll_core::names::{Bucket, Tenant};
use plimsoll_host::Shared;
use schemars::JsonSchema;
use serde::Deserialize;

use super::Why;
use crate::admin::{Refused, refused};
use crate::brain::Brain;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WhyQuery {
    tenant: Tenant,
    /// The one where the tenant is refused most if absent.
    bucket: Option<Bucket>,
    /// In seconds since 1970; now if absent.
    at: Option<i64>,
}

pub(crate) fn routes(brain: Shared<Brain>) -> Routes {
    Routes::new()
        .viewer(Method::GET, "/why", why)
        .with_state(brain)
}

async fn why(
    State(brain): State<Shared<Brain>>,
    Parameters(query): Parameters<WhyQuery>,
) -> Result<Json<Why>, Refused> {
    let WhyQuery { tenant, bucket, at } = query;
    let answer = brain.with(|brain, _| brain.why(&tenant, bucket.as_ref(), at));
    answer
        .map(Json)
        .map_err(|error| refused(StatusCode::NOT_FOUND, error))
}
