//! The time that a refused caller is asked to wait: a class of durations, small enough for the word that a decision
//! reads, and the trend of an overload that selects the class.

mod trend;

pub use trend::{OVERLOAD_GAP, OverloadTrend};

use std::ops::Range;
use std::time::Duration;

/// Minimum wait of each class in milliseconds: 1 s times 120^(class / 31).
const BASES_MS: [u32; 32] = [
    1_000, 1_167, 1_362, 1_589, 1_855, 2_164, 2_526, 2_948, 3_440, 4_015, 4_685, 5_467, 6_380,
    7_446, 8_689, 10_140, 11_834, 13_810, 16_116, 18_808, 21_949, 25_614, 29_892, 34_883, 40_709,
    47_507, 55_441, 64_699, 75_504, 88_113, 102_828, 120_000,
];
/// The least width of the span of waits.
const SPREAD_MIN: Duration = Duration::from_secs(2);

/// A class of waits, of 32 that follow each other by a factor of 1.167 from 1 s to 120 s. A caller's wait is spread
/// over the [span](Self::span) of its class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaitClass(u8);

impl WaitClass {
    /// The number of bits that hold a class.
    pub const BITS: u32 = 5;
    /// The shortest waits, 1 s to 3 s.
    pub const SHORTEST: Self = Self(0);
    /// The longest waits, 120 s to 240 s.
    pub const LONGEST: Self = Self((1 << Self::BITS) - 1);

    /// Returns all classes, shortest first.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..=Self::LONGEST.0).map(Self)
    }

    /// Returns the class of waits for an overload that is expected to last so long: the longest that begins no later,
    /// or else the shortest of all.
    pub fn of(rest: Duration) -> Self {
        let later = Self::all().skip(1).take_while(|class| class.base() <= rest);
        later.last().unwrap_or(Self::SHORTEST)
    }

    /// Returns the class in the lowest bits.
    #[inline]
    pub const fn from_bits(bits: u32) -> Self {
        Self((bits & Self::LONGEST.0 as u32) as u8)
    }

    /// Returns the class as bits.
    #[inline]
    pub const fn bits(self) -> u32 {
        self.0 as u32
    }

    /// Returns the shortest wait.
    pub fn base(self) -> Duration {
        BASES_MS
            .get(usize::from(self.0))
            .map_or(Duration::ZERO, |ms| Duration::from_millis(u64::from(*ms)))
    }

    /// Returns the width of the span of waits: as long as the shortest wait, and at least 2 s.
    pub fn spread(self) -> Duration {
        self.base().max(SPREAD_MIN)
    }

    /// Returns the span of waits.
    pub fn span(self) -> Range<Duration> {
        self.base()..self.base() + self.spread()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn wait_classes_grow_by_one_factor() {
        for class in WaitClass::all() {
            let base = 120_f64.powf(f64::from(class.bits()) / 31.0);
            assert!(
                (class.base().as_secs_f64() - base).abs() <= 0.000_6,
                "{class:?}: {base}"
            );
            assert_eq!(
                WaitClass::from_bits(class.bits() | 1 << WaitClass::BITS),
                class
            );
        }
        assert_eq!(WaitClass::all().count(), BASES_MS.len());
        for (class, from, to) in [(WaitClass::SHORTEST, 1, 3), (WaitClass::LONGEST, 120, 240)] {
            assert_eq!(
                class.span(),
                Duration::from_secs(from)..Duration::from_secs(to)
            );
        }
    }

    proptest! {
        #[test]
        fn wait_begins_with_the_expected_rest(ms in 0_u64..1_000_000) {
            let rest = Duration::from_millis(ms);
            let base = WaitClass::of(rest).base();
            let nearest = rest.clamp(Duration::from_secs(1), Duration::from_secs(120));
            prop_assert!(base <= nearest && nearest.as_secs_f64() < base.as_secs_f64() * 1.17);
        }
    }
}
