//! Conversions of shared headroom: the part of an aggregator and the pool of its clients.

use plimsoll_core::decision::token_bucket::Tokens;
use plimsoll_core::directive::{Headroom, PoolDepth, ZonePool};

use super::DecodeError;
use super::scalars::{decode_rate, encode_rate};
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

/// Decodes a pool. One without a rate is none.
pub(super) fn decode_pool(pool: wire::Pool) -> Result<ZonePool, DecodeError> {
    Ok(ZonePool {
        rate: match pool.rate {
            None | Some(WireRate::None(_)) => Headroom::None,
            Some(WireRate::RateMilliRps(milli)) => Headroom::Shared(decode_rate(milli)?),
        },
        offered: decode_rate(pool.offered_milli_rps)?,
        depth: PoolDepth::new(pool.depth_milli)?,
        burst: Tokens::new(pool.burst_milli as f64 / 1e3),
    })
}
