//! The health of the feed, for the service and for metrics.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::SystemTime;

use super::{Control, FeedState};
use crate::hot::sync::lock;

/// The health of a limiter's connection to the control plane. Bad health changes no decision: the limiter applies the
/// directives that it holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Health {
    /// The state of the feed; `None` of a limiter without one.
    pub feed: Option<FeedState>,
    /// The number of aggregators that the feed is connected to.
    pub connected: u64,
    /// The number of aggregators with a last connection that was refused for lack of trust, at
    /// either end, by reason, such as `expired`, `unknown_authority` or `forbidden`.
    pub refused: BTreeMap<&'static str, u64>,
    /// The health of this service's certificate; `None` if streams are plaintext.
    pub certificate: Option<CertificateHealth>,
}

/// The health of a service's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CertificateHealth {
    /// The start of the validity of the certificate in use.
    pub not_before: SystemTime,
    /// The end of the validity of the certificate in use.
    pub not_after: SystemTime,
    /// True if the certificate in use has expired: aggregators refuse it until its files are renewed.
    pub is_expired: bool,
    /// True if no authority in use signs the certificate, so that aggregators with the same authorities refuse it.
    pub is_untrusted: bool,
    /// The reason why the files in the directory were not taken into use; `None` if they were.
    pub files_refused: Option<String>,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// The zone of the limiter, which each aggregator's is compared with.
    pub(crate) zone: String,
    /// Streams on which the aggregator has answered.
    pub(crate) connected: AtomicU64,
    /// Such streams that have ended.
    pub(crate) disconnects: AtomicU64,
    /// Streams that ended over a message that cannot be decoded.
    pub(crate) invalid: AtomicU64,
    pub(crate) save_failures: AtomicU64,
    /// By reason: the aggregators whose last connection was refused for lack of trust. A reason that
    /// was seen stays.
    pub(crate) refusals: Mutex<BTreeMap<&'static str, u64>>,
}

impl Counters {
    pub(super) fn on_refusal_changed(
        &self,
        before: Option<&'static str>,
        now: Option<&'static str>,
    ) {
        let mut refused = self.lock_refusals();
        if let Some(reason) = now {
            *refused.entry(reason).or_default() += 1;
        }
        if let Some(aggregators) = before.and_then(|reason| refused.get_mut(reason)) {
            *aggregators = aggregators.saturating_sub(1);
        }
    }

    /// Locks the numbers of aggregators that refuse now, by reason; a reason that none has any more has 0.
    pub(crate) fn lock_refusals(&self) -> MutexGuard<'_, BTreeMap<&'static str, u64>> {
        lock(&self.refusals)
    }
}

impl Control {
    pub(crate) fn health(&self) -> Health {
        self.check_running();
        let mut refused = self.counters.lock_refusals().clone();
        refused.retain(|_, aggregators| *aggregators > 0);
        Health {
            feed: Some(self.lifecycle.state()),
            connected: self.counters.connected.load(Ordering::Relaxed),
            refused,
            certificate: self.certificate_health(),
        }
    }

    #[cfg(feature = "tls")]
    pub(crate) fn certificate_health(&self) -> Option<CertificateHealth> {
        let health = self.certificates()?.health();
        Some(CertificateHealth {
            not_before: health.not_before,
            not_after: health.not_after,
            is_expired: health.is_expired(SystemTime::now()),
            is_untrusted: health.is_untrusted,
            files_refused: health.refused,
        })
    }

    #[cfg(not(feature = "tls"))]
    pub(crate) fn certificate_health(&self) -> Option<CertificateHealth> {
        None
    }
}
