//! Access control of the admin commands: they have no authentication yet, so only callers on the same machine
//! may use them, with small bodies.

use axum::extract::rejection::JsonRejection;
use axum::extract::{DefaultBodyLimit, FromRequest, Request};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::local_caller;

/// The largest request body accepted, in bytes, unless a route sets its own limit.
const BODY_BYTES_MAX: usize = 4 * 1024;

/// A JSON request body. An invalid one is answered with an [`ErrorBody`].
#[derive(Clone, Copy, Debug)]
pub struct JsonBody<T>(pub T);

/// The JSON body of every error answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// The reason, in words.
    pub error: String,
    /// The line of the request body that is invalid, from 1, if the error has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
}

/// Returns an answer with this status and an [`ErrorBody`].
#[must_use]
pub fn error_response(status: StatusCode, reason: impl ToString) -> Response {
    (status, Json(ErrorBody { error: reason.to_string(), line: None })).into_response()
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for JsonBody<T> {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Response> {
        match Json::<T>::from_request(request, state).await {
            Ok(Json(body)) => Ok(Self(body)),
            Err(rejection) => {
                let status = match rejection {
                    JsonRejection::BytesRejection(_) | JsonRejection::MissingJsonContentType(_) => {
                        rejection.status()
                    }
                    _ => StatusCode::BAD_REQUEST,
                };
                Err(error_response(status, rejection.body_text()))
            }
        }
    }
}

/// Restricts `routes` to callers on this machine and bounds the bodies. Other callers get 403 with the reason.
pub fn loopback_only(routes: Router) -> Router {
    local_only(routes.layer(DefaultBodyLimit::max(BODY_BYTES_MAX)))
}

/// Restricts `routes` to callers on this machine: not through a proxy, and not by a web page.
pub(crate) fn local_only(routes: Router) -> Router {
    routes.layer(from_fn(require_local))
}

async fn require_local(request: Request, next: Next) -> Response {
    match local_caller::check(&request) {
        Ok(()) => next.run(request).await,
        Err(cause) => error_response(
            StatusCode::FORBIDDEN,
            format_args!(
                "this route has no authentication and accepts requests of programs on this machine only, and this \
                 request is refused because {cause}: run the command on the machine itself, with a loopback address"
            ),
        ),
    }
}
