//! Faults of the files of certificates, each with its file and its remedy.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use plimsoll_core::exchange::PeerId;

use crate::peer::PeerError;

/// Reason why the certificate files cannot be used. Its text quotes nothing of their content except
/// identities.
#[derive(Debug, thiserror::Error)]
#[error("{}: {fault}", path.display())]
pub struct CertificatesError {
    /// File at fault.
    pub path: PathBuf,
    /// Fault of the file.
    pub fault: Fault,
}

fn unreadable(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "let the user of this process read the directory and its files"
        }
        _ => "the directory must have tls.crt, tls.key and ca.crt",
    }
}

/// Fault of a file.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The file is missing, too large or cannot be read.
    #[error("{0}; {remedy}", remedy = unreadable(.0))]
    Unreadable(io::Error),
    /// The file has no certificate, or a broken one.
    #[error("has no whole certificate in PEM")]
    NoCertificate,
    /// The file has no key.
    #[error("has no whole private key in PEM; an encrypted one cannot be used")]
    NoKey,
    /// The key has an unknown algorithm or is broken.
    #[error("the private key cannot be used: RSA, ECDSA and Ed25519 are possible")]
    Key,
    /// The key belongs to another certificate.
    #[error("is not the key of the certificate in tls.crt: write all files of one issuance")]
    KeyMismatch,
    /// A certificate in `ca.crt` is not an authority.
    #[error("has a certificate that is no authority: {0}")]
    Authority(rustls::Error),
    /// The chain does not lead to an authority.
    #[error(
        "is not signed by an authority of ca.crt: write all files of one issuance, or add the authority"
    )]
    ForeignAuthority,
    /// The certificate may not be used by this role.
    #[error(
        "lacks an extended key usage of its role: a controller needs server authentication, a service client \
             authentication, an aggregator both; issue it with these"
    )]
    Usage,
    /// The chain is invalid for another reason.
    #[error("the certificate cannot be verified: {0}")]
    Chain(rustls::Error),
    /// The certificate has no usable identity.
    #[error("{0}")]
    Identity(PeerError),
    /// The identity has changed.
    #[error(
        "names {now} in place of {before}: a process keeps its identity, so restart it to change that"
    )]
    OtherIdentity {
        /// Current identity.
        before: Box<PeerId>,
        /// Identity of the new file.
        now: Box<PeerId>,
    },
    /// The new certificate has expired.
    #[error("has expired: renew it")]
    Expired,
    /// The new certificate is not valid yet.
    #[error("becomes valid in {} s: compare the clock of this machine with that of the authority", .0.as_secs())]
    NotYetValid(Duration),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreadable_file_error_has_a_fitting_remedy() {
        let text = |kind: io::ErrorKind| {
            CertificatesError {
                path: "a/tls.key".into(),
                fault: Fault::Unreadable(kind.into()),
            }
            .to_string()
        };
        let denied = text(io::ErrorKind::PermissionDenied);
        assert!(
            denied.starts_with("a/tls.key: ") && denied.contains("let the user of this process"),
            "{denied}"
        );
        assert!(text(io::ErrorKind::NotFound).contains("must have tls.crt"));
    }
}
