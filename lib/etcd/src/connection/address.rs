//! The address of a store, `etcd://HOST:PORT[,HOST:PORT..]/PREFIX`, with errors that say what to
//! write instead.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

use rustls::pki_types::ServerName;

/// Maximum number of endpoints of a store.
pub const ENDPOINTS_MAX: usize = 16;
/// Maximum length of the prefix of a store's keys, in bytes.
pub const PREFIX_BYTES_MAX: usize = 128;

const FORM: &str = "write it as etcd://HOST:PORT[,HOST:PORT..]/PREFIX, or with etcds:// for TLS";

/// The endpoints of a store, and the prefix of its keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreAddress {
    pub(crate) is_encrypted: bool,
    pub(crate) endpoints: Vec<Endpoint>,
    pub(crate) prefix: String,
}

/// The client port of one member of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// Without the brackets of an IPv6 address.
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// Reason why an address of a store is refused, and what to write instead. It repeats no password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct AddressError(pub(crate) String);

impl FromStr for StoreAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let fault = |fault: String| Err(AddressError(fault));
        if text.contains('@') {
            return fault(
                "the store address has credentials before `@`, which would reach logs: remove them, \
                 and give the user and the file of the password on their own"
                    .to_owned(),
            );
        }
        let (is_encrypted, rest) = match text.split_once("://") {
            Some(("etcd", rest)) => (false, rest),
            Some(("etcds", rest)) => (true, rest),
            _ => {
                return fault(format!(
                    "the store address `{text}` has another scheme than etcd:// and etcds://: {FORM}"
                ));
            }
        };
        let (listed, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        if listed.is_empty() {
            return fault(format!(
                "the store address `{text}` has no endpoint: {FORM}"
            ));
        }
        let count = listed.split(',').count();
        if count > ENDPOINTS_MAX {
            return fault(format!(
                "the store address has {count} endpoints, maximum {ENDPOINTS_MAX}: some members of \
                 the cluster are enough"
            ));
        }
        let mut endpoints = Vec::with_capacity(count);
        for text in listed.split(',') {
            match Endpoint::parse(text) {
                Some(endpoint) if endpoints.contains(&endpoint) => {
                    return fault(format!(
                        "the endpoint `{text}` is twice in the store address: list each once"
                    ));
                }
                Some(endpoint) => endpoints.push(endpoint),
                None => {
                    return fault(format!(
                        "the endpoint `{text}` of the store address is not HOST:PORT: give each a \
                         host and a port, such as etcd-0.etcd:2379 or [fd00::1]:2379"
                    ));
                }
            }
        }
        if prefix.is_empty() {
            return fault(format!(
                "the store address `{text}` has no prefix: end it with the folder of this fleet's \
                 keys, such as /plimsoll"
            ));
        }
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let is_name = |name: &str| !name.is_empty() && name.bytes().all(is_allowed);
        if prefix.len() > PREFIX_BYTES_MAX || !prefix.split('/').all(is_name) {
            return fault(format!(
                "the prefix `{prefix}` of the store address is malformed: use at most \
                 {PREFIX_BYTES_MAX} letters, digits, `.`, `_`, `-`, and single `/` between names"
            ));
        }
        let prefix = prefix.to_owned();
        Ok(Self {
            is_encrypted,
            endpoints,
            prefix,
        })
    }
}

impl fmt::Display for StoreAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_encrypted { "etcds" } else { "etcd" };
        let endpoints: Vec<String> = self.endpoints.iter().map(ToString::to_string).collect();
        write!(f, "{scheme}://{}/{}", endpoints.join(","), self.prefix)
    }
}

impl Endpoint {
    fn parse(text: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let inner = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        let host = match inner {
            Some(host) => host.parse::<Ipv6Addr>().ok()?.to_string(),
            None if host.contains(':') => return None,
            None => host.to_ascii_lowercase(),
        };
        ServerName::try_from(host.as_str()).ok()?;
        let port = port.parse().ok().filter(|port| *port != 0)?;
        Some(Self { host, port })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}
