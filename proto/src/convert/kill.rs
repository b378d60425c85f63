//! Conversions of the kill switch: generations of buckets, pending orders, and drill latencies.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_core::kill::drill::{SPREAD_STEPS_MAX, SPREAD_ZONES_MAX, Spread};
use plimsoll_core::kill::{KILLED_BUCKETS_MAX, KillGeneration, Scope};
use plimsoll_core::names::{Bucket, Zone};

use super::DecodeError;
use super::scalars::{check_column, check_len, decode_name};
use crate::wire;

/// The most bytes that the drill latencies of a zone take on the wire: a name, a number, and two numbers of
/// up to 4 and 10 bytes for each step.
pub(super) const SPREAD_BYTES_MAX: usize = (128 + 3) + 11 + 8 + SPREAD_STEPS_MAX * (4 + 10);

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

/// Decodes the scopes of pending orders: the fleet if `fleet` is set, and the buckets.
pub(super) fn decode_scopes(
    field: &'static str,
    fleet: bool,
    buckets: &[String],
) -> Result<BTreeSet<Scope>, DecodeError> {
    check_len(field, buckets.len(), KILLED_BUCKETS_MAX)?;
    let scopes = buckets.iter().map(|bucket| Ok(Scope::Bucket(decode_name(field, bucket, Bucket::new)?)));
    fleet.then_some(Ok(Scope::Fleet)).into_iter().chain(scopes).collect()
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
