//! The reasons why a rule of a test is rejected.

use plimsoll_core::quantity::InvalidRate;

use crate::BucketError;
use crate::setup::readable_debug;

readable_debug!(RuleError);

/// The reason why a rule cannot be set.
#[derive(Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RuleError {
    /// The bucket cannot be declared.
    #[error(transparent)]
    Bucket(#[from] BucketError),
    /// The limit is no rate.
    #[error("limit of bucket `{bucket}`: {source}")]
    Rate {
        /// The bucket.
        bucket: String,
        /// The rule that the limit breaks.
        source: InvalidRate,
    },
    /// The quota is out of range.
    #[error("quota of bucket `{bucket}`: {cause}")]
    Quota {
        /// The bucket.
        bucket: String,
        /// The rule that the quota breaks.
        cause: String,
    },
    /// The share is not from 0 to 1.
    #[error("share of bucket `{bucket}` to refuse: from 0 to 1, not {share}")]
    Share {
        /// The bucket.
        bucket: String,
        /// The share as it was given.
        share: f64,
    },
}
