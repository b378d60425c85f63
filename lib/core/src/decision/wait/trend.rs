//! The trend of an overload, from the drop ratios that are directed over time: predicts how long it lasts from now
//! on, so that refused callers return when there is room.

use std::time::Duration;

use crate::decision::WaitClass;
use crate::quantity::{DropRatio, MonoTime};

/// A break without refusals that ends an overload. A shorter one belongs to it.
pub const OVERLOAD_GAP: Duration = Duration::from_secs(5);

/// The time constants of the two averages in seconds. Their difference, by the difference of the constants, is the slope.
const FAST: f64 = 2.0;
const SLOW: f64 = 8.0;
/// The longest rest that is predicted, in seconds.
const REST_MAX: f64 = 120.0;
/// The range of the excess that is resolved. A ratio of 1 would be an infinite excess.
const EXCESS: (f64, f64) = (1e-3, 1e3);

/// The course of one overload.
///
/// Its **excess** is `p / (1 - p)` for the drop ratio `p`: the refused requests for each admitted one. While it falls,
/// the overload is expected to end where the present slope leads to an excess of zero, after `e / |de/dt|`, and at the
/// latest after once more the time that it has lasted: a slight slope is as often noise. While it is steady or rises,
/// the overload is expected to last once more as long as it has lasted.
///
/// `e / (de/dt)` is the inverse of the slope of `ln e`, so the averages are of logarithms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OverloadTrend {
    began: MonoTime,
    /// The time of the last ratio.
    at: MonoTime,
    /// The last time with refusals.
    refused_at: MonoTime,
    /// The logarithm of the excess since `at`.
    present: f64,
    fast: f64,
    slow: f64,
}

impl OverloadTrend {
    /// Begins with a ratio above zero.
    pub fn new(now: MonoTime, ratio: DropRatio) -> Self {
        let present = log_excess(ratio);
        Self {
            began: now,
            at: now,
            refused_at: now,
            present,
            fast: present,
            slow: present,
        }
    }

    /// Continues with the ratio from now on.
    pub fn observe(&mut self, now: MonoTime, ratio: DropRatio) {
        (self.fast, self.slow) = self.averages(now);
        if self.is_refusing() {
            self.refused_at = now;
        }
        self.at = now.max(self.at);
        self.present = log_excess(ratio);
        if self.is_refusing() {
            self.refused_at = now;
        }
    }

    /// Returns true if nothing was refused for longer than [`OVERLOAD_GAP`].
    pub fn is_over(&self, now: MonoTime) -> bool {
        !self.is_refusing() && now.since(self.refused_at) >= OVERLOAD_GAP
    }

    /// Returns how long the overload is expected to last from now on, at most 120 s.
    pub fn rest(&self, now: MonoTime) -> Duration {
        let (fast, slow) = self.averages(now);
        let falls_by = (slow - fast) / (SLOW - FAST);
        let lasted = now.since(self.began).as_secs_f64();
        let rest = if falls_by > 0.0 {
            lasted.min(1.0 / falls_by)
        } else {
            lasted
        };
        Duration::from_secs_f64(rest.clamp(0.0, REST_MAX))
    }

    /// Returns the class of waits for requests that are refused now.
    pub fn class(&self, now: MonoTime) -> WaitClass {
        WaitClass::of(self.rest(now))
    }

    fn is_refusing(&self) -> bool {
        self.present > EXCESS.0.ln()
    }

    fn averages(&self, now: MonoTime) -> (f64, f64) {
        let elapsed = now.since(self.at).as_secs_f64();
        let towards = |average: f64, constant: f64| {
            self.present + (average - self.present) * (-elapsed / constant).exp()
        };
        (towards(self.fast, FAST), towards(self.slow, SLOW))
    }
}

