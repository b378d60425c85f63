//! What goes in at one end of the wire comes out at the other, within the bounds; anything else is refused.

mod directives;
mod refusals;
mod reports;
mod spoiled;

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_core::bucket::{Bucket, Key, KeyId, NAME_BYTES_MAX, Name, Tenant, Zone};
use plimsoll_core::coherence::{Coherence, CoinKey};
use plimsoll_core::directive::{
    BucketDirective, Directives, Entitlement, Epoch, KeyDirective, Terms, Values,
};
use plimsoll_core::drill::{Drill, SPREAD_STEPS_MAX, SPREAD_ZONES_MAX, Spread};
use plimsoll_core::kill::{KILLED_BUCKETS_MAX, Kill, KillGeneration, Scope};
use plimsoll_core::latency::{BINS, Bin, Histogram};
use plimsoll_core::policy::{Coin, OnSilence, Percent, Weight};
use plimsoll_core::presence::Presences;
use plimsoll_core::rate::{Limit, Rate};
use plimsoll_core::ratio::DropRatio;
use plimsoll_core::report::{
    Batches, Counts, Echo, Evidence, Identity, InstanceId, KeyDefinition, Outcomes, Path, Report, Role, Side,
    Stand, Tallies, Tally,
};
use plimsoll_core::rollout::{Cohort, Mode};
use plimsoll_core::time::MonoTime;
use proptest::collection::{btree_map, btree_set, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use prost::Message;

use super::*;

const NAME: &str = "[A-Za-z0-9._:/@-]{1,128}";
/// The longest span that a point in time on the wire can stand for.
const MICROS_MAX: u64 = u64::MAX / 1_000;

/// A name of the greatest length, told from others by its number.
fn longest(number: usize) -> String {
    format!("{number:0>NAME_BYTES_MAX$}")
}

/// The rate that takes the most room.
fn largest_rate() -> Rate {
    Rate::new(u64::MAX as f64 / 1e3).unwrap()
}

fn any_bucket() -> impl Strategy<Value = Bucket> {
    NAME.prop_map(|name| Bucket::new(&name).unwrap())
}

fn any_tenant() -> impl Strategy<Value = Tenant> {
    NAME.prop_map(|name| Tenant::new(&name).unwrap())
}

/// Rates that the wire carries exactly.
fn any_rate() -> impl Strategy<Value = Rate> {
    prop_oneof![0..10u64, 0..1u64 << 50].prop_map(|milli| Rate::new(milli as f64 / 1e3).unwrap())
}
