//! Conversions of unlisted names: their demand in a zone, the levels of their cuts, and their
//! standings.

use std::collections::BTreeMap;

use plimsoll_core::directive::{ClassTerms, NewShare, STANDINGS_MAX, TailCut};
use plimsoll_core::law::tail::{Bin, Demand, Standing, Tail};
use plimsoll_core::names::{Bucket, Key, KeyId, PLANS_MAX, Tenant};
use plimsoll_core::quantity::{DropRatio, Rate};

use super::DecodeError;
use super::scalars::{
    check_column, check_len, decode_class, decode_list, decode_name, decode_rate, encode_class,
    encode_rate,
};
use crate::wire;

/// Maximum number of tails in one report, each of one class of a bucket. Further ones are left out, and their
/// classes are divided between zones only by traffic.
pub(super) const TAILS_MAX: usize = 4_096;

pub(super) fn encode_tail(class: &Key, tail: &Tail) -> wire::Tail {
    wire::Tail {
        bucket: class.bucket.to_string(),
        plan: encode_class(&class.tenant),
        established: Some(encode_demand(&tail.established)),
        new: Some(encode_demand(&tail.new)),
        names: tail.names,
    }
}

/// Encodes the bins with at least half a thousandth of a request/s.
fn encode_demand(demand: &Demand) -> wire::Demand {
    let mut encoded = wire::Demand {
        uncounted_milli_rps: milli(demand.uncounted),
        mean_micro_rps: micro(demand.mean),
        ..wire::Demand::default()
    };
    let mut next = 0;
    for (at, traffic) in (0..)
        .zip(&demand.bins)
        .filter(|(_, traffic)| milli(**traffic) > 0)
    {
        encoded.bin_gaps.push(at - next);
        encoded.milli_rps.push(milli(*traffic));
        next = at + 1;
    }
    encoded
}

pub(super) fn decode_tail(tail: &wire::Tail) -> Result<(Key, Tail), DecodeError> {
    let demand = |demand: &Option<wire::Demand>| demand.as_ref().map(decode_demand).transpose();
    let decoded = Tail {
        established: demand(&tail.established)?.unwrap_or_default(),
        new: demand(&tail.new)?.unwrap_or_default(),
        names: tail.names,
    };
    let class = Key {
        bucket: decode_name("tails", &tail.bucket, Bucket::new)?,
        tenant: decode_class("tails", &tail.plan)?,
    };
    Ok((class, decoded))
}

fn decode_demand(demand: &wire::Demand) -> Result<Demand, DecodeError> {
    let (gaps, traffic) = (&demand.bin_gaps, &demand.milli_rps);
    check_len("tails.bin_gaps", gaps.len(), Bin::COUNT)?;
    check_column("tails.milli_rps", traffic.len(), gaps.len())?;
    let mut bins = Vec::new();
    if !gaps.is_empty() {
        bins.resize(Bin::COUNT, 0.0);
    }
    let mut next = 0_u32;
    for (gap, traffic) in gaps.iter().zip(traffic) {
        let at = next.saturating_add(*gap);
        *bins.get_mut(at as usize).ok_or(DecodeError::Bin(at))? =
            decode_rate(*traffic)?.per_second();
        next = at.saturating_add(1);
    }
    Ok(Demand {
        bins,
        uncounted: decode_rate(demand.uncounted_milli_rps)?.per_second(),
        mean: decode_micro(demand.mean_micro_rps)?.per_second(),
    })
}

pub(super) fn encode_cut(cut: TailCut) -> wire::TailCut {
    let micro = |level: Rate| micro(level.per_second());
    wire::TailCut {
        level_micro_rps: cut.level.map(micro),
        new_level_micro_rps: cut.new_level.map(micro),
        ratio: cut.ratio.units(),
        tenant_limit_milli_rps: cut.tenant_limit.map(encode_rate),
    }
}

pub(super) fn decode_cut(cut: wire::TailCut) -> Result<TailCut, DecodeError> {
    Ok(TailCut {
        level: cut.level_micro_rps.map(decode_micro).transpose()?,
        new_level: cut.new_level_micro_rps.map(decode_micro).transpose()?,
        ratio: DropRatio::new(cut.ratio)?,
        tenant_limit: cut.tenant_limit_milli_rps.map(decode_rate).transpose()?,
    })
}

pub(super) fn encode_name_rate((key, rate): &(Key, Rate)) -> wire::NameRate {
    wire::NameRate {
        bucket: key.bucket.to_string(),
        tenant: key.tenant.to_string(),
        milli_rps: encode_rate(*rate),
    }
}

pub(super) fn decode_name_rates(
    field: &'static str,
    rates: &[wire::NameRate],
    most: usize,
) -> Result<Vec<(Key, Rate)>, DecodeError> {
    decode_list(field, rates, most, |name| {
        let key = Key {
            bucket: decode_name(field, &name.bucket, Bucket::new)?,
            tenant: decode_name(field, &name.tenant, Tenant::new)?,
        };
        Ok((key, decode_rate(name.milli_rps)?))
    })
}

pub(super) fn encode_plans(plans: &BTreeMap<Tenant, ClassTerms>) -> Vec<wire::Plan> {
    let each = plans.iter().map(|(class, terms)| wire::Plan {
        name: encode_class(class),
        cut: terms.cut.map(encode_cut),
        new_share: terms.new_share.map(NewShare::millionths),
    });
    each.collect()
}

pub(super) fn decode_plans(
    plans: &[wire::Plan],
) -> Result<BTreeMap<Tenant, ClassTerms>, DecodeError> {
    decode_list("plans", plans, PLANS_MAX, |plan| {
        let terms = ClassTerms {
            cut: plan.cut.map(decode_cut).transpose()?,
            new_share: plan.new_share.map(NewShare::new).transpose()?,
        };
        let class = decode_name("plans", &plan.name, Tenant::class_of_plan)?;
        Ok((class, terms))
    })
}

/// Encodes standings by ascending ids: as the number of ids skipped before each, and its code.
pub(super) fn encode_standings(standings: &[(KeyId, Standing)]) -> (Vec<u32>, Vec<u32>) {
    let mut next = 0;
    let each = standings.iter().map(|(id, standing)| {
        let gap = id.0.saturating_sub(next);
        next = id.0.saturating_add(1);
        (gap, u32::from(standing.code()))
    });
    each.unzip()
}

pub(super) fn decode_standings(
    gaps: &[u32],
    codes: &[u32],
) -> Result<Vec<(KeyId, Standing)>, DecodeError> {
    check_len("standing_id_gaps", gaps.len(), STANDINGS_MAX)?;
    check_column("standings", codes.len(), gaps.len())?;
    let mut next = 0_u32;
    let each = gaps.iter().zip(codes).map(|(gap, code)| {
        let id = next.saturating_add(*gap);
        next = id.saturating_add(1);
        Ok((KeyId(id), Standing::from_code(*code)?))
    });
    each.collect()
}

// From requests/s. The casts saturate, and NaN becomes 0.
fn milli(rate: f64) -> u64 {
    (rate * 1e3).round() as u64
}

fn micro(rate: f64) -> u64 {
    (rate * 1e6).round() as u64
}

fn decode_micro(micro: u64) -> Result<Rate, DecodeError> {
    Ok(Rate::new(micro as f64 / 1e6)?)
}
