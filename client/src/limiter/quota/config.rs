//! The address and the credentials of a quota store, as the service configures them.

use std::fmt;
use std::io::{Error, ErrorKind};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::setup::readable_debug;

pub(crate) const TIMEOUT_DEFAULT: Duration = Duration::from_millis(20);
const TIMEOUTS: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(10);
const SERVER_PORT: u16 = 9049;
const REDIS_PORT: u16 = 6379;

/// The store of exact quotas: a quota server of Plimsoll or Redis.
///
/// | address | store |
/// |---|---|
/// | `plimsoll://HOST:9049` | a quota server |
/// | `redis://HOST:6379/DB` | one Redis |
/// | `redis+cluster://HOST:6379,HOST:6379` | Redis Cluster; some of its nodes |
///
/// `plimsolls`, `rediss` and `rediss+cluster` are the same over TLS, where the host names are verified.
/// Redis must be 5.0 or later and must not evict keys (`maxmemory-policy noeviction`). It counts in doubles: a quota of
/// more than 2^53 tokens holds 2^53 there.
///
/// ```
/// use plimsoll_client::{Limiter, QuotaStore, Refusal, Request};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = QuotaStore::new("plimsoll://quota:9049")?.username("shop");
/// let (limiter, _feed) = Limiter::builder("shop").quota_store(store).build()?;
/// let handler = async |tenant: &str| -> Result<&str, Refusal> {
///     limiter.check_async(&Request::new("calls", tenant)).await.ok()?;
///     Ok("called")
/// };
/// assert_eq!(handler("acme").await, Ok("called"));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct QuotaStore {
    url: String,
    pub(super) kind: StoreKind,
    pub(super) hosts: Vec<(String, u16)>,
    pub(super) db: i64,
    pub(super) is_tls: bool,
    pub(super) username: Option<String>,
    pub(super) password_file: Option<PathBuf>,
    pub(super) ca: Option<PathBuf>,
    pub(super) timeout: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StoreKind {
    Server,
    Redis,
    Cluster,
}

/// The reason why a store cannot be configured.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum QuotaStoreError {
    /// The address is malformed.
    #[error(
        "quota store `{address}`: {fault}; write plimsoll://HOST:PORT, redis://HOST:PORT[/DB] or \
         redis+cluster://HOST:PORT,HOST:PORT, with `s` after `plimsoll` or `redis` for TLS"
    )]
    Address {
        /// The address as it was given, without credentials.
        address: String,
        /// The fault.
        fault: &'static str,
    },
    /// The address needs TLS, which this build is without.
    #[error(
        "quota store `{address}`: this build has no TLS; enable the feature `tls` of plimsoll-client"
    )]
    WithoutTls {
        /// The address.
        address: String,
    },
    /// A file cannot be read, or has no password or certificate.
    #[error("quota store `{address}`: cannot use {path}: {source}", path = path.display())]
    File {
        /// The address.
        address: String,
        /// The file with the password or the authorities.
        path: PathBuf,
        /// The fault.
        source: std::io::Error,
    },
    /// The client of the store rejects the configuration.
    #[error("quota store `{address}`: {fault}")]
    Client {
        /// The address.
        address: String,
        /// The fault.
        fault: String,
    },
}

readable_debug!(QuotaStoreError);

impl QuotaStore {
    /// Makes the configuration of a store by its address.
    ///
    /// # Errors
    /// If the address is malformed, or needs TLS that this build is without.
    pub fn new(url: &str) -> Result<Self, QuotaStoreError> {
        let (scheme, rest) = url
            .split_once("://")
            .ok_or_else(|| malformed(url, "it has no scheme"))?;
        if rest.contains('@') {
            let fault = "it has credentials, which belong in QuotaStore::username and password_file (PLIMSOLL_QUOTA_USERNAME, \
                 PLIMSOLL_QUOTA_PASSWORD_FILE)";
            let hosts = rest.rsplit_once('@').map_or(rest, |(_, hosts)| hosts);
            return Err(malformed(&format!("{scheme}://{hosts}"), fault));
        }
        let (hosts, path) = rest
            .split_once('/')
            .map_or((rest, None), |(hosts, path)| (hosts, Some(path)));
        let path = path.filter(|path| !path.is_empty());
        let (scheme, is_tls) = match scheme {
            "plimsolls" => ("plimsoll", true),
            "rediss" => ("redis", true),
            "rediss+cluster" => ("redis+cluster", true),
            _ => (scheme, false),
        };
        if is_tls && cfg!(not(feature = "tls")) {
            return Err(QuotaStoreError::WithoutTls {
                address: url.to_owned(),
            });
        }
        let database = |text: &str| match text.parse::<i64>() {
            Ok(db) if db >= 0 => Ok(db),
            _ => Err(malformed(url, "the database is no number")),
        };
        let (kind, port, db) = match (scheme, path) {
            ("plimsoll", None) => (StoreKind::Server, SERVER_PORT, 0),
            ("redis", path) => (StoreKind::Redis, REDIS_PORT, path.map_or(Ok(0), database)?),
            ("redis+cluster", None) => (StoreKind::Cluster, REDIS_PORT, 0),
            ("redis+sentinel" | "rediss+sentinel", _) => {
                let fault = "Sentinel is no longer asked: name the primary through a proxy or a DNS name that follows it, or \
                             use Redis Cluster";
                return Err(malformed(url, fault));
            }
            ("plimsoll" | "redis+cluster", Some(_)) => return Err(malformed(url, "it has a path")),
            _ => return Err(malformed(url, "its scheme is unknown")),
        };
        let hosts = hosts
            .split(',')
            .map(|text| host(text, port).ok_or_else(|| malformed(url, "a host is malformed")));
        let hosts = hosts.collect::<Result<Vec<_>, _>>()?;
        if hosts.len() > 1 && matches!(kind, StoreKind::Server | StoreKind::Redis) {
            return Err(malformed(url, "it has several hosts"));
        }
        Ok(Self {
            url: url.to_owned(),
            kind,
            hosts,
            db,
            is_tls,
            username: None,
            password_file: None,
            ca: None,
            timeout: TIMEOUT_DEFAULT,
        })
    }

