//! Conversions of directives. A decoder assembles the parts of a message and validates them before anything
//! applies.

use std::time::Duration;

use plimsoll_core::decision::{Coin, Mode};
use plimsoll_core::directive::{
    BucketDirective, CatalogueNews, Directives, Entitlement, KeyDirective, LIMITED_MAX, LimitOwner,
    NewShare, SentLead, Terms, Unlisted, Values,
};
use plimsoll_core::kill::drill::Drill;
use plimsoll_core::kill::{Kill, KillGeneration, KillNews};
use plimsoll_core::law::Weight;
use plimsoll_core::law::presence::Presences;
use plimsoll_core::names::{Bucket, Tenant};
use plimsoll_core::quantity::{DropRatio, Limit};
use plimsoll_core::report::Echo;
use plimsoll_core::rollout::{Cohort, Percent};

use super::DecodeError;
use super::catalogued::{decode_catalogued, decode_key_plans, encode_catalogued, encode_key_plans};
use super::coherence::{decode_coherence, encode_coherence};
use super::headroom::{
    decode_grants, decode_headroom, decode_pool, encode_grant, encode_headroom, encode_pool,
};
use super::kill::{decode_kills, decode_orders, encode_kill, encode_order};
use super::quotas::{decode_quotas, encode_quotas};
use super::scalars::{
    check_len, decode_leader, decode_name, decode_optional_instance, decode_rate, encode_instance,
    encode_leader, encode_millis, encode_rate,
};
use super::tail::{
    decode_cut, decode_name_rates, decode_plans, decode_standings, encode_cut, encode_name_rate,
    encode_plans, encode_standings,
};
use crate::{KEYS_PER_MESSAGE_MAX, KEYS_PER_PART_MAX, wire};

/// The number that encodes a weight of 1.
const WEIGHT_UNIT: f64 = 1e9;
/// Maximum report interval that a parent may set; a longer one is shortened.
const REPORT_INTERVAL_MAX: Duration = Duration::from_secs(60);

pub(super) const fn encode_mode(mode: Mode) -> wire::Mode {
    match mode {
        Mode::Shadow => wire::Mode::Shadow,
        Mode::Canary => wire::Mode::Canary,
        Mode::Enforce => wire::Mode::Enforce,
    }
}

pub(super) fn decode_mode(value: i32) -> Result<Mode, DecodeError> {
    match wire::Mode::try_from(value) {
        Ok(wire::Mode::Shadow) => Ok(Mode::Shadow),
        Ok(wire::Mode::Canary) => Ok(Mode::Canary),
        Ok(wire::Mode::Enforce) => Ok(Mode::Enforce),
        Ok(wire::Mode::Unspecified) | Err(_) => Err(DecodeError::Enumeration {
            field: "mode",
            value,
        }),
    }
}

/// Encodes everything but the buckets. Every part of a message begins with it.
pub(crate) fn encode_head(directives: &Directives) -> wire::Directives {
    let (epoch, controller) = encode_leader(directives.lead.leader);
    let (standing_id_gaps, standings) = encode_standings(&directives.standings);
    wire::Directives {
        epoch,
        controller,
        seq: directives.seq,
        kill_generation: directives.kills.fleet.0,
        kills: directives
            .kills
            .buckets
            .iter()
            .map(|(bucket, generation)| encode_kill(bucket, *generation))
            .collect(),
        forgotten_kill_generation: directives.lead.forgotten.0,
        drill: directives.kills.drill.0,
        policy_hash: directives.lead.policy_hash,
        merged_seq: directives.echo.covered,
        acknowledged_seq: directives.echo.confirmed,
        upstream_age_ms: directives.upstream_age.map(encode_millis),
        report_interval_ms: directives
            .report_interval
            .map(|interval| u32::try_from(encode_millis(interval)).unwrap_or(u32::MAX)),
        children_at_last_report: directives.children,
        aggregators_above: directives.above,
        parent_instance: directives.parent.map(encode_instance),
        grants: directives
            .grants
            .iter()
            .map(|(bucket, tokens)| encode_grant(bucket, *tokens))
            .collect(),
        standing_id_gaps,
        standings,
        has_limits: directives.limits.is_some(),
        limits: directives
            .limits
            .iter()
            .flatten()
            .map(encode_name_rate)
            .collect(),
        catalogue_hash: directives.catalogue.hash,
        catalogued: encode_catalogued(&directives.catalogue.names),
        key_plans: encode_key_plans(&directives.catalogue.keys),
        unconfirmed: directives.lead.unconfirmed,
        kill_orders: directives
            .kills
            .orders
            .iter()
            .map(|(id, order)| encode_order(id, order))
            .collect(),
        ..wire::Directives::default()
    }
}

