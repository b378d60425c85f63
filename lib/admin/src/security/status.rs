//! The state of certificates and tokens, for `/status` and as metrics.

use std::time::{SystemTime, UNIX_EPOCH};

use plimsoll_core::stats::metrics::{Metric, Series, Value, maybe, one, rows};
use plimsoll_tls::Health;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Opened;

/// The state of the certificates and tokens of a process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CertificateStatus {
    /// The identity in it.
    pub identity: String,
    /// The beginning of its validity, in seconds since 1970.
    #[serde(default)]
    pub not_before_s: u64,
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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
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
                not_before_s: unix_s(health.not_before),
                not_after_s: unix_s(health.not_after),
                expires_in_s,
                untrusted: health.is_untrusted,
                refused: health.refused,
            }
        });
        let tokens = opened.access().tokens().map(|file| TokensStatus {
            accepted: file.tokens().entries().len(),
            refused: file.refused(),
        });
        let open_on_loopback = opened.access().is_open_on_loopback();
        Self {
            certificate,
            tokens,
            open_on_loopback,
            plaintext: opened.plaintext.clone(),
        }
    }
}

/// The metrics of certificates.
pub const CERTIFICATES: [Metric<Opened>; 5] = [
    Metric::gauge(
        "plimsoll_certificate_not_before_timestamp_seconds",
        &[],
        "Unix time from which the certificate in use is valid.",
        |opened| health(opened, |health| unix_s(health.not_before).into()),
    ),
    Metric::gauge(
        "plimsoll_certificate_not_after_timestamp_seconds",
        &[],
        "Unix time at which the certificate in use expires.",
        |opened| health(opened, |health| unix_s(health.not_after).into()),
    ),
    Metric::gauge(
        "plimsoll_certificate_untrusted",
        &[],
        "1 while no authority in `ca.crt` signs the certificate in use, so that peers refuse it.",
        |opened| health(opened, |health| health.is_untrusted.into()),
    ),
    Metric::gauge(
        "plimsoll_certificates_refused",
        &[],
        "1 while the certificate files cannot be used and those read before are in use.",
        |opened| health(opened, |health| health.refused.is_some().into()),
    ),
    Metric::counter(
        "plimsoll_certificates_loaded_total",
        &[],
        "Sets of certificates taken into use, that of the start included.",
        |opened| health(opened, |health| health.generation.into()),
    ),
];

/// The metrics of tokens and refused requests.
pub const ACCESS: [Metric<Opened>; 3] = [
    Metric::gauge(
        "plimsoll_tokens_refused",
        &[],
        "1 while the tokens file cannot be used and the tokens read before are accepted; absent without a file.",
        |opened| {
            let tokens = opened.access().tokens();
            maybe(tokens.map(|tokens| tokens.refused().is_some()))
        },
    ),
    Metric::gauge(
        "plimsoll_plaintext",
        &[],
        "1 if something is plaintext beyond loopback, by `--insecure`.",
        |opened| one(!opened.plaintext.is_empty()),
    ),
    Metric::counter(
        "plimsoll_admin_refused_total",
        &["reason"],
        "Requests that the admin port refused: `closed` (no tokens are configured), `no_token`, `not_local`, \
         `malformed_token`, `unknown_token`, `role` (too low), `right` (of a token at the Redis port of a quota server), \
         `limited` (too many failed attempts).",
        |opened| {
            let refused = opened.access().refused().into_iter();
            rows(refused.map(|(reason, count)| ([reason], count)))
        },
    ),
];

fn health(opened: &Opened, value: fn(Health) -> Value) -> Vec<Series> {
    let certificates = opened.certificates();
    maybe(certificates.map(|certificates| value(certificates.health())))
}

fn unix_s(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}
