//! How long a generation takes to reach everybody, measured on the live fleet with a number that means nothing: it travels
//! in the same messages as the kill generations, and nobody's mode depends on it.
//!
//! A kill generation itself cannot be used. One that has grown by 2 has the parity it had, but to whoever missed the number
//! in between it is a kill and its end, after which everything has to be in shadow.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::kill::JUMP_MAX;
use crate::names::Zone;
use crate::quantity::MonoTime;
use crate::report::{InstanceId, Report, Role};

/// The number of a drill, merged by `max` like a kill generation; 0 before the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Drill(pub u64);

impl Drill {
    /// The next one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// Whether a peer may truly have heard of this one.
    #[must_use]
    pub const fn believes(self, claimed: Self) -> bool {
        claimed.0.saturating_sub(self.0) <= JUMP_MAX
    }
}

/// The longest wait told apart, in microseconds: a minute.
const WAIT_MAX_US: u64 = 60_000_000;
/// Zones of which one report tells.
pub const SPREAD_ZONES_MAX: usize = 64;
/// Different waits of one zone: sixteen in each octave up to a minute.
pub const SPREAD_STEPS_MAX: usize = 26 * 16;

/// How long the clients of a zone took to hear of a drill, and how many of them have not said that they did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spread {
    /// Microseconds, rounded up to one part in sixteen, and for how many.
    waits: BTreeMap<u64, u64>,
    /// Clients of whom nothing was heard yet; an aggregator that is silent counts as its clients.
    pub missing: u64,
}

impl Spread {
    /// A spread of so many waits of so many microseconds each.
    #[must_use]
    pub fn of(waits: impl IntoIterator<Item = (u64, u64)>, missing: u64) -> Self {
        let mut spread = Self { missing, ..Self::default() };
        waits.into_iter().for_each(|(wait, count)| spread.count(wait, count));
        spread
    }

    /// One more has heard of it, after so long.
    pub fn add(&mut self, wait: Duration) {
        self.count(u64::try_from(wait.as_micros()).unwrap_or(u64::MAX), 1);
    }

    fn count(&mut self, wait_us: u64, count: u64) {
        let held = self.waits.entry(rounded_up(wait_us)).or_default();
        *held = held.saturating_add(count);
    }

    /// These waits in microseconds, and for how many, in ascending order.
    pub fn waits(&self) -> impl ExactSizeIterator<Item = (u64, u64)> {
        self.waits.iter().map(|(wait, count)| (*wait, *count))
    }

    /// How many have heard of it.
    #[must_use]
    pub fn heard(&self) -> u64 {
        self.waits.values().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// The same for all who are `hop` further away.
    #[must_use]
    pub fn after(&self, hop: Duration) -> Self {
        let hop = u64::try_from(hop.as_micros()).unwrap_or(u64::MAX);
        Self::of(self.waits().map(|(wait, count)| (wait.saturating_add(hop), count)), self.missing)
    }

    /// Both together.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        other.waits().for_each(|(wait, count)| self.count(wait, count));
        self.missing = self.missing.saturating_add(other.missing);
        self
    }

    /// After how long so large a share of those who have heard of it had; `None` if nobody has.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let rank = (share * self.heard() as f64).ceil().max(1.0) as u64;
        let mut passed = 0_u64;
        let at = self.waits().find(|(_, count)| {
            passed = passed.saturating_add(*count);
            passed >= rank
        });
        at.map(|(wait, _)| Duration::from_micros(wait))
    }
}

/// The next number with five significant bits: an upper bound at most a sixteenth too long.
fn rounded_up(us: u64) -> u64 {
    let us = us.clamp(1, WAIT_MAX_US);
    let shift = (64 - us.leading_zeros()).saturating_sub(5);
    us.div_ceil(1 << shift) << shift
}

/// A child that has not shown that it heard.
#[derive(Clone, Debug)]
pub struct Due {
    /// Where it is.
    pub zone: Zone,
    /// What it is.
    pub role: Role,
    /// How many clients it stands for.
    pub clients: u64,
}

