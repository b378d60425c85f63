//! Where traffic comes from: the aggregators, how fast requests of each key came through them, and how much of that
//! still counts when one falls silent.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use plimsoll_core::bucket::{KeyId, Name, Zone};
use plimsoll_core::presence::presence;
use plimsoll_core::report::{Entered, InstanceId, Pedigree, Report};
use plimsoll_core::smoothing::smoothed;
use plimsoll_core::time::MonoTime;

/// How long an aggregator that has come back may take to show its traffic.
const LEADS_AFTER: Duration = Duration::from_secs(5);
/// How long after a start children that reported before it are waited for: as long as they may spread their return.
const WAITS_FOR_RETURN: Duration = Duration::from_secs(30);

/// An aggregator's place in the fleet, which outlives its processes.
pub type Place = (Zone, Name);

/// All aggregators that are connected or still count.
#[derive(Debug)]
pub struct Sources {
    sources: BTreeMap<Place, Source>,
    started: MonoTime,
    /// Those that reported to this controller before it restarted and are not back yet.
    awaited: BTreeSet<Place>,
    leading: bool,
}

/// One aggregator.
#[derive(Debug)]
pub struct Source {
    instance: InstanceId,
    /// Requests/s offered, by key; held as they are while the aggregator is silent.
    rates: Vec<f64>,
    /// Clients it had when it last reported counts.
    children: Option<u32>,
    measured: bool,
    since: MonoTime,
    heard: bool,
    silent_for: Duration,
}

impl Sources {
    /// Nobody yet, but `awaited` should come back.
    #[must_use]
    pub fn new(now: MonoTime, awaited: BTreeSet<Place>) -> Self {
        Self { sources: BTreeMap::new(), started: now, awaited, leading: false }
    }

    /// An aggregator greets. A new process takes over what is known of the old one's traffic; returns the instance
    /// it replaces.
    pub fn greet(&mut self, now: MonoTime, place: Place, instance: InstanceId) -> Option<InstanceId> {
        self.awaited.remove(&place);
        let source = self.sources.entry(place).or_insert_with(|| Source {
            instance,
            rates: Vec::new(),
            children: None,
            measured: false,
            since: now,
            heard: true,
            silent_for: Duration::ZERO,
        });
        source.heard = true;
        let before = std::mem::replace(&mut source.instance, instance);
        (before != instance).then_some(before)
    }

    /// A report of an aggregator was entered. Without a span nothing is known of its rates; with one, a key that is
    /// absent was offered nothing.
    pub fn enter(&mut self, place: &Place, report: &Report, entered: &Entered) {
        let Some(source) = self.sources.get_mut(place) else { return };
        source.heard = true;
        // None is no news: whoever restarts has none at first, and must still learn whom to wait for.
        if report.time.is_some() && report.children > 0 {
            source.children = Some(report.children);
        }
        let Some(span) = entered.span.filter(|span| !span.is_zero()) else { return };
        let mut timely: Vec<u64> = vec![0; source.rates.len()];
        for entry in entered.entries.iter().filter(|entry| entry.pedigree == Pedigree::Observed) {
            let Some(own) = entry.own.map(KeyId::index) else { continue };
            if timely.len() <= own {
                timely.resize(own + 1, 0);
            }
            // What came late says how much, not how fast.
            timely[own] += entry.delta.counts.offered.saturating_sub(entry.delta.late.offered);
        }
        source.rates.resize(timely.len(), 0.0);
        for (rate, count) in source.rates.iter_mut().zip(timely) {
            let measured = count as f64 / span.as_secs_f64();
            *rate = smoothed(source.measured.then_some(*rate), measured, span);
        }
        source.measured = true;
    }

    /// An aggregator stops in good order: its share is free at once.
    pub fn leave(&mut self, place: &Place) {
        self.sources.remove(place);
        self.awaited.remove(place);
    }

    /// How many aggregators count.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sources.len()
    }

    /// Whether none does.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    /// Whether this place is known.
    #[must_use]
    pub fn contains(&self, place: &Place) -> bool {
        self.sources.contains_key(place)
    }

    /// Time passes; returns those that nobody need remember any longer: they have been silent for so long that
    /// nothing of them counts, or never came back. While nobody at all is heard it is this controller that is cut
    /// off, and nobody ages.
    pub fn on_tick(&mut self, now: MonoTime, since_last: Duration) -> Vec<Place> {
        if !self.sources.values().any(|source| source.heard) {
            return Vec::new();
        }
        let missed: Vec<Place> = if now.since(self.started) >= WAITS_FOR_RETURN {
            std::mem::take(&mut self.awaited).into_iter().collect()
        } else {
            Vec::new()
        };
        for source in self.sources.values_mut() {
            source.silent_for = if source.heard { Duration::ZERO } else { source.silent_for + since_last };
            source.heard = false;
        }
        let gone: Vec<Place> = self
            .sources
            .iter()
            .filter(|(_, source)| source.presence() == 0.0)
            .map(|(place, _)| place.clone())
            .collect();
        for place in &gone {
            self.sources.remove(place);
        }
        gone.into_iter().chain(missed).collect()
    }

    /// Whether enough is known to send ratios. After a restart, ratios from part of the fleet would admit too much,
    /// and ratios from none of it everything; until this says so, children keep what they hold.
    pub fn leads(&mut self, now: MonoTime) -> bool {
        if self.leading {
            return true;
        }
        let all_back = self.awaited.is_empty();
        let shown_or_late = |source: &Source| source.measured || now.since(source.since) >= LEADS_AFTER;
        let all_measured = self.sources.values().all(shown_or_late);
        let any_measured = self.sources.values().any(|source| source.measured);
        self.leading = all_back && all_measured && any_measured;
        self.leading
    }

    /// Whether ratios are being sent.
    #[must_use]
    pub const fn is_leading(&self) -> bool {
        self.leading
    }

    /// How many clients the aggregator at this place had when it last reported counts.
    #[must_use]
    pub fn children(&self, place: &Place) -> Option<u32> {
        self.sources.get(place)?.children
    }

    /// Every aggregator that counts.
    pub fn iter(&self) -> impl Iterator<Item = (&Place, &Source)> {
        self.sources.iter()
    }
}

impl Source {
    /// The share of its last known traffic with which it counts.
    #[must_use]
    pub fn presence(&self) -> f64 {
        presence(self.silent_for)
    }

    /// How long it has been silent while others were heard.
    #[must_use]
    pub const fn silent_for(&self) -> Duration {
        self.silent_for
    }

    /// Requests/s offered through it, by key.
    #[must_use]
    pub fn rates(&self) -> &[f64] {
        &self.rates
    }
}
