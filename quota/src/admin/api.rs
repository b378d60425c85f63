//! The routes of operators, with the bodies that they take and answer. `plimsoll quota` speaks them, too.

use serde::{Deserialize, Serialize};

/// The buckets whose keys begin with a prefix, in the order of their keys.
pub const LIST: &str = "/quotas";
/// The buckets of one key.
pub const GET: &str = "/quotas/get";
/// The keys that are asked for and refused most often.
pub const TOP: &str = "/quotas/top";
/// Makes buckets full again.
pub const RESET: &str = "/quotas/reset";
/// The buckets of one answer, at most.
pub const PAGE_MAX: usize = 1_000;
/// The buckets of one answer unless the request says otherwise.
pub const PAGE_DEFAULT: usize = 100;
/// The keys of one answer about the busiest keys, at most.
pub const TOP_MAX: usize = 100;
/// The busiest keys unless the request says otherwise.
pub const TOP_DEFAULT: usize = 10;
/// The keys that one request makes full again, at most.
pub const RESET_KEYS_MAX: usize = 10_000;

/// Some buckets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Buckets {
    /// The buckets, in the order of their keys.
    pub buckets: Vec<BucketStatus>,
    /// The parameter `after` of the request for the next ones; null if these are the last.
    #[serde(default)]
    pub next: Option<String>,
}

/// One bucket, as it is at the time of the answer by the server's clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketStatus {
    /// The key. Bytes that are no printable UTF-8 are `\xNN`, and a backslash is `\\`.
    pub key: String,
    /// Its parameters and what it holds.
    #[serde(flatten)]
    pub holds: Holds,
}

/// The content of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Holds {
    /// A token bucket.
    Tokens {
        /// The tokens that are left.
        tokens: u64,
        /// The tokens of a full bucket.
        max: u64,
        /// The tokens of one refill.
        refill: u64,
        /// The time between refills in milliseconds.
        every_ms: u64,
        /// The time of the next refill in milliseconds since 1970; null if the bucket is full.
        next_refill_ms: Option<u64>,
        /// The time from which it is full if nothing more is taken, in milliseconds since 1970; null if it is full.
        full_at_ms: Option<u64>,
    },
    /// A throttle of `CL.THROTTLE`, whose parameters every request brings along.
    Throttle {
        /// The time from which it admits a whole burst if nothing more is asked, in milliseconds since 1970.
        at_rest_ms: u64,
    },
}

/// The busiest keys of the last minutes, among the buckets in memory: counts halve each minute.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Top {
    /// Those that are asked for most often, the busiest first.
    pub asked: Vec<TopKey>,
    /// Those that are refused most often, the busiest first.
    pub refused: Vec<TopKey>,
}

/// One of the busiest keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopKey {
    /// The key, as in [`BucketStatus::key`].
    pub key: String,
    /// Its requests, or its refusals.
    pub count: u64,
}

/// A request to make buckets full again: those of one key, or those whose keys begin with a prefix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub enum Reset {
    /// Those of this key.
    Key(String),
    /// Those whose keys begin with this, which is not empty.
    Prefix(String),
}

/// The result of a reset. It is on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResetDone {
    /// The buckets that are full again.
    pub buckets: u64,
}
