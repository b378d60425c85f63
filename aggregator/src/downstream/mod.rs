//! The aggregators below this one: who they are, what is offered through each, and what each is told. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use plimsoll_core::names::{Bucket, Name, Zone};
use plimsoll_core::directive::Board;
use plimsoll_core::law::Parameters;
use plimsoll_core::law::presence::presence;
use plimsoll_core::exchange::Path;
use plimsoll_core::report::{Identity, InstanceId, Report};
use plimsoll_core::quantity::MonoTime;

/// The place of an aggregator, which outlives its processes.
type Place = (Zone, Name);

/// All aggregators below that are connected or still count.
#[derive(Debug, Default)]
pub(crate) struct Below {
    branches: BTreeMap<InstanceId, Branch>,
    /// Counts what changed on any of their boards.
    changes: u64,
}

/// One of them.
#[derive(Debug)]
pub(crate) struct Branch {
    place: Place,
    /// Who stands below it.
    path: Path,
    /// How many children it had when it last reported counts, in whatever process.
    pub(crate) children: Option<u32>,
    /// The buckets of which it brought a hold.
    brought: BTreeSet<Bucket>,
    /// When this process of it greeted.
    since: MonoTime,
    /// When its stream ended; `None` while it has one.
    left: Option<MonoTime>,
    pub(crate) traffic: Traffic,
    /// What it is told.
    pub(crate) board: Board,
}

/// What is offered through one aggregator, by the lanes of the fast loop.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    /// Requests/s, smoothed as clients smooth theirs, and held as they are between two reports.
    rates: Vec<f64>,
    /// What the report that is being entered brings.
    fresh: Vec<f64>,
    /// It has shown a rate.
    shown: bool,
    /// Its part of what may pass here.
    pub(crate) parts: Parts,
}

/// Parts of what may pass, by lane.
#[derive(Debug)]
pub(crate) struct Parts {
    by_lane: Vec<f64>,
    /// That of a lane which is not among them.
    otherwise: f64,
}

impl Parts {
    /// The same part of every lane.
    pub(crate) const fn all(part: f64) -> Self {
        Self { by_lane: Vec::new(), otherwise: part }
    }

    /// These, and where there are none all the same.
    pub(crate) fn fill(&mut self, parts: impl Iterator<Item = f64>, otherwise: f64) {
        self.by_lane.clear();
        self.by_lane.extend(parts);
        self.otherwise = otherwise;
    }

    pub(crate) fn of(&self, lane: u32) -> f64 {
        self.by_lane.get(lane as usize).copied().unwrap_or(self.otherwise)
    }

    /// The part of what nothing is known of.
    pub(crate) const fn otherwise(&self) -> f64 {
        self.otherwise
    }
}

impl Default for Parts {
    fn default() -> Self {
        Self::all(0.0)
    }
}

impl Traffic {
    /// Requests of a lane came.
    #[inline]
    pub(crate) fn add(&mut self, lane: usize, offered: f64) {
        if self.fresh.len() <= lane {
            self.fresh.resize(lane + 1, 0.0);
        }
        if let Some(fresh) = self.fresh.get_mut(lane) {
            *fresh += offered;
        }
    }

    /// All of a report was added, which took `span` to gather; `None` if that says nothing about the present rate.
    pub(crate) fn settle(&mut self, span: Option<Duration>, parameters: &Parameters) {
        let Some(span) = span.map(|span| span.as_secs_f64()).filter(|span| *span > 0.0) else {
            self.fresh.fill(0.0);
            return;
        };
        let first = !std::mem::replace(&mut self.shown, true);
        let kept = if first { 0.0 } else { (-span / parameters.share_time.as_secs_f64()).exp() };
        self.rates.resize(self.fresh.len(), 0.0);
        for (rate, fresh) in self.rates.iter_mut().zip(&mut self.fresh) {
            *rate = kept * *rate + (1.0 - kept) * std::mem::take(fresh) / span;
        }
    }

    /// Requests/s offered.
    pub(crate) fn rate(&self, lane: usize) -> f64 {
        self.rates.get(lane).copied().unwrap_or_default()
    }
}

