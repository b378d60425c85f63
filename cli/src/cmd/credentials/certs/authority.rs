//! The development CA: a key and a certificate in one directory, which sign the certificates of processes.

use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::Context;
use plimsoll_core::exchange::{PeerId, PeerRole};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PublicKeyData, SanType,
};

use super::certificate::{Certificate, parse_chain};
use super::files::{CA_CERTIFICATE, CA_KEY, read_text};
use crate::cmd::unusable;

/// Certificates are valid this long before they are issued, for slow clocks. At most a quarter of
/// the lifetime: with more, a new certificate of minutes would count as expiring soon.
const CLOCK_SKEW: Duration = Duration::from_secs(300);
/// Scheme of the identities that a CA signs. The CA itself only has its trust domain in this form.
const SCHEME: &str = "spiffe://";

pub(super) struct Authority {
    /// Content of its `ca.crt`, which may have earlier CAs as well.
    pub(super) bundle: String,
    /// Trust domain in its certificate; `None` if it has no URI name.
    pub(super) trust_domain: Option<String>,
    pub(super) not_after: SystemTime,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, in PEM.
pub(super) struct Issued {
    pub(super) certificate: String,
    pub(super) key: String,
}

pub(super) fn check_trust_domain(text: &str) -> Result<String, String> {
    PeerId::new(text, PeerRole::Controller)
        .map(|_| text.to_owned())
        .map_err(|error| error.to_string())
}

/// Creates the certificate and the key of a new CA.
pub(super) fn create(
    trust_domain: &str,
    lifetime: Duration,
    now: SystemTime,
) -> anyhow::Result<Issued> {
    let mut params = params(
        &format!("Plimsoll development CA of {trust_domain}"),
        now,
        lifetime,
    );
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.subject_alt_names = vec![SanType::URI(format!("{SCHEME}{trust_domain}").try_into()?)];
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    Ok(Issued {
        certificate: params.self_signed(&key)?.pem(),
        key: key.serialize_pem(),
    })
}

impl Authority {
    pub(super) fn open(directory: &Path) -> anyhow::Result<Self> {
        let hint = "`plimsoll certs init --dir DIR` makes a CA for development";
        let (key_path, bundle_path) = (directory.join(CA_KEY), directory.join(CA_CERTIFICATE));
        let key = KeyPair::from_pem(&read_text(&key_path, hint)?).map_err(|_| {
            unusable(format_args!(
                "{} holds no private key in PEM; {hint}",
                key_path.display()
            ))
        })?;
        let bundle = read_text(&bundle_path, hint)?;
        for der in parse_chain(&bundle_path, &bundle)? {
            let certificate = Certificate::parse(&der, &bundle_path)?;
            if !certificate.is_ca || certificate.public_key != key.subject_public_key_info() {
                continue;
            }
            let trust_domain = certificate
                .uris
                .iter()
                .find_map(|uri| uri.strip_prefix(SCHEME))
                .map(str::to_owned);
            let not_after = certificate.not_after;
            let issuer = Issuer::from_ca_cert_der(&der, key).context("the CA's certificate")?;
            return Ok(Self {
                bundle,
                trust_domain,
                not_after,
                issuer,
            });
        }
        Err(unusable(format_args!(
            "{} has no CA whose key is {}; {hint}",
            bundle_path.display(),
            key_path.display()
        )))
    }

    pub(super) fn issue(
        &self,
        id: &PeerId,
        hosts: &[SanType],
        lifetime: Duration,
        now: SystemTime,
    ) -> anyhow::Result<Issued> {
        let role = match id.role() {
            PeerRole::Controller => "controller",
            PeerRole::Aggregator { .. } => "aggregator",
            PeerRole::Service { .. } => "service",
            PeerRole::Quota => "quota server",
        };
        let mut params = params(&format!("Plimsoll {role}"), now, lifetime);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        params.subject_alt_names = vec![SanType::URI(id.to_string().try_into()?)];
        params.subject_alt_names.extend_from_slice(hosts);
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        Ok(Issued {
            certificate: params.signed_by(&key, &self.issuer)?.pem(),
            key: key.serialize_pem(),
        })
    }
}

fn params(common_name: &str, now: SystemTime, lifetime: Duration) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.not_before = (now - CLOCK_SKEW.min(lifetime / 4)).into();
    params.not_after = (now + lifetime).into();
    params.distinguished_name = DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, common_name);
    params
}
