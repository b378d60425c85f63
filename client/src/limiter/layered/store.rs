//! The store of a limiter's exact quotas: a client of a real one, or the fake one of tests.

use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::quota::Quota;

use super::exact::{Asked, Exact, QuotaLeft, Taking};

pub(crate) trait Store: Send + Sync {
    /// Returns the remembered refusal of a request, if one of its quotas would refuse it again.
    fn remembered(&self, asked: &[Asked<'_>]) -> Option<Exact>;

    /// Takes the cost of a request from all quotas of all its keys, or from none. A request that does not wait is
    /// decided by leases, else by the policies of its quotas.
    fn take(&self, asked: &[Asked<'_>], waits: bool) -> Taking;

    fn left(&self, quota: &Arc<Quota>, tenant: &str) -> Option<QuotaLeft>;

    /// Returns false while requests are kept from a store that does not answer.
    fn is_up(&self) -> bool;

    /// Connects in the background, so that the first request need not. Called within a runtime.
    fn warm(&self) {}

    /// Gives leases back. Later requests follow the policies of their quotas.
    fn close(&self, _within: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(ready(()))
    }

    #[cfg(feature = "quota")]
    fn counters(&self) -> Option<crate::limiter::quota::StoreCounters> {
        None
    }
}