fn log_excess(ratio: DropRatio) -> f64 {
    let ratio = ratio.as_f64();
    (ratio / (1.0 - ratio)).clamp(EXCESS.0, EXCESS.1).ln()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Follows an excess over time, in seconds, by directives every 100 ms; returns the trend and the time.
    fn follow(excess: impl Fn(f64) -> f64, seconds: f64) -> (OverloadTrend, MonoTime) {
        let at = |tick: u32| MonoTime::from_micros(u64::from(tick) * 100_000);
        let ratio = |tick: u32| {
            let excess = excess(f64::from(tick) / 10.0).max(0.0);
            DropRatio::saturating((excess / (1.0 + excess) * f64::from(DropRatio::ONE)) as u32)
        };
        let mut trend = OverloadTrend::new(at(0), ratio(0));
        let last = (seconds * 10.0) as u32;
        (1..=last).for_each(|tick| trend.observe(at(tick), ratio(tick)));
        (trend, at(last))
    }

    fn rest(excess: impl Fn(f64) -> f64, seconds: f64) -> f64 {
        let (trend, now) = follow(excess, seconds);
        trend.rest(now).as_secs_f64()
    }

    #[test]
    fn rest_of_an_overload_follows_its_trend() {
        for (name, excess, seconds, expected) in [
            (
                "has just begun",
                (|_| 3.0) as fn(f64) -> f64,
                0.0,
                0.0..=0.0,
            ),
            ("steady for 10 s", |_| 3.0, 10.0, 9.9..=10.1),
            (
                "steady for 90 s, at limit 0",
                |_| f64::MAX,
                90.0,
                89.0..=91.0,
            ),
            ("steady for an hour", |_| 0.2, 3_600.0, 119.9..=120.0),
            (
                "settles after the first directives, 4 s",
                |t| 3.0 + 2.0 * (-t / 2.0).exp(),
                4.0,
                3.9..=4.1,
            ),
            (
                "steady with noise for 10 s",
                |t| 3.0 + 0.3 * (t * 1.3).sin(),
                10.0,
                4.0..=10.1,
            ),
            ("rises", |t| 0.1 * t + 0.1, 40.0, 39.9..=40.1),
            (
                "falls to nothing at 60 s, seen at 30 s",
                |t| 3.0 - t / 20.0,
                30.0,
                25.0..=45.0,
            ),
            (
                "falls to nothing at 60 s, seen at 55 s",
                |t| 3.0 - t / 20.0,
                55.0,
                3.0..=12.0,
            ),
            (
                "falls late after a steady hour",
                |t| 3.0 - (t - 3_600.0).max(0.0) / 10.0,
                3_620.0,
                8.0..=20.0,
            ),
            (
                "halves every 7 s",
                |t| 100.0 * 0.5_f64.powf(t / 7.0),
                60.0,
                9.0..=11.5,
            ),
        ] {
            let rest = rest(excess, seconds);
            assert!(expected.contains(&rest), "{name}: {rest} s");
        }
    }

    #[test]
    fn silence_means_an_unchanged_ratio() {
        let (trend, now) = follow(|t| if t < 5.0 { 4.0 } else { 2.0 }, 20.0);
        let later = now + Duration::from_secs(40);
        assert_eq!(trend.rest(later).as_secs_f64().round(), 60.0);
        let mut told = trend;
        (1..=400).for_each(|tick| {
            told.observe(
                now + Duration::from_millis(100 * tick),
                DropRatio::new(DropRatio::ONE / 3 * 2).unwrap(),
            );
        });
        assert!((told.rest(later).as_secs_f64() - 60.0).abs() < 0.1);
    }

    #[test]
    fn short_break_continues_the_overload() {
        let (mut trend, now) = follow(|_| 1.0, 30.0);
        let after = |seconds| now + Duration::from_secs(seconds);
        trend.observe(now, DropRatio::NONE);
        assert!(!trend.is_over(after(4)));
        trend.observe(after(4), DropRatio::new(DropRatio::ONE / 2).unwrap());
        assert!(!trend.is_over(after(60)), "it refuses again");
        trend.observe(after(60), DropRatio::NONE);
        assert!(!trend.is_over(after(64)) && trend.is_over(after(65)));
    }

    proptest! {
        #[test]
        fn remaining_wait_never_exceeds_two_minutes(
            course in proptest::collection::vec((0_u64..1 << 40, 0..=DropRatio::ONE), 1..50),
        ) {
            let mut now = MonoTime::ZERO;
            let mut trend = OverloadTrend::new(now, DropRatio::ALL);
            for (micros, units) in course {
                now = now + Duration::from_micros(micros);
                trend.observe(now, DropRatio::new(units).unwrap());
                let rest = trend.rest(now + Duration::from_micros(micros));
                prop_assert!(rest <= Duration::from_secs(120), "{rest:?} of {trend:?}");
            }
        }
    }
}
