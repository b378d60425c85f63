//! The verifiers of both ends: the chain as rustls verifies it, then the identity in place of a
//! host name.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, RootCertStore,
    SignatureScheme,
};

use crate::peer::{Peer, PeerError, Tier};

/// Maximum number of certificates after the leaf. Issuers need one or two; without a limit, an
/// unknown peer decides how many signatures are verified.
const INTERMEDIATES_MAX: usize = 4;

/// Runs before any signature is verified.
fn check_length(intermediates: &[CertificateDer<'_>]) -> Result<(), Error> {
    if intermediates.len() <= INTERMEDIATES_MAX {
        return Ok(());
    }
    Err(refused(PeerError::LongChain {
        intermediates: intermediates.len(),
        max: INTERMEDIATES_MAX,
    }))
}

fn refused(error: PeerError) -> Error {
    Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(error))))
}

/// Peers whose identity a verifier accepts.
#[derive(Debug)]
pub(crate) enum Accepted {
    /// Every role of this trust domain.
    TrustDomain(String),
    /// A tier of any trust domain, for an operator, who has no identity.
    Tier(Tier),
}

impl Accepted {
    fn check(&self, leaf: &CertificateDer<'_>) -> Result<(), Error> {
        let id = Peer::of(Some(std::slice::from_ref(leaf)))
            .map_err(refused)?
            .id;
        match self {
            Self::TrustDomain(expected) if id.trust_domain() != expected => {
                Err(refused(PeerError::ForeignDomain {
                    id,
                    expected: expected.clone(),
                }))
            }
            Self::Tier(expected) if !expected.has(&id) => Err(refused(PeerError::OtherTier {
                id,
                expected: *expected,
            })),
            Self::TrustDomain(_) | Self::Tier(_) => Ok(()),
        }
    }
}

#[derive(Debug)]
pub(crate) struct OfClients {
    pub(crate) chain: Arc<dyn ClientCertVerifier>,
    pub(crate) accepted: Accepted,
}

impl ClientCertVerifier for OfClients {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.chain.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        check_length(intermediates)?;
        let verified = self.chain.verify_client_cert(leaf, intermediates, now)?;
        self.accepted.check(leaf).map(|()| verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain.verify_tls12_signature(message, leaf, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain.verify_tls13_signature(message, leaf, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chain.supported_verify_schemes()
    }
}

/// Verifies servers by their identity in place of their host name.
#[derive(Debug)]
pub(crate) struct OfServers {
    pub(crate) roots: Arc<RootCertStore>,
    pub(crate) algorithms: WebPkiSupportedAlgorithms,
    pub(crate) accepted: Accepted,
}

impl ServerCertVerifier for OfServers {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _host: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        check_length(intermediates)?;
        let parsed = ParsedCertificate::try_from(leaf)?;
        let (roots, algorithms) = (&self.roots, self.algorithms.all);
        verify_server_cert_signed_by_trust_anchor(&parsed, roots, intermediates, now, algorithms)?;
        self.accepted
            .check(leaf)
            .map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, leaf, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, leaf, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
