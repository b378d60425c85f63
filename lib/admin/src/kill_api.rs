//! Requests and answers of the kill switch, the same at a controller and at an aggregator.

use std::collections::BTreeMap;

use plimsoll_core::kill::drill::Spread;
use plimsoll_core::kill::{Claims, KillGeneration};
use plimsoll_core::names::{Bucket, Text, Zone, nearest};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The path that answers [`KillStatus`] by GET.
pub const STATUS: &str = "/kill";
/// The path that takes [`KillOn`] by POST and answers [`KillStatus`].
pub const ON: &str = "/kill/on";
/// The path that takes [`KillOff`] by POST and answers [`KillEnded`].
pub const OFF: &str = "/kill/off";
/// The path that takes [`DrillOrder`] by POST and answers [`DrillReport`] when every client has acknowledged
/// the drill or the timeout passed, or 409 when another drill has begun.
pub const DRILL: &str = "/kill/drill";
/// Maximum duration of an ordered kill: 366 days, in seconds.
pub const TTL_MAX_S: u64 = 366 * 24 * 3_600;
/// Maximum timeout of a drill, in milliseconds.
pub const DRILL_MAX_MS: u64 = 60_000;

/// A request to kill: clients admit every request of the fleet or of one bucket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KillOn {
    /// The operator's reason.
    pub reason: Text,
    /// The bucket to kill; absent: the whole fleet.
    pub bucket: Option<Bucket>,
    /// Seconds after which the kill ends by itself, from 1 to [`TTL_MAX_S`]; absent: it lasts until
    /// [`KillOff`]. Controllers only.
    #[schemars(range(min = 1, max = TTL_MAX_S))]
    pub ttl_s: Option<u64>,
    /// The operator's name, which counts only without a token.
    pub by: Option<Text>,
}

/// A request to end a kill.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KillOff {
    /// The bucket to revive; absent: the whole fleet.
    pub bucket: Option<Bucket>,
    /// The operator's reason, for the log.
    pub reason: Option<Text>,
    /// The operator's name, which counts only without a token.
    pub by: Option<Text>,
}

/// The kill switches of the fleet and of single buckets, as one process holds them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KillStatus {
    /// The tier of the process that answers.
    pub tier: Tier,
    /// The switch of the whole fleet.
    pub fleet: KillState,
    /// The switches of the buckets that were killed on their own, until they are forgotten after a kill has ended.
    pub buckets: BTreeMap<Bucket, KillState>,
    /// The entries of the policy, and the buckets killed without their pattern, that are in shadow since a kill that has
    /// ended, until they are resumed or promoted. Controllers only.
    pub in_shadow: Vec<String>,
    /// Known aggregators that are not connected, as `ZONE/NAME`: a kill that was ordered there is not known here until they
    /// are back. Controllers only.
    pub away: Vec<String>,
    /// Connected clients that a kill file stops from refusing. A client of several
    /// aggregators counts at each of them.
    pub killed_locally: u32,
    /// The generations that no order explains; they kill nothing here.
    #[serde(default)]
    pub claims: Vec<Claimed>,
    /// True if the state survives a restart of this process. Always true at an aggregator, which learns it from its
    /// clients again.
    pub saved: bool,
}

/// A kill generation that a process holds above that of its parent, without an order. The process stays in shadow
/// until an order or a command for the scope passes the generation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Claimed {
    /// The bucket; null: the whole fleet.
    pub bucket: Option<Bucket>,
    /// The generation.
    pub generation: KillGeneration,
    /// The zone of the process that holds the highest generation.
    pub zone: String,
    /// Its service.
    pub service: String,
    /// Its stable name.
    pub name: String,
}

impl Claimed {
    /// Lists the claims at a process.
    pub fn list(claims: &Claims) -> Vec<Self> {
        let each = claims.iter().map(|(scope, claim)| Self {
            bucket: scope.bucket().cloned(),
            generation: claim.generation,
            zone: claim.zone.to_string(),
            service: claim.service.to_string(),
            name: claim.name.to_string(),
        });
        each.collect()
    }
}

/// The answer to [`KillOff`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KillEnded {
    /// True if the request ended a kill.
    pub ended: bool,
    /// True if the generation moved past a claim: a process that held it follows the controller's modes again.
    #[serde(default)]
    pub passed: bool,
    /// The switches after it.
    #[serde(flatten)]
    pub status: KillStatus,
}