/// Encodes a bucket with some of its keys. Only the first piece of a bucket can be a snapshot.
pub(crate) fn bucket_piece(
    bucket: &BucketDirective,
    snapshot: bool,
    keys: &[KeyDirective],
) -> wire::BucketDirective {
    use wire::bucket_directive::Limit as Wire;
    let terms = &bucket.terms;
    wire::BucketDirective {
        bucket: bucket.bucket.to_string(),
        snapshot,
        limit: match terms.limit {
            Limit::Unknown => None,
            Limit::Unlimited => Some(Wire::Unlimited(true)),
            Limit::PerSecond(rate) => Some(Wire::LimitMilliRps(encode_rate(rate))),
        },
        mode: encode_mode(terms.mode) as i32,
        named: terms.named,
        unlisted: terms.unlisted.map(|unlisted| wire::Unlisted {
            nearest: unlisted.nearest().unwrap_or_default().to_owned(),
        }),
        kill_generation: terms.kill.bucket.0,
        fleet_kill_generation: terms.kill.fleet.0,
        canary_milli_percent: (terms.cohort.percent.get() * 1e3).round() as u32,
        canary_salt: terms.cohort.salt,
        coin: match terms.coin {
            Coin::Dithered => wire::Coin::Dithered,
            Coin::Coherent => wire::Coin::Coherent,
        } as i32,
        presences_milli: terms.presences.map(Presences::thousandths),
        hold_milli_rps: terms.hold.map(encode_rate),
        clients: terms.clients,
        headroom: terms.headroom.map(encode_headroom),
        pool: terms.pool.map(encode_pool),
        cut: terms.cut.map(encode_cut),
        new_share: terms.new_share.map(NewShare::millionths),
        plans: encode_plans(&terms.plans),
        coherence: terms.coherence.map(encode_coherence),
        quotas: terms.quotas.as_ref().map(encode_quotas),
        keys: keys.iter().map(encode_key).collect(),
    }
}

fn encode_key(key: &KeyDirective) -> wire::KeyDirective {
    wire::KeyDirective {
        tenant: key.tenant.to_string(),
        ratio: key.values.ratio.map(DropRatio::units),
        rate_milli_rps: key.values.rate.map(encode_rate),
        cap_milli_rps: key.values.cap.map(encode_rate),
        entitlement: key.values.entitlement.map(|entitlement| wire::Entitlement {
            weight_nano: (entitlement.weight.get() * WEIGHT_UNIT).round() as u64,
            floor_milli_rps: encode_rate(entitlement.floor),
            tenant_limit_milli_rps: entitlement.tenant_limit.map(encode_rate),
            limit_owner: match entitlement.limit_owner {
                LimitOwner::Bucket => wire::LimitOwner::Bucket,
                LimitOwner::Plan => wire::LimitOwner::Plan,
                LimitOwner::Tenant => wire::LimitOwner::Tenant,
            } as i32,
        }),
        guard_milli_rps: key.values.guard.map(encode_rate),
        offered_milli_rps: key.values.offered.map(encode_rate),
        at_tenant_limit: key.values.at_tenant_limit,
    }
}

/// Assembles the directives of one stream from their parts and validates them.
#[derive(Debug, Default)]
pub struct DirectivesDecoder {
    /// The parts so far of an incomplete message.
    parts: Option<Directives>,
}

