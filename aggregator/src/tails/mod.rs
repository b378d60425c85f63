//! The tails of all buckets: the names that the policy does not list, their rates, and the demand of each class by the
//! bins of these rates.

mod callers;
mod class;
mod limited;

pub(crate) use limited::limits_of;

use std::time::Duration;

use plimsoll_core::directive::TailCut;
use plimsoll_core::law::tail::{NameMemory, Spread, Standing, Tail};
use plimsoll_core::names::KeyId;
use plimsoll_core::quantity::{DropRatio, MonoTime, Rate};

use class::Class;
use limited::LimitedNames;

/// Requests/s below which a class has no traffic: a smoothed rate never quite reaches zero.
const TRAFFIC_MIN: f64 = 1e-6;

/// All names and classes. Names are numbered like keys, and classes like the lines that they are
/// rolled up in.
#[derive(Debug)]
pub(crate) struct Tails {
    report_interval: Duration,
    names: Vec<NameMemory>,
    classes: Vec<Option<Box<Class>>>,
    pub(crate) limited: LimitedNames,
    /// The time when the busiest names were last found.
    callers_at: Option<MonoTime>,
}

// === Names ===

impl Tails {
    pub(crate) fn new(report_interval: Duration) -> Self {
        Self {
            report_interval,
            names: Vec::new(),
            classes: Vec::new(),
            limited: LimitedNames::default(),
            callers_at: None,
        }
    }

    /// Adds a name that is seen for the first time, or a name that `is_known` and needs no room to
    /// be established.
    pub(crate) fn open(&mut self, now: MonoTime, class: KeyId, id: KeyId, is_known: bool) {
        let class = class_at(&mut self.classes, now, class);
        let is_established = is_known || class.growth.is_young(now);
        if is_established {
            class.growth.on_arrival();
        }
        class.members += 1;
        class.kind(is_established).names += 1;
        if self.names.len() <= id.index() {
            self.names.resize(id.index() + 1, NameMemory::default());
        }
        self.names[id.index()] = NameMemory::new(now, is_established);
    }

    pub(crate) fn close(&mut self, class: KeyId, id: KeyId) {
        self.limited.close(class, id);
        let Some((class, name)) = known(&mut self.classes, &mut self.names, class, id) else {
            return;
        };
        let Standing { established, bin } = name.standing();
        class.members = class.members.saturating_sub(1);
        class.kind(established).remove(bin, 0.0);
        if established {
            class.growth.on_gone();
        }
    }

    /// Returns true while clients may name names of a class that an earlier process held as established.
    pub(crate) fn takes_claims(&mut self, now: MonoTime, class: KeyId) -> bool {
        class_at(&mut self.classes, now, class)
            .growth
            .takes_claims(now)
    }

    /// Establishes a name that a client held as established under an earlier process. The class is not young from then on.
    pub(crate) fn claim(&mut self, class: KeyId, id: KeyId) {
        let Some((class, name)) = known(&mut self.classes, &mut self.names, class, id) else {
            return;
        };
        class.growth.on_claim();
        if !name.standing().established {
            class.growth.on_arrival();
            class.establish(name);
        }
    }

    #[inline]
    pub(crate) fn add(
        &mut self,
        now: MonoTime,
        class: KeyId,
        id: KeyId,
        requests: f64,
        held: Option<Standing>,
    ) {
        let Self {
            report_interval,
            names,
            classes,
            ..
        } = self;
        let Some((class, name)) = known(classes, names, class, id) else {
            return;
        };
        let before = name.standing();
        let standing = name.add(now, requests, *report_interval);
        class.follow(before, standing, name.latest() - requests);
        class.add(standing, requests, held);
    }

    pub(crate) fn add_unnamed(
        &mut self,
        now: MonoTime,
        class: KeyId,
        requests: f64,
        held: Option<Standing>,
    ) {
        class_at(&mut self.classes, now, class).add_unnamed(requests, held);
    }

    /// Looks at a name, once in 10 s. Returns true for an established one.
    pub(crate) fn look(&mut self, now: MonoTime, class: KeyId, id: KeyId) -> bool {
        let Self {
            report_interval,
            names,
            classes,
            ..
        } = self;
        let Some((class, name)) = known(classes, names, class, id) else {
            return false;
        };
        let before = name.standing();
        name.look(now, *report_interval);
        class.follow(before, name.standing(), name.latest());
        if name.is_due() && class.growth.take() {
            class.establish(name);
        }
        name.standing().established
    }

    #[inline]
    pub(crate) fn standing(&self, id: KeyId) -> Standing {
        self.names
            .get(id.index())
            .map(NameMemory::standing)
            .unwrap_or_default()
    }
}

// === Classes ===

impl Tails {
    pub(crate) fn end(&mut self, line: KeyId) {
        if let Some(class) = self.classes.get_mut(line.index()) {
            *class = None;
        }
    }

    pub(crate) fn has_names(&self, line: KeyId) -> bool {
        self.class(line).is_some_and(|class| class.members > 0)
    }

