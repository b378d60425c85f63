//! Conversions of the kill switch: generations of buckets, orders, claims, and drill latencies.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_core::kill::drill::{SPREAD_STEPS_MAX, SPREAD_ZONES_MAX, Spread};
use plimsoll_core::kill::{
    CLAIMS_MAX, KILL_ORDERS_MAX, KILLED_BUCKETS_MAX, KillClaim, KillGeneration, KillOrder, OrderId,
    Scope,
};
use plimsoll_core::names::{Bucket, Name, Zone};

use super::DecodeError;
use super::scalars::{
    check_column, check_len, decode_instance, decode_list, decode_name, encode_instance,
    encode_millis,
};
use crate::wire;

pub(super) fn encode_kill(bucket: &Bucket, generation: KillGeneration) -> wire::BucketKill {
    wire::BucketKill {
        bucket: bucket.to_string(),
        generation: generation.0,
    }
}

/// Takes any generation: whether one is plausible is judged by the kill relay.
pub(super) fn decode_kills(
    kills: &[wire::BucketKill],
) -> Result<BTreeMap<Bucket, KillGeneration>, DecodeError> {
    decode_list("kills", kills, KILLED_BUCKETS_MAX, |kill| {
        let bucket = decode_name("kills", &kill.bucket, Bucket::new)?;
        Ok((bucket, KillGeneration(kill.generation)))
    })
}

pub(super) fn encode_order(id: &OrderId, order: &KillOrder) -> wire::KillOrder {
    wire::KillOrder {
        bucket: id.scope.bucket().map(ToString::to_string),
        given_at: encode_instance(id.given_at),
        generation: order.generation.0,
        age_ms: encode_millis(order.age),
        ends_held: order.ends_held,
    }
}

pub(super) fn decode_orders(
    orders: &[wire::KillOrder],
) -> Result<BTreeMap<OrderId, KillOrder>, DecodeError> {
    decode_list("kill_orders", orders, KILL_ORDERS_MAX, |order| {
        let id = OrderId {
            scope: decode_scope("kill_orders", order.bucket.as_deref())?,
            given_at: decode_instance(&order.given_at)?,
        };
        let decoded = KillOrder {
            generation: KillGeneration(order.generation),
            age: Duration::from_millis(order.age_ms),
            ends_held: order.ends_held,
        };
        Ok((id, decoded))
    })
}

fn decode_scope(field: &'static str, bucket: Option<&str>) -> Result<Scope, DecodeError> {
    let bucket = bucket.map(|bucket| decode_name(field, bucket, Bucket::new));
    Ok(Scope::from(bucket.transpose()?))
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

pub(super) fn decode_claims(
    claims: &[wire::KillClaim],
) -> Result<BTreeMap<Scope, KillClaim>, DecodeError> {
    decode_list("kill_claims", claims, CLAIMS_MAX, |claim| {
        let scope = decode_scope("kill_claims", claim.bucket.as_deref())?;
        let decoded = KillClaim {
            generation: KillGeneration(claim.generation),
            zone: decode_name("kill_claims.zone", &claim.zone, Zone::new)?,
            service: decode_name("kill_claims.service", &claim.service, Name::new)?,
            name: decode_name("kill_claims.name", &claim.name, Name::new)?,
        };
        Ok((scope, decoded))
    })
}

pub(super) fn encode_spread(zone: &Zone, spread: &Spread) -> wire::DrillLatencies {
    let (latencies_us, counts) = spread.latencies().unzip();
    wire::DrillLatencies {
        zone: zone.to_string(),
        missing: spread.missing,
        latencies_us,
        counts,
    }
}

pub(super) fn decode_spreads(
    zones: &[wire::DrillLatencies],
) -> Result<BTreeMap<Zone, Spread>, DecodeError> {
    decode_list("drill_latencies", zones, SPREAD_ZONES_MAX, |of_zone| {
        let zone = decode_name("drill_latencies", &of_zone.zone, Zone::new)?;
        let (waits, counts) = (&of_zone.latencies_us, &of_zone.counts);
        check_len(
            "drill_latencies.latencies_us",
            waits.len(),
            SPREAD_STEPS_MAX,
        )?;
        check_column("drill_latencies.counts", counts.len(), waits.len())?;
        let waits = waits.iter().copied().zip(counts.iter().copied());
        Ok((zone, Spread::of(waits, of_zone.missing)))
    })
}