/// A drill as the parent of some children times it: each shows in its reports when it has heard. What is measured includes
/// the way of that report, so it is an upper bound.
#[derive(Debug, Default)]
pub struct Timing {
    drill: Drill,
    began: MonoTime,
    /// Who was connected when it began and has not shown that it heard.
    due: BTreeMap<InstanceId, Due>,
    /// By zone: the clients among those who have.
    own: BTreeMap<Zone, Spread>,
    /// Aggregators among them: how far away each is, and what it says of those below it.
    below: BTreeMap<InstanceId, (Duration, BTreeMap<Zone, Spread>)>,
    version: u64,
}

impl Timing {
    /// A drill is heard of, or begun, while these children are connected. `own` is the zone whose clients are timed here, if there are any.
    pub fn begin(
        &mut self,
        now: MonoTime,
        drill: Drill,
        own: Option<Zone>,
        children: impl Iterator<Item = (InstanceId, Due)>,
    ) {
        let due = children.collect();
        let own = own.map(|zone| (zone, Spread::default())).into_iter().collect();
        *self = Self { drill, began: now, due, own, below: BTreeMap::new(), version: self.version + 1 };
    }

    /// Which drill it is; the first number before any.
    #[must_use]
    pub const fn drill(&self) -> Drill {
        self.drill
    }

    /// Counts its changes.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// A child reports.
    pub fn on_report(&mut self, now: MonoTime, instance: InstanceId, role: Role, report: &Report) {
        if report.drill < self.drill || self.drill == Drill(0) {
            return;
        }
        if let Some(Due { zone, .. }) = self.due.remove(&instance) {
            let wait = now.since(self.began);
            match role {
                Role::Client => self.own.entry(zone).or_default().add(wait),
                Role::Aggregator => {
                    self.below.insert(instance, (wait, BTreeMap::new()));
                }
            }
            self.version += 1;
        }
        if let Some((_, spreads)) = self.below.get_mut(&instance)
            && report.drill == self.drill
            && !report.spreads.is_empty()
        {
            *spreads = report.spreads.clone();
            self.version += 1;
        }
    }

    /// A child is gone: it need not hear of anything any more.
    pub fn on_close(&mut self, instance: InstanceId) {
        self.version += u64::from(self.due.remove(&instance).is_some());
    }

    /// How long everybody took, by zone, those who have not answered among them.
    #[must_use]
    pub fn spreads(&self) -> BTreeMap<Zone, Spread> {
        let mut spreads = self.own.clone();
        let mut add = |zone: &Zone, spread: &Spread| {
            if spreads.len() < SPREAD_ZONES_MAX || spreads.contains_key(zone) {
                let held = spreads.entry(zone.clone()).or_default();
                *held = std::mem::take(held).plus(spread);
            }
        };
        for (hop, below) in self.below.values() {
            below.iter().for_each(|(zone, spread)| add(zone, &spread.after(*hop)));
        }
        for Due { zone, clients, .. } in self.due.values() {
            add(zone, &Spread { missing: *clients, ..Spread::default() });
        }
        spreads
    }

    /// How many aggregators have not said anything of it.
    #[must_use]
    pub fn silent_aggregators(&self) -> usize {
        let without = self.below.values().filter(|(_, spreads)| spreads.is_empty()).count();
        without + self.due.values().filter(|due| due.role == Role::Aggregator).count()
    }

