//! Messages survive a round trip over the wire within its bounds; all others are rejected.

mod directives;
mod quotas;
mod rejected;
mod reports;

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_core::decision::coherent::{Coherence, CoinKey};
use plimsoll_core::decision::token_bucket::TokenCount;
use plimsoll_core::decision::{Coin, Mode};
use plimsoll_core::directive::{
    BucketDirective, Directives, Entitlement, Epoch, GRANTS_MAX, Headroom, KeyDirective, Leader,
    PoolDepth, Terms, Values, ZonePool,
};
use plimsoll_core::exchange::Path;
use plimsoll_core::kill::drill::{Drill, SPREAD_STEPS_MAX, SPREAD_ZONES_MAX, Spread};
use plimsoll_core::kill::{
    CLAIMS_MAX, KILL_ORDERS_MAX, KILLED_BUCKETS_MAX, Kill, KillClaim, KillGeneration, KillOrder,
    OrderId, Scope,
};
use plimsoll_core::law::Weight;
use plimsoll_core::law::presence::Presences;
use plimsoll_core::names::{
    Bucket, Key, KeyId, NAME_BYTES_MAX, Name, PLAN_BYTES_MAX, PLANS_MAX, Tenant, Zone,
};
use plimsoll_core::quantity::{DropRatio, Limit, MonoTime, Rate};
use plimsoll_core::report::{
    COLUMNS, CohortKey, Counts, Echo, Evidence, Identity, InstanceId, KeyDefinition, Outcomes,
    Report, ReportedMode, Role, Side, Tallies, Tally,
};
use plimsoll_core::rollout::{Cohort, Percent};
use plimsoll_core::stats::{BINS, Bin, Histogram};
use proptest::collection::{btree_map, btree_set, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use prost::Message;

use super::*;

const NAME: &str = "[A-Za-z0-9._:/@-]{1,128}";
const MICROS_MAX: u64 = u64::MAX / 1_000;

fn longest(number: usize) -> String {
    format!("{number:0>NAME_BYTES_MAX$}")
}

fn largest_rate() -> Rate {
    Rate::MAX
}

fn largest_mode() -> ReportedMode {
    ReportedMode {
        directed: Some(Mode::Enforce),
        unapplied: u32::MAX,
    }
}

fn orders(kill: u64) -> BTreeMap<OrderId, KillOrder> {
    [Scope::Fleet, Scope::Bucket(Bucket::new("killed").unwrap())]
        .map(|scope| {
            let id = OrderId {
                scope,
                given_at: InstanceId(kill.into()),
            };
            let order = KillOrder {
                generation: KillGeneration(kill),
                age: Duration::from_millis(kill / 3),
                ends_held: kill.is_multiple_of(3),
            };
            (id, order)
        })
        .into()
}

fn any_bucket() -> impl Strategy<Value = Bucket> {
    NAME.prop_map(|name| Bucket::new(&name).unwrap())
}

fn any_tenant() -> impl Strategy<Value = Tenant> {
    NAME.prop_map(|name| Tenant::new(&name).unwrap())
}

fn any_rate() -> impl Strategy<Value = Rate> {
    prop_oneof![0..10u64, 0..=1_000_000_000_000_000u64]
        .prop_map(|milli| Rate::new(milli as f64 / 1e3).unwrap())
}
