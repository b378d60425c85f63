//! One set of certificates that was validated as a whole, and the configuration made of it.

use std::sync::Arc;
use std::time::SystemTime;

use plimsoll_core::exchange::PeerId;
use ring::digest::Digest;
use rustls::crypto::ring::Ticketer;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::ProducesTickets;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{CertificateError, ClientConfig, Error, InconsistentKeys, ServerConfig};

use crate::config::Trust;
use crate::error::{CertificatesError, Fault};
use crate::files::Files;
use crate::peer::{Validity, identity};

pub(crate) struct Generation {
    /// Counts the sets that were in force, from 1.
    pub(crate) number: u64,
    /// The digest of the files.
    pub(crate) digest: [u8; 32],
    pub(crate) id: PeerId,
    pub(crate) validity: Validity,
    pub(crate) mutual_server: Arc<ServerConfig>,
    pub(crate) admin_server: Arc<ServerConfig>,
    pub(crate) child: Arc<ClientConfig>,
    /// Decrypts the sessions of earlier generations that had the same authorities.
    ticketer: Arc<dyn ProducesTickets>,
    ca: Digest,
}

impl Generation {
    /// Validates the set that a process begins with. It may have expired: a service that starts again decides by
    /// what it holds, and renewed files are taken when they are there.
    pub(crate) fn first(files: &Files, now: SystemTime) -> Result<Self, CertificatesError> {
        Self::new(files, now, None)
    }

    /// Validates the set that replaces this one.
    pub(crate) fn next(&self, files: &Files, now: SystemTime) -> Result<Self, CertificatesError> {
        let next = Self::new(files, now, Some(self))?;
        let fault = |fault| Err(files.certificate.fault(fault));
        if next.id != self.id {
            return fault(Fault::OtherIdentity { before: self.id.clone().into(), now: next.id.into() });
        }
        if now > next.validity.not_after {
            return fault(Fault::Expired);
        }
        match next.validity.not_before.duration_since(now) {
            Ok(wait) if !wait.is_zero() => fault(Fault::NotYetValid(wait)),
            _ => Ok(next),
        }
    }

    fn new(files: &Files, now: SystemTime, before: Option<&Self>) -> Result<Self, CertificatesError> {
        let trust = Trust::new(&files.ca)?;
        let chain = files.certificate.certificates()?;
        let at_certificate = |fault| files.certificate.fault(fault);
        let (id, validity) =
            identity(Some(&chain)).map_err(|error| at_certificate(Fault::Identity(error)))?;
        verify(&trust, &chain, &id, now, validity).map_err(at_certificate)?;
        let key = CertifiedKey::from_der(chain, files.key.private_key()?, trust.provider());
        let own = Arc::new(SingleCertAndKey::from(key.map_err(|error| {
            let is_mismatch = matches!(error, Error::InconsistentKeys(InconsistentKeys::KeyMismatch));
            files.key.fault(if is_mismatch { Fault::KeyMismatch } else { Fault::Key })
        })?));
        let ca = files.ca.digest();
        let ticketer = match before {
            Some(before) if before.ca.as_ref() == ca.as_ref() => Ok(before.ticketer.clone()),
            // Sessions of an authority that is trusted no longer must not be resumed.
            _ => Ticketer::new(),
        };
        let configs = ticketer.and_then(|ticketer| {
            let mutual_server = trust.mutual_server(own.clone(), id.trust_domain(), ticketer.clone())?;
            let admin_server = trust.admin_server(own.clone())?;
            let child = trust.child(own, id.trust_domain())?;
            Ok((ticketer, mutual_server, admin_server, child))
        });
        let (ticketer, mutual_server, admin_server, child) =
            configs.map_err(|error| at_certificate(Fault::Chain(error)))?;
        Ok(Self {
            number: before.map_or(1, |before| before.number + 1),
            digest: files.digest(),
            id,
            validity,
            mutual_server: Arc::new(mutual_server),
            admin_server: Arc::new(admin_server),
            child: Arc::new(child),
            ticketer,
            ca,
        })
    }
}

/// Verifies the own chain. The validity of the leaf itself is left to the caller.
fn verify(
    trust: &Trust,
    chain: &[CertificateDer<'_>],
    id: &PeerId,
    now: SystemTime,
    validity: Validity,
) -> Result<(), Fault> {
    let at = now.clamp(validity.not_before, validity.not_after);
    let at = UnixTime::since_unix_epoch(at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default());
    trust.verify_own(id, chain, at).map_err(|error| match error {
        Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
            Fault::ForeignAuthority
        }
        Error::InvalidCertificate(
            CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. },
        ) => Fault::Usage,
        error => Fault::Chain(error),
    })
}
