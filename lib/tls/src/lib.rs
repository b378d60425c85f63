//! Trust between the tiers: the certificates of a process, followed on disk, their identities, and
//! the configuration of both ends of a connection.
//!
//! Peers are verified by their chain, their trust domain and their identity. Host names are not
//! compared, because the addresses of processes change. TLS 1.3 is required.
#![forbid(unsafe_code)]

mod certificates;
mod config;
mod error;
mod failure;
mod files;
mod generation;
mod handshake;
mod peer;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod verifier;

pub use certificates::{Certificates, Health, RoleError};
pub use config::operator_client;
pub use error::{CertificatesError, Fault};
pub use failure::HandshakeFailure;
pub use files::{CA_FILE, CERTIFICATE_FILE, KEY_FILE};
pub use handshake::{accept, connect};
pub use peer::{Peer, PeerError, Tier};
pub use rustls;
pub use tokio_rustls;
