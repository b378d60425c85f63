//! Routes of operators, with the bodies of their requests and answers. `plimsoll quota` uses them,
//! too.

use serde::{Deserialize, Serialize};

/// Lists the buckets of keys with a prefix, in the order of their keys.
pub const LIST: &str = "/quotas";
/// Returns the buckets of one key.
pub const GET: &str = "/quotas/get";
/// Returns the keys with the most requests and refusals.
pub const TOP: &str = "/quotas/top";
/// Makes buckets full again.
pub const RESET: &str = "/quotas/reset";
/// Maximum number of buckets in one page.
pub const PAGE_MAX: usize = 1_000;
/// Default number of buckets in one page.
pub const PAGE_DEFAULT: usize = 100;
/// Maximum number of busiest keys in one answer.
pub const TOP_MAX: usize = 100;
/// Default number of busiest keys.
pub const TOP_DEFAULT: usize = 10;
/// Maximum number of keys that one request resets.
pub const RESET_KEYS_MAX: usize = 10_000;

/// One page of buckets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Buckets {
    /// Buckets in the order of their keys.
    pub buckets: Vec<BucketStatus>,
    /// Parameter `after` of the request for the next page; null on the last page.
    #[serde(default)]
    pub next: Option<String>,
}

/// One bucket at the time of the answer by the server's clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketStatus {
    /// Key of the bucket. Bytes that are not printable UTF-8 are `\xNN`, and a backslash is `\\`.
    pub key: String,
    /// Parameters and content.
    #[serde(flatten)]
    pub holds: Holds,
}

/// Content of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Holds {
    /// A token bucket.
    Tokens {
        /// Tokens that are left.
        tokens: u64,
        /// Tokens of a full bucket.
        max: u64,
        /// Tokens of one refill.
        refill: u64,
        /// Time between refills in milliseconds.
        every_ms: u64,
        /// Time of the next refill in milliseconds since 1970; null if the bucket is full.
        next_refill_ms: Option<u64>,
        /// Time when it is full if nothing more is taken, in milliseconds since 1970; null if it is
        /// full.
        full_at_ms: Option<u64>,
    },
    /// A throttle of `CL.THROTTLE`. Every request carries its parameters.
    Throttle {
        /// Time in milliseconds since 1970 when it admits a whole burst again if no request
        /// arrives.
        at_rest_ms: u64,
    },
}

/// Busiest buckets of the last minutes, of those in memory, by their keys. Counts halve each minute.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Top {
    /// Keys with the most requests, the busiest first.
    pub asked: Vec<TopKey>,
    /// Keys with the most refusals, the busiest first.
    pub refused: Vec<TopKey>,
}

/// Key among the busiest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopKey {
    /// Key, as in [`BucketStatus::key`].
    pub key: String,
    /// Requests, or refusals.
    pub count: u64,
}

/// Request to make buckets full again: all buckets of one key, or of all keys with a prefix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub enum Reset {
    /// Buckets of this key.
    Key(String),
    /// Buckets of keys with this prefix, which is not empty.
    Prefix(String),
}

/// Result of a reset. It is on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResetDone {
    /// Buckets that are full again.
    pub buckets: u64,
}
