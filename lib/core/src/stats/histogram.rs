//! A mergeable log-linear histogram of durations. The quantiles of a fleet follow from the sum of its
//! processes' histograms, without keeping any single duration.

use std::time::Duration;

/// The number of bins of a [`Histogram`].
pub const BINS: usize = 2_048;
/// The width of the narrowest bins of a [`Histogram`], and of all below 2 ms, in microseconds.
const UNIT_US: u64 = 16;
/// The number of bins of a [`Histogram`] in each doubling.
const PER_DOUBLING: u64 = 128;

/// Response times: 128 bins in each doubling and 2,048 in all.
///
/// A bin is at most 1/128 of its lower edge wide, so its middle is off by at most 0.4 %. At 200 ms that is
/// 0.8 ms, and a difference of two quantiles is off by at most 1.6 ms: fine enough for a gate at 5 ms. Below
/// 2 ms bins are 16 us wide. Durations of 67 s and longer are in the last bin.
pub type Histogram = LogLinear<UNIT_US, PER_DOUBLING, BINS>;

/// The place of a duration in a [`Histogram`].
pub type Bin = LogLinearBin<UNIT_US, PER_DOUBLING, BINS>;

/// The place of a duration in a [`LogLinear`] histogram of the same parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogLinearBin<const UNIT_US: u64, const PER_DOUBLING: u64, const BINS: usize>(u16);

/// Counts by bin, where bins double in width with each doubling of the duration: `PER_DOUBLING` bins (a power
/// of two) in each, `BINS` (at most 65,536) in all, the narrowest `UNIT_US` microseconds wide. Stores
/// non-empty bins only.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogLinear<const UNIT_US: u64, const PER_DOUBLING: u64, const BINS: usize> {
    /// Ascending; no count is zero.
    bins: Vec<(LogLinearBin<UNIT_US, PER_DOUBLING, BINS>, u64)>,
}

/// A quantile within the resolution of a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantile {
    /// The middle of its bin.
    About(Duration),
    /// The lower edge of the last bin.
    AtLeast(Duration),
}

impl<const UNIT_US: u64, const PER_DOUBLING: u64, const BINS: usize>
    LogLinearBin<UNIT_US, PER_DOUBLING, BINS>
{
    /// The bin with this number; `None` from `BINS` on.
    pub const fn new(number: u16) -> Option<Self> {
        if (number as usize) < BINS {
            Some(Self(number))
        } else {
            None
        }
    }

    /// The bin of a duration.
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

    /// The number, below `BINS`.
    pub const fn number(self) -> u16 {
        self.0
    }

    /// The lower edge: the shortest duration in the bin.
    pub const fn from(self) -> Duration {
        Duration::from_micros(self.units().0 * UNIT_US)
    }

    /// The upper edge: the minimum duration that is too long for the bin, unless it is the last
    /// one.
    pub const fn to(self) -> Duration {
        let (from, width) = self.units();
        Duration::from_micros((from + width) * UNIT_US)
    }

    /// The lower edge and the width in units.
    const fn units(self) -> (u64, u64) {
        let number = self.0 as u64;
        if number < PER_DOUBLING {
            return (number, 1);
        }
        let doublings = number / PER_DOUBLING - 1;
        (
            (number - PER_DOUBLING * doublings) << doublings,
            1 << doublings,
        )
    }

    fn middle(self) -> Duration {
        let (from, width) = self.units();
        Duration::from_micros(from * UNIT_US + width * UNIT_US / 2)
    }
}

impl<const UNIT_US: u64, const PER_DOUBLING: u64, const BINS: usize> Default
    for LogLinear<UNIT_US, PER_DOUBLING, BINS>
{
    fn default() -> Self {
        Self { bins: Vec::new() }
    }
}

