//! The identity and the validity in a certificate.

use std::str::FromStr;
use std::time::{Duration, SystemTime};

use plimsoll_core::exchange::{InvalidPeerId, PeerId, PeerRole};
use rustls::pki_types::{CertificateDer, UnixTime};
use webpki::{EndEntityCert, Error as WebpkiError, KeyUsage};

const SCHEME: &str = "spiffe://";

/// Peer as its certificate describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Identity of the peer.
    pub id: PeerId,
    /// End of its certificate's validity.
    pub not_after: SystemTime,
}

/// Reason why a certificate gives no usable identity.
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
    #[error(
        "the certificate has {0} identities: issue it with one URI name that begins with {SCHEME}"
    )]
    SeveralIdentities(usize),
    /// The URI breaks the rules of identities.
    #[error("the certificate's URI name is no identity of Plimsoll: {0}")]
    Identity(#[from] InvalidPeerId),
    /// The identity belongs to another fleet.
    #[error(
        "{id} is not of the trust domain {expected}: issue the certificates of both ends with one trust domain"
    )]
    ForeignDomain {
        /// Identity in the certificate.
        id: PeerId,
        /// Trust domain of this process.
        expected: String,
    },
    /// The chain has too many certificates.
    #[error(
        "{intermediates} certificates follow the leaf, at most {max} may: leave out those that do not lead to a CA of \
         ca.crt"
    )]
    LongChain {
        /// Number of certificates after the leaf.
        intermediates: usize,
        /// Maximum number that is verified.
        max: usize,
    },
    /// The certificate of the operator's peer names another tier than the command is for.
    #[error("{id} is no {}: check the address", expected.as_str())]
    OtherTier {
        /// Identity in the certificate.
        id: PeerId,
        /// Tier that the command is for.
        expected: Tier,
    },
}

/// Tier of the admin port that an operator calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// The controller.
    Controller,
    /// An aggregator of any zone.
    Aggregator,
    /// A quota server.
    Quota,
}

impl Tier {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Controller => "controller",
            Self::Aggregator => "aggregator",
            Self::Quota => "quota server",
        }
    }

    pub(crate) const fn has(self, id: &PeerId) -> bool {
        matches!(
            (self, id.role()),
            (Self::Controller, PeerRole::Controller)
                | (Self::Aggregator, PeerRole::Aggregator { .. })
                | (Self::Quota, PeerRole::Quota)
        )
    }
}

