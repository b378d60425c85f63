//! An authority in memory that issues certificates of every kind, for tests.
#![expect(clippy::unwrap_used, reason = "tests alone use this module")]

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use plimsoll_core::exchange::{PeerId, PeerRole};
use plimsoll_host::atomic_file;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, SanType, date_time_ymd,
};

use crate::files::{CA_FILE, CERTIFICATE_FILE, KEY_FILE};

/// Time during which a certificate is valid.
#[derive(Clone, Copy, Debug)]
pub struct Validity {
    /// Start of the validity.
    pub not_before: SystemTime,
    /// End of the validity.
    pub not_after: SystemTime,
}

impl Validity {
    /// Returns a validity from a minute ago until this time from now, in whole seconds.
    pub fn lasting(lifetime: Duration) -> Self {
        let now = SystemTime::now();
        Self {
            not_before: now - Duration::from_secs(60),
            not_after: now + lifetime,
        }
    }

    /// Returns a validity that ended a minute ago.
    pub fn ended() -> Self {
        let now = SystemTime::now();
        Self {
            not_before: now - Duration::from_secs(3_600),
            not_after: now - Duration::from_secs(60),
        }
    }

    /// Returns a validity that starts in an hour.
    pub fn to_come() -> Self {
        let now = SystemTime::now();
        Self {
            not_before: now + Duration::from_secs(3_600),
            not_after: now + Duration::from_secs(7_200),
        }
    }
}

impl Default for Validity {
    /// Lasts an hour.
    fn default() -> Self {
        Self::lasting(Duration::from_secs(3_600))
    }
}

/// Content of a certificate to issue.
#[derive(Clone, Debug)]
pub struct Request {
    /// URI names.
    pub uris: Vec<String>,
    /// Validity of the certificate.
    pub validity: Validity,
    /// Allows server authentication.
    pub server: bool,
    /// Allows client authentication.
    pub client: bool,
}

/// A certificate and its key in PEM.
#[derive(Clone)]
pub struct Leaf {
    /// Content of `tls.crt`.
    pub certificate: String,
    /// Content of `tls.key`.
    pub key: String,
}

/// An authority and its trust domain.
pub struct Authority {
    trust_domain: String,
    issuer: CertifiedIssuer<'static, KeyPair>,
    /// Content of `ca.crt`.
    root: String,
    /// Certificates between leaves and the root.
    intermediate: String,
}

impl Authority {
    /// Makes an authority with a new key, and with the same name as any other of this trust domain.
    pub fn new(trust_domain: &str) -> Self {
        let params = Self::params(&format!("authority of {trust_domain}"));
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let root = issuer.pem();
        Self {
            trust_domain: trust_domain.to_owned(),
            issuer,
            root,
            intermediate: String::new(),
        }
    }

    /// Makes an authority below this one.
    pub fn intermediate(&self) -> Self {
        let params = Self::params("intermediate authority");
        let issuer =
            CertifiedIssuer::signed_by(params, KeyPair::generate().unwrap(), &self.issuer).unwrap();
        let intermediate = issuer.pem();
        Self {
            trust_domain: self.trust_domain.clone(),
            issuer,
            root: self.root.clone(),
            intermediate,
        }
    }

    fn params(name: &str) -> CertificateParams {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params
    }

    /// Returns the content of `ca.crt`.
    pub fn pem(&self) -> &str {
        &self.root
    }

    /// Returns the request of a usual certificate of a role.
    pub fn request(&self, role: PeerRole, validity: Validity) -> Request {
        let id = PeerId::new(&self.trust_domain, role).unwrap();
        Request {
            uris: vec![id.to_string()],
            validity,
            server: true,
            client: true,
        }
    }

    /// Issues a certificate with a new key.
    pub fn issue(&self, request: &Request) -> Leaf {
        let mut params = CertificateParams::default();
        params.subject_alt_names = request
            .uris
            .iter()
            .map(|uri| SanType::URI(uri.as_str().try_into().unwrap()))
            .collect();
        let since_epoch = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).unwrap();
        params.not_before = date_time_ymd(1970, 1, 1) + since_epoch(request.validity.not_before);
        params.not_after = date_time_ymd(1970, 1, 1) + since_epoch(request.validity.not_after);
        params.extended_key_usages = [
            request
                .server
                .then_some(ExtendedKeyUsagePurpose::ServerAuth),
            request
                .client
                .then_some(ExtendedKeyUsagePurpose::ClientAuth),
        ]
        .into_iter()
        .flatten()
        .collect();
        let key = KeyPair::generate().unwrap();
        let leaf = params.signed_by(&key, &self.issuer).unwrap().pem();
        Leaf {
            certificate: leaf + &self.intermediate,
            key: key.serialize_pem(),
        }
    }

    /// Issues a certificate of a role and writes the three files, over earlier ones.
    pub fn write(&self, directory: &Path, role: PeerRole, validity: Validity) {
        self.write_leaf(directory, &self.issue(&self.request(role, validity)));
    }

    /// Writes a certificate and this authority as the three files.
    pub fn write_leaf(&self, directory: &Path, leaf: &Leaf) {
        fs::create_dir_all(directory).unwrap();
        for (name, content) in [
            (CERTIFICATE_FILE, &leaf.certificate),
            (KEY_FILE, &leaf.key),
            (CA_FILE, &self.root),
        ] {
            // Each is replaced as a whole, and readable only by the owner.
            atomic_file::replace(&directory.join(name), content.as_bytes()).unwrap();
        }
    }
}
