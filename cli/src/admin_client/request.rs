//! A request to an admin port, and the address of the port as flags and environment variables give it.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::Uri;
use reqwest::Method;
use serde::Serialize;

/// The default address of a controller's admin port.
pub(crate) const CONTROLLER: &str = "http://127.0.0.1:7401";

/// The address of an admin port: plain HTTP, a host and a port, without a path.
#[derive(Clone, Debug)]
pub(crate) struct Address(Uri);

/// Parses an address.
///
/// # Errors
/// The text is not of the form `http://HOST[:PORT]`.
pub(crate) fn parse_address(text: &str) -> Result<Address, String> {
    let invalid = || format!("`{text}` is not the address of an admin port; write it as {CONTROLLER}");
    let uri: Uri = text.parse().map_err(|_| invalid())?;
    let is_plain = uri.scheme_str() == Some("http") && uri.path().trim_end_matches('/').is_empty();
    if is_plain && uri.host().is_some_and(|host| !host.is_empty()) && uri.query().is_none() {
        Ok(Address(uri))
    } else {
        Err(invalid())
    }
}

impl Address {
    /// The URL of a route.
    pub(super) fn url(&self, route: &str) -> String {
        format!("{self}{route}")
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.0.to_string().trim_end_matches('/'))
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_that_of_a_plain_http_server() {
        for good in
            ["http://127.0.0.1:7401", "http://controller:7401/", "http://[::1]:7401", "http://controller"]
        {
            assert_eq!(
                parse_address(good).unwrap().url("/kill"),
                format!("{}/kill", good.trim_end_matches('/'))
            );
        }
        for bad in [
            "",
            "127.0.0.1:7401",
            "https://controller:7401",
            "http://",
            "http://a/kill",
            "http://a/?x",
            "controller",
        ] {
            assert!(parse_address(bad).unwrap_err().contains(CONTROLLER), "{bad}");
        }
    }
}
