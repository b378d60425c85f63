//! The rate of refusals of a bucket by exact quotas, or from the memory of them, for operators. The law does not
//! see it.

use std::time::Duration;

const SMOOTHING: Duration = Duration::from_secs(5);
/// A smoothed rate below this is no rate any more.
const RATE_MIN: f64 = 0.01;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct QuotaDrops {
    new: u64,
    pub(crate) per_second: f64,
}

impl QuotaDrops {
    pub(crate) const fn add(&mut self, drops: u64) {
        self.new = self.new.saturating_add(drops);
    }

    pub(super) fn on_tick(&mut self, since_last: Duration) {
        let seconds = since_last.as_secs_f64();
        if seconds <= 0.0 {
            return;
        }
        let share = 1.0 - (-seconds / SMOOTHING.as_secs_f64()).exp();
        let now = std::mem::take(&mut self.new) as f64 / seconds;
        self.per_second += share * (now - self.per_second);
        if self.per_second < RATE_MIN {
            self.per_second = 0.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quota_drop_rate_ends_with_refusals() {
        let mut drops = QuotaDrops::default();
        for _ in 0..100 {
            drops.add(50);
            drops.on_tick(Duration::from_millis(500));
        }
        assert!((drops.per_second - 100.0).abs() < 0.1, "{drops:?}");
        drops.on_tick(Duration::ZERO);
        assert!((drops.per_second - 100.0).abs() < 0.1, "{drops:?}");
        (0..100).for_each(|_| drops.on_tick(Duration::from_secs(1)));
        assert_eq!(drops.per_second, 0.0);
    }
}
