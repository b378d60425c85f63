//! JSON bodies and parameters of requests, and the body of every error answer.

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::object::Object;

/// A JSON request body. An invalid one is answered with an [`ErrorBody`].
#[derive(Clone, Copy, Debug)]
pub struct JsonBody<T>(pub T);

/// The parameters after the `?` of a path. Invalid ones are answered with an [`ErrorBody`].
#[derive(Clone, Copy, Debug)]
pub struct Parameters<T>(pub T);

/// The JSON body of every error answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorBody {
    /// The reason, in words.
    pub error: String,
    /// The line of the request body that is invalid, from 1, if the error has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
}

/// Returns an answer with this status and an [`ErrorBody`].
pub fn error_response(status: StatusCode, reason: impl ToString) -> Response {
    (
        status,
        Json(ErrorBody {
            error: reason.to_string(),
            line: None,
        }),
    )
        .into_response()
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for JsonBody<T> {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Response> {
        match Json::<Object<T>>::from_request(request, state).await {
            Ok(Json(Object(body))) => Ok(Self(body)),
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

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Parameters<T> {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Response> {
        let parameters = Query::from_request_parts(parts, state).await;
        parameters
            .map(|Query(parameters)| Self(parameters))
            .map_err(|rejection| error_response(rejection.status(), rejection.body_text()))
    }
}
