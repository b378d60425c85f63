//! The child aggregators: identity, traffic and directives of each.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

use plimsoll_core::directive::Board;
use plimsoll_core::exchange::Path;
use plimsoll_core::law::parameters;
use plimsoll_core::law::presence::presence;
use plimsoll_core::names::{Bucket, Name, Tenant, Zone};
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::report::{Identity, InstanceId, Report};

use crate::downstream::traffic::Traffic;

/// Zone and name of an aggregator, which stay the same across restarts of its process.
type StableName = (Zone, Name);

/// Maximum number of names that a child waits for.
const ASKED_MAX: usize = 100_000;

#[derive(Debug, Default)]
pub(crate) struct ChildAggregators {
    pub(crate) by_instance: BTreeMap<InstanceId, ChildAggregator>,
    /// The number of changes of their directives.
    pub(crate) changes: u64,
}

#[derive(Debug)]
pub(crate) struct ChildAggregator {
    name: StableName,
    path: Path,
    /// The number of its children in its latest report with any; `None` before.
    pub(crate) children: Option<u32>,
    /// Buckets with a hold at its greeting.
    pub(crate) held: BTreeSet<Bucket>,
    /// The time of its latest greeting.
    since: MonoTime,
    /// The time its stream ended; `None` while it has one.
    left: Option<MonoTime>,
    pub(crate) traffic: Traffic,
    pub(crate) board: Board,
    /// Names that the parent has not answered yet.
    asked: HashSet<Tenant>,
    /// The names that the child asked for with their classes, for the next messages.
    pub(crate) catalogued: Vec<(Tenant, Tenant)>,
}

impl ChildAggregator {
    /// The weight of the child in a division, 0 to 1. A parent cannot tell a dead child from a disconnected
    /// one, so the share of a silent child is held for it and then released, as the controller does with
    /// zones.
    pub(crate) fn presence(&self, now: MonoTime) -> f64 {
        self.left.map_or(1.0, |left| presence(now.since(left)))
    }

    /// Returns true if the child is sent rates. Before its traffic is known it lives on the hold that it
    /// brought, or on an even share.
    pub(crate) fn is_served(&self, now: MonoTime) -> bool {
        self.traffic.has_shown || now.since(self.since) >= parameters::START_WAIT
    }

    pub(crate) fn on_report(&mut self, report: &Report) {
        if self.path != report.path {
            self.path = report.path.clone();
        }
        // Zero is not taken: a restarted child has none at first and must still learn how many to wait for.
        if report.time.is_some() && report.children > 0 {
            self.children = Some(report.children);
        }
    }
}

impl ChildAggregators {
    /// Adds a child aggregator, or its new stream. A new process with a known name takes over the traffic and the
    /// number of children of the old one; returns the instance that it replaces.
    pub(crate) fn greet(
        &mut self,
        now: MonoTime,
        identity: &Identity,
        report: &Report,
    ) -> Option<InstanceId> {
        let name = (identity.zone.clone(), identity.name.clone());
        let replaced = self
            .by_instance
            .iter()
            .find(|(instance, child)| **instance != identity.instance && child.name == name)
            .map(|(instance, _)| *instance);
        let before = replaced.and_then(|instance| self.by_instance.remove(&instance));
        let child = self
            .by_instance
            .entry(identity.instance)
            .or_insert_with(|| {
                let (children, traffic) = before
                    .map(|child| (child.children, child.traffic))
                    .unwrap_or_default();
                ChildAggregator {
                    name,
                    path: Path::default(),
                    children,
                    held: BTreeSet::new(),
                    since: now,
                    left: None,
                    traffic,
                    board: Board::default(),
                    asked: HashSet::new(),
                    catalogued: Vec::new(),
                }
            });
        (child.since, child.left) = (now, None);
        child.traffic.discard_unfinished();
        // It asks again on each stream.
        (child.asked, child.catalogued) = Default::default();
        child.held = report.greeting.holds.keys().cloned().collect();
        replaced
    }

    /// Notes that a child waits for what the catalogue says of a name.
    pub(crate) fn note_asked(&mut self, instance: InstanceId, tenant: &Tenant) {
        let child = self.by_instance.get_mut(&instance);
        if let Some(child) = child.filter(|child| child.asked.len() < ASKED_MAX) {
            child.asked.insert(tenant.clone());
        }
    }

    /// Passes answers on to the children that asked.
    pub(crate) fn on_catalogued(&mut self, names: &[(Tenant, Tenant)]) {
        for child in self.by_instance.values_mut() {
            let asked = names
                .iter()
                .filter(|(tenant, _)| child.asked.remove(tenant));
            child.catalogued.extend(asked.cloned());
        }
    }

    pub(crate) fn close(&mut self, now: MonoTime, instance: InstanceId) {
        if let Some(child) = self.by_instance.get_mut(&instance) {
            child.left = Some(now);
        }
    }

    pub(crate) fn prune(&mut self, now: MonoTime) {
        self.by_instance
            .retain(|_, child| child.presence(now) > 0.0);
    }

    /// The number of children that are connected or left within `span`.
    pub(crate) fn within(&self, now: MonoTime, span: Duration) -> usize {
        let recent =
            |child: &&ChildAggregator| child.left.is_none_or(|left| now.since(left) <= span);
        self.by_instance.values().filter(recent).count()
    }

    /// Returns true if all that are connected are sent rates.
    pub(crate) fn have_shown(&self, now: MonoTime) -> bool {
        let mut connected = self
            .by_instance
            .values()
            .filter(|child| child.left.is_none());
        connected.all(|child| child.is_served(now))
    }

    /// Longest chain of connected aggregators below this one, as far as it fits below `further`
    /// more.
    pub(crate) fn path(&self, further: u32) -> Path {
        let connected = self
            .by_instance
            .iter()
            .filter(|(_, child)| child.left.is_none());
        let fitting = connected.filter(|(_, child)| child.path.fits(further));
        let longest = fitting.max_by_key(|(_, child)| child.path.0.len());
        longest
            .map(|(instance, child)| Path::through(*instance, &child.path))
            .unwrap_or_default()
    }
}
