//! One token bucket in one place, which sees every request of a bucket: whatever it admits fits within the limit.

use super::series::BIN_S;

/// The seconds of the limit that may be saved.
const BURST_S: f64 = 0.25;

/// A token bucket that starts full, with the depth of the credit that the law may save.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TokenBucket {
    /// Tokens for each bin.
    refill: f64,
    depth: f64,
    tokens: f64,
    /// The bin of the last request.
    bin: usize,
}

impl TokenBucket {
    /// Creates the bucket of a limit in requests/s.
    pub(crate) fn of(limit: f64) -> Self {
        let depth = (BURST_S * limit).max(2.0 * limit.sqrt());
        Self { refill: limit * BIN_S, depth, tokens: depth, bin: 0 }
    }

    /// Takes on another limit from `bin` on.
    pub(crate) fn change(&mut self, bin: usize, limit: f64) {
        self.refill(bin);
        let Self { refill, depth, .. } = Self::of(limit);
        (self.refill, self.depth, self.tokens) = (refill, depth, self.tokens.min(depth));
    }

    /// Takes the tokens of a request in `bin`, which is not before that of the last request. Returns false if
    /// there are too few. A cost above the depth passes when the bucket is full, and leaves a debt.
    #[inline]
    pub(crate) fn take(&mut self, bin: usize, cost: u32) -> bool {
        self.refill(bin);
        let cost = f64::from(cost);
        let admits = self.tokens >= cost.min(self.depth);
        self.tokens -= if admits { cost } else { 0.0 };
        admits
    }

    #[inline]
    fn refill(&mut self, bin: usize) {
        if bin > self.bin {
            self.tokens = (self.tokens + self.refill * (bin - self.bin) as f64).min(self.depth);
            self.bin = bin;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_and_refill_are_admitted_and_no_more() {
        let mut bucket = TokenBucket::of(400.0);
        let mut admitted = |bin: usize, requests: u32| (0..requests).filter(|_| bucket.take(bin, 1)).count();
        assert_eq!(admitted(0, 200), 100, "a quarter of a second");
        assert_eq!(admitted(1, 10), 4);
        assert_eq!(admitted(11, 100), 40);
        assert_eq!(admitted(10_000, 200), 100, "no more than the depth is saved");
        let mut small = TokenBucket::of(16.0);
        assert_eq!((0..20).filter(|_| small.take(0, 1)).count(), 8, "twice the root of the limit");
    }

    #[test]
    fn cost_and_change_of_limit_count() {
        let mut bucket = TokenBucket::of(400.0);
        assert!(bucket.take(0, 150), "more than the depth passes when full");
        assert!(!bucket.take(0, 1));
        bucket.change(20, 1_000.0);
        assert_eq!((0..20).filter(|_| bucket.take(22, 10)).count(), 5, "30 saved, then 10 in each bin");
    }
}