impl Peer {
    /// Reads the leaf of a chain, without verifying it: a handshake does that.
    ///
    /// # Errors
    /// If there is no chain, or its leaf has no usable identity or cannot be read.
    pub fn of(chain: Option<&[CertificateDer<'_>]>) -> Result<Self, PeerError> {
        let (id, validity) = identity(chain)?;
        Ok(Self {
            id,
            not_after: validity.not_after,
        })
    }

    /// Returns true if the certificate has expired. A resumed session does not verify the
    /// certificate again, so this is asked after each handshake.
    pub fn is_expired(&self, now: SystemTime) -> bool {
        now > self.not_after
    }
}

/// Reads the identity and the validity of the leaf of a chain, without verifying it.
pub(crate) fn identity(
    chain: Option<&[CertificateDer<'_>]>,
) -> Result<(PeerId, Validity), PeerError> {
    let leaf = chain
        .and_then(<[_]>::first)
        .ok_or(PeerError::NoCertificate)?;
    let leaf = EndEntityCert::try_from(leaf).map_err(PeerError::Unreadable)?;
    let mut uris = leaf.valid_uri_names().filter(|uri| uri.starts_with(SCHEME));
    let uri = uris.next().ok_or(PeerError::NoIdentity)?;
    match uris.count() {
        0 => Ok((PeerId::from_str(uri)?, Validity::of(&leaf)?)),
        more => Err(PeerError::SeveralIdentities(more + 1)),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Validity {
    pub(crate) not_before: SystemTime,
    pub(crate) not_after: SystemTime,
}

impl Validity {
    /// Reads the validity by verifying at both ends of time: webpki reads the two times first, and
    /// reveals them only in its errors.
    fn of(leaf: &EndEntityCert<'_>) -> Result<Self, PeerError> {
        let error_at = |seconds| {
            let at = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
            leaf.verify_for_usage(&[], &[], &[], at, KeyUsage::client_auth(), None, None)
                .err()
        };
        let not_after = match error_at(u64::MAX) {
            Some(WebpkiError::CertExpired { not_after, .. }) => not_after,
            error => {
                return Err(PeerError::Unreadable(
                    error.unwrap_or(WebpkiError::InvalidCertValidity),
                ));
            }
        };
        let not_before = match error_at(0) {
            Some(WebpkiError::CertNotValidYet { not_before, .. }) => not_before,
            _ => UnixTime::since_unix_epoch(Duration::ZERO),
        };
        Ok(Self {
            not_before: system_time(not_before)?,
            not_after: system_time(not_after)?,
        })
    }
}

fn system_time(time: UnixTime) -> Result<SystemTime, PeerError> {
    SystemTime::UNIX_EPOCH
        .checked_add(Duration::from_secs(time.as_secs()))
        .ok_or(PeerError::Unreadable(WebpkiError::BadDerTime))
}

#[cfg(test)]
mod tests {
    use plimsoll_core::exchange::PeerRole;
    use proptest::prelude::*;
    use rustls::pki_types::pem::PemObject;

    use super::*;
    use crate::testing::{Authority, Request, Validity as Issued};

    fn leaf(uris: &[&str], seconds: (u64, u64)) -> CertificateDer<'static> {
        let authority = Authority::new("a.example");
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let validity = Issued {
            not_before: at(seconds.0),
            not_after: at(seconds.1),
        };
        let uris = uris.iter().map(ToString::to_string).collect();
        let request = Request {
            uris,
            ..authority.request(PeerRole::Controller, validity)
        };
        CertificateDer::from_pem_slice(authority.issue(&request).certificate.as_bytes()).unwrap()
    }

    #[test]
    fn leaf_identity_and_validity_are_read() {
        let controller = "spiffe://a.example/plimsoll/controller";
        // A certificate can name no time after the year 9999.
        for seconds in [
            (0, 0),
            (0, 1),
            (1_000_000_000, 2_000_000_000),
            (4_102_444_800, 253_402_300_799),
        ] {
            for uris in [&[controller][..], &["https://a.example", controller, "a:b"]] {
                let chain = [leaf(uris, seconds), leaf(&[], (0, 1))];
                let (id, validity) = identity(Some(&chain)).unwrap();
                assert_eq!(id.to_string(), controller);
                let of_epoch = |time: SystemTime| {
                    time.duration_since(SystemTime::UNIX_EPOCH)
                        .unwrap()
                        .as_secs()
                };
                assert_eq!(
                    (of_epoch(validity.not_before), of_epoch(validity.not_after)),
                    seconds
                );
                let peer = Peer::of(Some(&chain)).unwrap();
                assert_eq!((&peer.id, peer.not_after), (&id, validity.not_after));
                assert!(!peer.is_expired(validity.not_after));
                assert!(peer.is_expired(validity.not_after + Duration::from_secs(1)));
            }
        }
    }

    #[test]
    fn leaf_without_one_identity_is_refused() {
        let (one, two) = (
            "spiffe://a/plimsoll/controller",
            "spiffe://b/plimsoll/controller",
        );
        for (uris, error) in [
            (&[][..], PeerError::NoIdentity),
            (&["https://a.example"], PeerError::NoIdentity),
            (&["Spiffe://a/plimsoll/controller"], PeerError::NoIdentity),
            (&[one, two], PeerError::SeveralIdentities(2)),
            (&[one, one], PeerError::SeveralIdentities(2)),
            (
                &[one, "spiffe://", "spiffe://c"],
                PeerError::SeveralIdentities(3),
            ),
            (
                &["spiffe://a/ns/default/sa/b"],
                PeerError::Identity(InvalidPeerId::Path),
            ),
        ] {
            assert_eq!(
                Peer::of(Some(&[leaf(uris, (0, 1))])),
                Err(error),
                "{uris:?}"
            );
        }
        for chain in [None, Some(&[][..])] {
            assert_eq!(Peer::of(chain), Err(PeerError::NoCertificate));
        }
    }

    proptest! {
        #[test]
        fn changed_bytes_are_refused_or_read(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
            cut in prop::option::of(any::<prop::sample::Index>()),
        ) {
            let mut bytes = leaf(&["spiffe://a.example/plimsoll/controller"], (0, 1)).to_vec();
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            bytes.truncate(cut.map_or(usize::MAX, |cut| cut.index(bytes.len())));
            match Peer::of(Some(&[bytes.into()])) {
                Ok(peer) => prop_assert_eq!(peer.id.to_string().parse(), Ok(peer.id)),
                Err(error) => prop_assert!(error.to_string().len() < 500, "{}", error),
            }
        }
    }
}
