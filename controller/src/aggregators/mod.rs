//! Where traffic comes from: the aggregators, how fast requests of each key came through them, and how much of that
//! still counts when one falls silent.

pub mod liveness;
pub mod takeover;

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use plimsoll_core::names::{Bucket, KeyId, Name, Zone};
use plimsoll_core::law::{Parameters, smoothed};
use plimsoll_core::law::presence::presence;
use plimsoll_core::quantity::Rate;
use plimsoll_core::report::{Entered, InstanceId, Origin, Report};
use plimsoll_core::quantity::MonoTime;

/// An aggregator's place in the fleet, which outlives its processes.
pub type Place = (Zone, Name);

/// All aggregators that are connected or still count.
#[derive(Debug, Default)]
pub struct Sources {
    sources: BTreeMap<Place, Source>,
}

/// One aggregator.
#[derive(Debug)]
pub struct Source {
    instance: InstanceId,
    /// Requests/s offered, by key; held as they are while the aggregator is silent.
    rates: Vec<f64>,
    /// What came since the last tick.
    fresh: Fresh,
    /// Clients it had when it last reported counts.
    children: Option<u32>,
    /// The parts of limits it brought with its last greeting.
    holds: BTreeMap<Bucket, Rate>,
    /// Those it brought with its first one to this controller.
    lived_on: BTreeMap<Bucket, Rate>,
    /// When this process of it greeted.
    since: MonoTime,
    /// Roll-ups that gave a rate, in this controller's reign.
    rollups: u32,
    /// It is sent rates; before that it lives on a hold.
    served: bool,
    heard: bool,
    silent_for: Duration,
    beat: Beat,
}

/// Counts that the law has not seen yet, by key.
#[derive(Debug, Default)]
struct Fresh {
    span: Duration,
    /// The longest time between two reports in it.
    gap: Duration,
    offered: Vec<f64>,
    passed: Vec<f64>,
}

/// What one tick learned of an aggregator.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Beat {
    /// Nothing that moves a balance: it was heard without counts, or is not silent for long enough.
    #[default]
    Idle,
    /// Counts that cover some time.
    Counted {
        /// How long in all.
        span: Duration,
        /// The longest that one report covers: several that were held up on their way are no silence.
        gap: Duration,
    },
    /// It is silent, and this much more time has to be accounted for by what it was sent last.
    Silent(Duration),
}

impl Sources {
    /// An aggregator greets. A new process takes over what is known of the old one's traffic; returns the instance
    /// it replaces.
    pub fn greet(
        &mut self,
        now: MonoTime,
        place: Place,
        instance: InstanceId,
        holds: BTreeMap<Bucket, Rate>,
    ) -> Option<InstanceId> {
        let source = self.sources.entry(place).or_insert_with(|| Source {
            instance,
            rates: Vec::new(),
            fresh: Fresh::default(),
            children: None,
            holds: BTreeMap::new(),
            lived_on: holds.clone(),
            since: now,
            rollups: 0,
            served: false,
            heard: true,
            silent_for: Duration::ZERO,
            beat: Beat::Idle,
        });
        source.heard = true;
        source.since = now;
        source.holds = holds;
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
        source.rollups = source.rollups.saturating_add(1);
        source.fresh.span += span;
        source.fresh.gap = source.fresh.gap.max(span);
        for entry in entered.entries.iter().filter(|entry| entry.pedigree == Origin::Observed) {
            let Some(own) = entry.own.map(KeyId::index) else { continue };
            if source.fresh.offered.len() <= own {
                source.fresh.offered.resize(own + 1, 0.0);
                source.fresh.passed.resize(own + 1, 0.0);
            }
            // What came late says how much, not how fast.
            let (counts, late) = (entry.delta.counts, entry.delta.late);
            source.fresh.offered[own] += counts.offered.saturating_sub(late.offered) as f64;
            source.fresh.passed[own] += counts.passed().saturating_sub(late.passed()) as f64;
        }
    }