impl Branch {
    /// How much it counts: nobody can tell one that died from one that is cut off, so what it lives on is held for it, and
    /// released, as a controller does.
    pub(crate) fn presence(&self, now: MonoTime) -> f64 {
        self.left.map_or(1.0, |left| presence(now.since(left)))
    }

    /// Whether it is sent rates. Before it has shown its traffic it lives on the hold that it came with, or on an even part.
    pub(crate) fn is_served(&self, now: MonoTime, parameters: &Parameters) -> bool {
        self.traffic.shown || now.since(self.since) >= parameters.start_wait
    }

    /// Whether it came with a hold of this bucket.
    pub(crate) fn brought(&self, bucket: &Bucket) -> bool {
        self.brought.contains(bucket)
    }

    /// A report came.
    pub(crate) fn on_report(&mut self, report: &Report) {
        if self.path != report.path {
            self.path = report.path.clone();
        }
        // None is no news: whoever restarts has none at first, and must still learn whom to wait for.
        if report.time.is_some() && report.children > 0 {
            self.children = Some(report.children);
        }
    }
}

impl Below {
    /// An aggregator greets. A new process in its place takes over what is known of the old one's traffic; returns the
    /// instance that it replaces.
    pub(crate) fn greet(
        &mut self,
        now: MonoTime,
        identity: &Identity,
        report: &Report,
    ) -> Option<InstanceId> {
        let place = (identity.zone.clone(), identity.name.clone());
        let replaced = self
            .branches
            .iter()
            .find(|(instance, branch)| **instance != identity.instance && branch.place == place)
            .map(|(instance, _)| *instance);
        let before = replaced.and_then(|instance| self.branches.remove(&instance));
        let branch = self.branches.entry(identity.instance).or_insert_with(|| {
            let (children, traffic) =
                before.map(|branch| (branch.children, branch.traffic)).unwrap_or_default();
            Branch {
                place,
                path: Path::default(),
                children,
                brought: BTreeSet::new(),
                since: now,
                left: None,
                traffic,
                board: Board::default(),
            }
        });
        (branch.since, branch.left) = (now, None);
        branch.brought = report.holds.keys().cloned().collect();
        replaced
    }

    /// Its stream has ended.
    pub(crate) fn close(&mut self, now: MonoTime, instance: InstanceId) {
        if let Some(branch) = self.branches.get_mut(&instance) {
            branch.left = Some(now);
        }
    }

    /// It stops in good order: its part is free at once.
    pub(crate) fn remove(&mut self, instance: InstanceId) {
        self.branches.remove(&instance);
    }

    /// Forgets those of which nothing counts any more.
    pub(crate) fn prune(&mut self, now: MonoTime) {
        self.branches.retain(|_, branch| branch.presence(now) > 0.0);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.branches.is_empty()
    }

    pub(crate) fn get_mut(&mut self, instance: InstanceId) -> Option<&mut Branch> {
        self.branches.get_mut(&instance)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (InstanceId, &Branch)> + Clone {
        self.branches.iter().map(|(instance, branch)| (*instance, branch))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Branch> {
        self.branches.values_mut()
    }

    /// How many are connected, or were no longer than `span` ago.
    pub(crate) fn within(&self, now: MonoTime, span: Duration) -> usize {
        let lately = |branch: &&Branch| branch.left.is_none_or(|left| now.since(left) <= span);
        self.branches.values().filter(lately).count()
    }

    /// Whether all that are connected have shown their traffic, or have had the time to.
    pub(crate) fn have_shown(&self, now: MonoTime, parameters: &Parameters) -> bool {
        let mut here = self.branches.values().filter(|branch| branch.left.is_none());
        here.all(|branch| branch.is_served(now, parameters))
    }

    /// The longest chain of those that are connected.
    pub(crate) fn path(&self) -> Path {
        let here = self.branches.iter().filter(|(_, branch)| branch.left.is_none());
        let longest = here.max_by_key(|(_, branch)| branch.path.len());
        longest.map(|(instance, branch)| Path::through(*instance, &branch.path)).unwrap_or_default()
    }

    /// Something changed on a board.
    pub(crate) fn on_change(&mut self) {
        self.changes += 1;
    }

    /// Counts what changed on any board.
    pub(crate) const fn changes(&self) -> u64 {
        self.changes
    }
}
