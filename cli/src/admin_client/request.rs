//! A request to an admin port.

use std::time::Duration;

use bytes::Bytes;
use reqwest::Method;
use serde::Serialize;

/// A request to an admin port.
#[derive(Debug)]
pub(crate) struct Request {
    pub(super) method: Method,
    pub(super) route: String,
    pub(super) content_type: &'static str,
    pub(super) body: Bytes,
    /// The time that the tier needs to carry the request out, added to the timeout of the answer.
    pub(super) duration: Duration,
}

impl Request {
    /// A request that changes nothing.
    pub(crate) fn get(route: impl Into<String>) -> Self {
        Self {
            method: Method::GET,
            route: route.into(),
            content_type: "application/json",
            body: Bytes::new(),
            duration: Duration::ZERO,
        }
    }

    /// A command with a JSON body.
    ///
    /// # Errors
    /// The body cannot be serialized.
    pub(crate) fn post(route: impl Into<String>, body: &impl Serialize) -> Result<Self, serde_json::Error> {
        let body = serde_json::to_vec(body)?.into();
        Ok(Self { method: Method::POST, body, ..Self::get(route) })
    }

    /// An upload of a file with this content type.
    pub(crate) fn upload(route: impl Into<String>, content_type: &'static str, body: Bytes) -> Self {
        Self { method: Method::POST, content_type, body, ..Self::get(route) }
    }

    /// The request with a duration that is added to the timeout of its answer.
    pub(crate) fn lasting(self, duration: Duration) -> Self {
        Self { duration, ..self }
    }
}