impl DirectivesDecoder {
    /// Decodes one message. Returns the directives with their last part, `None` before.
    ///
    /// # Errors
    /// If a value is out of range. Nothing of the message applies.
    pub fn decode(&mut self, part: wire::Directives) -> Result<Option<Directives>, DecodeError> {
        let more = part.more;
        let mut part = decode_part(part)?;
        let buckets = std::mem::take(&mut part.buckets);
        let mut directives = match self.parts.take() {
            None => part,
            Some(parts) if parts.seq != part.seq => return Err(DecodeError::Parts("seq")),
            Some(parts) if parts.lead.epoch() != part.lead.epoch() => {
                return Err(DecodeError::Parts("epoch"));
            }
            Some(parts) => parts,
        };
        // A bucket with many keys arrives in consecutive pieces, the first of them with its quotas.
        for bucket in buckets {
            match directives.buckets.last_mut() {
                Some(last)
                    if last.bucket == bucket.bucket
                        && !bucket.whole
                        && last.terms == bucket.terms.clone().or(&last.terms) =>
                {
                    last.keys.extend(bucket.keys);
                }
                _ => directives.buckets.push(bucket),
            }
        }
        let keys = directives
            .buckets
            .iter()
            .map(|bucket| 1 + bucket.keys.len())
            .sum();
        check_len("buckets and keys", keys, KEYS_PER_MESSAGE_MAX)?;
        if more {
            self.parts = Some(directives);
            return Ok(None);
        }
        Ok(Some(directives))
    }
}

fn decode_part(part: wire::Directives) -> Result<Directives, DecodeError> {
    if part.seq == 0 {
        return Err(DecodeError::Zero("seq"));
    }
    check_len("buckets", part.buckets.len(), KEYS_PER_PART_MAX)?;
    check_len(
        "keys",
        part.buckets.iter().map(|bucket| bucket.keys.len()).sum(),
        KEYS_PER_PART_MAX,
    )?;
    let leader = decode_leader(part.epoch, part.controller)?;
    if leader.is_none() && !part.buckets.is_empty() {
        return Err(DecodeError::ValuesWithoutEpoch);
    }
    if part.report_interval_ms == Some(0) {
        return Err(DecodeError::Zero("report_interval_ms"));
    }
    let report_interval = part
        .report_interval_ms
        .map(|ms| Duration::from_millis(ms.into()).min(REPORT_INTERVAL_MAX));
    Ok(Directives {
        lead: SentLead {
            leader,
            forgotten: KillGeneration(part.forgotten_kill_generation),
            policy_hash: part.policy_hash,
            unconfirmed: part.unconfirmed,
        },
        seq: part.seq,
        kills: KillNews {
            fleet: KillGeneration(part.kill_generation),
            buckets: decode_kills(&part.kills)?,
            drill: Drill(part.drill),
            orders: decode_orders(&part.kill_orders)?,
        },
        echo: Echo {
            covered: part.merged_seq,
            confirmed: part.acknowledged_seq,
        },
        upstream_age: part.upstream_age_ms.map(Duration::from_millis),
        report_interval,
        children: part.children_at_last_report,
        above: part.aggregators_above,
        parent: decode_optional_instance(part.parent_instance)?,
        grants: decode_grants(&part.grants)?,
        standings: decode_standings(&part.standing_id_gaps, &part.standings)?,
        limits: match part.has_limits {
            true => Some(decode_name_rates("limits", &part.limits, LIMITED_MAX)?),
            false => None,
        },
        catalogue: CatalogueNews {
            hash: part.catalogue_hash,
            names: decode_catalogued(&part.catalogued)?,
            keys: decode_key_plans(&part.key_plans)?,
        },
        buckets: part
            .buckets
            .into_iter()
            .map(decode_bucket)
            .collect::<Result<_, _>>()?,
    })
}

