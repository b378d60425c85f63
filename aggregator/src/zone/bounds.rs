//! The limits of a zone's memory, and the counters of what they and the network cost.

/// The sizes that a zone does not exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Children, including disconnected children that are remembered.
    pub children_max: usize,
    /// Keys that one client may define; an aggregator may define `keys_max`.
    pub keys_per_child_max: usize,
    /// Keys of the zone. Unlisted tenants beyond it count as their bucket's class `default`; listed ones have room.
    pub keys_max: usize,
    /// Keys of one bucket, including its class `default`. It bounds unlisted tenants only, as above.
    pub tenants_per_bucket_max: usize,
    /// Requests/s that a client is believed to decide. What it reports above that, and above 100 times its own past,
    /// is cut.
    pub decisions_per_s_max: u64,
    /// Buckets that children may ask for, in addition to the buckets of the policy. A child
    /// aggregator may ask for half as many.
    pub buckets_max: usize,
    /// Buckets that one client may ask for, as many as one can hold.
    pub buckets_per_client_max: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            children_max: 20_000,
            keys_per_child_max: 100_000,
            keys_max: 1_000_000,
            tenants_per_bucket_max: crate::TENANTS_PER_BUCKET_MAX as usize,
            decisions_per_s_max: plimsoll_core::report::DECISIONS_PER_S_MAX,
            buckets_max: 10_000,
            buckets_per_client_max: 1_024,
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
    /// Requests that were not counted, because the child that reported them cannot have decided so many.
    pub cut: u64,
    /// Keys and buckets that were rejected for lack of room.
    pub rejected: u64,
    /// Messages of the parent that were older than the current directives, or had an impossible kill generation.
    pub stale: u64,
}