    /// Sets the user of the store. Without one, only the password is sent.
    #[must_use]
    pub fn username(mut self, username: &str) -> Self {
        self.username = Some(username.to_owned());
        self
    }

    /// Sets the file with the password, which is read at each connection. Line breaks at its end are no part of it.
    #[must_use]
    pub fn password_file(mut self, path: impl AsRef<Path>) -> Self {
        self.password_file = Some(path.as_ref().to_owned());
        self
    }

    /// Sets the file with the certificates of the authorities of the store, as PEM, in place of the
    /// authorities of the system.
    #[must_use]
    pub fn ca(mut self, path: impl AsRef<Path>) -> Self {
        self.ca = Some(path.as_ref().to_owned());
        self
    }

    /// Sets the time that a request waits for the store, 20 ms by default, from 1 ms to 10 s. Then the policy of the
    /// quota decides.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Checks everything that needs no connection. Fails if a file cannot be used, or the timeout
    /// is out of range.
    pub(super) fn check(&self) -> Result<(), QuotaStoreError> {
        if !TIMEOUTS.contains(&self.timeout) {
            let (timeout, min, max) = (self.timeout, TIMEOUTS.start(), TIMEOUTS.end());
            let fault = format!("the timeout of {timeout:?} is not from {min:?} to {max:?}");
            return Err(QuotaStoreError::Client {
                address: self.url.clone(),
                fault,
            });
        }
        self.password()?;
        self.authorities()?;
        Ok(())
    }

    pub(super) fn password(&self) -> Result<Option<String>, QuotaStoreError> {
        let Some(path) = &self.password_file else {
            return Ok(None);
        };
        let text = std::fs::read_to_string(path).map_err(|source| self.unreadable(path, source))?;
        let password = text.trim_end_matches(['\r', '\n']);
        if password.is_empty() {
            return Err(self.unreadable(
                path,
                Error::new(ErrorKind::InvalidData, "it has no password"),
            ));
        }
        Ok(Some(password.to_owned()))
    }

    pub(super) fn authorities(&self) -> Result<Option<Vec<u8>>, QuotaStoreError> {
        let Some(path) = &self.ca else {
            return Ok(None);
        };
        let pem = std::fs::read(path).map_err(|source| self.unreadable(path, source))?;
        if !String::from_utf8_lossy(&pem).contains("-----BEGIN CERTIFICATE-----") {
            let source = Error::new(ErrorKind::InvalidData, "it has no certificate in PEM");
            return Err(self.unreadable(path, source));
        }
        Ok(Some(pem))
    }

    fn unreadable(&self, path: &Path, source: std::io::Error) -> QuotaStoreError {
        QuotaStoreError::File {
            address: self.url.clone(),
            path: path.to_owned(),
            source,
        }
    }
}

impl fmt::Display for QuotaStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)
    }
}

fn malformed(address: &str, fault: &'static str) -> QuotaStoreError {
    QuotaStoreError::Address {
        address: address.to_owned(),
        fault,
    }
}

