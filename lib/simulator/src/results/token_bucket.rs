//! One token bucket in one place, which sees every request of a bucket: everything that it admits
//! fits within the limit.

use std::time::Duration;

use plimsoll_core::quantity::{MonoTime, TokenBucket};

use super::series::BIN_S;

/// Seconds of the limit that may be saved: the default of a policy's `burst_s`.
const BURST_S: f64 = 0.25;

/// A token bucket that starts full. Its depth is the credit that the law may save by default.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OneBucket {
    limit: f64,
    depth: f64,
    tokens: TokenBucket,
}

impl OneBucket {
    pub(crate) fn of(limit: f64) -> Self {
        let depth = (BURST_S * limit).max(2.0 * limit.sqrt());
        Self {
            limit,
            depth,
            tokens: TokenBucket::new(MonoTime::ZERO, depth),
        }
    }

    /// Changes the limit at the start of `bin`; the tokens remain.
    pub(crate) fn change(&mut self, bin: usize, limit: f64) {
        self.tokens.refill(begin_of(bin), self.limit, self.depth);
        *self = Self {
            tokens: self.tokens,
            ..Self::of(limit)
        };
    }

    /// Takes the tokens of a request in `bin`. Returns false if there are too few.
    #[inline]
    pub(crate) fn take(&mut self, bin: usize, cost: u32) -> bool {
        self.tokens
            .take(begin_of(bin), self.limit, self.depth, f64::from(cost))
    }
}

fn begin_of(bin: usize) -> MonoTime {
    MonoTime::from_elapsed(Duration::from_secs_f64(bin as f64 * BIN_S))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_depth_and_refill_are_admitted() {
        let mut bucket = OneBucket::of(400.0);
        let mut admitted =
            |bin: usize, requests: u32| (0..requests).filter(|_| bucket.take(bin, 1)).count();
        assert_eq!(admitted(0, 200), 100, "a quarter of a second");
        assert_eq!(admitted(1, 10), 4);
        assert_eq!(admitted(11, 100), 40);
        assert_eq!(
            admitted(10_000, 200),
            100,
            "no more than the depth is saved"
        );
        let mut small = OneBucket::of(16.0);
        assert_eq!(
            (0..20).filter(|_| small.take(0, 1)).count(),
            8,
            "twice the root of the limit"
        );
    }

    #[test]
    fn cost_and_change_of_limit_count() {
        let mut bucket = OneBucket::of(400.0);
        assert!(bucket.take(0, 150), "more than the depth passes when full");
        assert!(!bucket.take(0, 1));
        bucket.change(20, 1_000.0);
        assert_eq!(
            (0..20).filter(|_| bucket.take(22, 10)).count(),
            5,
            "30 saved, then 10 in each bin"
        );
    }
}
