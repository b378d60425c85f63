//! The certificates of a process, as a handle that all its ports and connections share.

mod follow;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use plimsoll_core::exchange::{InvalidPeerId, PeerId, PeerRole};
use rustls::{ClientConfig, ServerConfig};
use tokio::sync::watch;

use crate::error::CertificatesError;
use crate::files::{Files, KEY_FILE};
use crate::generation::Generation;
use follow::Looks;

/// Remaining part of a certificate's validity, as a divisor, below which it counts as ending.
/// Issuers renew earlier: at a third (cert-manager) or at half (SPIRE).
const ENDING_PART: u32 = 4;

/// Certificates of this process: `tls.crt`, `tls.key` and `ca.crt` of one directory. Clones share
/// one set.
#[derive(Clone)]
pub struct Certificates {
    shared: Arc<Shared>,
}

/// State of the certificates of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// Start of the validity of the current certificate.
    pub not_before: SystemTime,
    /// End of the validity.
    pub not_after: SystemTime,
    /// Number of sets so far, including the current one.
    pub generation: u64,
    /// True if no current authority signs the certificate, so that peers with the same authorities
    /// refuse it.
    pub is_untrusted: bool,
    /// Number of refused changes of the files.
    pub failures: u64,
    /// Reason why the files are refused now: certificate and key stay those read before.
    pub refused: Option<String>,
}

impl Health {
    /// Returns true if the current certificate has expired.
    pub fn is_expired(&self, now: SystemTime) -> bool {
        now > self.not_after
    }

    /// Returns true if the end is near: issuers should have renewed the certificate by now.
    pub fn is_ending(&self, now: SystemTime) -> bool {
        let lifetime = self.not_after.duration_since(self.not_before);
        let left = self.not_after.duration_since(now).unwrap_or_default();
        left < lifetime.unwrap_or_default() / ENDING_PART
    }
}

struct Shared {
    directory: PathBuf,
    state: Mutex<State>,
    /// Held while the files are read, which may take long.
    looks: Mutex<Looks>,
    /// Number of the current set.
    changes: watch::Sender<u64>,
}

struct State {
    current: Arc<Generation>,
    failures: u64,
    refused: Option<String>,
}

/// Reason why a certificate does not fit a role.
#[derive(Debug, thiserror::Error)]
pub enum RoleError {
    /// No certificate can name the role.
    #[error(transparent)]
    Invalid(#[from] InvalidPeerId),
    /// The certificate names another role.
    #[error("the certificate is that of {certificate}, not of {expected}")]
    Other {
        /// Identity in the certificate.
        certificate: Box<PeerId>,
        /// Identity of the role.
        expected: Box<PeerId>,
    },
}

impl Certificates {
    /// Reads the files. Accepts a certificate that has expired, and logs it, or that is not valid yet:
    /// its renewal may be on the way, or the clock wrong.
    ///
    /// # Errors
    /// If the files are not one valid set, regardless of the validity of the leaf.
    pub fn open(directory: &Path) -> Result<Self, CertificatesError> {
        let now = SystemTime::now();
        let files = Files::read(directory)?;
        let current = Arc::new(Generation::first(&files, now)?);
        let (changes, _) = watch::channel(current.number);
        let state = Mutex::new(State {
            current,
            failures: 0,
            refused: None,
        });
        let shared = Shared {
            directory: directory.to_owned(),
            state,
            looks: Mutex::default(),
            changes,
        };
        let certificates = Self {
            shared: Arc::new(shared),
        };
        certificates.warn_of_public_key();
        certificates.log_age(&mut lock(&certificates.shared.looks), now);
        Ok(certificates)
    }

    /// Returns the identity of this process, which never changes.
    pub fn id(&self) -> PeerId {
        self.current().id.clone()
    }

    /// Compares the identity of this process with a role in its trust domain.
    ///
    /// # Errors
    /// If no certificate can name the role, or this one names another.
    pub fn check_role(&self, role: PeerRole) -> Result<(), RoleError> {
        let certificate = self.id();
        let expected = PeerId::new(certificate.trust_domain(), role)?;
        if certificate == expected {
            return Ok(());
        }
        let (certificate, expected) = (Box::new(certificate), Box::new(expected));
        Err(RoleError::Other {
            certificate,
            expected,
        })
    }

    /// Returns the directory of the files.
    pub fn directory(&self) -> &Path {
        &self.shared.directory
    }

    /// Returns true if all users of this machine have access to the key. A group may: Kubernetes gives
    /// the files of a Secret to one.
    pub fn is_key_public(&self) -> bool {
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let metadata = self.directory().join(KEY_FILE).metadata();
            metadata.is_ok_and(|metadata| metadata.permissions().mode() & 0o007 != 0)
        }
        #[cfg(not(unix))]
        false
    }

    /// Returns the state for metrics and health.
    pub fn health(&self) -> Health {
        let state = lock(&self.shared.state);
        let validity = state.current.validity;
        Health {
            not_before: validity.not_before,
            not_after: validity.not_after,
            generation: state.current.number,
            is_untrusted: state.current.is_untrusted,
            failures: state.failures,
            refused: state.refused.clone(),
        }
    }

    /// Returns a receiver of the current generation number.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.shared.changes.subscribe()
    }

    /// Returns the configuration of a gRPC port: TLS 1.3 with client certificates, and `h2`.
    pub fn mutual_server(&self) -> Arc<ServerConfig> {
        self.current().mutual_server.clone()
    }

    /// Returns the configuration of an admin port: TLS 1.3 without client certificates, and
    /// `http/1.1`.
    pub fn admin_server(&self) -> Arc<ServerConfig> {
        self.current().admin_server.clone()
    }

    /// Returns the configuration of connections to a parent: TLS 1.3 with this process's
    /// certificate, and `h2`. Sessions are resumed within one generation.
    pub fn child(&self) -> Arc<ClientConfig> {
        self.current().child.clone()
    }

    fn current(&self) -> Arc<Generation> {
        lock(&self.shared.state).current.clone()
    }
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let current = self.current();
        f.debug_struct("Certificates")
            .field("directory", &self.shared.directory)
            .field("id", &current.id)
            .field("generation", &current.number)
            .finish_non_exhaustive()
    }
}

/// A poisoned lock is taken over: its data is consistent after each statement.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
