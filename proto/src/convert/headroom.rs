//! Conversions of shared headroom: to an aggregator its part, and to clients the pool of their zone and grants to new
//! clients.

use std::collections::BTreeMap;

use plimsoll_core::decision::token_bucket::TokenCount;
use plimsoll_core::directive::{GRANTS_MAX, Headroom, PoolDepth, ZonePool};
use plimsoll_core::names::Bucket;

use super::DecodeError;
use super::scalars::{decode_list, decode_name, decode_rate, encode_rate};
use crate::wire;
use wire::bucket_directive::Headroom as Wire;
use wire::pool::Rate as WireRate;

pub(super) fn encode_headroom(headroom: Headroom) -> Wire {
    match headroom {
        Headroom::None => Wire::NoHeadroom(true),
        Headroom::Shared(rate) => Wire::HeadroomMilliRps(encode_rate(rate)),
    }
}

/// Decodes the headroom; `None` means unchanged.
pub(super) fn decode_headroom(headroom: Option<Wire>) -> Result<Option<Headroom>, DecodeError> {
    Ok(match headroom {
        None | Some(Wire::NoHeadroom(false)) => None,
        Some(Wire::NoHeadroom(true)) => Some(Headroom::None),
        Some(Wire::HeadroomMilliRps(milli)) => Some(Headroom::Shared(decode_rate(milli)?)),
    })
}

pub(super) fn encode_pool(pool: ZonePool) -> wire::Pool {
    wire::Pool {
        rate: Some(match pool.rate {
            Headroom::None => WireRate::None(true),
            Headroom::Shared(rate) => WireRate::RateMilliRps(encode_rate(rate)),
        }),
        offered_milli_rps: encode_rate(pool.offered),
        depth_milli: pool.depth.thousandths(),
        burst_milli: (pool.burst.as_f64() * 1e3).round() as u64,
    }
}

/// Decodes a pool. Without a rate it has no headroom.
pub(super) fn decode_pool(pool: wire::Pool) -> Result<ZonePool, DecodeError> {
    Ok(ZonePool {
        rate: match pool.rate {
            None | Some(WireRate::None(_)) => Headroom::None,
            Some(WireRate::RateMilliRps(milli)) => Headroom::Shared(decode_rate(milli)?),
        },
        offered: decode_rate(pool.offered_milli_rps)?,
        depth: PoolDepth::new(pool.depth_milli)?,
        burst: TokenCount::new(pool.burst_milli as f64 / 1e3),
    })
}

pub(super) fn encode_grant(bucket: &Bucket, tokens: TokenCount) -> wire::Grant {
    wire::Grant {
        bucket: bucket.to_string(),
        tokens: u32::try_from(tokens.whole()).unwrap_or(u32::MAX),
    }
}

/// Decodes grants by bucket. Of several for one bucket the last counts.
pub(super) fn decode_grants(
    grants: &[wire::Grant],
) -> Result<BTreeMap<Bucket, TokenCount>, DecodeError> {
    decode_list("grants", grants, GRANTS_MAX, |grant| {
        let bucket = decode_name("grants", &grant.bucket, Bucket::new)?;
        Ok((bucket, TokenCount::new(f64::from(grant.tokens))))
    })
}
