//! Conversions of the kill switch: generations of buckets, orders, and drill latencies.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_core::kill::drill::{SPREAD_STEPS_MAX, SPREAD_ZONES_MAX, Spread};
use plimsoll_core::kill::{KILL_ORDERS_MAX, KILLED_BUCKETS_MAX, KillGeneration, KillOrder, OrderId, Scope};
use plimsoll_core::names::{Bucket, Zone};

use super::DecodeError;
use super::scalars::{check_column, check_len, decode_instance, decode_name, encode_instance};
use crate::wire;

/// The most bytes that the drill latencies of a zone take on the wire: a name, a number, and two numbers of
/// up to 4 and 10 bytes for each step.
pub(super) const SPREAD_BYTES_MAX: usize = (128 + 3) + 11 + 8 + SPREAD_STEPS_MAX * (4 + 10);

/// The most bytes of a kill order on the wire: a name of 128 bytes, an id, two numbers, and framing.
pub(super) const ORDER_BYTES_MAX: usize = (128 + 3) + 18 + 2 * 11 + 5;

pub(super) fn encode_kill(bucket: &Bucket, generation: KillGeneration) -> wire::BucketKill {
    wire::BucketKill { bucket: bucket.to_string(), generation: generation.0 }
}

/// Decodes generations by bucket. Of several for one bucket the highest counts.
pub(super) fn decode_kills(
    kills: &[wire::BucketKill],
) -> Result<BTreeMap<Bucket, KillGeneration>, DecodeError> {
    check_len("kills", kills.len(), KILLED_BUCKETS_MAX)?;
    let mut all = BTreeMap::new();
    for kill in kills {
        let bucket = decode_name("kills", &kill.bucket, Bucket::new)?;
        all.entry(bucket).or_insert(KillGeneration(0)).merge(KillGeneration(kill.generation));
    }
    Ok(all)
}

pub(super) fn encode_order(id: &OrderId, order: &KillOrder) -> wire::KillOrder {
    wire::KillOrder {
        bucket: id.scope.bucket().map(ToString::to_string),
        given_at: encode_instance(id.given_at),
        generation: order.generation.0,
        age_ms: u64::try_from(order.age.as_millis()).unwrap_or(u64::MAX),
    }
}

/// Decodes kill orders. Of several states of one order the latest counts.
pub(super) fn decode_orders(
    orders: Vec<wire::KillOrder>,
) -> Result<BTreeMap<OrderId, KillOrder>, DecodeError> {
    check_len("kill_orders", orders.len(), KILL_ORDERS_MAX)?;
    let mut all = BTreeMap::new();
    for wire::KillOrder { bucket, given_at, generation, age_ms } in orders {
        let bucket = bucket.map(|bucket| decode_name("kill_orders", &bucket, Bucket::new)).transpose()?;
        let id = OrderId { scope: Scope::from(bucket), given_at: decode_instance(&given_at)? };
        let order = KillOrder { generation: KillGeneration(generation), age: Duration::from_millis(age_ms) };
        let held = all.entry(id).or_insert(order);
        *held = order.max(*held);
    }
    Ok(all)
}

pub(super) fn encode_spread(zone: &Zone, spread: &Spread) -> wire::DrillLatencies {
    let (latencies_us, counts) = spread.latencies().unzip();
    wire::DrillLatencies { zone: zone.to_string(), missing: spread.missing, latencies_us, counts }
}

/// Decodes drill latencies by zone.
pub(super) fn decode_spreads(zones: &[wire::DrillLatencies]) -> Result<BTreeMap<Zone, Spread>, DecodeError> {
    check_len("drill_latencies", zones.len(), SPREAD_ZONES_MAX)?;
    let mut all = BTreeMap::new();
    for latencies in zones {
        let zone = decode_name("drill_latencies", &latencies.zone, Zone::new)?;
        check_len("drill_latencies.latencies_us", latencies.latencies_us.len(), SPREAD_STEPS_MAX)?;
        check_column("drill_latencies.counts", latencies.counts.len(), latencies.latencies_us.len())?;
        let waits = latencies.latencies_us.iter().copied().zip(latencies.counts.iter().copied());
        all.insert(zone, Spread::of(waits, latencies.missing));
    }
    Ok(all)
}