    /// Whether everybody has answered.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        let told = |spreads: &BTreeMap<Zone, Spread>| {
            !spreads.is_empty() && spreads.values().all(|spread| spread.missing == 0)
        };
        self.due.is_empty() && self.below.values().all(|(_, spreads)| told(spreads))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZONE: &str = "a";

    fn zone(name: &str) -> Zone {
        Zone::new(name).unwrap()
    }

    fn due(name: &str, role: Role, clients: u64) -> Due {
        Due { zone: zone(name), role, clients }
    }

    fn at(ms: u64) -> MonoTime {
        MonoTime::from_elapsed(Duration::from_millis(ms))
    }

    fn heard(drill: u64) -> Report {
        Report { drill: Drill(drill), ..Report::default() }
    }

    fn near(got: Option<Duration>, ms: u64) -> bool {
        let due = Duration::from_millis(ms);
        got.is_some_and(|got| got >= due && got <= due + due / 16 + Duration::from_micros(1))
    }

    #[test]
    fn waits_are_upper_bounds_and_quantiles_follow() {
        let mut spread = Spread::default();
        assert_eq!(spread.quantile(0.5), None);
        (1..=1_000).for_each(|ms| spread.add(Duration::from_millis(ms)));
        assert_eq!(spread.heard(), 1_000);
        for (share, ms) in [(0.5, 500), (0.99, 990), (1.0, 1_000), (0.0, 1)] {
            assert!(near(spread.quantile(share), ms), "{share}: {:?}", spread.quantile(share));
        }
        assert!(spread.waits().len() <= SPREAD_STEPS_MAX);
        let further = spread.after(Duration::from_millis(100)).quantile(1.0).unwrap();
        assert!(
            further >= Duration::from_millis(1_100) && further <= Duration::from_millis(1_300),
            "{further:?}"
        );
        assert_eq!(Spread::of([(u64::MAX, 1)], 0).waits().next().unwrap().0, rounded_up(WAIT_MAX_US));
        let most = Spread::of((1..WAIT_MAX_US).step_by(7).map(|us| (us, 1)), 0);
        assert!(most.waits().len() <= SPREAD_STEPS_MAX, "{}", most.waits().len());
    }

    #[test]
    fn a_parent_times_its_clients_and_adds_what_its_aggregators_tell() {
        let mut lower = Timing::default();
        let clients = (1..=3).map(|id| (InstanceId(id), due(ZONE, Role::Client, 1)));
        lower.begin(at(0), Drill(7), Some(zone(ZONE)), clients);
        lower.on_report(at(1), InstanceId(1), Role::Client, &heard(6));
        assert_eq!(lower.spreads()[&zone(ZONE)].missing, 3, "the drill before it says nothing");
        for (ms, id) in [(10, 1), (20, 2), (30, 2)] {
            lower.on_report(at(ms), InstanceId(id), Role::Client, &heard(7));
        }
        let spread = &lower.spreads()[&zone(ZONE)];
        assert_eq!((spread.heard(), spread.missing), (2, 1));

        let mut upper = Timing::default();
        let below = [(100, ZONE, 3), (200, "b", 9)]
            .map(|(id, zone, clients)| (InstanceId(id), due(zone, Role::Aggregator, clients)));
        upper.begin(at(1_000), Drill(7), None, below.into_iter());
        assert_eq!(upper.silent_aggregators(), 2);
        let report = Report { spreads: lower.spreads(), ..heard(7) };
        upper.on_report(at(1_100), InstanceId(100), Role::Aggregator, &report);
        let spreads = upper.spreads();
        assert!(near(spreads[&zone(ZONE)].quantile(1.0), 120), "{spreads:?}");
        assert_eq!((spreads[&zone(ZONE)].missing, spreads[&zone("b")].missing), (1, 9));
        assert!(!upper.is_complete());

        lower.on_close(InstanceId(3));
        let report = Report { spreads: lower.spreads(), ..heard(7) };
        upper.on_report(at(1_500), InstanceId(100), Role::Aggregator, &report);
        upper.on_close(InstanceId(200));
        assert!(lower.is_complete() && upper.is_complete(), "who has gone need not be waited for");
        assert!(near(upper.spreads()[&zone(ZONE)].quantile(1.0), 120), "the hop is that of the first word");
    }

    #[test]
    fn an_aggregator_that_says_nothing_of_its_clients_is_waited_for() {
        let mut timing = Timing::default();
        timing.begin(at(0), Drill(1), None, [(InstanceId(1), due(ZONE, Role::Aggregator, 0))].into_iter());
        assert!(!timing.is_complete());
        timing.on_report(at(1), InstanceId(1), Role::Aggregator, &heard(1));
        assert!(!timing.is_complete() && timing.silent_aggregators() == 1);
    }
}