/// Reads `HOST`, `HOST:PORT`, `[IPV6]` or `[IPV6]:PORT`.
fn host(text: &str, port: u16) -> Option<(String, u16)> {
    let (host, rest) = match text.strip_prefix('[') {
        Some(text) => text.split_once(']')?,
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    let port = match rest.strip_prefix(':') {
        Some(text) => text.parse().ok().filter(|port| *port > 0)?,
        None if rest.is_empty() => port,
        None => return None,
    };
    let is_host =
        !host.is_empty() && !host.contains(|c: char| c.is_whitespace() || "/?#[]".contains(c));
    is_host.then(|| (host.to_owned(), port))
}

#[cfg(test)]
#[cfg(not(feature = "loom"))]
mod tests {
    use super::*;

    #[test]
    fn store_address_names_kind_and_hosts() {
        let of = |url: &str| {
            let store = QuotaStore::new(url).unwrap();
            assert_eq!(store.to_string(), url);
            let hosts: Vec<_> = store
                .hosts
                .iter()
                .map(|(host, port)| format!("{host} {port}"))
                .collect();
            (store.kind, hosts.join(","), store.db, store.is_tls)
        };
        assert_eq!(
            of("plimsoll://quota"),
            (StoreKind::Server, "quota 9049".to_owned(), 0, false)
        );
        assert_eq!(
            of("plimsolls://[::1]:1"),
            (StoreKind::Server, "::1 1".to_owned(), 0, true)
        );
        assert_eq!(
            of("redis://a:6380/2"),
            (StoreKind::Redis, "a 6380".to_owned(), 2, false)
        );
        assert_eq!(
            of("rediss://a"),
            (StoreKind::Redis, "a 6379".to_owned(), 0, true)
        );
        assert_eq!(
            of("redis+cluster://a,b:2"),
            (StoreKind::Cluster, "a 6379,b 2".to_owned(), 0, false)
        );
    }

    #[test]
    fn malformed_store_address_error_lists_forms() {
        for (url, fault) in [
            ("quota:9049", "no scheme"),
            ("http://quota", "scheme is unknown"),
            ("plimsoll://", "host is malformed"),
            ("plimsoll://a:0", "host is malformed"),
            ("plimsoll://a:b", "host is malformed"),
            ("plimsoll://[::1", "host is malformed"),
            ("plimsoll://a,b", "several hosts"),
            ("plimsoll://a/1", "a path"),
            ("redis+cluster://a/1", "a path"),
            ("redis://a/x", "database is no number"),
            ("redis://a/-1", "database is no number"),
            ("redis+sentinel://a/main", "Redis Cluster"),
            ("rediss+sentinel://a/main", "DNS name"),
        ] {
            let error = QuotaStore::new(url).unwrap_err().to_string();
            assert!(
                error.contains(fault) && error.contains(url) && error.contains("redis://HOST"),
                "{error}"
            );
        }
    }

    #[test]
    fn address_credentials_are_never_repeated() {
        let error = QuotaStore::new("redis://shop:secret@a:6379")
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("password_file") && error.contains("redis://a:6379"),
            "{error}"
        );
        assert!(!error.contains("secret"), "{error}");
    }

    #[test]
    fn password_loses_its_files_line_break() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("password");
        let store = QuotaStore::new("redis://a").unwrap();
        assert_eq!(store.password().unwrap(), None);
        let store = store.password_file(&path);
        let error = store.password().unwrap_err().to_string();
        assert!(error.contains(path.to_str().unwrap()), "{error}");
        std::fs::write(&path, "\n").unwrap();
        let error = store.password().unwrap_err().to_string();
        assert!(
            error.contains("it has no password") && error.contains(path.to_str().unwrap()),
            "{error}"
        );
        std::fs::write(&path, "se cret\r\n").unwrap();
        assert_eq!(store.password().unwrap().as_deref(), Some("se cret"));
    }

    #[test]
    fn timeout_error_names_the_range() {
        let check = |timeout| {
            QuotaStore::new("redis://a")
                .unwrap()
                .timeout(timeout)
                .check()
        };
        for timeout in [
            Duration::ZERO,
            Duration::from_micros(999),
            Duration::from_secs(11),
        ] {
            let error = check(timeout).unwrap_err().to_string();
            assert!(
                error.contains("redis://a") && error.contains("from 1ms to 10s"),
                "{error}"
            );
        }
        assert!(check(TIMEOUT_DEFAULT).is_ok());
    }

    #[test]
    fn authority_file_needs_a_certificate() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ca.crt");
        let store = QuotaStore::new("redis://a").unwrap().ca(&path);
        assert!(
            store
                .authorities()
                .unwrap_err()
                .to_string()
                .contains(path.to_str().unwrap())
        );
        std::fs::write(&path, "root:x:0:0\n").unwrap();
        assert!(
            store
                .authorities()
                .unwrap_err()
                .to_string()
                .contains("no certificate in PEM")
        );
        std::fs::write(&path, "-----BEGIN CERTIFICATE-----\n").unwrap();
        assert!(store.authorities().unwrap().is_some());
    }
}
