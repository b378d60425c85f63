//! The address of a parent, and the protection of connections to it. Plaintext is for loopback, unless it is allowed
//! anywhere.

use http::Uri;
use plimsoll_core::exchange::names_loopback;
#[cfg(feature = "tls")]
use plimsoll_tls::Certificates;
#[cfg(feature = "tls")]
use plimsoll_tls::rustls::pki_types::ServerName;
use tokio::sync::watch;
use tonic::transport::Endpoint;

use crate::MESSAGE_BYTES_MAX;

/// The flow-control window of a child, in bytes: one message of the largest size. Later changes wait in the
/// parent's state machine, where they are conflated; with the default window megabytes of outdated messages
/// would pile up.
const STREAM_WINDOW_BYTES: u32 = MESSAGE_BYTES_MAX as u32;

/// Protection of the connections to parents.
#[derive(Clone, Debug)]
pub enum Security {
    /// Plaintext.
    Plain {
        /// Also to addresses that are not loopback.
        anywhere: bool,
    },
    /// mTLS, and plaintext to loopback addresses that ask for it.
    #[cfg(feature = "tls")]
    Mutual(Certificates),
}

impl Security {
    /// Returns the scheme of a parent's address that this protection is for: `http` or `https`.
    pub const fn scheme(&self) -> &'static str {
        match self {
            Self::Plain { .. } => "http",
            #[cfg(feature = "tls")]
            Self::Mutual(_) => "https",
        }
    }
}

/// Reason why a parent cannot be dialed at an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidEndpoint {
    /// The address is not a URI of a host and a port.
    #[error(
        "invalid parent address `{address}`: write it as https://HOST:PORT, or as http://HOST:PORT for plaintext"
    )]
    Malformed {
        /// The rejected address.
        address: String,
    },
    /// The address asks for TLS, and there are no certificates.
    #[error("the parent address `{address}` asks for TLS, which needs certificates")]
    NeedsCertificates {
        /// The rejected address.
        address: String,
    },
    /// The address asks for TLS, and this program was built without it.
    #[error(
        "the parent address `{address}` asks for TLS, and this program was built without the feature `tls`"
    )]
    WithoutTls {
        /// The rejected address.
        address: String,
    },
    /// The address asks for plaintext and is not loopback.
    #[error(
        "the parent address `{address}` asks for plaintext, which is for loopback addresses: use https:// with \
         certificates, or allow plaintext anywhere"
    )]
    Plaintext {
        /// The rejected address.
        address: String,
    },
}

/// The address of a parent, and the protection of the connections to it.
#[derive(Clone, Debug)]
pub struct Dial {
    pub(crate) endpoint: Endpoint,
    #[cfg(feature = "tls")]
    pub(crate) mutual: Option<Mutual>,
}

/// The certificates of a child, and the host name of its TLS handshakes. A parent is identified by its certificate, not
/// by this name.
#[cfg(feature = "tls")]
#[derive(Clone, Debug)]
pub(crate) struct Mutual {
    pub(crate) certificates: Certificates,
    pub(crate) server: ServerName<'static>,
}

impl Dial {
    /// Checks the address of a parent: `https://HOST:PORT` or `http://HOST:PORT`. Connects to nothing yet.
    ///
    /// # Errors
    /// If it is not such an address, or asks for a protection that `security` does not give.
    pub fn new(address: &str, security: &Security) -> Result<Self, InvalidEndpoint> {
        let given = || address.to_owned();
        let malformed = || InvalidEndpoint::Malformed { address: given() };
        let endpoint = Endpoint::from_shared(given()).map_err(|_| malformed())?;
        let uri = endpoint.uri();
        if uri.port_u16().is_none() || uri.host().is_none_or(str::is_empty) {
            return Err(malformed());
        }
        match (uri.scheme_str(), security) {
            (Some("http"), Security::Plain { anywhere: true }) => Ok(Self::plain(endpoint)),
            (Some("http"), _) if names_loopback(host(uri)) => Ok(Self::plain(endpoint)),
            (Some("http"), _) => Err(InvalidEndpoint::Plaintext { address: given() }),
            #[cfg(feature = "tls")]
            (Some("https"), Security::Mutual(certificates)) => {
                let server = ServerName::try_from(host(uri).to_owned()).map_err(|_| malformed())?;
                let mutual = Mutual {
                    certificates: certificates.clone(),
                    server,
                };
                Ok(Self {
                    mutual: Some(mutual),
                    ..Self::plain(endpoint)
                })
            }
            (Some("https"), Security::Plain { .. }) if cfg!(feature = "tls") => {
                Err(InvalidEndpoint::NeedsCertificates { address: given() })
            }
            (Some("https"), Security::Plain { .. }) => {
                Err(InvalidEndpoint::WithoutTls { address: given() })
            }
            _ => Err(malformed()),
        }
    }

