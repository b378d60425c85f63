//! The limits of a zone's memory, and the counters of what they and the network cost.

/// The sizes that a zone does not exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Children, including those that are away but remembered.
    pub children_max: usize,
    /// Keys that one client may define.
    pub keys_per_child_max: usize,
    /// Keys of the zone. Tenants beyond it count as their bucket's class `default`.
    pub keys_max: usize,
    /// Keys of one bucket, including its class `default`.
    pub tenants_per_bucket_max: usize,
    /// Buckets that children may subscribe to.
    pub buckets_max: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            children_max: 20_000,
            keys_per_child_max: 100_000,
            keys_max: 1_000_000,
            tenants_per_bucket_max: crate::TENANTS_PER_BUCKET_MAX as usize,
            buckets_max: 10_000,
        }
    }
}

/// Loss and error counters, exported as metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests that were reported too late to show anything about the present rate.
    pub late: u64,
    /// Requests that were not counted, because an earlier parent may have counted them already.
    pub unconfirmed: u64,
    /// Keys and buckets that were rejected for lack of room.
    pub rejected: u64,
    /// Messages of the parent that were older than the directives in force.
    pub stale: u64,
}
