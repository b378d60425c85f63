//! The address of an admin port, as flags and environment variables give it.

use std::fmt;
use std::sync::Arc;

use http::Uri;
use plimsoll_core::exchange::names_loopback;
use plimsoll_tls::Tier;

pub(crate) const CONTROLLER: &str = "http://127.0.0.1:7401";
pub(crate) const QUOTA: &str = "http://127.0.0.1:7432";

/// HTTP or HTTPS, a host and an optional port, without a path; and the tier that is expected there.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    uri: Arc<Uri>,
    pub(super) tier: Tier,
}

impl Address {
    /// Parses the address of a tier.
    ///
    /// # Errors
    /// The text is not of the form `http://HOST[:PORT]` or `https://HOST[:PORT]`.
    pub(crate) fn parse(text: &str, tier: Tier) -> Result<Self, String> {
        let uri = text.parse().ok().filter(is_bare).map(Arc::new);
        uri.map(|uri| Self { uri, tier }).ok_or_else(|| {
            let (example, port) = match tier {
                Tier::Quota => (QUOTA, 7432),
                Tier::Controller | Tier::Aggregator => (CONTROLLER, 7401),
            };
            format!(
                "`{text}` is not the address of an admin port; write it as {example}, or as https://HOST:{port} for \
                 another machine"
            )
        })
    }

    pub(super) fn is_tls(&self) -> bool {
        self.uri.scheme_str() == Some("https")
    }

    /// Returns true if the address is one of this machine, so that no other machine sees the
    /// traffic.
    pub(super) fn is_loopback(&self) -> bool {
        names_loopback(self.uri.host().unwrap_or_default())
    }

    /// Returns the address with https in place of http, or the reverse.
    pub(super) fn by_other_scheme(&self) -> String {
        let scheme = if self.is_tls() { "http" } else { "https" };
        format!(
            "{scheme}://{}",
            self.uri
                .authority()
                .map_or("", |authority| authority.as_str())
        )
    }
}

/// Returns true for only scheme, host and port. A name before `@` would hide the host.
fn is_bare(uri: &Uri) -> bool {
    let has_host = |authority: &http::uri::Authority| {
        !authority.host().is_empty() && !authority.as_str().contains('@')
    };
    matches!(uri.scheme_str(), Some("http" | "https"))
        && uri.path().trim_end_matches('/').is_empty()
        && uri.query().is_none()
        && uri.authority().is_some_and(has_host)
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.uri.to_string().trim_end_matches('/'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_scheme_host_and_port() {
        for good in [
            "http://127.0.0.1:7401",
            "http://a:7401/",
            "http://[::1]:7401",
            "https://controller",
        ] {
            let address = Address::parse(good, Tier::Controller).unwrap();
            assert_eq!(address.to_string(), good.trim_end_matches('/'));
        }
        for bad in [
            "",
            "127.0.0.1:7401",
            "ftp://a:1",
            "http://",
            "http://a@b",
            "http://a/kill",
            "http://a/?x",
        ] {
            assert!(
                Address::parse(bad, Tier::Controller)
                    .unwrap_err()
                    .contains(CONTROLLER),
                "{bad}"
            );
        }
        let error = Address::parse("redis://127.0.0.1:9049", Tier::Quota).unwrap_err();
        assert!(
            error.contains(QUOTA) && error.contains("https://HOST:7432"),
            "{error}"
        );
    }

    #[test]
    fn only_addresses_of_this_machine_are_loopback() {
        for (address, is_loopback) in [
            ("http://127.9.9.9", true),
            ("http://[::ffff:127.0.0.1]:7401", true),
            ("http://LOCALHOST:7401", true),
            ("http://localhost.example:7401", false),
            ("http://127.0.0.1.example:7401", false),
            ("http://0.0.0.0:7401", false),
            ("http://[2001:db8::1]:7401", false),
        ] {
            let parsed = Address::parse(address, Tier::Controller).unwrap();
            assert_eq!(parsed.is_loopback(), is_loopback, "{address}");
        }
    }
}
