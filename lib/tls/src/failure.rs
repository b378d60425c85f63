//! Causes of failed handshakes at both ends, as a metric label and as a text that names the remedy.

use std::fmt;
use std::io;

use rustls::{AlertDescription, CertificateError, Error, ExtendedKeyPurpose};

use crate::peer::{Peer, PeerError};

const NO_CERTIFICATE: &str = "no_certificate";
const EXPIRED: &str = "expired";
const NOT_YET_VALID: &str = "not_yet_valid";
const UNKNOWN_AUTHORITY: &str = "unknown_authority";
const FOREIGN_DOMAIN: &str = "foreign_domain";
const NO_IDENTITY: &str = "no_identity";
const WRONG_USAGE: &str = "wrong_usage";
const NOT_TLS: &str = "not_tls";
const NO_ALPN: &str = "no_alpn";
const OTHER: &str = "other";

/// Cause of a failed handshake: a certificate that either end refused, or the protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandshakeFailure {
    label: &'static str,
    text: String,
}

impl HandshakeFailure {
    /// All labels, so that a metric can show each from the start.
    pub const LABELS: &'static [&'static str] = &[
        NO_CERTIFICATE,
        EXPIRED,
        NOT_YET_VALID,
        UNKNOWN_AUTHORITY,
        FOREIGN_DOMAIN,
        NO_IDENTITY,
        WRONG_USAGE,
        NOT_TLS,
        NO_ALPN,
        OTHER,
    ];

    /// Finds the cause of a handshake error.
    pub fn of(error: &io::Error) -> Self {
        let cause = error
            .get_ref()
            .and_then(|cause| cause.downcast_ref::<Error>());
        match cause {
            Some(Error::InvalidCertificate(error)) => Self::of_certificate(error),
            Some(Error::NoCertificatesPresented) => Self::of_peer(&PeerError::NoCertificate),
            Some(Error::AlertReceived(alert)) => Self::of_alert(*alert),
            Some(Error::InvalidMessage(_)) => Self::new(
                NOT_TLS,
                "the peer does not speak TLS: give both ends certificates, or neither",
            ),
            Some(Error::NoApplicationProtocol) => Self::no_alpn(),
            Some(error @ Error::PeerIncompatible(_)) => Self::new(
                OTHER,
                format!("the peer does not speak TLS 1.3 with usual algorithms: {error}"),
            ),
            Some(error) => Self::new(OTHER, format!("the TLS handshake failed: {error}")),
            None if error.kind() == io::ErrorKind::UnexpectedEof => Self::new(
                OTHER,
                "the peer closed the connection during the TLS handshake: check that both ends have certificates, \
                 and the log of the peer",
            ),
            None => Self::new(
                OTHER,
                format!("the connection broke during the TLS handshake: {error}"),
            ),
        }
    }

    /// Returns the metric label.
    pub const fn label(&self) -> &'static str {
        self.label
    }

    pub(crate) fn of_peer(error: &PeerError) -> Self {
        match error {
            PeerError::NoCertificate => Self::new(
                NO_CERTIFICATE,
                "the peer presented no certificate: give it tls.crt, tls.key and ca.crt",
            ),
            PeerError::ForeignDomain { .. } => Self::refused(FOREIGN_DOMAIN, error),
            PeerError::LongChain { .. } => Self::refused(OTHER, error),
            _ => Self::refused(NO_IDENTITY, error),
        }
    }

    pub(crate) fn expired(peer: &Peer) -> Self {
        Self::refused(
            EXPIRED,
            format_args!("the certificate of {} has expired: renew it", peer.id),
        )
    }

    pub(crate) fn no_alpn() -> Self {
        Self::new(
            NO_ALPN,
            "the peer speaks TLS and another protocol than gRPC: check the address and the port",
        )
    }

    fn new(label: &'static str, text: impl Into<String>) -> Self {
        Self {
            label,
            text: text.into(),
        }
    }

    /// The peer's certificate is the cause.
    fn refused(label: &'static str, cause: impl fmt::Display) -> Self {
        Self::new(label, format!("the peer's certificate is refused: {cause}"))
    }

    fn of_certificate(error: &CertificateError) -> Self {
        use CertificateError as E;
        match error {
            E::ExpiredContext { time, not_after } => {
                let seconds = time.as_secs().saturating_sub(not_after.as_secs());
                Self::refused(
                    EXPIRED,
                    format_args!("it expired {seconds} s ago: renew it"),
                )
            }
            E::Expired => Self::refused(EXPIRED, "it has expired: renew it"),
            E::NotValidYetContext { time, not_before } => {
                let seconds = not_before.as_secs().saturating_sub(time.as_secs());
                let cause = format_args!(
                    "it becomes valid in {seconds} s: compare the clocks of both machines"
                );
                Self::refused(NOT_YET_VALID, cause)
            }
            // Two authorities may have the same name: then only the signature differs.
            E::UnknownIssuer | E::BadSignature => Self::refused(
                UNKNOWN_AUTHORITY,
                "it is not signed by an authority of ca.crt: issue it by one of these, or add its authority to \
                 ca.crt at both ends",
            ),
            E::InvalidPurposeContext {
                required: ExtendedKeyPurpose::ClientAuth,
                ..
            } => Self::refused(
                WRONG_USAGE,
                "its extended key usage lacks client authentication: issue it with that usage",
            ),
            E::InvalidPurposeContext { .. } | E::InvalidPurpose => Self::refused(
                WRONG_USAGE,
                "its extended key usage lacks server authentication: issue it with that usage",
            ),
            E::Other(error) => match error.0.downcast_ref::<PeerError>() {
                Some(error) => Self::of_peer(error),
                None => Self::refused(OTHER, error),
            },
            error => Self::refused(OTHER, error),
        }
    }

    /// The peer has refused; an alert is all that it sends.
    fn of_alert(alert: AlertDescription) -> Self {
        use AlertDescription as A;
        let (label, cause) = match alert {
            A::CertificateRequired => (NO_CERTIFICATE, "it asks for one, and there is none"),
            A::CertificateExpired => (
                EXPIRED,
                "it has expired or is not valid yet: renew it, and compare the clocks of both machines",
            ),
            A::UnknownCA | A::DecryptError => (
                UNKNOWN_AUTHORITY,
                "it is not signed by an authority that the peer trusts: issue it by one of these, or add its \
                 authority to ca.crt at both ends",
            ),
            A::UnsupportedCertificate => (
                WRONG_USAGE,
                "its extended key usage does not fit: issue it anew",
            ),
            // Not a missing identity: this process would have refused its own certificate without
            // one.
            A::CertificateUnknown => (
                FOREIGN_DOMAIN,
                "the peer expects an identity of another trust domain; its log has the cause",
            ),
            A::NoApplicationProtocol => return Self::no_alpn(),
            A::BadCertificate | A::CertificateRevoked | A::AccessDenied => {
                (OTHER, "the log of the peer has the cause")
            }
            alert => {
                return Self::new(
                    OTHER,
                    format!("the peer ended the TLS handshake with the alert {alert:?}"),
                );
            }
        };
        Self::new(
            label,
            format!("the peer refused the certificate of this process: {cause}"),
        )
    }
}

impl fmt::Display for HandshakeFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for HandshakeFailure {}
