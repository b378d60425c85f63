//! The timing of a drill at a parent: which children have confirmed it, and after how long.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Drill, SPREAD_ZONES_MAX, Spread};
use crate::names::Zone;
use crate::quantity::MonoTime;
use crate::report::{InstanceId, Report, Role};

/// A child that has not confirmed the drill.
#[derive(Clone, Debug)]
pub struct DueChild {
    /// The zone of the child.
    pub zone: Zone,
    /// The role of the child.
    pub role: Role,
    /// The number of clients it represents: 1 for a client.
    pub clients: u64,
}

/// The confirmations of a drill by the children of one parent. A child confirms with its next report, so a
/// measured time includes the way of that report and is an upper bound.
#[derive(Debug, Default)]
pub struct DrillTiming {
    drill: Drill,
    began: MonoTime,
    /// Children that were connected when it began and have not confirmed.
    due: BTreeMap<InstanceId, DueChild>,
    /// The child clients that have confirmed, by zone.
    own: BTreeMap<Zone, Spread>,
    /// The child aggregators that have confirmed: the time each took, and the spreads it reports.
    below: BTreeMap<InstanceId, (Duration, BTreeMap<Zone, Spread>)>,
    version: u64,
}

impl DrillTiming {
    /// Begins a drill while these children are connected. `own` is the zone of the parent, if it has clients.
    pub fn begin(
        &mut self,
        now: MonoTime,
        drill: Drill,
        own: Option<Zone>,
        children: impl Iterator<Item = (InstanceId, DueChild)>,
    ) {
        let due = children.collect();
        let own = own
            .map(|zone| (zone, Spread::default()))
            .into_iter()
            .collect();
        *self = Self {
            drill,
            began: now,
            due,
            own,
            below: BTreeMap::new(),
            version: self.version + 1,
        };
    }

    /// The drill; number 0 before the first.
    pub const fn drill(&self) -> Drill {
        self.drill
    }

    /// The number of the latest change.
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// Takes the confirmation in a child's report, and the spreads of a child aggregator.
    pub fn on_report(&mut self, now: MonoTime, instance: InstanceId, role: Role, report: &Report) {
        if report.kills.drill < self.drill || self.drill == Drill(0) {
            return;
        }
        if let Some(DueChild { zone, .. }) = self.due.remove(&instance) {
            let time = now.since(self.began);
            match role {
                Role::Client => self.own.entry(zone).or_default().add(time),
                Role::Aggregator => {
                    self.below.insert(instance, (time, BTreeMap::new()));
                }
            }
            self.version += 1;
        }
        if let Some((_, spreads)) = self.below.get_mut(&instance)
            && report.kills.drill == self.drill
            && !report.kills_below.spreads.is_empty()
        {
            *spreads = report.kills_below.spreads.clone();
            self.version += 1;
        }
    }

    /// Stops waiting for a child after its stream closed.
    pub fn on_close(&mut self, instance: InstanceId) {
        self.version += u64::from(self.due.remove(&instance).is_some());
    }

    /// The times of all clients by zone, with the missing ones.
    pub fn spreads(&self) -> BTreeMap<Zone, Spread> {
        let mut spreads = self.own.clone();
        let mut add = |zone: &Zone, spread: &Spread| {
            if spreads.len() < SPREAD_ZONES_MAX || spreads.contains_key(zone) {
                let held = spreads.entry(zone.clone()).or_default();
                *held = std::mem::take(held).plus(spread);
            }
        };
        for (hop, below) in self.below.values() {
            below
                .iter()
                .for_each(|(zone, spread)| add(zone, &spread.after(*hop)));
        }
        for DueChild { zone, clients, .. } in self.due.values() {
            add(zone, &Spread::of([], *clients));
        }
        spreads
    }

    /// The number of child aggregators that have not reported any spread.
    pub fn silent_aggregators(&self) -> usize {
        let below = self.below.values();
        let silent = below.filter(|(_, spreads)| spreads.is_empty());
        let due = self.due.values().filter(|due| due.role == Role::Aggregator);
        silent.count() + due.count()
    }

