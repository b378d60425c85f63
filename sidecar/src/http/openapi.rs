//! The OpenAPI document of the HTTP port. Tests send its examples and validate their answers by its schemas.

use bytes::Bytes;
use http::Response;
use http_body_util::Full;

/// Needs no token.
pub(super) const PATH: &str = "/openapi.json";
pub(super) const TEXT: &str = include_str!("../../../docs/reference/sidecar-openapi.json");

pub(super) fn response() -> Response<Full<Bytes>> {
    super::with_body(TEXT, "application/json")
}