fn decode_bucket(bucket: wire::BucketDirective) -> Result<BucketDirective, DecodeError> {
    use wire::bucket_directive::Limit as Wire;
    let percent = f64::from(bucket.canary_milli_percent) / 1e3;
    let terms = Terms {
        limit: match bucket.limit {
            None | Some(Wire::Unlimited(false)) => Limit::Unknown,
            Some(Wire::Unlimited(true)) => Limit::Unlimited,
            Some(Wire::LimitMilliRps(milli)) => Limit::PerSecond(decode_rate(milli)?),
        },
        mode: decode_mode(bucket.mode)?,
        named: bucket.named,
        unlisted: bucket.unlisted.map(decode_unlisted).transpose()?,
        kill: Kill {
            fleet: KillGeneration(bucket.fleet_kill_generation),
            bucket: KillGeneration(bucket.kill_generation),
        },
        cohort: Cohort {
            percent: Percent::new(percent)
                .ok_or(DecodeError::Percent(bucket.canary_milli_percent))?,
            salt: bucket.canary_salt,
        },
        // The default replaces an absent value and a value of a later version.
        coin: match wire::Coin::try_from(bucket.coin) {
            Ok(wire::Coin::Coherent) => Coin::Coherent,
            _ => Coin::Dithered,
        },
        presences: bucket.presences_milli.map(Presences::new).transpose()?,
        hold: bucket.hold_milli_rps.map(decode_rate).transpose()?,
        clients: bucket.clients,
        headroom: decode_headroom(bucket.headroom)?,
        pool: bucket.pool.map(decode_pool).transpose()?,
        cut: bucket.cut.map(decode_cut).transpose()?,
        new_share: bucket.new_share.map(NewShare::new).transpose()?,
        plans: decode_plans(&bucket.plans)?,
        coherence: bucket.coherence.map(decode_coherence).transpose()?,
        quotas: bucket.quotas.as_ref().map(decode_quotas).transpose()?,
    };
    Ok(BucketDirective {
        bucket: decode_name("bucket", &bucket.bucket, Bucket::new)?,
        whole: bucket.snapshot,
        terms,
        keys: bucket
            .keys
            .into_iter()
            .map(decode_key)
            .collect::<Result<_, _>>()?,
    })
}

fn decode_unlisted(unlisted: wire::Unlisted) -> Result<Unlisted, DecodeError> {
    let nearest = Some(unlisted.nearest).filter(|nearest| !nearest.is_empty());
    let nearest = nearest
        .map(|nearest| decode_name("bucket", nearest.as_str(), Bucket::new))
        .transpose()?;
    Ok(Unlisted::new(nearest.as_ref()))
}

fn decode_key(key: wire::KeyDirective) -> Result<KeyDirective, DecodeError> {
    let entitlement = |entitlement: wire::Entitlement| -> Result<Entitlement, DecodeError> {
        Ok(Entitlement {
            weight: Weight::new(entitlement.weight_nano as f64 / WEIGHT_UNIT)?,
            floor: decode_rate(entitlement.floor_milli_rps)?,
            tenant_limit: entitlement
                .tenant_limit_milli_rps
                .map(decode_rate)
                .transpose()?,
            limit_owner: match wire::LimitOwner::try_from(entitlement.limit_owner) {
                Ok(wire::LimitOwner::Plan) => LimitOwner::Plan,
                Ok(wire::LimitOwner::Tenant) => LimitOwner::Tenant,
                _ => LimitOwner::Bucket,
            },
        })
    };
    Ok(KeyDirective {
        tenant: decode_name("tenant", &key.tenant, Tenant::new)?,
        values: Values {
            ratio: key.ratio.map(DropRatio::new).transpose()?,
            rate: key.rate_milli_rps.map(decode_rate).transpose()?,
            cap: key.cap_milli_rps.map(decode_rate).transpose()?,
            entitlement: key.entitlement.map(entitlement).transpose()?,
            guard: key.guard_milli_rps.map(decode_rate).transpose()?,
            offered: key.offered_milli_rps.map(decode_rate).transpose()?,
            at_tenant_limit: key.at_tenant_limit,
        },
    })
}
