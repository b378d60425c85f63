//! Store access on threads that may block: reads of buckets into memory, and requests of operators.

use std::sync::Arc;

use tokio::time::{Instant, timeout_at};

use super::Engine;
use super::shard::place::Place;
use super::shared::Shared;
use crate::operation::Unavailable;
use crate::store::StoreError;

/// Maximum number of runs whose buckets are read at the same time.
pub(super) const READERS: usize = 4;
/// Maximum number of buckets that are read or wait for it. A run has far fewer.
pub(super) const READ_BUCKETS_MAX: usize = 65_536;

impl Engine {
    /// Reads buckets into memory. Returns false if some did not fit: others must be saved and settled
    /// first, so that they can be evicted.
    ///
    /// # Errors
    /// When they are not there by `deadline`, the store fails, or too many wait.
    pub(super) async fn read(
        &self,
        places: Vec<Place>,
        deadline: Instant,
    ) -> Result<bool, Unavailable> {
        let count = u32::try_from(places.len()).unwrap_or(u32::MAX);
        let queued = Arc::clone(&self.shared.read_buckets).try_acquire_many_owned(count);
        let queued = queued.map_err(|_| Unavailable::Busy)?;
        let reader = timeout_at(deadline, Arc::clone(&self.shared.readers).acquire_owned()).await;
        let reader = reader.ok().and_then(Result::ok).ok_or(Unavailable::Store)?;
        let read = move |shared: &Shared| {
            let _held = (queued, reader);
            let mut has_room = true;
            for place in &places {
                has_room &= read_one(shared, place, deadline)?;
            }
            Ok(has_room)
        };
        self.blocking(deadline, "a bucket cannot be read", read)
            .await
    }

    /// Runs `work` on a thread that may block. Logs an error of the store under the text `failed`.
    ///
    /// # Errors
    /// When the work fails, or does not end by `deadline`; it goes on then.
    pub(super) async fn blocking<T: Send + 'static>(
        &self,
        deadline: Instant,
        failed: &'static str,
        work: impl FnOnce(&Shared) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, Unavailable> {
        let shared = Arc::clone(&self.shared);
        let worked = tokio::task::spawn_blocking(move || {
            work(&shared).inspect_err(|error| {
                shared.counters.failed();
                tracing::error!(%error, "{failed}");
            })
        });
        let worked = timeout_at(deadline, worked).await;
        worked
            .ok()
            .and_then(Result::ok)
            .and_then(Result::ok)
            .ok_or(Unavailable::Store)
    }
}

/// Reads a bucket into memory. Returns false if it did not fit.
fn read_one(shared: &Shared, place: &Place, deadline: Instant) -> Result<bool, StoreError> {
    // The caller has given up after the deadline: a burst must not delay the runs after it.
    while Instant::now() < deadline {
        let evictions = {
            let shard = shared.lock(place.shard);
            if shard.find(place).is_some() {
                return Ok(true);
            }
            shard.evictions
        };
        let row = shared.store.get(&place.key)?;
        let saved = shared.saved();
        let mut shard = shared.lock(place.shard);
        // Another run may have read, changed and evicted it meanwhile: then this row is old.
        if shard.evictions == evictions {
            return Ok(shard.find(place).is_some()
                || shard.insert(place, row.map(|row| row.state), saved).is_ok());
        }
    }
    Ok(true)
}