    /// Fades all traffic. Linear in the classes with names.
    pub(crate) fn on_time(&mut self, elapsed: Duration) {
        for class in self.classes.iter_mut().flatten() {
            class.on_time(elapsed);
        }
    }

    fn class(&self, class: KeyId) -> Option<&Class> {
        self.classes.get(class.index())?.as_deref()
    }

    /// The drop ratio of a class, which its names share unequally; `None` before its first request.
    pub(crate) fn ratio(&self, class: KeyId) -> Option<DropRatio> {
        Some(self.class(class)?.ratio)
    }

    pub(crate) fn is_cut(&self, class: KeyId) -> bool {
        self.class(class).is_some_and(|class| class.is_cut)
    }

    pub(crate) fn tail(&self, now: MonoTime, class: KeyId) -> Option<Tail> {
        let class = self.class(class)?;
        Some(class.tail(now, class.is_surging(), self.report_interval))
    }

    pub(crate) fn cut_classes(&self, now: MonoTime) -> impl Iterator<Item = (KeyId, Tail)> {
        let cut = (0..self.classes.len() as u32)
            .map(KeyId)
            .filter(|line| self.is_cut(*line));
        cut.filter_map(move |line| Some((line, self.tail(now, line)?)))
    }

    /// The part of a class's traffic that no tenant limit refuses.
    pub(crate) fn within(&self, now: MonoTime, class: KeyId, tenant_limit: f64) -> f64 {
        let tail = tenant_limit.is_finite().then(|| self.tail(now, class));
        tail.flatten()
            .map_or(1.0, |tail| tail.part_within(tenant_limit))
    }

    /// The sum of the floors of a class's established names, as far as they ask for it.
    pub(crate) fn floors(&self, now: MonoTime, class: KeyId, floor: f64) -> f64 {
        let tail = (floor > 0.0).then(|| self.tail(now, class));
        tail.flatten()
            .map_or(0.0, |tail| tail.established.passes(floor))
    }

    /// Ends the cut of a class whose bucket has no limit to divide any more.
    pub(crate) fn end_cut(&mut self, class: KeyId) {
        if let Some(class) = self.classes.get_mut(class.index()).and_then(Option::as_mut) {
            (class.ratio, class.is_cut) = (DropRatio::NONE, false);
        }
    }

    /// The cut that passes all but `ratio` of a class's demand, and the ratio of names that a
    /// client knows nothing of.
    pub(crate) fn cut(
        &mut self,
        now: MonoTime,
        class: KeyId,
        ratio: DropRatio,
        spread: &Spread,
    ) -> (TailCut, DropRatio) {
        let tenant_limit =
            Rate::computed(spread.tenant_limit).filter(|_| spread.tenant_limit.is_finite());
        let all = |ratio| TailCut {
            ratio,
            tenant_limit,
            ..TailCut::default()
        };
        let Some(class) = self.classes.get_mut(class.index()).and_then(Option::as_mut) else {
            return (all(ratio), ratio);
        };
        let is_surging = class.is_surging();
        let tail = class.tail(now, is_surging, self.report_interval);
        class.ratio = ratio;
        class.is_cut = ratio > DropRatio::NONE || tail.within(spread.tenant_limit) < tail.offered();
        // Before the traffic of a class is known, all of it has one ratio.
        if ratio == DropRatio::NONE || ratio == DropRatio::ALL || tail.offered() < TRAFFIC_MIN {
            let nothing = TailCut {
                tenant_limit,
                ..TailCut::NOTHING_PASSES
            };
            return (
                if ratio == DropRatio::ALL {
                    nothing
                } else {
                    all(ratio)
                },
                ratio,
            );
        }
        let cut = tail.cut(1.0 - ratio.as_f64(), spread);
        let (established, new) = class.parts(now, &tail, cut, is_surging);
        let refused = |passes| {
            let (all, passes) = (Rate::computed(1.0), Rate::computed(passes));
            all.zip(passes)
                .map_or(ratio, |(all, passes)| DropRatio::of_excess(all, passes))
        };
        let (established, new) = (refused(established), refused(new));
        let level = |level: f64| Rate::computed((level * 1e6).round() / 1e6);
        (
            TailCut {
                level: level(cut.level),
                new_level: level(cut.new_level),
                ..all(established)
            },
            new,
        )
    }
}

fn class_at(classes: &mut Vec<Option<Box<Class>>>, now: MonoTime, line: KeyId) -> &mut Class {
    if classes.len() <= line.index() {
        classes.resize_with(line.index() + 1, || None);
    }
    classes[line.index()].get_or_insert_with(|| Box::new(Class::new(now)))
}

fn known<'a>(
    classes: &'a mut [Option<Box<Class>>],
    names: &'a mut [NameMemory],
    class: KeyId,
    id: KeyId,
) -> Option<(&'a mut Class, &'a mut NameMemory)> {
    Some((
        classes.get_mut(class.index())?.as_mut()?,
        names.get_mut(id.index())?,
    ))
}
