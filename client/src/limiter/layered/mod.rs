//! Layered decisions: coin and guard first, then the exact quotas of the bucket.
//!
//! A request that the store has refused before, and that would be refused again, is refused from memory before the
//! coin. It is not offered: the law sees neither such requests nor their refusals. Every other request is decided by
//! coin and guard, and only if they admit it, the store is asked. In shadow mode, while killed and outside of the
//! canary the store is debited as well, because the request is served, and its refusals are only counted.

mod answer;
mod exact;
mod handles;
mod one;
mod store;
mod tally;
#[cfg(test)]
#[cfg(not(feature = "loom"))]
mod tests;
mod together;

pub use exact::QuotaLeft;
#[cfg(any(feature = "quota", feature = "testing"))]
pub(crate) use exact::{Asked, Exact, Taking};
pub(super) use one::name_of;
#[cfg(feature = "middleware")]
pub(crate) use one::{Asking, Step};
pub(crate) use store::Store;

pub(crate) use tally::QuotaTally;

use std::sync::OnceLock;

use tally::Tallies;

/// The exact layer of a limiter.
#[derive(Debug)]
pub(crate) struct Layered {
    /// The store; unset where quotas are not enforced.
    store: OnceLock<Store>,
    /// The refusals of each bucket.
    tallies: Tallies,
}

impl Layered {
    /// Makes the exact layer of so many buckets, without a store.
    pub(crate) fn new(buckets: usize) -> Self {
        Self { store: OnceLock::new(), tallies: Tallies::new(buckets) }
    }

    /// Sets the store, once.
    #[cfg_attr(not(any(feature = "quota", feature = "testing")), allow(dead_code))]
    pub(crate) fn set_store(&self, store: Store) {
        let _ = self.store.set(store);
    }

    /// Returns the store, if there is one.
    pub(crate) fn store(&self) -> Option<&Store> {
        self.store.get()
    }

    /// Returns the refusals of a bucket by its quotas.
    pub(crate) fn tally(&self, bucket: u32) -> QuotaTally {
        self.tallies.of(bucket)
    }
}