/// The tier of the process that answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// A controller, which knows the causes of each kill.
    Controller,
    /// An aggregator, which holds kill generations only.
    Aggregator,
}

/// The kill switch of the fleet or of one bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KillState {
    /// The kill generation; an odd one means killed.
    pub generation: KillGeneration,
    /// True if killed, by the generation.
    pub killed: bool,
    /// True if the policy file orders the kill: of the fleet only, and at a controller.
    pub by_file: bool,
    /// The current kill order, if one was given by command. Controllers only.
    pub command: Option<KillOrder>,
    /// True if an aggregator below orders the kill, and no controller has confirmed it. Aggregators only.
    pub ordered_below: bool,
    /// True if the bucket stays in shadow after a kill, until an operator raises its entry.
    pub held_in_shadow: bool,
}

/// A kill that was ordered by command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KillOrder {
    /// The operator's reason; null if this process learned of the kill from a child.
    pub reason: Option<Text>,
    /// The name of the operator's token, or without a token the name that the order stated; null without either, and if
    /// this process learned of the kill from a child.
    pub by: Option<Text>,
    /// The time of the order, in seconds since 1970; null if it is not known.
    pub since_s: Option<i64>,
    /// The time at which the kill ends by itself, in seconds since 1970; null if it does not.
    pub until_s: Option<i64>,
}

/// Returns the error text for a bucket that is not known, with the nearest of those that are.
pub fn unknown_bucket<'a>(bucket: &Bucket, known: impl Iterator<Item = &'a str>) -> String {
    let hint = nearest(bucket.as_str(), known).map_or_else(
        || "`plimsoll rollout status` lists the policy's buckets".to_owned(),
        |nearest| format!("did you mean `{nearest}`?"),
    );
    format!("no bucket `{bucket}` is known, by the policy or by traffic; {hint}")
}

/// A request to measure how long a kill generation takes to reach every client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DrillOrder {
    /// The time to wait for acknowledgements, in milliseconds, up to [`DRILL_MAX_MS`].
    #[schemars(range(max = DRILL_MAX_MS))]
    pub timeout_ms: u64,
}

/// The result of a drill.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DrillReport {
    /// The number of the drill.
    pub drill: u64,
    /// True if every client has acknowledged it, and every known aggregator is connected.
    pub complete: bool,
    /// Direct aggregators that have not reported any latency, and known ones that are not connected.
    pub silent_aggregators: usize,
    /// Latencies by zone.
    pub zones: BTreeMap<Zone, DrillLatency>,
    /// Latencies of all zones together.
    pub all: DrillLatency,
}

/// Latencies from the order of a drill to the arrival of the clients' acknowledgements: upper bounds of the
/// time to reach a client, since the way back is included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DrillLatency {
    /// Clients that have acknowledged the drill.
    pub clients: u64,
    /// Clients that have not.
    pub missing: u64,
    /// Median in milliseconds, over the clients that have acknowledged; null if none has.
    pub p50_ms: Option<f64>,
    /// 99th percentile in milliseconds, likewise.
    pub p99_ms: Option<f64>,
    /// Maximum in milliseconds, likewise.
    pub last_ms: Option<f64>,
}

impl DrillLatency {
    /// Summarizes the latencies of one zone, or of several merged.
    pub fn new(spread: &Spread) -> Self {
        let ms = |share| spread.quantile(share).map(|wait| wait.as_secs_f64() * 1e3);
        Self {
            clients: spread.confirmed(),
            missing: spread.missing,
            p50_ms: ms(0.5),
            p99_ms: ms(0.99),
            last_ms: ms(1.0),
        }
    }
}

impl DrillReport {
    /// Summarizes the latencies of all zones.
    pub fn new(
        drill: u64,
        spreads: &BTreeMap<Zone, Spread>,
        complete: bool,
        silent_aggregators: usize,
    ) -> Self {
        let all = spreads.values().fold(Spread::default(), Spread::plus);
        let zones = spreads
            .iter()
            .map(|(zone, spread)| (zone.clone(), DrillLatency::new(spread)))
            .collect();
        Self {
            drill,
            complete,
            silent_aggregators,
            zones,
            all: DrillLatency::new(&all),
        }
    }
}
