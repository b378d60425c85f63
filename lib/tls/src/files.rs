//! The three files of a set of certificates, with the names of a cert-manager Secret.

use std::path::{Path, PathBuf};

use plimsoll_host::regular_file;
use ring::digest::SHA256;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{Error, RootCertStore};

use crate::error::{CertificatesError, Fault};

/// Certificate of a process with its chain, leaf first.
pub const CERTIFICATE_FILE: &str = "tls.crt";
/// Key of a process.
pub const KEY_FILE: &str = "tls.key";
/// Authorities that verify peers.
pub const CA_FILE: &str = "ca.crt";

pub(crate) const FILE_BYTES_MAX: usize = 1 << 20;

/// Has no `Debug`, because it contains the key.
pub(crate) struct Files {
    pub(crate) certificate: Pem,
    pub(crate) key: Pem,
    pub(crate) ca: Pem,
}

impl Files {
    pub(crate) fn read(directory: &Path) -> Result<Self, CertificatesError> {
        let read = |name| Pem::read(directory.join(name));
        Ok(Self {
            certificate: read(CERTIFICATE_FILE)?,
            key: read(KEY_FILE)?,
            ca: read(CA_FILE)?,
        })
    }

    pub(crate) fn digests(&self) -> Digests {
        Digests {
            certificate: self.certificate.digest(),
            key: self.key.digest(),
            ca: self.ca.digest(),
        }
    }
}

/// SHA-256 digests, which show a change.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Digests {
    pub(crate) certificate: [u8; 32],
    pub(crate) key: [u8; 32],
    pub(crate) ca: [u8; 32],
}

pub(crate) struct Pem {
    pub(crate) path: PathBuf,
    bytes: Vec<u8>,
}

impl Pem {
    pub(crate) fn read(path: PathBuf) -> Result<Self, CertificatesError> {
        match regular_file::read_whole(&path, FILE_BYTES_MAX) {
            Ok(bytes) => Ok(Self { path, bytes }),
            Err(error) => Err(CertificatesError {
                path,
                fault: Fault::Unreadable(error),
            }),
        }
    }

    fn digest(&self) -> [u8; 32] {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(ring::digest::digest(&SHA256, &self.bytes).as_ref());
        bytes
    }

    pub(crate) fn fault(&self, fault: Fault) -> CertificatesError {
        CertificatesError {
            path: self.path.clone(),
            fault,
        }
    }

    /// Returns at least one certificate.
    pub(crate) fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, CertificatesError> {
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.bytes).collect();
        // The error may quote a line of the file, which could be the wrong one.
        certificates
            .ok()
            .filter(|certificates| !certificates.is_empty())
            .ok_or_else(|| self.fault(Fault::NoCertificate))
    }

    pub(crate) fn private_key(&self) -> Result<PrivateKeyDer<'static>, CertificatesError> {
        PrivateKeyDer::from_pem_slice(&self.bytes).map_err(|_| self.fault(Fault::NoKey))
    }

    pub(crate) fn authorities(&self) -> Result<RootCertStore, CertificatesError> {
        let mut roots = RootCertStore::empty();
        for certificate in self.certificates()? {
            let added: Result<(), Error> = roots.add(certificate);
            added.map_err(|error| self.fault(Fault::Authority(error)))?;
        }
        Ok(roots)
    }
}
