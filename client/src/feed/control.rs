//! The control side of a limiter: all that its feed, its metrics and its status share.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_host::Shared;
use plimsoll_proto::transport::Security;
#[cfg(feature = "tls")]
use plimsoll_tls::Certificates;

use super::{Counters, Lifecycle, LocalKill};
use crate::feed::cache::CacheFile;
use crate::hot::table::Table;
use crate::limiter::BeforePolicy;
use crate::subscription::Subscription;
use crate::subscription::assignment::endpoints::Aggregators;

/// The state that connects a limiter to the control plane. The feed drives it; the limiter reads it.
pub(crate) struct Control {
    pub(crate) table: Arc<Table>,
    pub(crate) subscription: Shared<Subscription>,
    pub(crate) aggregators: Aggregators,
    pub(crate) security: Security,
    /// The file that directives are saved in; `None` if they are not.
    pub(crate) cache: Option<CacheFile>,
    /// True if the service has set a rate for a bucket, which needs refills even without a stream.
    pub(crate) has_cold_rates: bool,
    pub(crate) before_policy: BeforePolicy,
    pub(crate) ready_within: Duration,
    pub(crate) local_kill: LocalKill,
    pub(crate) counters: Arc<Counters>,
    pub(crate) lifecycle: Lifecycle,
}

impl Control {
    /// Returns true if the feed has work: an aggregator, a rate of the service's own, a kill file, or a store of
    /// quotas.
    pub(crate) fn has_work(&self) -> bool {
        !matches!(self.aggregators, Aggregators::None)
            || self.has_cold_rates
            || self.local_kill.0.is_some()
            || self.table.layered.store().is_some()
    }

    pub(crate) fn unreported(&self) -> u64 {
        self.subscription
            .with(|subscription, _| subscription.unreported())
    }

    #[cfg(feature = "tls")]
    pub(crate) const fn certificates(&self) -> Option<&Certificates> {
        match &self.security {
            Security::Plain { .. } => None,
            Security::Mutual(certificates) => Some(certificates),
        }
    }

    /// Follows the files of the certificates. Never ends.
    pub(super) async fn follow_certificates(&self) {
        #[cfg(feature = "tls")]
        if let Some(certificates) = self.certificates() {
            certificates.follow().await;
        }
        std::future::pending().await
    }
}

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Control").finish_non_exhaustive()
    }
}
