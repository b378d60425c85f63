//! The address of an admin port, as flags and environment variables give it.

use std::fmt;

use http::Uri;

/// The default address of a controller's admin port.
pub(crate) const CONTROLLER: &str = "http://127.0.0.1:7401";

/// The address of an admin port: plain HTTP, a host and a port, without a path.
#[derive(Clone, Debug)]
pub(crate) struct Address(Uri);

/// Parses an address.
///
/// # Errors
/// The text is not of the form `http://HOST[:PORT]`.
pub(crate) fn parse(text: &str) -> Result<Address, String> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_that_of_a_plain_http_server() {
        for good in
            ["http://127.0.0.1:7401", "http://controller:7401/", "http://[::1]:7401", "http://controller"]
        {
            assert_eq!(parse(good).unwrap().url("/kill"), format!("{}/kill", good.trim_end_matches('/')));
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
            assert!(parse(bad).unwrap_err().contains(CONTROLLER), "{bad}");
        }
    }
}
