//! The takeover by a controller that has just started: zones live on their holds until enough of their
//! traffic is known to send them rates.

use plimsoll_core::law::{Parameters, parameters};
use plimsoll_core::names::Bucket;
use plimsoll_core::quantity::MonoTime;

use crate::aggregators::{Aggregator, Aggregators};

/// The progress of one controller's takeover.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Takeover {
    started_at: MonoTime,
    /// True once rates are being sent.
    pub(crate) leading: bool,
    /// True if the saved state names the aggregators of the controller before.
    knows_aggregators: bool,
    /// The most aggregators that were expected at a time since the start.
    pub(crate) expected: usize,
    /// True once all of these are served.
    is_complete: bool,
}

impl Takeover {
    /// A controller that has just started and knows of no traffic.
    pub(crate) const fn new(started_at: MonoTime, knows_aggregators: bool) -> Self {
        Self { started_at, leading: false, knows_aggregators, expected: 0, is_complete: false }
    }

    /// Returns true once every aggregator that reported before the start has had time to come back.
    pub(crate) fn has_waited(&self, now: MonoTime) -> bool {
        now.since(self.started_at) >= parameters::HOLDS_KEPT
    }

    /// Chooses the aggregators that are sent rates from now on.
    ///
    /// The first rates are sent once every connected aggregator has shown its traffic, at the latest
    /// `start_wait` after the start. Afterwards an aggregator that comes with a hold stays on it until it has
    /// shown its traffic, and one that comes without any hold is sent rates at once.
    pub(crate) fn on_tick(&mut self, now: MonoTime, aggregators: &mut Aggregators, parameters: &Parameters) {
        let waited = now.since(self.started_at) >= parameters::START_WAIT;
        let has_shown = |aggregator: &Aggregator| {
            aggregator.rated_reports > 0 || now.since(aggregator.greeted_at) >= parameters::START_WAIT
        };
        if !self.leading {
            let connected = aggregators.iter().filter(|(_, aggregator)| !aggregator.is_silent(parameters));
            let mut connected = connected.peekable();
            let any = connected.peek().is_some();
            self.leading = any && (waited || connected.all(|(_, aggregator)| has_shown(aggregator)));
        }
        if self.leading {
            aggregators.serve(|aggregator| has_shown(aggregator) || aggregator.holds.is_empty());
        }
    }

    /// The share, 0..=1, of what missing zones live on that is still reserved for them. It begins with all of
    /// it, and shrinks to nothing, because some of these zones may never come back. Nothing is reserved once
    /// `all_served` of the aggregators that are known: one that came without a hold has restarted.
    pub(crate) fn reserved_share(&mut self, now: MonoTime, all_served: bool) -> f64 {
        // Later, those that are missing are given up and no longer known.
        self.is_complete |= self.knows_aggregators && all_served && !self.has_waited(now);
        if self.is_complete {
            return 0.0;
        }
        let left = parameters::HOLDS_GONE.saturating_sub(now.since(self.started_at));
        (left.as_secs_f64() / (parameters::HOLDS_GONE - parameters::HOLDS_KEPT).as_secs_f64()).min(1.0)
    }

