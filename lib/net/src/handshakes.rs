//! The failed handshakes of one port by reason. Each is counted; one for each reason in 10 s is logged,
//! since anything that reaches the port can cause them.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::IpAddr;
use std::time::Duration;

use plimsoll_tls::HandshakeFailure;
use tokio::time::Instant;

/// The interval of log lines about one condition.
const LOGGED_EVERY: Duration = Duration::from_secs(10);
/// The reason of a TLS connection to a port that takes plaintext.
pub const NOT_PLAINTEXT: &str = "not_plaintext";

#[derive(Debug)]
pub(super) struct FailedHandshakes {
    reasons: BTreeMap<&'static str, Failed>,
}

#[derive(Clone, Debug, Default)]
struct Failed {
    count: u64,
    logged_at: Option<Instant>,
}

impl FailedHandshakes {
    pub(super) fn on_failed(&mut self, peer: IpAddr, reason: &'static str, cause: &dyn Display) {
        let failed = self.reasons.entry(reason).or_default();
        failed.count += 1;
        if is_due(&mut failed.logged_at) {
            tracing::warn!(%peer, reason, failed = failed.count, %cause, "handshake failed: the connection is closed");
        }
    }

    pub(super) fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.reasons
            .iter()
            .map(|(reason, failed)| (*reason, failed.count))
            .collect()
    }
}

impl Default for FailedHandshakes {
    fn default() -> Self {
        let reasons = HandshakeFailure::LABELS
            .iter()
            .copied()
            .chain([NOT_PLAINTEXT]);
        Self {
            reasons: reasons.map(|reason| (reason, Failed::default())).collect(),
        }
    }
}

/// Returns true if a condition was not logged lately, and notes that it is logged now.
pub(super) fn is_due(logged: &mut Option<Instant>) -> bool {
    let is_due = logged.is_none_or(|at| at.elapsed() >= LOGGED_EVERY);
    if is_due {
        *logged = Some(Instant::now());
    }
    is_due
}
