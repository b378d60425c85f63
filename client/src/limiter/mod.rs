//! The limiter, which a service calls once for each request.

mod before_policy;
mod check;
mod handles;
pub(crate) mod layered;
pub(crate) mod limits;
#[cfg(feature = "quota")]
pub(crate) mod quota;
pub(crate) mod quotas;
mod request;
mod status;
pub(crate) mod waiting;

pub use before_policy::BeforePolicy;
pub(crate) use handles::thread_ctx;
pub use handles::{BucketHandle, KeyHandle};
pub use layered::QuotaLeft;
pub use limits::TenantLimit;
pub use request::{BucketRef, Request};
pub use status::{BucketStatus, ProblemStatus, Status};

use std::sync::Arc;

use plimsoll_core::names::InvalidName;

use crate::feed::Control;
use crate::hot::table::Table;
use crate::setup::{SetupProblem, readable_debug};

/// The default number of keys with their own state.
pub const KEYS_MAX_DEFAULT: usize = 10_000;

/// Decides which requests to admit, by directives that the [feed](crate::Feed) keeps up to date in the
/// background.
///
/// Cloning is cheap and gives another handle to the same limiter. It decides about a [`Request`] by
/// [`check`](Self::check) in memory, and by [`check_async`](Self::check_async) where exact quotas or a wait need it.
/// [`peek`](Self::peek) previews a decision.
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
        /// The method of the builder that sets the reached limit: `buckets_max` or `keys_max`.
        setting: &'static str,
        /// That limit.
        max: usize,
    },
}

readable_debug!(BucketError);

impl Limiter {
    /// Returns the faults in the wiring of this limiter that hold now, such as a bucket that no policy names or a feed
    /// that does not run. Each was logged once as a warning.
    pub fn setup_problems(&self) -> Vec<SetupProblem> {
        if let Some(control) = &self.control {
            control.check_running();
        }
        self.table.problems.list()
    }

    /// Declares a bucket: the limiter requests its directives immediately, before there is any traffic.
    ///
    /// # Errors
    /// If the name is invalid or the table is full.
    pub fn bucket(&self, name: &str) -> Result<BucketHandle, BucketError> {
        let declared = self.table.declare(name);
        let place = declared.map_err(|source| BucketError::Name {
            name: name.to_owned(),
            source,
        })?;
        let place = place.ok_or_else(|| {
            let (setting, max) = self.table.raise_full(name);
            BucketError::Full {
                bucket: name.to_owned(),
                setting,
                max,
            }
        })?;
        self.table.responses.set_name(place.bucket, name);
        Ok(BucketHandle {
            table: Arc::clone(&self.table),
            place,
        })
    }
}

#[cfg(test)]
#[cfg(not(feature = "loom"))]
pub(crate) mod tests;
