//! The learned depth of headroom pools: traffic in groups needs deep pools, and steady traffic must not have
//! them.

use crate::directive::PoolDepth;
use crate::law::guard::{TwoPeriods, USED_MIN};
use crate::report::Counts;

/// The fewest guard refusals that show a pool to be too shallow.
const GUARDED_MIN: u64 = 3;
/// The share of offered requests above which guard refusals count as many.
const GUARDED_MAX: f64 = 0.001;
const GROWS: f64 = 1.5;
const SHRINKS: f64 = 0.997;
const BAD_MAX: f64 = 3.0;
const BAD_FADES: f64 = 0.05;

/// The factor on the depth of one bucket's pools in one zone.
#[derive(Clone, Copy, Debug)]
pub struct LearnedDepth {
    factor: f64,
    /// The number of times that the factor grew, less what has faded. The factor shrinks only at 0.
    bad: f64,
    periods: TwoPeriods,
    /// True if the latest look found a pool too shallow. The next look distinguishes groups of
    /// requests from the first moment of a surge.
    suspected: bool,
}

impl Default for LearnedDepth {
    fn default() -> Self {
        Self {
            factor: PoolDepth::MIN.as_f64(),
            bad: 0.0,
            periods: TwoPeriods::new(0.0),
            suspected: false,
        }
    }
}

impl LearnedDepth {
    /// Returns the current factor.
    pub fn factor(&self) -> PoolDepth {
        PoolDepth::nearest(self.factor)
    }

    /// Adapts the depth after a [`SLACK_PERIOD`](crate::law::SLACK_PERIOD) with `counts` of all
    /// keys and room of the zone for `room` requests/s. Judges two periods, and waits for the next:
    /// the offered rate must fit in that period, too. Unless the zone is `settled`, refusals show
    /// nothing about the depth: the parts of clients that have just joined are too small, and the
    /// parts of a zone on hold are of another division.
    pub fn on_period(&mut self, counts: Counts, room: f64, settled: bool) {
        let (seen, room) = self.periods.add(counts, room);
        let offered = seen.offered as f64;
        let guarded =
            seen.guarded() >= GUARDED_MIN && seen.guarded() as f64 > GUARDED_MAX * offered;
        let fits = settled && offered < USED_MIN * room;
        if std::mem::replace(&mut self.suspected, fits && guarded) && fits {
            self.factor = (self.factor * GROWS).min(PoolDepth::MAX.as_f64());
            self.bad = (self.bad + 1.0).min(BAD_MAX);
        } else {
            self.bad = (self.bad - BAD_FADES).max(0.0);
        }
        if self.bad == 0.0 {
            self.factor = (self.factor * SHRINKS).max(PoolDepth::MIN.as_f64());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn period(offered: u64, guarded: u64) -> Counts {
        Counts {
            offered,
            guard_dropped: guarded,
            ..Counts::ZERO
        }
    }

    fn after(periods: u32, counts: Counts, room: f64, settled: bool) -> f64 {
        let mut depth = LearnedDepth::default();
        // The first look has no room before it, and each is judged at the next.
        (0..periods + 2).for_each(|_| depth.on_period(counts, room, settled));
        depth.factor().as_f64()
    }

    #[test]
    fn pool_depth_grows_with_avoidable_refusals() {
        let groups = period(100, 20);
        // periods, counts, room, settled, factor
        for (periods, counts, room, settled, factor) in [
            (1, groups, 1_000.0, true, 1.5),
            (2, groups, 1_000.0, true, 2.25),
            (20, groups, 1_000.0, true, 12.0),
            (20, groups, 1_000.0, false, 1.0),
            (20, groups, 200.0, true, 1.0), // as much was offered as there was room
            (20, groups, 0.0, true, 1.0),   // overloaded
            (20, period(100, 1), 1_000.0, true, 1.0), // two in a second are chance
            (20, period(9_999, 9), 1e6, true, 1.0), // fewer than one in a thousand
            (1, period(3, 2), 1_000.0, true, 1.5),
        ] {
            let got = after(periods, counts, room, settled);
            assert!(
                (got - factor).abs() < 1e-3,
                "{counts:?} {room} {settled}: {got}"
            );
        }
    }

    #[test]
    fn edges_of_surges_teach_no_depth() {
        let mut depth = LearnedDepth::default();
        for _ in 0..20 {
            // The last moment of a period is the first of the surge; the next ones are overloaded.
            for (counts, room) in [
                (Counts::ZERO, 1_000.0),
                (period(400, 200), 1_000.0),
                (period(5_000, 4_000), 1_000.0),
                (period(5_000, 0), 0.0),
            ] {
                depth.on_period(counts, room, true);
            }
        }
        assert_eq!(depth.factor(), PoolDepth::MIN);
    }

    #[test]
    fn depth_fades_long_after_the_last_refusal() {
        let mut depth = LearnedDepth::default();
        (0..30).for_each(|_| depth.on_period(period(100, 20), 1_000.0, true));
        let calm = period(100, 0);
        // The first calm period is judged together with the last one with refusals.
        (0..60).for_each(|_| depth.on_period(calm, 1_000.0, true));
        assert_eq!(depth.factor(), PoolDepth::MAX, "half a minute of calm");
        (0..900).for_each(|_| depth.on_period(calm, 1_000.0, true));
        assert_eq!(depth.factor(), PoolDepth::MIN);
    }

    #[test]
    fn shadow_teaches_as_enforcement_does() {
        let shadowed = Counts {
            offered: 100,
            would_dropped: 20,
            would_guard_dropped: 20,
            ..Counts::ZERO
        };
        assert_eq!(after(1, shadowed, 1_000.0, true), 1.5);
    }
}
