//! Conversions of the kill switch: generations of buckets, orders, and drill latencies.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_core::kill::drill::{SPREAD_STEPS_MAX, SPREAD_ZONES_MAX, Spread};
use plimsoll_core::kill::{
    CLAIMS_MAX, KILL_ORDERS_MAX, KILLED_BUCKETS_MAX, KillClaim, KillGeneration, KillOrder, OrderId, Scope,
};
use plimsoll_core::names::{Bucket, Name, Zone};

use super::DecodeError;
use super::scalars::{check_column, check_len, decode_instance, decode_name, encode_instance};
use crate::wire;

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
        ends_held: order.ends_held,
    }
}

/// Decodes kill orders. Of several states of one order the latest counts.
pub(super) fn decode_orders(
    orders: Vec<wire::KillOrder>,
) -> Result<BTreeMap<OrderId, KillOrder>, DecodeError> {
    check_len("kill_orders", orders.len(), KILL_ORDERS_MAX)?;
    let mut all = BTreeMap::new();
    for wire::KillOrder { bucket, given_at, generation, age_ms, ends_held } in orders {
        let bucket = bucket.map(|bucket| decode_name("kill_orders", &bucket, Bucket::new)).transpose()?;
        let id = OrderId { scope: Scope::from(bucket), given_at: decode_instance(&given_at)? };
        let (generation, age) = (KillGeneration(generation), Duration::from_millis(age_ms));
        let order = KillOrder { generation, age, ends_held };
        let held = all.entry(id).or_insert(order);
        *held = order.max(*held);
    }
    Ok(all)
}

pub(super) fn encode_claim(scope: &Scope, claim: &KillClaim) -> wire::KillClaim {
    wire::KillClaim {
        bucket: scope.bucket().map(ToString::to_string),
        generation: claim.generation.0,
        zone: claim.zone.to_string(),
        service: claim.service.to_string(),
        name: claim.name.to_string(),
    }
}

/// Decodes kill claims. Of several for one scope the highest counts.
pub(super) fn decode_claims(claims: Vec<wire::KillClaim>) -> Result<BTreeMap<Scope, KillClaim>, DecodeError> {
    check_len("kill_claims", claims.len(), CLAIMS_MAX)?;
    let mut all: BTreeMap<Scope, KillClaim> = BTreeMap::new();
    for wire::KillClaim { bucket, generation, zone, service, name } in claims {
        let bucket = bucket.map(|bucket| decode_name("kill_claims", &bucket, Bucket::new)).transpose()?;
        let claim = KillClaim {
            generation: KillGeneration(generation),
            zone: decode_name("kill_claims.zone", &zone, Zone::new)?,
            service: decode_name("kill_claims.service", &service, Name::new)?,
            name: decode_name("kill_claims.name", &name, Name::new)?,
        };
        let scope = Scope::from(bucket);
        if all.get(&scope).is_none_or(|held| claim.generation > held.generation) {
            all.insert(scope, claim);
        }
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
