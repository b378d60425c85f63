//! Access control of the admin commands: they have no authentication yet, so only callers on the same machine
//! may use them, with small bodies.

use std::net::SocketAddr;

use axum::extract::rejection::JsonRejection;
use axum::extract::{ConnectInfo, DefaultBodyLimit, FromRequest, Request};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

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

/// Restricts `routes` to loopback callers and bounds the bodies. Other callers get 403 with the reason.
pub fn loopback_only(routes: Router) -> Router {
    routes.layer(DefaultBodyLimit::max(BODY_BYTES_MAX)).layer(from_fn(require_loopback))
}

async fn require_loopback(request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
    if peer.is_some_and(|ConnectInfo(peer)| peer.ip().to_canonical().is_loopback()) {
        return next.run(request).await;
    }
    let from = peer.map_or("an unknown address".to_owned(), |ConnectInfo(peer)| peer.ip().to_string());
    error_response(
        StatusCode::FORBIDDEN,
        format_args!(
            "this route has no authentication and accepts loopback callers only, but the request came from \
             {from}: run the command on the machine itself"
        ),
    )
}
