//! What commands and admin ports say to each other about the kill switch: the same words at a controller and at an
//! aggregator.

use std::collections::BTreeMap;

use plimsoll_core::bucket::{Bucket, Zone};
use plimsoll_core::drill::Spread;
use plimsoll_core::kill::KillGeneration;
use plimsoll_core::text::Text;
use serde::{Deserialize, Serialize};

/// Answers what is killed, by GET.
pub const STATUS: &str = "/kill";
/// Takes [`On`] by POST and answers [`Switches`].
pub const ON: &str = "/kill/on";
/// Takes [`Off`] by POST and answers [`Switches`].
pub const OFF: &str = "/kill/off";
/// Takes [`DrillOrder`] by POST and answers [`Drilled`] when everybody has answered or time is up.
pub const DRILL: &str = "/kill/drill";
/// The longest time that a kill may be ordered for: a year, in seconds.
pub const TTL_MAX_S: u64 = 366 * 24 * 3_600;
/// The longest that a drill waits for answers, in milliseconds.
pub const DRILL_MAX_MS: u64 = 60_000;

/// Kill.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct On {
    /// Why.
    pub reason: Text,
    /// One bucket alone; absent: the whole fleet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bucket: Option<Bucket>,
    /// Seconds after which it ends by itself, from 1 to [`TTL_MAX_S`]; absent: when somebody ends it. At a controller only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_s: Option<u64>,
    /// Who says so; nobody checks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Text>,
}

/// Kill no longer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Off {
    /// One bucket alone; absent: the whole fleet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bucket: Option<Bucket>,
    /// Why, for the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Text>,
    /// Who says so; nobody checks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Text>,
}

/// What is killed, and who says so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Switches {
    /// Whose word this is.
    pub tier: Tier,
    /// The whole fleet.
    pub fleet: Switch,
    /// Every bucket that was ever killed alone.
    pub buckets: BTreeMap<Bucket, Switch>,
    /// Whether a restart would remember it; at an aggregator its clients do.
    pub saved: bool,
}

/// Who answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// A controller, which knows the causes.
    Controller,
    /// An aggregator, which holds generations alone.
    Aggregator,
}

/// One switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Switch {
    /// Odd means killed.
    pub generation: KillGeneration,
    /// The same in a word.
    pub killed: bool,
    /// Whether the policy file says so.
    pub by_file: bool,
    /// The order in force.
    pub command: Option<Order>,
    /// Whether it is kept in shadow for having been killed, until somebody raises its entry.
    pub held_in_shadow: bool,
    /// Whether whoever answers has heard of a bucket of this name apart from the kill: one that nobody knows was misspelt.
    pub known: bool,
}

/// An order to kill that was given by command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// Why; null where it was learned from a child.
    pub reason: Option<Text>,
    /// Who says that it was them.
    pub by: Option<Text>,
    /// Since when, in seconds since 1970.
    pub since_s: Option<i64>,
    /// When it ends by itself, likewise.
    pub until_s: Option<i64>,
}

/// Measure how long a generation takes to reach everybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DrillOrder {
    /// How long to wait for answers, up to [`DRILL_MAX_MS`].
    pub timeout_ms: u64,
}

/// What a drill has shown.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Drilled {
    /// Its number.
    pub drill: u64,
    /// Whether everybody has answered.
    pub complete: bool,
    /// Aggregators directly below that have not said anything.
    pub silent_aggregators: usize,
    /// By zone.
    pub zones: BTreeMap<Zone, Reached>,
    /// All together.
    pub all: Reached,
}

/// How long clients took, from the order to the moment at which their answer was read: upper bounds, since the way back is
/// in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reached {
    /// Clients that have answered.
    pub clients: u64,
    /// Clients that have not.
    pub missing: u64,
    /// Milliseconds for half of those who have; null if nobody has.
    pub p50_ms: Option<f64>,
    /// The same for 99 in a hundred.
    pub p99_ms: Option<f64>,
    /// The same for all.
    pub last_ms: Option<f64>,
}

impl Reached {
    /// The figures of a spread.
    #[must_use]
    pub fn of(spread: &Spread) -> Self {
        let ms = |share| spread.quantile(share).map(|wait| wait.as_secs_f64() * 1e3);
        Self {
            clients: spread.heard(),
            missing: spread.missing,
            p50_ms: ms(0.5),
            p99_ms: ms(0.99),
            last_ms: ms(1.0),
        }
    }
}

impl Drilled {
    /// The figures of all zones, with so many aggregators silent.
    #[must_use]
    pub fn of(
        drill: u64,
        spreads: &BTreeMap<Zone, Spread>,
        complete: bool,
        silent_aggregators: usize,
    ) -> Self {
        let all = spreads.values().fold(Spread::default(), Spread::plus);
        let zones = spreads.iter().map(|(zone, spread)| (zone.clone(), Reached::of(spread))).collect();
        Self { drill, complete, silent_aggregators, zones, all: Reached::of(&all) }
    }
}
