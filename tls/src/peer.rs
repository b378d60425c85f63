//! The identity and the validity that a verified certificate gives its holder.

use std::str::FromStr;
use std::time::{Duration, SystemTime};

use plimsoll_core::exchange::{InvalidPeerId, PeerId};
use rustls::pki_types::{CertificateDer, UnixTime};
use webpki::{EndEntityCert, Error as WebpkiError, KeyUsage};

/// The scheme of the URI that is an identity.
const SCHEME: &str = "spiffe://";

/// A peer whose certificate was verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its identity.
    pub id: PeerId,
    /// The end of its certificate's validity.
    pub not_after: SystemTime,
}

/// The reason why a certificate gives no usable identity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    /// There is no certificate.
    #[error("no certificate was presented")]
    NoCertificate,
    /// The bytes are not a certificate with a validity.
    #[error("the certificate cannot be read: {0}")]
    Unreadable(WebpkiError),
    /// No URI is an identity.
    #[error("the certificate has no identity: issue it with a URI name that begins with {SCHEME}")]
    NoIdentity,
    /// Several URIs are identities.
    #[error("the certificate has {0} identities: issue it with one URI name that begins with {SCHEME}")]
    SeveralIdentities(usize),
    /// The URI breaks the rules of identities.
    #[error("the certificate's URI name is no identity of Plimsoll: {0}")]
    Identity(#[from] InvalidPeerId),
    /// The identity belongs to another fleet.
    #[error(
        "{id} is not of the trust domain {expected}: issue the certificates of both ends with one trust domain"
    )]
    ForeignDomain {
        /// The identity.
        id: PeerId,
        /// The trust domain of this process.
        expected: String,
    },
    /// The certificate of the operator's peer names neither a controller nor an aggregator.
    #[error("{0} is neither a controller nor an aggregator: check the address")]
    NoTier(PeerId),
}

impl Peer {
    /// Reads the leaf of a chain that a handshake has verified.
    ///
    /// # Errors
    /// If there is no chain, or its leaf has no identity.
    pub fn of(chain: Option<&[CertificateDer<'_>]>) -> Result<Self, PeerError> {
        let (id, validity) = identity(chain)?;
        Ok(Self { id, not_after: validity.not_after })
    }

    /// Returns true if the certificate's validity is over. A resumed session does not verify the certificate again,
    /// so both ends ask this after each handshake.
    pub fn is_expired(&self, now: SystemTime) -> bool {
        now > self.not_after
    }
}

/// Reads identity and validity of the leaf of a chain.
pub(crate) fn identity(chain: Option<&[CertificateDer<'_>]>) -> Result<(PeerId, Validity), PeerError> {
    let leaf = chain.and_then(<[_]>::first).ok_or(PeerError::NoCertificate)?;
    let leaf = EndEntityCert::try_from(leaf).map_err(PeerError::Unreadable)?;
    let mut uris = leaf.valid_uri_names().filter(|uri| uri.starts_with(SCHEME));
    let uri = uris.next().ok_or(PeerError::NoIdentity)?;
    match uris.count() {
        0 => Ok((PeerId::from_str(uri)?, Validity::of(&leaf)?)),
        more => Err(PeerError::SeveralIdentities(more + 1)),
    }
}

/// The time during which a certificate is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Validity {
    pub(crate) not_before: SystemTime,
    pub(crate) not_after: SystemTime,
}

impl Validity {
    /// Reads the validity by verifying at both ends of time: webpki reads the two times first, and gives them in its
    /// errors alone.
    fn of(leaf: &EndEntityCert<'_>) -> Result<Self, PeerError> {
        let error_at = |seconds| {
            let at = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
            leaf.verify_for_usage(&[], &[], &[], at, KeyUsage::client_auth(), None, None).err()
        };
        let not_after = match error_at(u64::MAX) {
            Some(WebpkiError::CertExpired { not_after, .. }) => not_after,
            error => return Err(PeerError::Unreadable(error.unwrap_or(WebpkiError::InvalidCertValidity))),
        };
        let not_before = match error_at(0) {
            Some(WebpkiError::CertNotValidYet { not_before, .. }) => not_before,
            _ => UnixTime::since_unix_epoch(Duration::ZERO),
        };
        Ok(Self { not_before: system_time(not_before)?, not_after: system_time(not_after)? })
    }
}

fn system_time(time: UnixTime) -> Result<SystemTime, PeerError> {
    SystemTime::UNIX_EPOCH
        .checked_add(Duration::from_secs(time.as_secs()))
        .ok_or(PeerError::Unreadable(WebpkiError::BadDerTime))
}
