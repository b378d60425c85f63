//! `/status`: the state of a quota server at one moment, as one JSON document.

use std::sync::atomic::Ordering;

use plimsoll_admin::security::SecurityStatus;
use serde::{Deserialize, Serialize};

use super::Sources;

/// State of a quota server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// True while the store is open and answers.
    pub ready: bool,
    /// When a debit reaches the disk: `always`, `interval:TIME` or `none`.
    pub durability: String,
    /// Age of the oldest debit that is not on disk, in seconds; 0 if all are.
    pub unsaved_age_s: f64,
    /// Seconds since the last commit that is on disk; null before the first one.
    pub last_commit_s: Option<f64>,
    /// Number of buckets in memory.
    pub buckets_in_memory: u64,
    /// Bytes of the buckets in memory.
    pub cache_bytes: u64,
    /// Maximum bytes of the buckets in memory.
    pub cache_bytes_max: u64,
    /// Bytes of the store on disk.
    pub disk_bytes: u64,
    /// Batches of operations that wait for the store.
    pub waiting: u64,
    /// Failed reads and writes of the store.
    pub store_errors: u64,
    /// Connections of the Redis protocol.
    pub connections: u64,
    /// Certificates and tokens.
    pub security: SecurityStatus,
}

impl Status {
    pub(super) fn of(sources: &Sources) -> Self {
        let stats = sources.engine.stats();
        Self {
            ready: sources.engine.is_ready(),
            durability: sources.engine.durability().to_string(),
            unsaved_age_s: stats.unsaved.unwrap_or_default().as_secs_f64(),
            last_commit_s: stats.since_commit.map(|since| since.as_secs_f64()),
            buckets_in_memory: stats.buckets,
            cache_bytes: stats.cache_bytes,
            cache_bytes_max: stats.cache_bytes_max,
            disk_bytes: stats.disk_bytes,
            waiting: stats.waiting,
            store_errors: stats.store_errors,
            connections: sources.resp.open.load(Ordering::Relaxed),
            security: sources.security.status(),
        }
    }
}
