//! The fields of a certificate that `certs show` prints and `certs issue` needs of a CA.

use std::fmt::Display;
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, SystemTime};

use plimsoll_tls::rustls::pki_types::CertificateDer;
use plimsoll_tls::rustls::pki_types::pem::PemObject;
use ring::digest::{SHA256, digest};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

use crate::cmd::credentials::unusable;

/// The last second that a time of four-digit years can name.
const LAST_SECOND: u64 = 253_402_300_799;

/// The fields of a certificate.
#[derive(Debug)]
pub(super) struct Certificate {
    pub(super) subject: String,
    pub(super) issuer: String,
    pub(super) is_ca: bool,
    pub(super) not_before: SystemTime,
    pub(super) not_after: SystemTime,
    /// URIs, DNS names and addresses, in the order of the certificate.
    pub(super) names: Vec<String>,
    /// The SHA-256 of the certificate, as other tools print it.
    pub(super) fingerprint: String,
    /// The public key with its algorithm, in DER.
    pub(super) public_key: Vec<u8>,
}

impl Certificate {
    /// Parses a certificate of the file `path`.
    ///
    /// # Errors
    /// It is invalid.
    pub(super) fn parse(der: &CertificateDer<'_>, path: &Path) -> anyhow::Result<Self> {
        let invalid = |cause: &dyn Display| {
            unusable(format_args!("{}: a certificate in it is invalid: {cause}", path.display()))
        };
        let (_, parsed) = X509Certificate::from_der(der).map_err(|error| invalid(&error))?;
        let names = parsed.subject_alternative_name().map_err(|error| invalid(&error))?;
        let names = names.map(|names| names.value.general_names.iter().map(name).collect());
        let hash = digest(&SHA256, der);
        let fingerprint: Vec<String> = hash.as_ref().iter().map(|byte| format!("{byte:02X}")).collect();
        Ok(Self {
            subject: parsed.subject().to_string(),
            issuer: parsed.issuer().to_string(),
            is_ca: parsed.is_ca(),
            not_before: time(parsed.validity().not_before.timestamp()),
            not_after: time(parsed.validity().not_after.timestamp()),
            names: names.unwrap_or_default(),
            fingerprint: fingerprint.join(":"),
            public_key: parsed.public_key().raw.to_vec(),
        })
    }

    /// The names that are URIs.
    pub(super) fn uris(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str).filter(|name| name.contains("://"))
    }
}

/// Parses the certificates of a PEM file; there is at least one.
///
/// # Errors
/// The text is no PEM, or has no certificate.
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

fn time(seconds: i64) -> SystemTime {
    let seconds = u64::try_from(seconds).unwrap_or(0).min(LAST_SECOND);
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

fn name(name: &GeneralName<'_>) -> String {
    match name {
        GeneralName::URI(text) | GeneralName::DNSName(text) | GeneralName::RFC822Name(text) => {
            (*text).to_owned()
        }
        GeneralName::IPAddress(bytes) => {
            let v4 = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
            let address = v4.or_else(|_| <[u8; 16]>::try_from(*bytes).map(IpAddr::from));
            address.map_or_else(|_| name.to_string(), |address| address.to_string())
        }
        other => other.to_string(),
    }
}
