//! Routes of the admin port that change something: for callers on this machine alone, as long as nobody has to show who
//! they are, and with small bodies.

use std::net::SocketAddr;

use axum::extract::rejection::JsonRejection;
use axum::extract::{ConnectInfo, DefaultBodyLimit, FromRequest, Request};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use serde::de::DeserializeOwned;

use crate::switch::{BODY_BYTES_MAX, Refusal};

/// A body of JSON; one that does not fit is answered with what is wrong, as JSON.
#[derive(Clone, Copy, Debug)]
pub struct Asked<T>(pub T);

/// An answer that says why nothing was done.
#[must_use]
pub fn refuse(status: StatusCode, why: impl ToString) -> Response {
    (status, Json(Refusal { error: why.to_string() })).into_response()
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
            "this changes what the fleet does, and is for callers on the machine itself as long as nobody has to show who \
             they are; it was asked from {from}: run the command there"
        ),
    )
}
