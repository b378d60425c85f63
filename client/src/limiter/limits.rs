//! The limits of buckets, for refusals that name them: written with each directive, off the request path.

use plimsoll_core::quantity::{Limit, Rate};

use crate::hot::sync::{AtomicU64, Ordering, zeroed};

/// The limit of each bucket, by id, in one word: 0 while it is unknown, all ones if there is none, and else the bits
/// of its requests/s, plus one.
pub(crate) struct Limits(Vec<AtomicU64>);

impl Limits {
    const UNLIMITED: u64 = u64::MAX;

    pub(crate) fn new(buckets: usize) -> Self {
        Self(zeroed(buckets))
    }

    pub(crate) fn set(&self, bucket: u32, limit: Limit) {
        let word = match limit {
            Limit::Unknown => 0,
            Limit::Unlimited => Self::UNLIMITED,
            Limit::PerSecond(rate) => rate.per_second().to_bits().saturating_add(1),
        };
        if let Some(shared) = self.0.get(bucket as usize) {
            shared.store(word, Ordering::Relaxed);
        }
    }

    pub(crate) fn get(&self, bucket: u32) -> Limit {
        match self
            .0
            .get(bucket as usize)
            .map_or(0, |shared| shared.load(Ordering::Relaxed))
        {
            0 => Limit::Unknown,
            Self::UNLIMITED => Limit::Unlimited,
            word => Rate::new(f64::from_bits(word - 1)).map_or(Limit::Unknown, Limit::PerSecond),
        }
    }
}

#[cfg(test)]
#[cfg(not(feature = "loom"))]
mod tests {
    use super::*;

    #[test]
    fn unknown_limit_is_not_zero() {
        let limits = Limits::new(2);
        assert_eq!(limits.get(1), Limit::Unknown);
        let rates = [0.0, 1e-9, 0.5, 1_000.0, 1e12];
        let rates = rates.map(|rate| Limit::PerSecond(Rate::new(rate).unwrap()));
        for limit in [Limit::Unlimited, Limit::Unknown].into_iter().chain(rates) {
            limits.set(1, limit);
            assert_eq!((limits.get(1), limits.get(0)), (limit, Limit::Unknown));
        }
        limits.set(2, Limit::Unlimited);
        assert_eq!(limits.get(2), Limit::Unknown, "no such bucket");
    }
}
