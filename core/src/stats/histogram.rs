//! How long requests took, as a histogram that can be added to others: by which a quantile of a whole fleet is found
//! without any request being kept.

use std::time::Duration;

/// How many bins there are.
pub const BINS: usize = 2_048;
/// The width of the narrowest bins, and of all below 2 ms: 16 microseconds.
const UNIT_US: u64 = 16;
/// Bins of one doubling.
const PER_DOUBLING: u64 = 128;

/// A duration's place in a [`Histogram`].
///
/// Log-linear: 128 bins for each doubling, so that a bin is at most 1/128 of its lower edge wide and its middle is off by
/// at most 0.4 %. At 200 ms that is 0.8 ms, and a difference of two quantiles is off by 1.6 ms at most: little enough for
/// a gate at 5 ms. Below 2 ms bins are 16 us wide. What takes 67 s or longer falls into the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bin(u16);

/// Counts by bin. Keeps only bins that have any, so it takes as much room as durations differ, at most 2,048 entries.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Histogram {
    /// Ascending; no count is zero.
    bins: Vec<(Bin, u64)>,
}

/// A quantile as far as a histogram tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantile {
    /// The middle of the bin it falls into.
    About(Duration),
    /// In the last bin: this or longer.
    AtLeast(Duration),
}

impl Bin {
    /// The bin with this number; `None` from [`BINS`] on.
    #[must_use]
    pub const fn new(number: u16) -> Option<Self> {
        if (number as usize) < BINS { Some(Self(number)) } else { None }
    }

    /// The bin that a duration falls into.
    #[must_use]
    pub fn of(duration: Duration) -> Self {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let units = micros / UNIT_US;
        if units < PER_DOUBLING {
            return Self(units as u16);
        }
        let doublings = u64::from(units.ilog2() - PER_DOUBLING.ilog2());
        let number = PER_DOUBLING * doublings + (units >> doublings);
        Self(number.min(BINS as u64 - 1) as u16)
    }

    /// Its number, below [`BINS`].
    #[must_use]
    pub const fn number(self) -> u16 {
        self.0
    }

    /// The shortest duration in it.
    #[must_use]
    pub const fn from(self) -> Duration {
        Duration::from_micros(self.units().0 * UNIT_US)
    }

    /// Its lower edge and its width in units.
    const fn units(self) -> (u64, u64) {
        let number = self.0 as u64;
        if number < PER_DOUBLING {
            return (number, 1);
        }
        let doublings = number / PER_DOUBLING - 1;
        ((number - PER_DOUBLING * doublings) << doublings, 1 << doublings)
    }

    fn middle(self) -> Duration {
        let (from, width) = self.units();
        Duration::from_micros(from * UNIT_US + width * UNIT_US / 2)
    }
}

impl Histogram {
    /// Adds `count` durations to a bin. O(log n), and O(n) for a bin that had none.
    pub fn add(&mut self, bin: Bin, count: u64) {
        if count == 0 {
            return;
        }
        match self.bins.binary_search_by_key(&bin, |(bin, _)| *bin) {
            Ok(at) => self.bins[at].1 = self.bins[at].1.saturating_add(count),
            Err(at) => self.bins.insert(at, (bin, count)),
        }
    }

    /// Adds all of another. Linear in both.
    pub fn merge(&mut self, other: &Self) {
        if self.bins.is_empty() {
            self.bins.clone_from(&other.bins);
            return;
        }
        let mut joined = Vec::with_capacity(self.bins.len().max(other.bins.len()));
        let (mut ours, mut theirs) = (self.bins.iter().peekable(), other.bins.iter().peekable());
        loop {
            let next = match (ours.peek(), theirs.peek()) {
                (None, None) => break,
                (Some((our, _)), Some((their, _))) if our == their => {
                    ours.next().zip(theirs.next()).map(|((bin, a), (_, b))| (*bin, a.saturating_add(*b)))
                }
                (Some((our, _)), Some((their, _))) if our > their => theirs.next().copied(),
                (Some(_), _) => ours.next().copied(),
                (None, Some(_)) => theirs.next().copied(),
            };
            joined.extend(next);
        }
        self.bins = joined;
    }

