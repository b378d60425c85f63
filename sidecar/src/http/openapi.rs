//! The OpenAPI document of the HTTP port. Tests send its examples and validate their answers by its schemas.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response};
use http_body_util::Full;

/// Needs no token.
pub(super) const PATH: &str = "/openapi.json";
pub(super) const TEXT: &str = include_str!("../../../docs/reference/sidecar-openapi.json");

pub(super) fn response() -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from_static(TEXT.as_bytes())));
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
