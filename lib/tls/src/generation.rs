//! One set of certificates, and its configuration. It was validated as a whole, or its authorities
//! replaced those of a set that was.

use std::sync::Arc;
use std::time::SystemTime;

use plimsoll_core::exchange::PeerId;
use rustls::crypto::ring::Ticketer;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::ProducesTickets;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{CertificateError, ClientConfig, Error, InconsistentKeys, ServerConfig};

use crate::config::Trust;
use crate::error::{CertificatesError, Fault};
use crate::files::{Digests, Files};
use crate::peer::{Validity, identity};

pub(crate) struct Generation {
    /// Number of this set, from 1.
    pub(crate) number: u64,
    pub(crate) digests: Digests,
    pub(crate) id: PeerId,
    pub(crate) validity: Validity,
    /// True if no authority of this set signs this process's certificate.
    pub(crate) is_untrusted: bool,
    pub(crate) mutual_server: Arc<ServerConfig>,
    pub(crate) admin_server: Arc<ServerConfig>,
    pub(crate) child: Arc<ClientConfig>,
    own: Arc<CertifiedKey>,
    /// Decrypts the sessions of earlier generations with the same authorities.
    ticketer: Arc<dyn ProducesTickets>,
}

impl Generation {
    /// Validates the first set of a process, at any time: with an expired one a restarted service
    /// decides by its stored directives, and takes renewed files as soon as they exist.
    pub(crate) fn first(files: &Files, now: SystemTime) -> Result<Self, CertificatesError> {
        Self::new(files, now, None)
    }

    /// Validates changed files: they must have the same identity and be valid now.
    pub(crate) fn next(&self, files: &Files, now: SystemTime) -> Result<Self, CertificatesError> {
        let next = Self::new(files, now, Some(self))?;
        let fault = |fault| Err(files.certificate.fault(fault));
        if next.id != self.id {
            return fault(Fault::OtherIdentity {
                before: self.id.clone().into(),
                now: next.id.into(),
            });
        }
        if now > next.validity.not_after {
            return fault(Fault::Expired);
        }
        match next.validity.not_before.duration_since(now) {
            Ok(wait) if !wait.is_zero() => fault(Fault::NotYetValid(wait)),
            _ => Ok(next),
        }
    }

    /// Returns this set with the authorities of these files, which need not have signed its
    /// certificate: a removed authority must be refused even if the other files are unusable.
    pub(crate) fn with_authorities(
        &self,
        files: &Files,
        now: SystemTime,
    ) -> Result<Self, CertificatesError> {
        let trust = Trust::new(&files.ca)?;
        let is_untrusted = verify(&trust, &self.own.cert, &self.id, now, self.validity).is_err();
        let digests = Digests {
            ca: files.digests().ca,
            ..self.digests
        };
        let leaf = (self.own.clone(), self.id.clone(), self.validity);
        Self::assemble(&trust, leaf, digests, is_untrusted, Some(self))
            .map_err(|error| files.ca.fault(Fault::Chain(error)))
    }

    fn new(
        files: &Files,
        now: SystemTime,
        before: Option<&Self>,
    ) -> Result<Self, CertificatesError> {
        let trust = Trust::new(&files.ca)?;
        let chain = files.certificate.certificates()?;
        let at_certificate = |fault| files.certificate.fault(fault);
        let (id, validity) =
            identity(Some(&chain)).map_err(|error| at_certificate(Fault::Identity(error)))?;
        verify(&trust, &chain, &id, now, validity).map_err(at_certificate)?;
        let key = CertifiedKey::from_der(chain, files.key.private_key()?, trust.provider());
        let own = Arc::new(key.map_err(|error| {
            let is_mismatch = matches!(
                error,
                Error::InconsistentKeys(InconsistentKeys::KeyMismatch)
            );
            files.key.fault(if is_mismatch {
                Fault::KeyMismatch
            } else {
                Fault::Key
            })
        })?);
        Self::assemble(&trust, (own, id, validity), files.digests(), false, before)
            .map_err(|error| at_certificate(Fault::Chain(error)))
    }

    fn assemble(
        trust: &Trust,
        (own, id, validity): (Arc<CertifiedKey>, PeerId, Validity),
        digests: Digests,
        is_untrusted: bool,
        before: Option<&Self>,
    ) -> Result<Self, Error> {
        let ticketer = match before {
            Some(before) if before.digests.ca == digests.ca => before.ticketer.clone(),
            // Sessions of a removed authority must not be resumed.
            _ => Ticketer::new()?,
        };
        let resolver = Arc::new(SingleCertAndKey::from(own.clone()));
        Ok(Self {
            number: before.map_or(1, |before| before.number + 1),
            digests,
            validity,
            is_untrusted,
            mutual_server: Arc::new(trust.mutual_server(
                resolver.clone(),
                id.trust_domain(),
                ticketer.clone(),
            )?),
            admin_server: Arc::new(trust.admin_server(resolver.clone())?),
            child: Arc::new(trust.child(resolver, id.trust_domain())?),
            id,
            own,
            ticketer,
        })
    }
}

/// Verifies this process's chain. The caller checks the validity of the leaf.
fn verify(
    trust: &Trust,
    chain: &[CertificateDer<'_>],
    id: &PeerId,
    now: SystemTime,
    validity: Validity,
) -> Result<(), Fault> {
    let at = now.clamp(validity.not_before, validity.not_after);
    let at = UnixTime::since_unix_epoch(
        at.duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default(),
    );
    trust
        .verify_own(id, chain, at)
        .map_err(|error| match error {
            Error::InvalidCertificate(
                CertificateError::UnknownIssuer | CertificateError::BadSignature,
            ) => Fault::ForeignAuthority,
            Error::InvalidCertificate(
                CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. },
            ) => Fault::Usage,
            error => Fault::Chain(error),
        })
}
