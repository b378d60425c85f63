//! The fields of a certificate that `certs issue` reads from a CA and from the certificate that it
//! replaces.

use std::fmt::Display;
use std::path::Path;
use std::time::{Duration, SystemTime};

use plimsoll_tls::rustls::pki_types::CertificateDer;
use plimsoll_tls::rustls::pki_types::pem::PemObject;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

use crate::cmd::unusable;

/// Last second of the year 9999.
const LAST_SECOND: u64 = 253_402_300_799;

#[derive(Debug)]
pub(super) struct Certificate {
    pub(super) is_ca: bool,
    pub(super) not_after: SystemTime,
    /// Names that are URIs.
    pub(super) uris: Vec<String>,
    /// Public key with its algorithm, in DER.
    pub(super) public_key: Vec<u8>,
}

impl Certificate {
    pub(super) fn parse(der: &CertificateDer<'_>, path: &Path) -> anyhow::Result<Self> {
        let invalid = |cause: &dyn Display| {
            unusable(format_args!(
                "{}: a certificate in it is invalid: {cause}",
                path.display()
            ))
        };
        let (_, parsed) = X509Certificate::from_der(der).map_err(|error| invalid(&error))?;
        let names = parsed
            .subject_alternative_name()
            .map_err(|error| invalid(&error))?;
        let uri = |name: &GeneralName<'_>| match name {
            GeneralName::URI(uri) => Some((*uri).to_owned()),
            _ => None,
        };
        let uris = names.map(|names| names.value.general_names.iter().filter_map(uri).collect());
        let end = u64::try_from(parsed.validity().not_after.timestamp())
            .unwrap_or(0)
            .min(LAST_SECOND);
        Ok(Self {
            is_ca: parsed.is_ca(),
            not_after: SystemTime::UNIX_EPOCH + Duration::from_secs(end),
            uris: uris.unwrap_or_default(),
            public_key: parsed.public_key().raw.to_vec(),
        })
    }
}

/// Parses the certificates of a PEM file; there is at least one.
///
/// # Errors
/// The text is not PEM, or has no certificate.
pub(super) fn parse_chain(path: &Path, text: &str) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let place = path.display();
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    let chain = chain.map_err(|error| unusable(format_args!("{place} is not PEM: {error}")))?;
    if chain.is_empty() {
        return Err(unusable(format_args!(
            "{place} holds no certificate: it has no line `-----BEGIN CERTIFICATE-----`"
        )));
    }
    Ok(chain)
}
