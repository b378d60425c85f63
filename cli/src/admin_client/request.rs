//! A request to an admin port, and the address of the port as flags and environment variables give it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Uri;
use plimsoll_core::exchange::names_loopback;
use plimsoll_tls::Tier;
use reqwest::Method;
use serde::{Deserialize, Serialize};

/// The default address of a controller's admin port.
pub(crate) const CONTROLLER: &str = "http://127.0.0.1:7401";
/// The default address of a quota server's admin port.
pub(crate) const QUOTA: &str = "http://127.0.0.1:7432";

/// The address of an admin port: HTTP or HTTPS, a host and a port, without a path; and the tier that is expected there.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Address {
    uri: Arc<Uri>,
    tier: Tier,
}

/// Parses the address of a controller.
///
/// # Errors
/// The text is not of the form `http://HOST[:PORT]` or `https://HOST[:PORT]`.
pub(crate) fn parse_controller(text: &str) -> Result<Address, String> {
    parse(text, Tier::Controller)
}

/// Parses the address of an aggregator.
///
/// # Errors
/// The text is not of the form `http://HOST[:PORT]` or `https://HOST[:PORT]`.
pub(crate) fn parse_aggregator(text: &str) -> Result<Address, String> {
    parse(text, Tier::Aggregator)
}

/// Parses the address of a quota server.
///
/// # Errors
/// The text is not of the form `http://HOST[:PORT]` or `https://HOST[:PORT]`.
pub(crate) fn parse_quota_server(text: &str) -> Result<Address, String> {
    parse(text, Tier::Quota)
}

fn parse(text: &str, tier: Tier) -> Result<Address, String> {
    let example = if tier == Tier::Quota { QUOTA } else { CONTROLLER };
    let invalid = || {
        let port = example.rsplit(':').next().unwrap_or_default();
        format!(
            "`{text}` is not the address of an admin port; write it as {example}, or as https://HOST:{port} for \
             another machine"
        )
    };
    let uri: Uri = text.parse().map_err(|_| invalid())?;
    let is_known = matches!(uri.scheme_str(), Some("http" | "https"));
    let is_bare = uri.path().trim_end_matches('/').is_empty() && uri.query().is_none();
    // A name before `@` would hide the host.
    let has_host = uri.authority().is_some_and(|authority| !authority.host().is_empty())
        && !uri.authority().is_some_and(|authority| authority.as_str().contains('@'));
    if is_known && is_bare && has_host { Ok(Address { uri: Arc::new(uri), tier }) } else { Err(invalid()) }
}

impl TryFrom<String> for Address {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        parse_controller(&text)
    }
}

impl Address {
    /// The URL of a route.
    pub(super) fn url(&self, route: &str) -> String {
        format!("{self}{route}")
    }

    /// The tier that is expected there.
    pub(super) const fn tier(&self) -> Tier {
        self.tier
    }

    /// Returns true if the connection is TLS.
    pub(super) fn is_tls(&self) -> bool {
        self.uri.scheme_str() == Some("https")
    }

    /// Returns true if the address is one of this machine, whose traffic no other machine sees.
    pub(super) fn is_loopback(&self) -> bool {
        names_loopback(self.uri.host().unwrap_or_default())
    }

    /// Returns the address with the other scheme.
    pub(super) fn by_other_scheme(&self) -> String {
        let scheme = if self.is_tls() { "http" } else { "https" };
        format!("{scheme}://{}", self.uri.authority().map_or("", |authority| authority.as_str()))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.uri.to_string().trim_end_matches('/'))
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
    fn an_address_is_that_of_an_http_or_https_server() {
        for good in [
            "http://127.0.0.1:7401",
            "http://controller:7401/",
            "http://[::1]:7401",
            "http://controller",
            "https://controller:7401",
        ] {
            assert_eq!(
                parse_controller(good).unwrap().url("/kill"),
                format!("{}/kill", good.trim_end_matches('/'))
            );
        }
        for bad in [
            "",
            "127.0.0.1:7401",
            "ftp://controller:7401",
            "http://",
            "https://",
            "http://127.0.0.1:7401@elsewhere",
            "http://a/kill",
            "http://a/?x",
            "controller",
        ] {
            assert!(parse_controller(bad).unwrap_err().contains(CONTROLLER), "{bad}");
        }
    }

    #[test]
    fn example_of_an_address_has_the_port_of_its_tier() {
        let error = parse_quota_server("redis://127.0.0.1:9049").unwrap_err();
        assert!(error.contains(QUOTA) && error.contains("https://HOST:7432"), "{error}");
        assert!(parse_aggregator("a").unwrap_err().contains("https://HOST:7401"));
    }

    #[test]
    fn only_addresses_of_this_machine_are_loopback() {
        for (address, is_loopback) in [
            ("http://127.0.0.1:7401", true),
            ("http://127.9.9.9", true),
            ("http://[::1]:7401", true),
            ("http://[::ffff:127.0.0.1]:7401", true),
            ("http://LOCALHOST:7401", true),
            ("http://localhost.example:7401", false),
            ("http://127.0.0.1.example:7401", false),
            ("http://0.0.0.0:7401", false),
            ("http://10.0.0.1:7401", false),
            ("http://[2001:db8::1]:7401", false),
        ] {
            assert_eq!(parse_controller(address).unwrap().is_loopback(), is_loopback, "{address}");
        }
    }
}