impl<const UNIT_US: u64, const PER_DOUBLING: u64, const BINS: usize>
    LogLinear<UNIT_US, PER_DOUBLING, BINS>
{
    /// Adds `count` durations to a bin. O(log n), and O(n) for an empty bin.
    pub fn add(&mut self, bin: LogLinearBin<UNIT_US, PER_DOUBLING, BINS>, count: u64) {
        if count == 0 {
            return;
        }
        match self.bins.binary_search_by_key(&bin, |(bin, _)| *bin) {
            Ok(at) => self.bins[at].1 = self.bins[at].1.saturating_add(count),
            Err(at) => self.bins.insert(at, (bin, count)),
        }
    }

    /// Adds all counts of another histogram.
    pub fn merge(&mut self, other: &Self) {
        other.iter().for_each(|(bin, count)| self.add(bin, count));
    }

    /// The number of durations.
    pub fn samples(&self) -> u64 {
        self.bins
            .iter()
            .fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }

    /// Returns true if there are no durations.
    pub fn is_empty(&self) -> bool {
        self.bins.is_empty()
    }

    /// The non-empty bins and their counts, ascending.
    pub fn iter(
        &self,
    ) -> impl ExactSizeIterator<Item = (LogLinearBin<UNIT_US, PER_DOUBLING, BINS>, u64)> + '_ {
        self.bins.iter().copied()
    }

    /// The bin of the `q`-quantile, 0 to 1, by nearest rank; `None` without any duration. Linear.
    pub fn quantile_bin(&self, q: f64) -> Option<LogLinearBin<UNIT_US, PER_DOUBLING, BINS>> {
        let rank = ((q * self.samples() as f64).ceil() as u64).max(1);
        let mut below = 0_u64;
        let at_rank = self.bins.iter().find(|(_, count)| {
            below = below.saturating_add(*count);
            below >= rank
        });
        at_rank.map(|(bin, _)| *bin)
    }

    /// The `q`-quantile, 0 to 1; `None` without any duration. Linear.
    pub fn quantile(&self, q: f64) -> Option<Quantile> {
        let bin = self.quantile_bin(q)?;
        let is_last = usize::from(bin.number()) == BINS - 1;
        Some(if is_last {
            Quantile::AtLeast(bin.from())
        } else {
            Quantile::About(bin.middle())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    #[test]
    fn bins_are_contiguous() {
        let mut due = 0;
        for number in 0..BINS as u16 {
            let bin = Bin::new(number).unwrap();
            let (from, width) = bin.units();
            assert_eq!(from, due, "{number}");
            due = from + width;
            assert_eq!(Bin::of(bin.from()), bin);
            let last = Duration::from_micros(due * UNIT_US) - Duration::from_nanos(1);
            assert_eq!(Bin::of(last), bin, "{last:?}");
        }
        let last = Bin::new(BINS as u16 - 1).unwrap();
        assert_eq!(last.from().as_secs(), 66);
        assert_eq!(Bin::of(Duration::MAX), last);
        assert_eq!((Bin::new(2_047).is_some(), Bin::new(2_048)), (true, None));
    }

    // The numbers are part of the protocol (`docs/reference/wire.md`); these were computed independently of
    // this code.
    #[test]
    fn bins_are_the_same_in_every_implementation() {
        for (micros, bin) in [
            (0, 0),
            (15, 0),
            (16, 1),
            (2_047, 127),
            (2_048, 128),
            (10_000, 412),
            (200_000, 963),
        ] {
            assert_eq!(
                Bin::of(Duration::from_micros(micros)).number(),
                bin,
                "{micros}"
            );
        }
    }

    #[test]
    fn five_milliseconds_are_resolved_at_two_hundred() {
        let about = |ms: u64| match histogram(&[ms * 1_000]).quantile(0.99) {
            Some(Quantile::About(found)) => found.as_secs_f64() * 1e3,
            other => panic!("{other:?}"),
        };
        for ms in [1, 5, 20, 100, 195, 200, 205, 1_000, 30_000] {
            assert!(
                (about(ms) / ms as f64 - 1.0).abs() <= 0.004 + 0.008 / ms as f64,
                "{ms}: {}",
                about(ms)
            );
        }
        let delta = about(205) - about(200);
        assert!((3.4..6.6).contains(&delta), "{delta}");
    }

    #[test]
    fn last_bin_gives_a_lower_bound() {
        assert_eq!(Histogram::default().quantile(0.99), None);
        let long = histogram(&[1_000_000, 3_600_000_000]);
        assert!(matches!(long.quantile(0.5), Some(Quantile::About(_))));
        assert!(
            matches!(long.quantile(0.99), Some(Quantile::AtLeast(least)) if least.as_secs() == 66)
        );
    }

    fn histogram(micros: &[u64]) -> Histogram {
        let mut histogram = Histogram::default();
        micros
            .iter()
            .for_each(|micros| histogram.add(Bin::of(Duration::from_micros(*micros)), 1));
        histogram
    }

    proptest! {
        #[test]
        fn quantile_is_close_to_the_durations(
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
        fn merge_of_parts_equals_the_whole(a in vec(0..90_000_000_u64, 0..50), b in vec(0..90_000_000_u64, 0..50)) {
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