    /// Returns true for a valid `http://` address beyond loopback.
    pub fn is_exposed(address: &str) -> bool {
        let is_valid = |anywhere| Self::new(address, &Security::Plain { anywhere }).is_ok();
        is_valid(true) && !is_valid(false)
    }

    /// `HOST:PORT` in lower case, to connect to and for log lines.
    pub fn authority(&self) -> String {
        self.endpoint
            .uri()
            .authority()
            .map_or_else(String::new, |authority| {
                authority.as_str().to_ascii_lowercase()
            })
    }

    fn plain(endpoint: Endpoint) -> Self {
        Self {
            endpoint: endpoint.initial_stream_window_size(STREAM_WINDOW_BYTES),
            #[cfg(feature = "tls")]
            mutual: None,
        }
    }

    /// Returns a receiver of the number of the current certificate, which each renewal raises; `None` without certificates.
    pub(crate) fn certificate_changes(&self) -> Option<watch::Receiver<u64>> {
        #[cfg(feature = "tls")]
        return self
            .mutual
            .as_ref()
            .map(|mutual| mutual.certificates.changes());
        #[cfg(not(feature = "tls"))]
        None
    }
}

/// The host, without the brackets of an IPv6 address.
fn host(uri: &Uri) -> &str {
    uri.host()
        .unwrap_or_default()
        .trim_start_matches('[')
        .trim_end_matches(']')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dial(address: &str, anywhere: bool) -> Result<String, InvalidEndpoint> {
        Dial::new(address, &Security::Plain { anywhere }).map(|dial| dial.authority())
    }

    #[test]
    fn plaintext_is_for_loopback_by_default() {
        for address in [
            "http://127.0.0.1:7410",
            "http://127.9.9.9:7410",
            "http://[::1]:7410",
            "http://localhost:7410",
        ] {
            assert_eq!(
                dial(address, false).as_deref(),
                Ok(address.strip_prefix("http://").unwrap())
            );
        }
        for given in [
            "http://10.0.0.1:7410",
            "http://[fd00::1]:7410",
            "http://localhost.example:7410",
            "http://a:7410",
        ] {
            let address = given.to_owned();
            assert_eq!(
                dial(given, false),
                Err(InvalidEndpoint::Plaintext { address })
            );
            assert_eq!(
                dial(given, true).as_deref(),
                Ok(given.strip_prefix("http://").unwrap())
            );
        }
    }

    #[test]
    fn address_has_scheme_host_and_port() {
        for given in [
            "",
            "a:7410",
            "http://",
            "http://a",
            "https://a",
            "ftp://a:1",
            "dns://a:1",
            "unix:/a",
            "http://:1",
        ] {
            let address = given.to_owned();
            assert_eq!(
                dial(given, true),
                Err(InvalidEndpoint::Malformed { address })
            );
        }
        assert_eq!(
            dial("HTTP://LocalHost:7410/", false).as_deref(),
            Ok("localhost:7410")
        );
    }

    #[test]
    fn certificates_allow_plaintext_only_to_loopback() {
        use plimsoll_core::exchange::PeerRole;
        use plimsoll_tls::testing::{Authority, Validity};

        let directory = tempfile::tempdir().unwrap();
        Authority::new("a").write(directory.path(), PeerRole::Controller, Validity::default());
        let mutual = Security::Mutual(Certificates::open(directory.path()).unwrap());
        let dial = |address: &str| {
            Dial::new(address, &mutual).map(|dial| (dial.authority(), dial.mutual.is_some()))
        };
        for address in [
            "https://A:7410",
            "https://10.0.0.1:7410",
            "https://[fd00::1]:7410",
        ] {
            let authority = address
                .strip_prefix("https://")
                .unwrap()
                .to_ascii_lowercase();
            assert_eq!(dial(address), Ok((authority, true)));
            let needs = InvalidEndpoint::NeedsCertificates {
                address: address.to_owned(),
            };
            assert_eq!(
                Dial::new(address, &Security::Plain { anywhere: true }).unwrap_err(),
                needs
            );
        }
        assert_eq!(
            dial("http://127.0.0.1:7410"),
            Ok(("127.0.0.1:7410".to_owned(), false))
        );
        let address = "http://a:7410".to_owned();
        assert_eq!(
            dial("http://a:7410"),
            Err(InvalidEndpoint::Plaintext { address })
        );
    }
}
