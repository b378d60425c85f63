//! The flags of a controller that is one of several.

use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::http::uri::Authority;
use plimsoll_etcd::{
    AddressError, Client, ClientFiles, Credentials, Options, StoreAddress, TlsError, TlsFiles,
};
use plimsoll_host::regular_file;

/// Maximum size of a file with a password.
const PASSWORD_BYTES_MAX: usize = 1_024;

/// The store of several controllers, of which one leads.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct StoreArgs {
    /// Store of several controllers: etcd://HOST:PORT[,HOST:PORT..]/PREFIX, or etcds:// for TLS. Each controller with the
    /// same store is a member, and one leads; the state directory keeps this member's audit log and history
    #[arg(long, env = "PLIMSOLL_STORE", value_name = "URL")]
    pub store: Option<StoreAddress>,
    /// Certificates and user for the store.
    #[command(flatten)]
    pub access: StoreAccess,
    /// Time after which another member is elected, once the leader has stopped answering to the store
    #[arg(long, env = "PLIMSOLL_LEAD_TTL", value_name = "TIME", default_value = "5s", value_parser = ttl)]
    pub lead_ttl: Duration,
    /// Host of this member for aggregators and operators. Default: that of --listen and --admin
    #[arg(
        long,
        env = "PLIMSOLL_ADVERTISE",
        value_name = "HOST",
        value_parser = host,
        requires = "store"
    )]
    pub advertise: Option<String>,
}

/// The flags of an access to a store.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct StoreAccess {
    /// Authorities of the store's certificates, a PEM file; for etcds://
    #[arg(long, env = "PLIMSOLL_STORE_CA", value_name = "FILE")]
    pub store_ca: Option<PathBuf>,
    /// Certificate of this process for the store, a PEM file
    #[arg(long, env = "PLIMSOLL_STORE_CERT", value_name = "FILE", requires_all = ["store_ca", "store_key"])]
    pub store_cert: Option<PathBuf>,
    /// Key of that certificate
    #[arg(
        long,
        env = "PLIMSOLL_STORE_KEY",
        value_name = "FILE",
        requires = "store_cert"
    )]
    pub store_key: Option<PathBuf>,
    /// User of the store
    #[arg(
        long,
        env = "PLIMSOLL_STORE_USER",
        value_name = "NAME",
        requires = "store_password_file"
    )]
    pub store_user: Option<String>,
    /// File with the password of that user
    #[arg(
        long,
        env = "PLIMSOLL_STORE_PASSWORD_FILE",
        value_name = "FILE",
        requires = "store_user"
    )]
    pub store_password_file: Option<PathBuf>,
}

/// Why the store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreArgsError {
    /// Certificates or a user are given for no store.
    #[error(
        "--store-ca and --store-user need --store URL: without it this controller has a state directory only"
    )]
    WithoutStore,
    /// The file with the password cannot be read.
    #[error("--store-password-file: {}: {source}", path.display())]
    Password {
        /// Its path.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// A file of certificates cannot be used.
    #[error("--store-ca, --store-cert, --store-key: {0}")]
    Tls(#[from] TlsError),
    /// The client cannot be made of the flags.
    #[error("--store: {0}")]
    Client(#[from] AddressError),
}

// === impl StoreArgs ===

impl StoreArgs {
    /// Returns a client of the store, which connects to nothing yet; `None` without a store. Blocks.
    ///
    /// # Errors
    /// If a file cannot be read, or the flags contradict the address.
    pub fn client(&self) -> Result<Option<Client>, StoreArgsError> {
        let Some(address) = &self.store else {
            return match self.access.is_given() {
                true => Err(StoreArgsError::WithoutStore),
                false => Ok(None),
            };
        };
        self.access.client(address).map(Some)
    }
}

// === impl StoreAccess ===

impl StoreAccess {
    const fn is_given(&self) -> bool {
        self.store_ca.is_some() || self.store_user.is_some()
    }

    /// Returns a client of the store at `address`, which connects to nothing yet. Blocks.
    ///
    /// # Errors
    /// If a file cannot be read, or the flags contradict the address.
    pub fn client(&self, address: &StoreAddress) -> Result<Client, StoreArgsError> {
        let own = self.store_cert.clone().zip(self.store_key.clone());
        let tls = self.store_ca.as_ref().map(|ca| TlsFiles {
            ca: ca.clone(),
            client: own.map(|(certificate, key)| ClientFiles { certificate, key }),
        });
        if let Some(tls) = &tls {
            tls.check()?;
        }
        let credentials = match (&self.store_user, &self.store_password_file) {
            (Some(user), Some(path)) => Some(Credentials {
                user: user.clone(),
                password: password(path)?,
            }),
            _ => None,
        };
        let options = Options {
            tls,
            credentials,
            ..Options::default()
        };
        Ok(Client::connect(address, options)?)
    }
}

fn password(path: &Path) -> Result<String, StoreArgsError> {
    let text = regular_file::read_whole(path, PASSWORD_BYTES_MAX)
        .and_then(|bytes| String::from_utf8(bytes).map_err(std::io::Error::other));
    let text = text.map_err(|source| StoreArgsError::Password {
        path: path.to_owned(),
        source,
    })?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

/// Returns a host name or an address, which other members complete with a port.
fn host(text: &str) -> Result<String, String> {
    let host = text.trim_start_matches('[').trim_end_matches(']');
    let is_name = |host: &str| host.parse::<Authority>().is_ok() && !host.contains([':', '@']);
    if host.parse::<Ipv6Addr>().is_err() && !is_name(host) {
        return Err("give a host name or an address, without a scheme or a port".to_owned());
    }
    Ok(host.to_owned())
}

fn ttl(text: &str) -> Result<Duration, String> {
    let ttl = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    let range = Duration::from_secs(2)..=Duration::from_secs(60);
    // A lease lasts whole seconds.
    if !range.contains(&ttl) || ttl.subsec_nanos() != 0 {
        return Err("a lead lasts whole seconds, from 2s to 60s".to_owned());
    }
    Ok(ttl)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lead_lasts_whole_seconds_in_its_range() {
        for (text, seconds) in [
            ("2s", Some(2)),
            ("1m", Some(60)),
            ("1s", None),
            ("61s", None),
            ("2500ms", None),
            ("5", None),
        ] {
            assert_eq!(ttl(text).ok(), seconds.map(Duration::from_secs), "{text}");
        }
    }

    #[test]
    fn advertised_host_has_no_port() {
        for (text, expected) in [
            ("controller-1.example.org", Some("controller-1.example.org")),
            ("10.0.0.1", Some("10.0.0.1")),
            ("fd00::1", Some("fd00::1")),
            ("[fd00::1]", Some("fd00::1")),
            ("controller-1:7401", None),
            ("http://controller-1", None),
            ("controller/1", None),
            ("a b", None),
            ("", None),
        ] {
            assert_eq!(host(text).ok().as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn access_needs_a_store() {
        let access = StoreAccess {
            store_user: Some("app".to_owned()),
            ..StoreAccess::default()
        };
        let args = StoreArgs {
            access,
            ..StoreArgs::default()
        };
        assert!(matches!(args.client(), Err(StoreArgsError::WithoutStore)));
        assert!(
            StoreArgs::default()
                .client()
                .is_ok_and(|client| client.is_none())
        );
    }
}
