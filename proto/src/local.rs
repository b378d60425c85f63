//! Routes of the admin port that commands speak to: for callers on this machine alone, as long as nobody has to show who
//! they are, and with small bodies.

use std::net::SocketAddr;

use axum::extract::rejection::JsonRejection;
use axum::extract::{ConnectInfo, DefaultBodyLimit, FromRequest, Request};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The largest body that is read, where a route does not say otherwise.
const BODY_BYTES_MAX: usize = 4 * 1024;

/// A body of JSON; one that does not fit is answered with what is wrong, as JSON.
#[derive(Clone, Copy, Debug)]
pub struct Asked<T>(pub T);

/// Why nothing was done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// In words.
    pub error: String,
    /// The line of what was sent, where one is to blame.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
}

/// An answer that says why nothing was done.
#[must_use]
pub fn refuse(status: StatusCode, why: impl ToString) -> Response {
    (status, Json(Refusal { error: why.to_string(), line: None })).into_response()
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Asked<T> {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Response> {
        match Json::<T>::from_request(request, state).await {
            Ok(Json(asked)) => Ok(Self(asked)),
            Err(rejection) => {
                let status = match rejection {
                    JsonRejection::BytesRejection(_) | JsonRejection::MissingJsonContentType(_) => {
                        rejection.status()
                    }
                    _ => StatusCode::BAD_REQUEST,
                };
                Err(refuse(status, rejection.body_text()))
            }
        }
    }
}

/// The same routes for callers on this machine alone: others get 403 and are told why.
pub fn local(routes: Router) -> Router {
    routes.layer(DefaultBodyLimit::max(BODY_BYTES_MAX)).layer(from_fn(only_from_here))
}

async fn only_from_here(request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
    if peer.is_some_and(|ConnectInfo(peer)| peer.ip().to_canonical().is_loopback()) {
        return next.run(request).await;
    }
    let from = peer.map_or("an unknown address".to_owned(), |ConnectInfo(peer)| peer.ip().to_string());
    refuse(
        StatusCode::FORBIDDEN,
        format_args!(
            "this is for callers on the machine itself as long as nobody has to show who they are, and it was asked from \
             {from}: run the command there"
        ),
    )
}
