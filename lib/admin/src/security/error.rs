//! Faults of the flags of trust, each with the flag and the remedy. The same command fails again, so all are errors of
//! usage.

use std::net::SocketAddr;
use std::path::PathBuf;

use plimsoll_core::exchange::{InvalidPeerId, PeerId, PeerRole};
use plimsoll_tls::CertificatesError;

use crate::access::TokenFileError;

/// The reason why the flags of trust cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SecurityError {
    /// A port would speak plaintext beyond loopback.
    #[error(
        "{flag} {address} is not a loopback address, and without certificates every host that reaches it could use it: \
         give --certs DIR, which `plimsoll certs` makes, or --insecure if the network is trusted"
    )]
    Plaintext {
        /// The flag of the port.
        flag: &'static str,
        /// Its address.
        address: SocketAddr,
    },
    /// The certificates cannot be used.
    #[error("--certs: {0}")]
    Certificates(#[from] CertificatesError),
    /// The certificate is that of another role, zone or service.
    #[error(
        "--certs: the certificate in {} is that of {found}, and this process is {expected}: give it a certificate of its \
         own, such as by `{}`", .directory.display(), command(.expected, .directory)
    )]
    OtherIdentity {
        /// The directory of the certificate.
        directory: PathBuf,
        /// The identity in the certificate.
        found: Box<PeerId>,
        /// The identity of the process.
        expected: Box<PeerId>,
    },
    /// The zone cannot be in a certificate.
    #[error("--zone: {0}")]
    Unnamable(#[from] InvalidPeerId),
    /// The tokens file cannot be used.
    #[error("--tokens: {0}")]
    AdminTokens(#[from] TokenFileError),
}

fn command(id: &PeerId, directory: &std::path::Path) -> String {
    let role = match id.role() {
        PeerRole::Controller => "controller".to_owned(),
        PeerRole::Aggregator { zone } => format!("aggregator --zone {zone}"),
        PeerRole::Service { zone, service } => format!("service --zone {zone} --service {service}"),
        PeerRole::Quota => "quota".to_owned(),
    };
    format!(
        "plimsoll certs issue {role} --ca CA-DIR --out {}",
        directory.display()
    )
}
