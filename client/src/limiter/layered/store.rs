//! The store of a limiter's exact quotas: a client of a real one, or the fake one of tests.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::quota::Quota;

use super::exact::{Asked, Exact, QuotaLeft, Taking};
#[cfg(feature = "quota")]
use crate::limiter::quota::Quotas;
#[cfg(feature = "testing")]
use crate::testing::QuotaLedger;

/// The store of a limiter. Without the features that have one, there is none.
#[derive(Clone, Debug)]
pub(crate) enum Store {
    /// A quota server or Redis.
    #[cfg(feature = "quota")]
    Remote(Quotas),
    /// The ledger of a test's control plane.
    #[cfg(feature = "testing")]
    Fake(QuotaLedger),
}

impl Store {
    /// Returns the refusal that is remembered for one of these keys.
    #[cfg_attr(not(any(feature = "quota", feature = "testing")), allow(unused_variables))]
    pub(super) fn remembered(&self, asked: &[Asked<'_>]) -> Option<Exact> {
        match *self {
            #[cfg(feature = "quota")]
            Self::Remote(ref quotas) => quotas.remembered(asked),
            #[cfg(feature = "testing")]
            Self::Fake(ref ledger) => ledger.remembered(asked),
        }
    }

    /// Takes the cost of a request from all quotas of all its keys, or from none. A request that does not wait is decided
    /// from memory, else by the policies of its quotas.
    #[cfg_attr(not(any(feature = "quota", feature = "testing")), allow(unused_variables))]
    pub(super) fn take(&self, asked: &[Asked<'_>], waits: bool) -> Taking {
        match *self {
            #[cfg(feature = "quota")]
            Self::Remote(ref quotas) => quotas.take(asked, waits),
            #[cfg(feature = "testing")]
            Self::Fake(ref ledger) => ledger.take(asked, waits),
        }
    }

    /// Returns the quota of a tenant with the least left, as far as the store has said.
    #[cfg_attr(not(any(feature = "quota", feature = "testing")), allow(unused_variables))]
    pub(super) fn left(&self, quotas: &[Arc<Quota>], tenant: &str) -> Option<QuotaLeft> {
        let left = |quota: &Arc<Quota>| -> Option<QuotaLeft> {
            match *self {
                #[cfg(feature = "quota")]
                Self::Remote(ref quotas) => quotas.left(quota, tenant),
                #[cfg(feature = "testing")]
                Self::Fake(ref ledger) => ledger.left(quota, tenant),
            }
        };
        quotas.iter().filter_map(left).min_by_key(|left| left.remaining)
    }

    /// Returns false while requests are kept from a store that does not answer.
    pub(crate) fn is_up(&self) -> bool {
        match *self {
            #[cfg(feature = "quota")]
            Self::Remote(ref quotas) => quotas.is_up(),
            #[cfg(feature = "testing")]
            Self::Fake(ref ledger) => ledger.is_up(),
        }
    }

    /// Connects in the background, so that the first request need not. Called within a runtime.
    pub(crate) fn warm(&self) {
        match *self {
            #[cfg(feature = "quota")]
            Self::Remote(ref quotas) => quotas.warm(),
            #[cfg(feature = "testing")]
            Self::Fake(_) => {}
        }
    }

    /// Gives leases back. Requests that come later follow the policies of their quotas.
    #[cfg_attr(not(feature = "quota"), allow(unused_variables, clippy::unused_async))]
    pub(crate) async fn close(&self, within: Duration) {
        match *self {
            #[cfg(feature = "quota")]
            Self::Remote(ref quotas) => quotas.close(within).await,
            #[cfg(feature = "testing")]
            Self::Fake(_) => {}
        }
    }
}
