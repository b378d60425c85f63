//! Claims of aggregators about stages that the controller has lost, for a while after its start.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_core::decision::Mode;
use plimsoll_core::names::Bucket;
use plimsoll_core::quantity::MonoTime;

use crate::aggregators::Place;

/// Time after a start without a state when aggregators are believed: long enough for all to
/// reconnect.
const RECOVERED_WITHIN: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(crate) struct Recovery {
    pub(crate) until: MonoTime,
    pub(crate) claims: BTreeMap<Place, Claim>,
}

#[derive(Debug)]
pub(crate) struct Claim {
    /// The modes that an earlier controller sent to the aggregator.
    pub(crate) modes: BTreeMap<Bucket, Mode>,
    /// The buckets with their own kill, ended or not.
    pub(crate) killed: Vec<Bucket>,
}

impl Recovery {
    pub(crate) fn new(now: MonoTime) -> Self {
        Self {
            until: now + RECOVERED_WITHIN,
            claims: BTreeMap::new(),
        }
    }
}