    /// Returns true if every client has confirmed, apart from children whose streams closed before they did. The missing
    /// clients of an aggregator that confirmed and then closed stay missing.
    pub fn is_complete(&self) -> bool {
        let is_confirmed = |spreads: &BTreeMap<Zone, Spread>| {
            !spreads.is_empty() && spreads.values().all(|spread| spread.missing == 0)
        };
        self.due.is_empty() && self.below.values().all(|(_, each)| is_confirmed(each))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kill::{KillNews, KillsBelow};

    const ZONE: &str = "a";

    fn zone(name: &str) -> Zone {
        Zone::new(name).unwrap()
    }

    fn due(name: &str, role: Role, clients: u64) -> DueChild {
        DueChild {
            zone: zone(name),
            role,
            clients,
        }
    }

    fn at(ms: u64) -> MonoTime {
        MonoTime::from_elapsed(Duration::from_millis(ms))
    }

    fn confirms(drill: u64) -> Report {
        Report {
            kills: KillNews {
                drill: Drill(drill),
                ..KillNews::default()
            },
            ..Report::default()
        }
    }

    fn is_close(got: Option<Duration>, ms: u64) -> bool {
        let due = Duration::from_millis(ms);
        got.is_some_and(|got| got >= due && got <= due + due / 16 + Duration::from_micros(1))
    }

    #[test]
    fn parent_adds_clients_and_aggregator_spreads() {
        let mut lower = DrillTiming::default();
        let clients = (1..=3).map(|id| (InstanceId(id), due(ZONE, Role::Client, 1)));
        lower.begin(at(0), Drill(7), Some(zone(ZONE)), clients);
        lower.on_report(at(1), InstanceId(1), Role::Client, &confirms(6));
        assert_eq!(
            lower.spreads()[&zone(ZONE)].missing,
            3,
            "an earlier drill confirms nothing"
        );
        for (ms, id) in [(10, 1), (20, 2), (30, 2)] {
            lower.on_report(at(ms), InstanceId(id), Role::Client, &confirms(7));
        }
        let spread = &lower.spreads()[&zone(ZONE)];
        assert_eq!((spread.confirmed(), spread.missing), (2, 1));

        let mut upper = DrillTiming::default();
        let below = [(100, ZONE, 3), (200, "b", 9)]
            .map(|(id, zone, clients)| (InstanceId(id), due(zone, Role::Aggregator, clients)));
        upper.begin(at(1_000), Drill(7), None, below.into_iter());
        assert_eq!(upper.silent_aggregators(), 2);
        let report = Report {
            kills_below: KillsBelow {
                spreads: lower.spreads(),
                ..KillsBelow::default()
            },
            ..confirms(7)
        };
        upper.on_report(at(1_100), InstanceId(100), Role::Aggregator, &report);
        let spreads = upper.spreads();
        assert!(
            is_close(spreads[&zone(ZONE)].quantile(1.0), 120),
            "{spreads:?}"
        );
        assert_eq!(
            (spreads[&zone(ZONE)].missing, spreads[&zone("b")].missing),
            (1, 9)
        );
        assert!(!upper.is_complete());

        lower.on_close(InstanceId(3));
        let report = Report {
            kills_below: KillsBelow {
                spreads: lower.spreads(),
                ..KillsBelow::default()
            },
            ..confirms(7)
        };
        upper.on_report(at(1_500), InstanceId(100), Role::Aggregator, &report);
        upper.on_close(InstanceId(200));
        assert!(
            lower.is_complete() && upper.is_complete(),
            "closed streams are not waited for"
        );
        assert!(
            is_close(upper.spreads()[&zone(ZONE)].quantile(1.0), 120),
            "the first report sets the hop"
        );
    }

    #[test]
    fn aggregator_without_spreads_is_waited_for() {
        let mut timing = DrillTiming::default();
        let child = (InstanceId(1), due(ZONE, Role::Aggregator, 0));
        timing.begin(at(0), Drill(1), None, [child].into_iter());
        assert!(!timing.is_complete());
        timing.on_report(at(1), InstanceId(1), Role::Aggregator, &confirms(1));
        assert!(!timing.is_complete() && timing.silent_aggregators() == 1);
    }
}
