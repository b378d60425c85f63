//! The spread of a drill over one zone: a histogram of the latencies of its clients' confirmations.

use std::time::Duration;

use crate::stats::{LogLinear, LogLinearBin};

/// Maximum number of zones in one report; further ones are left out.
pub const SPREAD_ZONES_MAX: usize = 64;
/// Different latencies in the spread of one zone: sixteen in each doubling, up to a minute.
pub const SPREAD_STEPS_MAX: usize = 26 * 16;

/// The longest latency resolved, in microseconds: a minute.
const LATENCY_MAX_US: u64 = 60_000_000;

type Latencies = LogLinear<1, 16, SPREAD_STEPS_MAX>;
type LatencyBin = LogLinearBin<1, 16, SPREAD_STEPS_MAX>;

/// The latencies of the confirmations of a drill by the clients of a zone, as upper bounds: up to a
/// minute at most a sixteenth too long.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spread {
    /// Each latency is in the bin with the rounded-up latency as its upper edge.
    latencies: Latencies,
    /// Clients without a confirmation; a silent aggregator counts as its clients.
    pub missing: u64,
}

impl Spread {
    /// Creates a spread from latencies in microseconds, each with its number of clients.
    pub fn of(latencies: impl IntoIterator<Item = (u64, u64)>, missing: u64) -> Self {
        let mut spread = Self {
            missing,
            ..Self::default()
        };
        latencies
            .into_iter()
            .for_each(|(us, clients)| spread.count(us, clients));
        spread
    }

    /// Adds a client that confirmed after `latency`.
    pub fn add(&mut self, latency: Duration) {
        self.count(u64::try_from(latency.as_micros()).unwrap_or(u64::MAX), 1);
    }

    fn count(&mut self, latency_us: u64, clients: u64) {
        // Bins exclude their upper edge, but a latency equal to it belongs to the bin.
        let before = latency_us.clamp(1, LATENCY_MAX_US) - 1;
        self.latencies
            .add(LatencyBin::of(Duration::from_micros(before)), clients);
    }

    /// The latencies in microseconds, ascending, each with its number of clients.
    pub fn latencies(&self) -> impl ExactSizeIterator<Item = (u64, u64)> {
        self.latencies
            .iter()
            .map(|(bin, clients)| (bin.to().as_micros() as u64, clients))
    }

    /// The number of clients that confirmed.
    pub fn confirmed(&self) -> u64 {
        self.latencies.samples()
    }

    /// Returns the spread seen from a parent that is `hop` further away.
    pub fn after(&self, hop: Duration) -> Self {
        let hop = u64::try_from(hop.as_micros()).unwrap_or(u64::MAX);
        Self::of(
            self.latencies()
                .map(|(us, clients)| (us.saturating_add(hop), clients)),
            self.missing,
        )
    }

    /// Returns the sum of two spreads.
    pub fn plus(mut self, other: &Self) -> Self {
        self.latencies.merge(&other.latencies);
        self.missing = self.missing.saturating_add(other.missing);
        self
    }

    /// The maximum latency of a share of the confirmed clients; `None` if none did.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        self.latencies.quantile_bin(share).map(LatencyBin::to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_close(got: Option<Duration>, ms: u64) -> bool {
        let due = Duration::from_millis(ms);
        got.is_some_and(|got| got >= due && got <= due + due / 16 + Duration::from_micros(1))
    }

    #[test]
    fn latencies_are_upper_bounds_and_quantiles_follow() {
        let mut spread = Spread::default();
        assert_eq!(spread.quantile(0.5), None);
        (1..=1_000).for_each(|ms| spread.add(Duration::from_millis(ms)));
        assert_eq!(spread.confirmed(), 1_000);
        for (share, ms) in [(0.5, 500), (0.99, 990), (1.0, 1_000), (0.0, 1)] {
            assert!(
                is_close(spread.quantile(share), ms),
                "{share}: {:?}",
                spread.quantile(share)
            );
        }
        assert!(spread.latencies().len() <= SPREAD_STEPS_MAX);
        let further = spread
            .after(Duration::from_millis(100))
            .quantile(1.0)
            .unwrap();
        assert!(
            further >= Duration::from_millis(1_100) && further <= Duration::from_millis(1_300),
            "{further:?}"
        );
        let most = Spread::of((1..LATENCY_MAX_US).step_by(7).map(|us| (us, 1)), 0);
        assert!(
            most.latencies().len() <= SPREAD_STEPS_MAX,
            "{}",
            most.latencies().len()
        );
    }

    #[test]
    fn drill_latencies_round_up_to_five_bits() {
        let rounded = |us| Spread::of([(us, 1)], 0).latencies().next().unwrap().0;
        for (us, due) in [
            (0, 1),
            (1, 1),
            (31, 31),
            (32, 32),
            (33, 34),
            (64, 64),
            (65, 68),
            (1_000, 1_024),
        ] {
            assert_eq!(rounded(us), due, "{us}");
            assert_eq!(rounded(due), due, "a rounded latency is not rounded again");
        }
        assert_eq!(rounded(u64::MAX), rounded(LATENCY_MAX_US));
        assert!((LATENCY_MAX_US..LATENCY_MAX_US / 16 * 17).contains(&rounded(u64::MAX)));
    }

    #[test]
    fn counts_of_one_latency_saturate() {
        let spread = Spread::of([(7, u64::MAX), (7, 1)], u64::MAX).plus(&Spread::of([(9, 1)], 1));
        assert_eq!((spread.confirmed(), spread.missing), (u64::MAX, u64::MAX));
        assert_eq!(Spread::of([(7, 0)], 0), Spread::default());
    }
}