    /// How many durations there are.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.bins.iter().fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bins.is_empty()
    }

    /// The bins that have any, ascending.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (Bin, u64)> + '_ {
        self.bins.iter().copied()
    }

    /// The shortest duration that is not exceeded by a share `q`, 0 to 1, of all; `None` without any. Linear.
    #[must_use]
    pub fn quantile(&self, q: f64) -> Option<Quantile> {
        let rank = ((q * self.samples() as f64).ceil() as u64).max(1);
        let mut below = 0_u64;
        for (bin, count) in &self.bins {
            below = below.saturating_add(*count);
            if below >= rank {
                let is_last = usize::from(bin.number()) == BINS - 1;
                return Some(if is_last {
                    Quantile::AtLeast(bin.from())
                } else {
                    Quantile::About(bin.middle())
                });
            }
        }
        None
    }
}

impl FromIterator<Duration> for Histogram {
    fn from_iter<I: IntoIterator<Item = Duration>>(durations: I) -> Self {
        let mut histogram = Self::default();
        durations.into_iter().for_each(|duration| histogram.add(Bin::of(duration), 1));
        histogram
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    #[test]
    fn bins_follow_each_other_without_a_gap() {
        let mut due = 0;
        for number in 0..BINS as u16 {
            let (from, width) = Bin(number).units();
            assert_eq!(from, due, "{number}");
            due = from + width;
            assert_eq!(Bin::of(Bin(number).from()), Bin(number));
            let last = Duration::from_micros(due * UNIT_US) - Duration::from_nanos(1);
            assert_eq!(Bin::of(last), Bin(number), "{last:?}");
        }
        assert_eq!(Bin(BINS as u16 - 1).from().as_secs(), 66);
        assert_eq!(Bin::of(Duration::MAX), Bin(BINS as u16 - 1));
        assert_eq!((Bin::new(2_047).is_some(), Bin::new(2_048)), (true, None));
    }

    /// The numbers are part of the protocol (`docs/wire.md`): these were worked out apart from this code.
    #[test]
    fn bins_are_the_same_in_every_implementation() {
        for (micros, bin) in
            [(0, 0), (15, 0), (16, 1), (2_047, 127), (2_048, 128), (10_000, 412), (200_000, 963)]
        {
            assert_eq!(Bin::of(Duration::from_micros(micros)).number(), bin, "{micros}");
        }
    }

    #[test]
    fn five_milliseconds_are_seen_at_two_hundred() {
        let about =
            |ms: u64| match [Duration::from_millis(ms)].into_iter().collect::<Histogram>().quantile(0.99) {
                Some(Quantile::About(found)) => found.as_secs_f64() * 1e3,
                other => panic!("{other:?}"),
            };
        for ms in [1, 5, 20, 100, 195, 200, 205, 1_000, 30_000] {
            assert!((about(ms) / ms as f64 - 1.0).abs() <= 0.004 + 0.008 / ms as f64, "{ms}: {}", about(ms));
        }
        let delta = about(205) - about(200);
        assert!((3.4..6.6).contains(&delta), "{delta}");
    }

    #[test]
    fn what_is_too_long_to_tell_is_at_least_that_and_nothing_has_no_quantile() {
        assert_eq!(Histogram::default().quantile(0.99), None);
        let long: Histogram = [Duration::from_secs(1), Duration::from_secs(3_600)].into_iter().collect();
        assert!(matches!(long.quantile(0.5), Some(Quantile::About(_))));
        assert!(matches!(long.quantile(0.99), Some(Quantile::AtLeast(least)) if least.as_secs() == 66));
    }

    fn histogram(micros: &[u64]) -> Histogram {
        micros.iter().map(|micros| Duration::from_micros(*micros)).collect()
    }

    proptest! {
        #[test]
        fn a_quantile_is_near_that_of_the_durations_themselves(
            mut micros in vec(16..60_000_000_u64, 1..200), q in 0.0..=1.0_f64,
        ) {
            let found = histogram(&micros).quantile(q);
            micros.sort_unstable();
            let rank = ((q * micros.len() as f64).ceil() as usize).max(1);
            let exact = micros[rank - 1] as f64;
            let Some(Quantile::About(found)) = found else { return Err(TestCaseError::fail("none")) };
            prop_assert!((found.as_secs_f64() * 1e6 - exact).abs() <= 16.0 + exact / 200.0);
        }

        #[test]
        fn it_does_not_matter_who_counted(a in vec(0..90_000_000_u64, 0..50), b in vec(0..90_000_000_u64, 0..50)) {
            let (one, other) = (histogram(&a), histogram(&b));
            let all = histogram(&[a, b].concat());
            let (mut there, mut back) = (one.clone(), other.clone());
            there.merge(&other);
            back.merge(&one);
            prop_assert_eq!(&there, &all);
            prop_assert_eq!(&back, &all);
            prop_assert_eq!(all.samples(), one.samples() + other.samples());
        }
    }
}