    /// The part of a bucket's `limit` in requests/s that may be divided: all of it, less the reserved share
    /// of what missing zones live on. One that came without a hold has restarted, and had an even part among the
    /// `expected` ones.
    pub(crate) fn divisible(
        bucket: &Bucket,
        limit: f64,
        aggregators: &Aggregators,
        expected: usize,
        reserved_share: f64,
    ) -> f64 {
        if reserved_share <= 0.0 {
            return limit;
        }
        let served = aggregators.iter().filter(|(_, aggregator)| aggregator.served);
        let even = limit / expected.max(served.clone().count()) as f64;
        let brought = |aggregator: &Aggregator| {
            aggregator.first_holds.get(bucket).map_or(even, |hold| hold.per_second())
        };
        let held: f64 = served.map(|(_, aggregator)| brought(aggregator)).sum();
        limit - reserved_share * (limit - held).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::time::Duration;

    use plimsoll_core::names::{Name, Zone};
    use plimsoll_core::quantity::Rate;
    use plimsoll_core::report::{Entered, InstanceId, Report};

    fn at(s: f64) -> MonoTime {
        MonoTime::from_elapsed(Duration::from_secs_f64(s))
    }

    struct Children {
        aggregators: Aggregators,
        takeover: Takeover,
    }

    impl Children {
        fn new() -> Self {
            Self { aggregators: Aggregators::default(), takeover: Takeover::new(at(0.0), false) }
        }

        fn place(n: u128) -> (Zone, Name) {
            (Zone::new(&format!("z{n}")).unwrap(), Name::new("a").unwrap())
        }

        fn greet(&mut self, s: f64, n: u128, hold: Option<f64>) {
            let bucket = Bucket::new("api").unwrap();
            let holds = hold.map(|hold| (bucket, Rate::new(hold).unwrap())).into_iter().collect();
            self.aggregators.greet(at(s), Self::place(n), InstanceId(n), holds);
        }

        fn shows(&mut self, n: u128) {
            let entered = Entered { span: Some(Duration::from_millis(500)), ..Entered::default() };
            self.aggregators.enter(&Self::place(n), &Report::default(), &entered);
        }

        fn tick(&mut self, s: f64) -> Vec<u128> {
            let parameters = Parameters::default();
            self.aggregators.on_tick(Duration::from_millis(500), &parameters);
            self.takeover.on_tick(at(s), &mut self.aggregators, &parameters);
            let served =
                |n: &u128| self.aggregators.get(&Self::place(*n)).is_some_and(|aggregator| aggregator.served);
            (0..4).filter(served).collect()
        }

        fn divisible(&mut self, s: f64) -> f64 {
            let bucket = Bucket::new("api").unwrap();
            let reserved_share = self.takeover.reserved_share(at(s), true);
            Takeover::divisible(&bucket, 900.0, &self.aggregators, 0, reserved_share)
        }
    }

    #[test]
    fn rates_wait_until_every_aggregator_has_shown_its_traffic() {
        let mut children = Children::new();
        assert_eq!(children.tick(0.5), []);
        children.greet(0.6, 0, None);
        children.greet(0.7, 1, None);
        children.shows(0);
        assert_eq!(children.tick(1.0), []);
        children.shows(1);
        assert_eq!(children.tick(1.5), [0, 1]);
        assert_eq!(children.divisible(1.5), 900.0, "they came without holds: all of the limit is theirs");
        children.greet(2.0, 2, None);
        assert_eq!(children.tick(2.0), [0, 1, 2], "a later aggregator without a hold is served at once");
        children.greet(2.5, 3, Some(300.0));
        assert_eq!(children.tick(2.5), [0, 1, 2], "an aggregator with a hold stays on it");
        children.shows(3);
        assert_eq!(children.tick(3.0), [0, 1, 2, 3]);
    }

    #[test]
    fn aggregator_without_rates_is_waited_for_at_most_start_wait() {
        let mut children = Children::new();
        children.greet(0.0, 0, None);
        children.greet(1.0, 1, Some(300.0));
        children.shows(0);
        assert_eq!(children.tick(4.5), []);
        assert_eq!(children.tick(5.0), [0]);
        assert_eq!(children.tick(6.0), [0, 1]);
    }

    #[test]
    fn share_of_missing_zones_is_reserved_and_then_released() {
        let mut children = Children::new();
        children.greet(1.0, 0, Some(300.0));
        children.shows(0);
        children.tick(1.5);
        for (s, divisible) in [(1.5, 300.0), (30.0, 300.0), (45.0, 600.0), (60.0, 900.0), (3_600.0, 900.0)] {
            assert!((children.divisible(s) - divisible).abs() < 1e-9, "at {s}: {}", children.divisible(s));
        }
        children.greet(10.0, 1, Some(500.0));
        children.shows(1);
        children.tick(10.5);
        assert!((children.divisible(20.0) - 800.0).abs() < 1e-9);
        let none: BTreeMap<Bucket, Rate> = BTreeMap::new();
        assert_eq!(
            children.aggregators.get(&Children::place(2)).map_or(&none, |aggregator| &aggregator.holds).len(),
            0
        );
    }
}
