//! What an aggregator knows, for people: the answer of `/status`.

use std::collections::BTreeMap;

use plimsoll_core::names::Bucket;
use plimsoll_core::quantity::Rate;
use plimsoll_core::report::Role;
use plimsoll_core::quantity::MonoTime;
use serde::Serialize;

use crate::zone::Zone;

/// Children of a kind listed one by one; a fleet larger than that is read from the metrics.
const LISTED_MAX: usize = 1_000;

/// The whole picture at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Status {
    /// The zone's name.
    pub zone: String,
    /// The highest controller epoch applied; null before the first.
    pub epoch: Option<u64>,
    /// The kill generation held; odd means killed.
    pub kill_generation: u64,
    /// Seconds since the controller last covered a roll-up; null if it never did.
    pub upstream_age_s: Option<f64>,
    /// Whether a restart is being waited out.
    pub quiet: bool,
    /// Every bucket with a limit.
    pub buckets: BTreeMap<Bucket, BucketStatus>,
    /// Clients, those who are away but remembered included.
    pub clients: Vec<ChildStatus>,
    /// Aggregators below, likewise.
    pub aggregators: Vec<ChildStatus>,
}

/// One bucket.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct BucketStatus {
    /// Whether the zone lives on its own part of the limit, because no controller leads.
    pub on_hold: bool,
    /// That part, in requests/s; null while the controller has given none.
    pub hold_rps: Option<f64>,
}

/// One child.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChildStatus {
    /// A name that outlives restarts.
    pub name: String,
    /// The service it belongs to.
    pub service: String,
    /// Whether it has a stream now.
    pub connected: bool,
    /// Seconds since it first spoke here.
    pub since_s: f64,
    /// Seconds since it was last heard.
    pub heard_s: f64,
    /// The last report entered on its present stream.
    pub seq: u64,
}

impl Status {
    /// Takes the picture.
    #[must_use]
    pub fn of(zone: &Zone, now: MonoTime) -> Self {
        Self {
            zone: zone.name().to_string(),
            epoch: zone.epoch().map(|epoch| epoch.0),
            kill_generation: zone.kills().fleet().0,
            upstream_age_s: zone.upstream_age(now).map(|age| age.as_secs_f64()),
            quiet: zone.is_quiet(),
            buckets: buckets(zone, now),
            clients: children(zone, now, Role::Client),
            aggregators: children(zone, now, Role::Aggregator),
        }
    }
}

fn children(zone: &Zone, now: MonoTime, role: Role) -> Vec<ChildStatus> {
    let children = zone.roster().iter().filter(|child| child.identity.role == role).take(LISTED_MAX);
    let each = children.map(|child| ChildStatus {
        name: child.identity.name.to_string(),
        service: child.identity.service.to_string(),
        connected: child.stream.is_some(),
        since_s: now.since(child.since).as_secs_f64(),
        heard_s: now.since(child.heard).as_secs_f64(),
        seq: child.books.seq(),
    });
    each.collect()
}

/// Every bucket with a limit.
pub(crate) fn buckets(zone: &Zone, now: MonoTime) -> BTreeMap<Bucket, BucketStatus> {
    let limited = zone.board().iter().filter(|(_, posted)| posted.terms().limit.per_second().is_some());
    let each = limited.map(|(bucket, posted)| {
        let hold_rps = posted.terms().hold.map(Rate::per_second);
        (bucket.clone(), BucketStatus { on_hold: zone.is_on_hold(bucket, now), hold_rps })
    });
    each.collect()
}
