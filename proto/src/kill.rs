//! Kill generations of buckets, and how a drill fares, between core and wire.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_core::bucket::{Bucket, Zone};
use plimsoll_core::drill::{SPREAD_STEPS_MAX, SPREAD_ZONES_MAX, Spread};
use plimsoll_core::kill::{KILLED_BUCKETS_MAX, KillGeneration, Scope};

use crate::report::{bound, name};
use crate::{Invalid, wire};

/// What a spread may take on the wire at most: a name, a number, and two of up to 4 and 10 bytes for each step.
pub(crate) const SPREAD_BYTES_MAX: usize = (128 + 3) + 11 + 8 + SPREAD_STEPS_MAX * (4 + 10);

pub(crate) fn kill_of(bucket: &Bucket, generation: KillGeneration) -> wire::BucketKill {
    wire::BucketKill { bucket: bucket.to_string(), generation: generation.0 }
}

pub(crate) fn kills_of(kills: &[wire::BucketKill]) -> Result<BTreeMap<Bucket, KillGeneration>, Invalid> {
    bound("kills", kills.len(), KILLED_BUCKETS_MAX)?;
    let mut all = BTreeMap::new();
    for kill in kills {
        let bucket = name("kills", &kill.bucket, Bucket::new)?;
        all.entry(bucket).or_insert(KillGeneration(0)).merge(KillGeneration(kill.generation));
    }
    Ok(all)
}

/// The fleet, where it is named, and these buckets.
pub(crate) fn scopes_of(
    field: &'static str,
    fleet: bool,
    buckets: &[String],
) -> Result<BTreeSet<Scope>, Invalid> {
    bound(field, buckets.len(), KILLED_BUCKETS_MAX)?;
    let scopes = buckets.iter().map(|bucket| Ok(Scope::Bucket(name(field, bucket, Bucket::new)?)));
    fleet.then_some(Ok(Scope::Fleet)).into_iter().chain(scopes).collect()
}

pub(crate) fn spread(zone: &Zone, spread: &Spread) -> wire::Spread {
    let (waits_us, counts) = spread.waits().unzip();
    wire::Spread { zone: zone.to_string(), missing: spread.missing, waits_us, counts }
}

pub(crate) fn spreads_of(spreads: &[wire::Spread]) -> Result<BTreeMap<Zone, Spread>, Invalid> {
    bound("spreads", spreads.len(), SPREAD_ZONES_MAX)?;
    let mut all = BTreeMap::new();
    for spread in spreads {
        let zone = name("spreads", &spread.zone, Zone::new)?;
        bound("spreads.waits_us", spread.waits_us.len(), SPREAD_STEPS_MAX)?;
        let (got, due) = (spread.counts.len(), spread.waits_us.len());
        if got != due {
            return Err(Invalid::Columns { field: "spreads.counts", got, due });
        }
        let waits = spread.waits_us.iter().copied().zip(spread.counts.iter().copied());
        all.insert(zone, Spread::of(waits, spread.missing));
    }
    Ok(all)
}
