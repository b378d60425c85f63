//! The state of certificates and tokens, for `/status` and as metrics.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::Opened;
use crate::metrics_page::{Page, flag, plain};

/// The state of the certificates and tokens of a process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SecurityStatus {
    /// The certificate in use; null without certificates.
    pub certificate: Option<CertificateStatus>,
    /// The tokens of the admin port; null without a tokens file.
    pub tokens: Option<TokensStatus>,
    /// True if programs on the machine need no token.
    pub open_on_loopback: bool,
    /// The flags of everything that is plaintext beyond loopback, by `--insecure`.
    pub plaintext: Vec<String>,
}

/// The certificate of a process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CertificateStatus {
    /// The identity in it.
    pub identity: String,
    /// The end of its validity, in seconds since 1970.
    pub not_after_s: u64,
    /// Seconds until then; negative once it has expired.
    pub expires_in_s: f64,
    /// True if no authority in use signs it.
    #[serde(default)]
    pub untrusted: bool,
    /// Why the files as they are now are not in use; null if they are.
    pub refused: Option<String>,
}

/// The tokens of an admin port.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TokensStatus {
    /// The accepted tokens.
    pub accepted: usize,
    /// Why the file as it is now is not in use; null if it is.
    pub refused: Option<String>,
}

impl SecurityStatus {
    pub(super) fn of(opened: &Opened, now: SystemTime) -> Self {
        let certificate = opened.certificates().map(|certificates| {
            let health = certificates.health();
            let expires_in_s = match health.not_after.duration_since(now) {
                Ok(left) => left.as_secs_f64(),
                Err(over) => -over.duration().as_secs_f64(),
            };
            CertificateStatus {
                identity: certificates.id().to_string(),
                not_after_s: unix_s(health.not_after),
                expires_in_s,
                untrusted: health.is_untrusted,
                refused: health.refused,
            }
        });
        let tokens = opened
            .access()
            .tokens()
            .map(|file| TokensStatus { accepted: file.tokens().entries().len(), refused: file.refused() });
        let open_on_loopback = opened.access().is_open_on_loopback();
        Self { certificate, tokens, open_on_loopback, plaintext: opened.plaintext.clone() }
    }
}

impl Opened {
    /// Adds the metrics of certificates, tokens and refused requests.
    pub fn add_to(&self, page: &mut Page) {
        self.add_certificates_to(page);
        self.add_access_to(page);
    }

    fn add_certificates_to(&self, page: &mut Page) {
        if let Some(certificates) = self.certificates() {
            let health = certificates.health();
            page.gauge(
                "plimsoll_certificate_not_before_timestamp_seconds",
                "Begin of the validity of the certificate in use.",
                &[],
                plain(unix_s(health.not_before) as f64),
            );
            page.gauge(
                "plimsoll_certificate_not_after_timestamp_seconds",
                "End of the validity of the certificate in use.",
                &[],
                plain(unix_s(health.not_after) as f64),
            );
            page.gauge(
                "plimsoll_certificates_refused",
                "1 while the files of certificates are invalid and those read before are in use.",
                &[],
                plain(flag(health.refused.is_some())),
            );
            page.gauge(
                "plimsoll_certificate_untrusted",
                "1 while no authority in use signs the certificate in use, so that peers refuse it.",
                &[],
                plain(flag(health.is_untrusted)),
            );
            page.counter(
                "plimsoll_certificates_loaded_total",
                "Sets of certificates that were taken into use, that of the start included.",
                &[],
                plain(health.generation as f64),
            );
        }
    }

    /// Adds the metrics of tokens and refused requests, for a process whose limiter shows its certificates.
    pub fn add_access_to(&self, page: &mut Page) {
        if let Some(tokens) = self.access().tokens() {
            page.gauge(
                "plimsoll_tokens_refused",
                "1 while the tokens file is invalid and the tokens read before are accepted.",
                &[],
                plain(flag(tokens.refused().is_some())),
            );
        }
        page.gauge(
            "plimsoll_plaintext",
            "1 if a port or the stream to the parent is plaintext beyond loopback, by --insecure.",
            &[],
            plain(flag(!self.plaintext.is_empty())),
        );
        let refused = self.access().refused().into_iter();
        page.counter(
            "plimsoll_admin_refused_total",
            "Requests that the admin port refused, by reason.",
            &["reason"],
            refused.map(|(reason, count)| (vec![reason.to_owned()], count as f64)),
        );
    }
}

fn unix_s(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
