//! The handles that resolve names beforehand: a bucket's and a key's.

use std::fmt;
use std::sync::Arc;

use plimsoll_core::names::{Planned, check_plan};

use crate::hot::decision::DecideCtx;
use crate::hot::interner::pin::Pin;
#[cfg(not(feature = "testing"))]
use crate::hot::rng::ThreadRng;
use crate::hot::table::{BucketPlace, KeyPlace, Table, Target};
use crate::limiter::layered::name_of;

/// A bucket of a limiter, declared and resolved once: a fast way to name it in a [`Request`](crate::Request).
#[derive(Clone)]
pub struct BucketHandle {
    pub(crate) table: Arc<Table>,
    pub(crate) place: BucketPlace,
}

/// A key, resolved once.
#[derive(Clone, Debug)]
pub struct KeyHandle {
    pub(crate) table: Arc<Table>,
    pub(crate) place: KeyPlace,
    pub(crate) bucket: u32,
    /// The name of exact quotas, also for a tenant that shares its class's key.
    tenant: Arc<str>,
    /// The plan, which exact quotas follow, too.
    plan: Option<Arc<str>>,
    /// Protects the key from eviction while the handle lives. `None` for a tenant without room, which shares the key
    /// of its class.
    _pin: Option<Pin>,
}

impl fmt::Debug for BucketHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BucketHandle")
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}

impl BucketHandle {
    /// Returns the name of the bucket.
    pub fn name(&self) -> &str {
        self.table
            .responses
            .name(self.place.bucket)
            .unwrap_or_default()
    }

    /// Resolves a tenant's key once; the key is not evicted while the handle lives. An empty tenant, or one without
    /// room in the table, shares the key of its class. An empty plan is none.
    pub(crate) fn resolve(&self, tenant: &str, plan: &str) -> KeyHandle {
        let name = name_of(tenant);
        let in_plan = check_plan(plan)
            .ok()
            .and_then(|()| Planned::of(&name, plan));
        let name = in_plan.as_deref().unwrap_or(&name);
        let pin = Pin::new(&self.table, self.place.bucket, name);
        let class = self.table.key_of_plan(self.place, plan);
        let key = pin.as_ref().map_or(class, |pin| pin.key);
        let place = self.table.place_of(key, class);
        let (table, bucket) = (Arc::clone(&self.table), self.place.bucket);
        KeyHandle {
            table,
            place,
            bucket,
            tenant: tenant.into(),
            plan: (!plan.is_empty()).then(|| plan.into()),
            _pin: pin,
        }
    }
}

impl KeyHandle {
    pub(crate) fn tenant(&self) -> &str {
        &self.tenant
    }

    pub(crate) fn plan(&self) -> &str {
        self.plan.as_deref().unwrap_or_default()
    }

    pub(crate) fn bucket_name(&self) -> &str {
        self.table.responses.name(self.bucket).unwrap_or_default()
    }

    #[inline]
    pub(crate) fn target(&self) -> Target {
        self.table.target_of(self.place)
    }
}

#[cfg(not(feature = "testing"))]
#[inline]
pub(crate) fn thread_ctx(table: &Table) -> DecideCtx<'_, ThreadRng> {
    DecideCtx {
        counters: table.counters.current_thread(),
        draws: ThreadRng,
    }
}

/// Returns the counters of the current thread, and its random generator unless a test has set a seed.
#[cfg(feature = "testing")]
#[inline]
pub(crate) fn thread_ctx(table: &Table) -> DecideCtx<'_, crate::testing::Draws<'_>> {
    DecideCtx {
        counters: table.counters.current_thread(),
        draws: crate::testing::Draws(table),
    }
}
