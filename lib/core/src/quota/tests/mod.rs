//! Tests of token buckets, throttles and leases, with times that callers give.

mod balance;
mod clock;
mod gcra;
mod leases;
mod model;
mod overrides;

use super::*;

fn rate(max: u64, refill: u64, every_ms: u64) -> QuotaRate {
    QuotaRate::new(max, refill, every_ms).unwrap()
}
