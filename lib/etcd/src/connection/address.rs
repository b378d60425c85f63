//! The address of a store, `etcd://HOST:PORT[,HOST:PORT..]/PREFIX`, with errors that say what to
//! write instead.

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;
use rustls::pki_types::ServerName;

/// Maximum number of endpoints of a store.
pub const ENDPOINTS_MAX: usize = 16;
/// Maximum length of the prefix of a store's keys, in bytes.
pub const PREFIX_BYTES_MAX: usize = 128;

const FORM: &str = "write it as etcd://HOST:PORT[,HOST:PORT..]/PREFIX, or with etcds:// for TLS";

/// The endpoints of a store, and the prefix of its keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreAddress {
    is_encrypted: bool,
    endpoints: Vec<Endpoint>,
    prefix: String,
}

/// The client port of one member of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// Without the brackets of an IPv6 address.
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// Reason why an address of a store is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// The scheme is neither `etcd` nor `etcds`.
    #[error("the store address `{0}` has another scheme than etcd:// and etcds://: {FORM}")]
    Scheme(String),
    /// The address has a user or a password. They are not repeated here.
    #[error(
        "the store address has credentials before `@`, which would reach logs: remove them, and give the user and the \
         file of the password on their own"
    )]
    Credentials,
    /// The address has no endpoint.
    #[error("the store address `{0}` has no endpoint: {FORM}")]
    NoEndpoints(String),
    /// The address has too many endpoints.
    #[error(
        "the store address has {0} endpoints, maximum {ENDPOINTS_MAX}: some members of the cluster are enough"
    )]
    TooManyEndpoints(usize),
    /// An endpoint is not a host and a port.
    #[error(
        "the endpoint `{0}` of the store address is not HOST:PORT: give each a host and a port, such as \
         etcd-0.etcd:2379 or [fd00::1]:2379"
    )]
    Endpoint(String),
    /// An endpoint is listed twice.
    #[error("the endpoint `{0}` is twice in the store address: list each once")]
    Repeated(String),
    /// The address has no prefix.
    #[error(
        "the store address `{0}` has no prefix: end it with the folder of this fleet's keys, such as /plimsoll"
    )]
    NoPrefix(String),
    /// The prefix is malformed.
    #[error(
        "the prefix `{0}` of the store address is malformed: use at most {PREFIX_BYTES_MAX} letters, digits, `.`, `_`, \
         `-`, and single `/` between names"
    )]
    Prefix(String),
    /// The address asks for TLS, and there are no certificates.
    #[error(
        "the store address begins with etcds://, which needs the file of an authority: give one, or write etcd://"
    )]
    NeedsCertificates,
    /// There are certificates, and the address does not ask for TLS.
    #[error(
        "there are certificates for the store, and its address asks for plaintext: write it with etcds://"
    )]
    Plaintext,
}

impl StoreAddress {
    /// Returns true for `etcds://`.
    pub fn is_encrypted(&self) -> bool {
        self.is_encrypted
    }

    /// Returns the endpoints as `HOST:PORT`.
    pub fn endpoints(&self) -> impl Iterator<Item = String> {
        self.endpoints.iter().map(ToString::to_string)
    }

    /// Returns the prefix of all keys, without a slash at either end.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    pub(crate) fn members(&self) -> &[Endpoint] {
        &self.endpoints
    }

    /// Returns the bytes before each key.
    pub(crate) fn key_prefix(&self) -> Bytes {
        format!("{}/", self.prefix).into()
    }
}

impl FromStr for StoreAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        if text.contains('@') {
            return Err(AddressError::Credentials);
        }
        let (is_encrypted, rest) = match text.split_once("://") {
            Some(("etcd", rest)) => (false, rest),
            Some(("etcds", rest)) => (true, rest),
            _ => return Err(AddressError::Scheme(text.to_owned())),
        };
        let (listed, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        if listed.is_empty() {
            return Err(AddressError::NoEndpoints(text.to_owned()));
        }
        let count = listed.split(',').count();
        if count > ENDPOINTS_MAX {
            return Err(AddressError::TooManyEndpoints(count));
        }
        let mut endpoints = Vec::with_capacity(count);
        for text in listed.split(',') {
            let malformed = || AddressError::Endpoint(text.to_owned());
            let endpoint = Endpoint::parse(text).ok_or_else(malformed)?;
            if endpoints.contains(&endpoint) {
                return Err(AddressError::Repeated(text.to_owned()));
            }
            endpoints.push(endpoint);
        }
        if prefix.is_empty() {
            return Err(AddressError::NoPrefix(text.to_owned()));
        }
        let is_name = |name: &str| {
            let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
            !name.is_empty() && name.bytes().all(is_allowed)
        };
        if prefix.len() > PREFIX_BYTES_MAX || !prefix.split('/').all(is_name) {
            return Err(AddressError::Prefix(prefix.to_owned()));
        }
        Ok(Self {
            is_encrypted,
            endpoints,
            prefix: prefix.to_owned(),
        })
    }
}

impl fmt::Display for StoreAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_encrypted { "etcds" } else { "etcd" };
        let endpoints: Vec<String> = self.endpoints().collect();
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
            Some(host) => host.parse::<std::net::Ipv6Addr>().ok()?.to_string(),
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
        let Self { host, port } = self;
        if host.contains(':') {
            write!(f, "[{host}]:{port}")
        } else {
            write!(f, "{host}:{port}")
        }
    }
}
