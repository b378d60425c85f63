//! The limiter, which a service calls once for each request.

mod handles;
// Without a store, nothing asks.
#[cfg_attr(not(any(feature = "quota", feature = "testing")), allow(dead_code))]
pub(crate) mod layered;
mod limits;
#[cfg(feature = "quota")]
pub(crate) mod quota;
mod quotas;
mod ready;
mod requests;
mod shard;
mod status;
mod waiting;

pub use handles::{BucketHandle, KeyHandle, Peek};
use handles::{decide_traced, thread_ctx};
pub(crate) use layered::Layered;
pub use layered::QuotaLeft;
pub(crate) use limits::Limits;
pub(crate) use quotas::QuotaDefinitions;
pub use ready::BeforePolicy;
pub use requests::{Decided, KeyRequest, ObservedResponse};
pub use shard::Shard;
pub use status::{BucketStatus, ProblemStatus, Status};
pub(crate) use waiting::Waiting;

use std::sync::Arc;

use plimsoll_core::decision::Verdict;
use plimsoll_core::decision::trace::TraceId;
use plimsoll_core::names::InvalidName;
use plimsoll_core::report::Identity;

use crate::builder::{BuildError, LimiterBuilder};
use crate::feed::Control;
use crate::hot::table::Table;
use crate::setup::{SetupProblem, readable_debug};
use crate::subscription::Subscription;

/// The default number of buckets.
pub const BUCKETS_MAX_DEFAULT: usize = 1_024;

/// The default number of keys with a state of their own.
pub const KEYS_MAX_DEFAULT: usize = 10_000;

/// Decides which requests to admit, by directives that the [feed](crate::Feed) keeps up to date in the
/// background.
///
/// Cloning is cheap and gives another handle to the same limiter. A decision never blocks, allocates, makes a
/// system call or fails. Without a directive, a request is admitted and counted.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (limiter, _feed) = plimsoll_client::Limiter::builder("shop")?.build()?;
/// let checkout = limiter.bucket("checkout")?;
/// assert!(checkout.admit("acme").is_admit());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Limiter {
    pub(crate) table: Arc<Table>,
    /// The connection to the control plane; `None` without a transport.
    pub(crate) control: Option<Arc<Control>>,
}

/// The reason why a bucket cannot be declared.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BucketError {
    /// The name breaks the rule of names.
    #[error("bucket `{name}`: {source}")]
    Name {
        /// The name as it was given.
        name: String,
        /// The rule that the name breaks.
        source: InvalidName,
    },
    /// The limiter has no room for another bucket or its default class.
    #[error(
        "bucket `{bucket}`: the limiter has no room for it, because LimiterBuilder::{setting} is {max}; raise it, or name \
         fewer buckets"
    )]
    Full {
        /// The bucket without room.
        bucket: String,
        /// The method of the builder whose limit was reached: `buckets_max` or `keys_max`.
        setting: &'static str,
        /// That limit.
        max: usize,
    },
}

readable_debug!(BucketError);

impl Limiter {
    /// Starts to configure a limiter for an instance of `service`, in the zone `default`, without an
    /// aggregator.
    ///
    /// # Errors
    /// When the service's name is invalid.
    pub fn builder(service: &str) -> Result<LimiterBuilder, BuildError> {
        LimiterBuilder::new(service)
    }

    /// Starts to configure a limiter for an instance of `service` by the environment of this process, under the names
    /// that [`LimiterBuilder::variables`] lists.
    ///
    /// # Errors
    /// When the service's name or the value of a variable is invalid.
    pub fn from_env(service: &str) -> Result<LimiterBuilder, BuildError> {
        LimiterBuilder::from_env(service)
    }