    /// An aggregator stops in good order: its share is free at once.
    pub fn leave(&mut self, place: &Place) {
        self.sources.remove(place);
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

    /// The aggregator at a place.
    #[must_use]
    pub fn get(&self, place: &Place) -> Option<&Source> {
        self.sources.get(place)
    }

    /// Time passes: works out what each aggregator's reports say, and whose silence has to be accounted for. While
    /// nobody at all is heard it is this controller that is cut off, and nobody ages.
    pub fn on_tick(&mut self, since_last: Duration, parameters: &Parameters) {
        let anybody = self.sources.values().any(|source| source.heard);
        for source in self.sources.values_mut() {
            source.on_tick(since_last, anybody, parameters);
        }
    }

    /// Removes those of which nothing counts any more; returns who. `keep` says that their share is never released.
    pub fn forget(&mut self, keep: bool) -> Vec<Place> {
        let gone = self.sources.iter().filter(|(_, source)| source.presence() == 0.0 && !keep);
        let gone: Vec<Place> = gone.map(|(place, _)| place.clone()).collect();
        for place in &gone {
            self.sources.remove(place);
        }
        gone
    }

    /// Whether an aggregator that is silent still counts with traffic of this key.
    #[must_use]
    pub fn counts_on(&self, key: KeyId, parameters: &Parameters) -> bool {
        self.sources.values().any(|source| source.is_silent(parameters) && source.rate(key) > 0.0)
    }

    /// These keys are gone, and their ids will be others'.
    pub fn forget_keys(&mut self, keys: &HashSet<KeyId>) {
        for source in self.sources.values_mut() {
            for figures in [&mut source.rates, &mut source.fresh.offered, &mut source.fresh.passed] {
                for key in keys {
                    figures.get_mut(key.index()).into_iter().for_each(|figure| *figure = 0.0);
                }
            }
        }
    }

    /// The law has seen what came.
    pub fn clear_fresh(&mut self) {
        for source in self.sources.values_mut().filter(|source| !source.fresh.span.is_zero()) {
            source.fresh.span = Duration::ZERO;
            source.fresh.gap = Duration::ZERO;
            source.fresh.offered.fill(0.0);
            source.fresh.passed.fill(0.0);
        }
    }

    /// Begins to send rates to whom `ready` says.
    pub fn serve(&mut self, ready: impl Fn(&Source) -> bool) {
        for source in self.sources.values_mut() {
            source.served |= ready(source);
        }
    }

    /// How many clients the aggregator at this place had when it last reported counts.
    #[must_use]
    pub fn children(&self, place: &Place) -> Option<u32> {
        self.sources.get(place)?.children
    }

    /// Every aggregator that counts.
    pub fn iter(&self) -> impl Iterator<Item = (&Place, &Source)> + Clone {
        self.sources.iter()
    }
}

impl Source {
    fn on_tick(&mut self, since_last: Duration, anybody: bool, parameters: &Parameters) {
        self.beat = Beat::Idle;
        let was_silent_for = self.silent_for;
        if self.heard {
            self.silent_for = Duration::ZERO;
        } else if anybody {
            self.silent_for += since_last;
        }
        let after = parameters.silent_after();
        if !self.fresh.span.is_zero() {
            self.beat = Beat::Counted { span: self.fresh.span, gap: self.fresh.gap };
            self.smooth(parameters);
        } else if !self.heard && anybody && self.silent_for >= after {
            // Accounted for once, from when it was last heard.
            let from = if was_silent_for < after { self.silent_for } else { since_last };
            self.beat = Beat::Silent(from);
        }
        self.heard = false;
    }

    fn smooth(&mut self, parameters: &Parameters) {
        let (span, gap) = (self.fresh.span, self.fresh.gap);
        let known = self.rates.len();
        self.rates.resize(known.max(self.fresh.offered.len()), 0.0);
        let counts = self.fresh.offered.iter().copied().chain(std::iter::repeat(0.0));
        for (rate, count) in self.rates.iter_mut().zip(counts) {
            // After a silence nothing that is held means anything.
            *rate = if gap >= parameters.silent_after() {
                count / span.as_secs_f64()
            } else {
                smoothed(*rate, count, span, parameters)
            };
        }
    }

    /// What the last tick learned.
    #[must_use]
    pub const fn beat(&self) -> Beat {
        self.beat
    }

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

    /// Whether it is taken as silent.
    #[must_use]
    pub fn is_silent(&self, parameters: &Parameters) -> bool {
        self.silent_for >= parameters.silent_after()
    }

    /// Whether it is sent rates.
    #[must_use]
    pub const fn is_served(&self) -> bool {
        self.served
    }

    /// When this process of it greeted.
    #[must_use]
    pub const fn since(&self) -> MonoTime {
        self.since
    }

    /// The parts of limits it brought with its last greeting.
    #[must_use]
    pub const fn holds(&self) -> &BTreeMap<Bucket, Rate> {
        &self.holds
    }

    /// The parts of limits it was living on when this controller's reign began: what it brings later, this controller
    /// gave it.
    #[must_use]
    pub const fn lived_on(&self) -> &BTreeMap<Bucket, Rate> {
        &self.lived_on
    }

    /// Roll-ups that gave a rate, in this controller's reign.
    #[must_use]
    pub const fn rollups(&self) -> u32 {
        self.rollups
    }

    /// Requests/s of a key offered through it.
    #[must_use]
    pub fn rate(&self, key: KeyId) -> f64 {
        self.rates.get(key.index()).copied().unwrap_or_default()
    }

    /// Requests of a key that were offered since the last tick.
    #[must_use]
    pub fn offered(&self, key: KeyId) -> f64 {
        self.fresh.offered.get(key.index()).copied().unwrap_or_default()
    }

    /// Requests of a key that passed since the last tick.
    #[must_use]
    pub fn passed(&self, key: KeyId) -> f64 {
        self.fresh.passed.get(key.index()).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
