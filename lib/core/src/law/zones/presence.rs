//! The presence of a silent zone. A dead zone and a disconnected one look the same, so its share is
//! released slowly.

use std::time::Duration;

use crate::quantity::OutOfRange;

/// Time that a silent child counts in full.
pub const HELD: Duration = Duration::from_secs(30);
/// Time until a silent child does not count anymore.
pub const GONE: Duration = Duration::from_secs(60);

/// Returns the presence of a child with a last report `silent_for` old: 1 up to [`HELD`], then
/// linear down to 0 at [`GONE`].
pub fn presence(silent_for: Duration) -> f64 {
    let left = GONE.saturating_sub(silent_for).as_secs_f64();
    (left / (GONE - HELD).as_secs_f64()).min(1.0)
}

/// The sum of the presences of the aggregators that share a limit, in thousandths: not a whole number while one is
/// being released, and never less than one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Presences(u32);

impl Presences {
    /// One child in full.
    pub const ONE: Self = Self(1_000);

    /// Validates a sum in thousandths, as it travels.
    ///
    /// # Errors
    /// Below 1000.
    pub const fn new(thousandths: u32) -> Result<Self, OutOfRange> {
        if thousandths >= 1_000 {
            Ok(Self(thousandths))
        } else {
            Err(OutOfRange {
                range: "a sum of presences is at least 1000 thousandths",
                got: thousandths as f64,
            })
        }
    }

    /// Sums presences; the result is at least one.
    pub fn sum(presences: impl Iterator<Item = f64>) -> Self {
        // The cast saturates, and NaN becomes 0.
        Self(((presences.sum::<f64>() * 1e3).round() as u32).max(1_000))
    }

    /// Returns the sum if each child represents `each` children below it.
    pub fn times(self, each: f64) -> Self {
        Self::sum(std::iter::once(self.as_f64() * each))
    }

    /// The sum in thousandths.
    pub const fn thousandths(self) -> u32 {
        self.0
    }

    /// The sum as a number of 1 or more.
    pub fn as_f64(self) -> f64 {
        f64::from(self.0) / 1e3
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn held_then_released() {
        for (age_s, share) in [(0, 1.0), (30, 1.0), (45, 0.5), (60, 0.0), (3600, 0.0)] {
            assert!(
                (presence(Duration::from_secs(age_s)) - share).abs() < 1e-9,
                "{age_s}"
            );
        }
    }

    #[test]
    fn a_sum_below_one_is_refused() {
        for thousandths in [0, 1, 999] {
            assert!(Presences::new(thousandths).is_err());
        }
        for thousandths in [1_000, 1_001, u32::MAX] {
            assert_eq!(
                Presences::new(thousandths).map(Presences::thousandths),
                Ok(thousandths)
            );
        }
        assert_eq!(Presences::new(1_000), Ok(Presences::ONE));
    }

    #[test]
    fn presences_sum_to_at_least_one() {
        let table: [(&[f64], u32); 10] = [
            (&[], 1_000),
            (&[0.0], 1_000),
            (&[0.4, 0.3], 1_000),
            (&[1.0], 1_000),
            (&[1.0, 1.0, 1.0], 3_000),
            (&[1.0, 0.5], 1_500),
            (&[1.0, 0.000_4], 1_000),
            (&[1.0, 0.000_6], 1_001),
            (&[f64::NAN, 1.0], 1_000),
            (&[1e9], u32::MAX),
        ];
        for (presences, due) in table {
            assert_eq!(
                Presences::sum(presences.iter().copied()).thousandths(),
                due,
                "{presences:?}"
            );
        }
    }

    #[test]
    fn children_of_children_count_each() {
        for (presences, each, due) in [
            (1_000, 1.0, 1_000),
            (3_000, 2.0, 6_000),
            (2_500, 1.5, 3_750),
            (1_000, 0.2, 1_000),
        ] {
            assert_eq!(
                Presences(presences).times(each).thousandths(),
                due,
                "{presences} times {each}"
            );
        }
        assert_eq!(Presences(3_000).times(f64::NAN), Presences::ONE);
        assert_eq!(Presences(u32::MAX).times(10.0).thousandths(), u32::MAX);
    }

    proptest! {
        #[test]
        fn presence_sum_survives_as_thousandths(ages in vec(0..90_000u64, 0..100)) {
            let presences: Vec<f64> = ages.iter().map(|ms| presence(Duration::from_millis(*ms))).collect();
            let sum = Presences::sum(presences.iter().copied());
            prop_assert_eq!(Presences::new(sum.thousandths()), Ok(sum));
            let due = presences.iter().sum::<f64>().max(1.0);
            prop_assert!((sum.as_f64() - due).abs() <= 0.000_5 + 1e-9, "{} for {}", sum.as_f64(), due);
        }
    }
}