    /// Makes a limiter without a transport: the caller carries reports and directives between the
    /// [`Subscription`] and a parent, and passes the time. No clock, socket or entropy is used; `seed` is for
    /// the hashes of names. `threads` threads at a time have counters of their own; 0 is enough where only
    /// [shards](Self::shard) decide.
    #[must_use]
    pub fn without_transport(
        identity: Identity,
        keys_max: usize,
        threads: usize,
        seed: u64,
    ) -> (Self, Subscription) {
        let table = Arc::new(Table::new(keys_max, threads, seed));
        let subscription = Subscription::new(identity, Arc::clone(&table));
        (Self { table, control: None }, subscription)
    }

    /// Returns the faults in the wiring of this limiter that hold now, such as a bucket that no policy names or a feed
    /// that does not run. Each was logged once as a warning.
    #[must_use]
    pub fn setup_problems(&self) -> Vec<SetupProblem> {
        if let Some(control) = &self.control {
            control.check_running();
        }
        self.table.problems.list()
    }

    /// Makes a shard of this limiter, whose decisions depend on `seed` alone.
    #[must_use]
    pub fn shard(&self, seed: u64) -> Shard {
        Shard::new(Arc::clone(&self.table), seed)
    }

    /// Declares a bucket: the limiter requests its directives at once, before there is any traffic.
    ///
    /// # Errors
    /// When the name is invalid or the table is full.
    pub fn bucket(&self, name: &str) -> Result<BucketHandle, BucketError> {
        let declared = self.table.declare(name);
        let place = declared.map_err(|source| BucketError::Name { name: name.to_owned(), source })?;
        let place = place.ok_or_else(|| {
            self.table.raise_full(name);
            let (setting, max) = self.table.setting_reached(name);
            BucketError::Full { bucket: name.to_owned(), setting, max }
        })?;
        self.table.responses.set_name(place.bucket, name);
        Ok(BucketHandle { table: Arc::clone(&self.table), place })
    }

    /// Decides by names. An empty tenant, or one without room in the table, counts as the default
    /// class. A request for a bucket without room is admitted.
    pub fn admit(&self, bucket: &str, tenant: &str) -> Verdict {
        match self.table.target_by_names(bucket, tenant) {
            Some(target) => self.table.decide(target, thread_ctx(&self.table)),
            None => Verdict::Admit,
        }
    }

    /// Decides by names for a request that may belong to a trace; see [`KeyHandle::admit_traced`].
    pub fn admit_traced(&self, bucket: &str, tenant: &str, trace: Option<TraceId>) -> Verdict {
        match self.table.target_by_names(bucket, tenant) {
            Some(target) => decide_traced(&self.table, target, || trace),
            None => Verdict::Admit,
        }
    }

    /// Decides for a request that is subject to several (bucket, tenant) pairs, such as one by workspace and
    /// one by user: by one independent draw, which the strictest pair decides. The request is counted for all
    /// pairs. A refused request takes no token of any guard. All buckets must be this limiter's.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let (limiter, _feed) = plimsoll_client::Limiter::builder("shop")?.build()?;
    /// let (workspaces, users) = (limiter.bucket("by-workspace")?, limiter.bucket("by-user")?);
    /// assert!(limiter.admit_all([(&workspaces, "acme"), (&users, "jo")]).is_admit());
    /// # Ok(()) }
    /// ```
    pub fn admit_all<const N: usize>(&self, requests: [(&BucketHandle, &str); N]) -> Verdict {
        self.admit_all_traced(requests, None)
    }

    /// Decides like [`admit_all`](Self::admit_all) for a request that may belong to a trace: if any of the
    /// buckets has a coherent coin, the draw is the trace's. See [`KeyHandle::admit_traced`].
    pub fn admit_all_traced<const N: usize>(
        &self,
        requests: [(&BucketHandle, &str); N],
        trace: Option<TraceId>,
    ) -> Verdict {
        debug_assert!(requests.iter().all(|(bucket, _)| Arc::ptr_eq(&self.table, &bucket.table)));
        let targets = requests.map(|(bucket, tenant)| self.table.target(bucket.place, tenant));
        self.table.decide_all(targets, trace, thread_ctx(&self.table))
    }
}

#[cfg(test)]
#[cfg(not(feature = "loom"))]
pub(crate) mod tests;
