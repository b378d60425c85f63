//! Directives between core and wire: field by field on the way out, put together again from their parts and checked
//! before anyone sees them.

use std::time::Duration;

use plimsoll_core::bucket::{Bucket, Tenant};
use plimsoll_core::directive::{BucketDirective, Directives, Entitlement, KeyDirective, Terms, Values};
use plimsoll_core::drill::Drill;
use plimsoll_core::kill::{Kill, KillGeneration};
use plimsoll_core::policy::{Coin, OnSilence, Percent, Weight};
use plimsoll_core::presence::Presences;
use plimsoll_core::rate::Limit;
use plimsoll_core::ratio::DropRatio;
use plimsoll_core::report::Echo;
use plimsoll_core::rollout::{Cohort, Mode};

use crate::coherence::{coherence, coherence_of};
use crate::kill::{kill_of, kills_of};
use crate::rates::{milli, rate};
use crate::report::{bound, epoch_of, instance, instance_of, name};
use crate::{Invalid, KEYS_PER_MESSAGE_MAX, KEYS_PER_PART_MAX, wire};

/// A weight of 1 as it travels.
const WEIGHT_UNIT: f64 = 1e9;
/// The longest wait between reports that a parent may ask for.
const REPORT_INTERVAL_MAX: Duration = Duration::from_secs(60);

pub(crate) const fn mode(mode: Mode) -> wire::Mode {
    match mode {
        Mode::Shadow => wire::Mode::Shadow,
        Mode::Canary => wire::Mode::Canary,
        Mode::Enforce => wire::Mode::Enforce,
    }
}

pub(crate) fn mode_of(value: i32) -> Result<Mode, Invalid> {
    match wire::Mode::try_from(value) {
        Ok(wire::Mode::Shadow) => Ok(Mode::Shadow),
        Ok(wire::Mode::Canary) => Ok(Mode::Canary),
        Ok(wire::Mode::Enforce) => Ok(Mode::Enforce),
        Ok(wire::Mode::Unspecified) | Err(_) => Err(Invalid::Enumeration { field: "mode", value }),
    }
}

