//! Exact quotas: integer token buckets for what is billed, which a store decides behind the coin.

mod attached;
mod balance;
mod clock;
mod definition;
mod gcra;
mod overrides;
mod rate;
#[cfg(test)]
mod tests;

pub use attached::{BucketQuotas, InvalidBucketQuotas};
pub use balance::{Balance, Refill, Session};
pub use clock::{ClockReading, QuotaClock, QuotaTime, SavedClock, unsure_ms};
pub use definition::{
    InvalidQuota, LEASE_MAX, OnStoreError, QUOTAS_PER_BUCKET_MAX, Quota, QuotaKey,
};
pub use gcra::{Gcra, GcraRate, InvalidGcraRate, Throttled};
pub use overrides::OVERRIDES_BYTES_MAX;
pub use rate::{InvalidQuotaRate, QuotaRate, TOKENS_MAX};

/// Returns the tokens that a lease takes from a balance: `least`, and more up to `wanted`, but at most a quarter of
/// what `least` leaves. So the last tokens of a quota are not locked up in the leases of idle instances. 0 where the
/// balance has less than `least`.
pub const fn lease(balance: u64, least: u64, wanted: u64) -> u64 {
    if balance < least {
        return 0;
    }
    let left = (balance - least) / 4;
    let extra = wanted.saturating_sub(least);
    least + if extra < left { extra } else { left }
}
