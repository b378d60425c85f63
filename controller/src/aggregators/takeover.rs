//! How a controller takes over: zones live on their holds until enough of their traffic is known to lead them.

use plimsoll_core::names::Bucket;
use plimsoll_core::law::Parameters;
use plimsoll_core::quantity::MonoTime;

use crate::aggregators::{Source, Sources};

/// The beginning of one controller's reign.
#[derive(Clone, Copy, Debug)]
pub struct Reign {
    began: MonoTime,
    leading: bool,
}

impl Reign {
    /// A controller that has just begun to listen and knows of no traffic.
    #[must_use]
    pub const fn new(began: MonoTime) -> Self {
        Self { began, leading: false }
    }

    /// Whether rates are being sent.
    #[must_use]
    pub const fn is_leading(&self) -> bool {
        self.leading
    }

    /// Whether everyone who reported to this controller before it started has had time to come back.
    #[must_use]
    pub fn has_waited(&self, now: MonoTime, parameters: &Parameters) -> bool {
        now.since(self.began) >= parameters.holds_kept
    }

    /// Decides who is sent rates from now on. The first ones are sent once every aggregator that is back has shown
    /// its traffic, at the latest `start_wait` after the start. One that comes later with a hold stays on it until it
    /// has shown its traffic; one that comes with nothing is served at once.
    pub fn on_tick(&mut self, now: MonoTime, sources: &mut Sources, parameters: &Parameters) {
        let waited = now.since(self.began) >= parameters.start_wait;
        let has_shown =
            |source: &Source| source.rollups() > 0 || now.since(source.since()) >= parameters.start_wait;
        if !self.leading {
            let mut here = sources.iter().filter(|(_, source)| !source.is_silent(parameters)).peekable();
            let any = here.peek().is_some();
            self.leading = any && (waited || here.all(|(_, source)| has_shown(source)));
        }
        if self.leading {
            sources.serve(|source| has_shown(source) || source.holds().is_empty());
        }
    }

    /// The share of what zones that have not come back yet are living on that is still set aside for them: all of it
    /// at first, then given back bit by bit, for some of them may never come.
    #[must_use]
    pub fn set_aside(&self, now: MonoTime, parameters: &Parameters) -> f64 {
        let left = parameters.holds_gone.saturating_sub(now.since(self.began));
        (left.as_secs_f64() / (parameters.holds_gone - parameters.holds_kept).as_secs_f64()).min(1.0)
    }
    /// What may be divided of a bucket's `limit` in requests/s: all of it, less so much of what the zones that have not
    /// come back yet are living on.
    #[must_use]
    pub fn within(bucket: &Bucket, limit: f64, sources: &Sources, set_aside: f64) -> f64 {
        if set_aside <= 0.0 {
            return limit;
        }
        let back = sources.iter().filter(|(_, source)| source.is_served());
        let count = back.clone().count() as f64;
        let held: f64 = back
            .map(|(_, source)| source.lived_on().get(bucket).map_or(limit / count, |hold| hold.per_second()))
            .sum();
        limit - set_aside * (limit - held).max(0.0)
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
        sources: Sources,
        reign: Reign,
    }

    impl Children {
        fn new() -> Self {
            Self { sources: Sources::default(), reign: Reign::new(at(0.0)) }
        }

        fn place(n: u128) -> (Zone, Name) {
            (Zone::new(&format!("z{n}")).unwrap(), Name::new("a").unwrap())
        }

        fn greet(&mut self, s: f64, n: u128, hold: Option<f64>) {
            let bucket = Bucket::new("api").unwrap();
            let holds = hold.map(|hold| (bucket, Rate::new(hold).unwrap())).into_iter().collect();
            self.sources.greet(at(s), Self::place(n), InstanceId(n), holds);
        }

        fn shows(&mut self, n: u128) {
            let entered = Entered { span: Some(Duration::from_millis(500)), ..Entered::default() };
            self.sources.enter(&Self::place(n), &Report::default(), &entered);
        }

        fn tick(&mut self, s: f64) -> Vec<u128> {
            let parameters = Parameters::default();
            self.sources.on_tick(Duration::from_millis(500), &parameters);
            self.reign.on_tick(at(s), &mut self.sources, &parameters);
            let served = |n: &u128| self.sources.get(&Self::place(*n)).is_some_and(Source::is_served);
            (0..4).filter(served).collect()
        }

        fn within(&self, s: f64) -> f64 {
            let bucket = Bucket::new("api").unwrap();
            let set_aside = self.reign.set_aside(at(s), &Parameters::default());
            Reign::within(&bucket, 900.0, &self.sources, set_aside)
        }
    }

    #[test]
    fn nobody_is_led_before_everyone_has_shown_its_traffic() {
        let mut children = Children::new();
        assert_eq!(children.tick(0.5), []);
        children.greet(0.6, 0, None);
        children.greet(0.7, 1, None);
        children.shows(0);
        assert_eq!(children.tick(1.0), []);
        children.shows(1);
        assert_eq!(children.tick(1.5), [0, 1]);
        assert_eq!(children.within(1.5), 900.0, "they came with nothing: all of the limit is theirs");
        children.greet(2.0, 2, None);
        assert_eq!(children.tick(2.0), [0, 1, 2], "who comes later with nothing is served at once");
        children.greet(2.5, 3, Some(300.0));
        assert_eq!(children.tick(2.5), [0, 1, 2], "who has a hold stays on it");
        children.shows(3);
        assert_eq!(children.tick(3.0), [0, 1, 2, 3]);
    }

    #[test]
    fn one_that_shows_nothing_is_not_waited_for_for_ever() {
        let mut children = Children::new();
        children.greet(0.0, 0, None);
        children.greet(1.0, 1, Some(300.0));
        children.shows(0);
        assert_eq!(children.tick(4.5), []);
        assert_eq!(children.tick(5.0), [0]);
        assert_eq!(children.tick(6.0), [0, 1]);
    }

    #[test]
    fn what_the_others_live_on_is_left_to_them_and_given_back() {
        let mut children = Children::new();
        children.greet(1.0, 0, Some(300.0));
        children.shows(0);
        children.tick(1.5);
        for (s, within) in [(1.5, 300.0), (30.0, 300.0), (45.0, 600.0), (60.0, 900.0), (3_600.0, 900.0)] {
            assert!((children.within(s) - within).abs() < 1e-9, "at {s}: {}", children.within(s));
        }
        children.greet(10.0, 1, Some(500.0));
        children.shows(1);
        children.tick(10.5);
        assert!((children.within(20.0) - 800.0).abs() < 1e-9);
        let none: BTreeMap<Bucket, Rate> = BTreeMap::new();
        assert_eq!(children.sources.get(&Children::place(2)).map_or(&none, Source::holds).len(), 0);
    }
}