/// What stands at the top of each part.
pub(crate) fn head(directives: &Directives) -> wire::Directives {
    wire::Directives {
        epoch: directives.epoch.map(|epoch| epoch.0),
        seq: directives.seq,
        kill_generation: directives.kill.0,
        kills: directives.kills.iter().map(|(bucket, generation)| kill_of(bucket, *generation)).collect(),
        drill: directives.drill.0,
        policy_hash: directives.policy_hash,
        covered: directives.echo.covered,
        confirmed: directives.echo.confirmed,
        upstream_age_ms: directives.upstream_age.map(millis),
        report_interval_ms: directives
            .report_interval
            .map(|interval| u32::try_from(millis(interval)).unwrap_or(u32::MAX)),
        children: directives.children,
        above: directives.above,
        parent: directives.parent.map(instance),
        ..wire::Directives::default()
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// A bucket with some of its keys.
pub(crate) fn bucket_part(
    bucket: &BucketDirective,
    whole: bool,
    keys: &[KeyDirective],
) -> wire::BucketDirective {
    use wire::bucket_directive::Limit as Wire;
    let terms = &bucket.terms;
    wire::BucketDirective {
        bucket: bucket.bucket.to_string(),
        whole,
        limit: match terms.limit {
            Limit::Unknown => None,
            Limit::Unlimited => Some(Wire::Unlimited(true)),
            Limit::PerSecond(rate) => Some(Wire::LimitMilliRps(milli(rate))),
        },
        mode: mode(terms.mode) as i32,
        kill_generation: terms.kill.bucket.0,
        fleet_kill_generation: terms.kill.fleet.0,
        canary_milli_percent: (terms.cohort.percent.get() * 1e3).round() as u32,
        canary_salt: terms.cohort.salt,
        coin: match terms.coin {
            Coin::Dithered => wire::Coin::Dithered,
            Coin::Independent => wire::Coin::Independent,
            Coin::Coherent => wire::Coin::Coherent,
        } as i32,
        on_silence: match terms.on_silence {
            OnSilence::Allocation => wire::OnSilence::Allocation,
            OnSilence::Ratio => wire::OnSilence::Ratio,
        } as i32,
        presences_milli: terms.presences.map(Presences::thousandths),
        hold_milli_rps: terms.hold.map(milli),
        clients: terms.clients,
        coherence: terms.coherence.map(coherence),
        keys: keys.iter().map(key).collect(),
    }
}

fn key(key: &KeyDirective) -> wire::KeyDirective {
    wire::KeyDirective {
        tenant: key.tenant.to_string(),
        ratio: key.values.ratio.map(DropRatio::units),
        rate_milli_rps: key.values.rate.map(milli),
        cap_milli_rps: key.values.cap.map(milli),
        entitlement: key.values.entitlement.map(|entitlement| wire::Entitlement {
            weight_nano: (entitlement.weight.get() * WEIGHT_UNIT).round() as u64,
            floor_milli_rps: milli(entitlement.floor),
            tenant_limit_milli_rps: entitlement.tenant_limit.map(milli),
            declared: entitlement.declared,
        }),
        guard_milli_rps: key.values.guard.map(milli),
        offered_milli_rps: key.values.offered.map(milli),
    }
}

/// Puts the parts of one stream's directives together and validates them.
#[derive(Debug, Default)]
pub struct DirectivesDecoder {
    parts: Option<Directives>,
}

impl DirectivesDecoder {
    /// Takes one message; returns the directives when their last part has come.
    ///
    /// # Errors
    /// When a value is out of range. Nothing of the message applies then, what was held stays.
    pub fn decode(&mut self, part: wire::Directives) -> Result<Option<Directives>, Invalid> {
        let more = part.more;
        let mut part = decode_part(part)?;
        let buckets = std::mem::take(&mut part.buckets);
        let mut directives = match self.parts.take() {
            None => part,
            Some(parts) if parts.seq != part.seq => return Err(Invalid::Parts("seq")),
            Some(parts) if parts.epoch != part.epoch => return Err(Invalid::Parts("epoch")),
            Some(parts) => parts,
        };
        // A bucket with many keys comes in pieces.
        for bucket in buckets {
            match directives.buckets.last_mut() {
                Some(last) if last.bucket == bucket.bucket && !bucket.whole && last.terms == bucket.terms => {
                    last.keys.extend(bucket.keys);
                }
                _ => directives.buckets.push(bucket),
            }
        }
        let keys = directives.buckets.iter().map(|bucket| 1 + bucket.keys.len()).sum();
        bound("buckets and keys", keys, KEYS_PER_MESSAGE_MAX)?;
        if more {
            self.parts = Some(directives);
            return Ok(None);
        }
        Ok(Some(directives))
    }
}

fn decode_part(part: wire::Directives) -> Result<Directives, Invalid> {
    if part.seq == 0 {
        return Err(Invalid::Zero("seq"));
    }
    bound("buckets", part.buckets.len(), KEYS_PER_PART_MAX)?;
    bound("keys", part.buckets.iter().map(|bucket| bucket.keys.len()).sum(), KEYS_PER_PART_MAX)?;
    let epoch = epoch_of(part.epoch)?;
    if epoch.is_none() && !part.buckets.is_empty() {
        return Err(Invalid::ValuesWithoutEpoch);
    }
    if part.report_interval_ms == Some(0) {
        return Err(Invalid::Zero("report_interval_ms"));
    }
    let report_interval =
        part.report_interval_ms.map(|ms| Duration::from_millis(ms.into()).min(REPORT_INTERVAL_MAX));
    Ok(Directives {
        epoch,
        seq: part.seq,
        kill: KillGeneration(part.kill_generation),
        kills: kills_of(&part.kills)?,
        drill: Drill(part.drill),
        policy_hash: part.policy_hash,
        echo: Echo { covered: part.covered, confirmed: part.confirmed },
        upstream_age: part.upstream_age_ms.map(Duration::from_millis),
        report_interval,
        children: part.children,
        above: part.above,
        parent: part.parent.map(|bytes| instance_of(&bytes)).transpose()?,
        buckets: part.buckets.into_iter().map(decode_bucket).collect::<Result<_, _>>()?,
    })
}

fn decode_bucket(bucket: wire::BucketDirective) -> Result<BucketDirective, Invalid> {
    use wire::bucket_directive::Limit as Wire;
    let percent = f64::from(bucket.canary_milli_percent) / 1e3;
    let terms = Terms {
        limit: match bucket.limit {
            None | Some(Wire::Unlimited(false)) => Limit::Unknown,
            Some(Wire::Unlimited(true)) => Limit::Unlimited,
            Some(Wire::LimitMilliRps(milli)) => Limit::PerSecond(rate(milli)?),
        },
        mode: mode_of(bucket.mode)?,
        kill: Kill {
            fleet: KillGeneration(bucket.fleet_kill_generation),
            bucket: KillGeneration(bucket.kill_generation),
        },
        cohort: Cohort {
            percent: Percent::new(percent).ok_or(Invalid::Percent(bucket.canary_milli_percent))?,
            salt: bucket.canary_salt,
        },
        // A parent that does not say leaves the default, and so does one that says what is not known here.
        coin: match wire::Coin::try_from(bucket.coin) {
            Ok(wire::Coin::Independent) => Coin::Independent,
            Ok(wire::Coin::Coherent) => Coin::Coherent,
            Ok(wire::Coin::Dithered | wire::Coin::Unspecified) | Err(_) => Coin::Dithered,
        },
        on_silence: match wire::OnSilence::try_from(bucket.on_silence) {
            Ok(wire::OnSilence::Ratio) => OnSilence::Ratio,
            Ok(wire::OnSilence::Allocation | wire::OnSilence::Unspecified) | Err(_) => OnSilence::Allocation,
        },
        presences: bucket.presences_milli.map(Presences::new).transpose()?,
        hold: bucket.hold_milli_rps.map(rate).transpose()?,
        clients: bucket.clients,
        coherence: bucket.coherence.map(coherence_of).transpose()?,
    };
    Ok(BucketDirective {
        bucket: name("bucket", &bucket.bucket, Bucket::new)?,
        whole: bucket.whole,
        terms,
        keys: bucket.keys.into_iter().map(decode_key).collect::<Result<_, _>>()?,
    })
}

fn decode_key(key: wire::KeyDirective) -> Result<KeyDirective, Invalid> {
    let entitlement = |entitlement: wire::Entitlement| -> Result<Entitlement, Invalid> {
        Ok(Entitlement {
            weight: Weight::new(entitlement.weight_nano as f64 / WEIGHT_UNIT)?,
            floor: rate(entitlement.floor_milli_rps)?,
            tenant_limit: entitlement.tenant_limit_milli_rps.map(rate).transpose()?,
            declared: entitlement.declared,
        })
    };
    Ok(KeyDirective {
        tenant: name("tenant", &key.tenant, Tenant::new)?,
        values: Values {
            ratio: key.ratio.map(DropRatio::new).transpose()?,
            rate: key.rate_milli_rps.map(rate).transpose()?,
            cap: key.cap_milli_rps.map(rate).transpose()?,
            entitlement: key.entitlement.map(entitlement).transpose()?,
            guard: key.guard_milli_rps.map(rate).transpose()?,
            offered: key.offered_milli_rps.map(rate).transpose()?,
        },
    })
}
