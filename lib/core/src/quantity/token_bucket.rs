//! A token bucket with a clock that is passed in. Rate and depth are arguments, because they change.

use super::MonoTime;

/// The tokens of a bucket at a time.
#[derive(Clone, Copy, Debug)]
pub struct TokenBucket {
    left: f64,
    updated: MonoTime,
}

impl TokenBucket {
    /// Creates a bucket that holds `tokens`.
    pub const fn new(now: MonoTime, tokens: f64) -> Self {
        Self {
            left: tokens,
            updated: now,
        }
    }

    /// Returns the tokens that the last change left; negative for a debt.
    pub const fn left(&self) -> f64 {
        self.left
    }

    /// Returns the time of the last change.
    pub const fn updated(&self) -> MonoTime {
        self.updated
    }

    /// Adds the tokens since the last change, and cuts to the depth.
    #[inline]
    pub fn refill(&mut self, now: MonoTime, per_second: f64, depth: f64) {
        self.left = (self.left + now.since(self.updated).as_secs_f64() * per_second).min(depth);
        self.updated = self.updated.max(now);
    }

    /// Takes the tokens of a request. Returns false if there are too few. A cost above the depth passes when the
    /// bucket is full, and leaves a debt.
    #[inline]
    pub fn take(&mut self, now: MonoTime, per_second: f64, depth: f64, cost: f64) -> bool {
        self.refill(now, per_second, depth);
        let admits = self.left >= cost.min(depth);
        self.left -= if admits { cost } else { 0.0 };
        admits
    }
}
