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
use super::scalars::{check_column, check_len, decode_instance, decode_name, encode_instance};
use crate::wire;

pub(super) fn encode_kill(bucket: &Bucket, generation: KillGeneration) -> wire::BucketKill {
    wire::BucketKill {
        bucket: bucket.to_string(),
        generation: generation.0,
    }
}

pub(super) fn decode_kills(
    kills: &[wire::BucketKill],
) -> Result<BTreeMap<Bucket, KillGeneration>, DecodeError> {
    check_len("kills", kills.len(), KILLED_BUCKETS_MAX)?;
    let decode = |kill: &wire::BucketKill| {
        Ok((
            decode_name("kills", &kill.bucket, Bucket::new)?,
            KillGeneration(kill.generation),
        ))
    };
    kills.iter().map(decode).collect()
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

pub(super) fn decode_orders(
    orders: Vec<wire::KillOrder>,
) -> Result<BTreeMap<OrderId, KillOrder>, DecodeError> {
    check_len("kill_orders", orders.len(), KILL_ORDERS_MAX)?;
    let mut all = BTreeMap::new();
    for wire::KillOrder {
        bucket,
        given_at,
        generation,
        age_ms,
        ends_held,
    } in orders
    {
        let bucket = bucket
            .map(|bucket| decode_name("kill_orders", &bucket, Bucket::new))
            .transpose()?;
        let id = OrderId {
            scope: Scope::from(bucket),
            given_at: decode_instance(&given_at)?,
        };
        let (generation, age) = (KillGeneration(generation), Duration::from_millis(age_ms));
        all.insert(
            id,
            KillOrder {
                generation,
                age,
                ends_held,
            },
        );
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

pub(super) fn decode_claims(
    claims: Vec<wire::KillClaim>,
) -> Result<BTreeMap<Scope, KillClaim>, DecodeError> {
    check_len("kill_claims", claims.len(), CLAIMS_MAX)?;
    let mut all: BTreeMap<Scope, KillClaim> = BTreeMap::new();
    for wire::KillClaim {
        bucket,
        generation,
        zone,
        service,
        name,
    } in claims
    {
        let bucket = bucket
            .map(|bucket| decode_name("kill_claims", &bucket, Bucket::new))
            .transpose()?;
        let claim = KillClaim {
            generation: KillGeneration(generation),
            zone: decode_name("kill_claims.zone", &zone, Zone::new)?,
            service: decode_name("kill_claims.service", &service, Name::new)?,
            name: decode_name("kill_claims.name", &name, Name::new)?,
        };
        all.insert(Scope::from(bucket), claim);
    }
    Ok(all)
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
    check_len("drill_latencies", zones.len(), SPREAD_ZONES_MAX)?;
    let mut all = BTreeMap::new();
    for latencies in zones {
        let zone = decode_name("drill_latencies", &latencies.zone, Zone::new)?;
        check_len(
            "drill_latencies.latencies_us",
            latencies.latencies_us.len(),
            SPREAD_STEPS_MAX,
        )?;
        check_column(
            "drill_latencies.counts",
            latencies.counts.len(),
            latencies.latencies_us.len(),
        )?;
        let waits = latencies
            .latencies_us
            .iter()
            .copied()
            .zip(latencies.counts.iter().copied());
        all.insert(zone, Spread::of(waits, latencies.missing));
    }
    Ok(all)
}
