//! The tails of all buckets: the names that the policy does not list, their rates, and the demand of each class by the
//! bins of these rates.

use std::time::Duration;

use plimsoll_core::directive::TailCut;
use plimsoll_core::law::Parameters;
use plimsoll_core::law::tail::{Bin, Demand, Growth, NameMemory, Spread, Standing, Tail};
use plimsoll_core::names::KeyId;
use plimsoll_core::quantity::{DropRatio, MonoTime, Rate};

/// Requests/s below which a class has no traffic: a smoothed rate never quite reaches zero.
const TRAFFIC_MIN: f64 = 1e-6;

/// All names and classes. Names are numbered like keys, and classes like the lines in which they are rolled up.
#[derive(Debug)]
pub(crate) struct Tails {
    parameters: Parameters,
    names: Vec<NameMemory>,
    classes: Vec<Option<Box<Class>>>,
}

/// The names of one class.
#[derive(Debug)]
struct Class {
    growth: Growth,
    established: Kind,
    new: Kind,
    /// The ratio of the class in the latest directive.
    ratio: DropRatio,
    /// True if that directive cut names.
    is_cut: bool,
    /// The time in which the latest requests of both kinds arrived.
    span: Duration,
}

/// Established names, or new ones. Rates in requests/s.
#[derive(Debug, Default)]
struct Kind {
    /// The requests in the fast memories of names.
    traffic: Traffic,
    /// The requests of the latest period of the fast loop, and of the one before.
    fresh: Traffic,
    latest: Traffic,
    /// The traffic of uncounted names in the memory of names.
    remembered: f64,
    /// The uncounted names.
    names: u32,
}

/// Requests, or requests/s, of names.
#[derive(Debug, Default)]
struct Traffic {
    /// Those of counted names by bin; empty without any.
    bins: Vec<f64>,
    uncounted: f64,
}

// === Names ===

impl Tails {
    pub(crate) const fn new(parameters: Parameters) -> Self {
        Self { parameters, names: Vec::new(), classes: Vec::new() }
    }

    /// Adds a name that is seen for the first time, or one that `is_known` and needs no room to be established.
    pub(crate) fn open(&mut self, now: MonoTime, class: KeyId, id: KeyId, is_known: bool) {
        let class = class_at(&mut self.classes, now, class);
        let is_established = is_known || class.growth.is_young(now, &self.parameters);
        if is_established {
            class.growth.on_arrival();
        }
        class.kind(is_established).names += 1;
        if self.names.len() <= id.index() {
            self.names.resize(id.index() + 1, NameMemory::default());
        }
        self.names[id.index()] = NameMemory::new(now, is_established);
    }

    /// Removes a name, whose id will be reused.
    pub(crate) fn close(&mut self, class: KeyId, id: KeyId) {
        let Some((class, name)) = known(&mut self.classes, &mut self.names, class, id) else { return };
        let Standing { established, bin } = name.standing();
        class.kind(established).put(bin, -1, 0.0);
        if established {
            class.growth.on_gone();
        }
    }

    /// Returns true while clients may name names of a class that an earlier process held as established.
    pub(crate) fn takes_claims(&mut self, now: MonoTime, class: KeyId) -> bool {
        class_at(&mut self.classes, now, class).growth.takes_claims(now, &self.parameters)
    }

    /// Establishes a name that a client held as established.
    pub(crate) fn claim(&mut self, class: KeyId, id: KeyId) {
        let Some((class, name)) = known(&mut self.classes, &mut self.names, class, id) else { return };
        class.growth.on_claim();
        if !name.standing().established {
            class.growth.on_arrival();
            class.establish(name);
        }
    }

    /// Adds requests of a name.
    #[inline]
    pub(crate) fn add(&mut self, now: MonoTime, class: KeyId, id: KeyId, requests: f64) {
        let Self { parameters, names, classes } = self;
        let Some((class, name)) = known(classes, names, class, id) else { return };
        let before = name.standing();
        class.kind(before.established).add(before.bin, requests, parameters);
        name.add(now, requests, parameters);
        class.follow(before, name);
    }

    /// Adds requests without a name.
    pub(crate) fn add_unnamed(&mut self, now: MonoTime, class: KeyId, requests: f64) {
        class_at(&mut self.classes, now, class).new.add(None, requests, &self.parameters);
    }

    /// Looks at a name, once in [`Parameters::tenant_sample`]. Returns true for an established one.
    pub(crate) fn look(&mut self, now: MonoTime, class: KeyId, id: KeyId) -> bool {
        let Self { parameters, names, classes } = self;
        let Some((class, name)) = known(classes, names, class, id) else { return false };
        let before = name.standing();
        name.look(now, parameters);
        class.follow(before, name);
        if name.is_due(parameters) && class.growth.take() {
            class.establish(name);
        }
        name.standing().established
    }

    /// The standing of a name.
    #[inline]
    pub(crate) fn standing(&self, id: KeyId) -> Standing {
        self.names.get(id.index()).map(NameMemory::standing).unwrap_or_default()
    }
}

// === Classes ===

impl Tails {
    /// Removes the class of a line that ended.
    pub(crate) fn end(&mut self, line: KeyId) {
        if let Some(class) = self.classes.get_mut(line.index()) {
            *class = None;
        }
    }

    /// Fades all traffic. Linear in the classes with names.
    pub(crate) fn on_time(&mut self, elapsed: Duration) {
        let parameters = &self.parameters;
        let kept = |memory: Duration| (-elapsed.as_secs_f64() / memory.as_secs_f64()).exp();
        let (kept, remembered) = (kept(parameters.name_memory_fast), kept(parameters.name_memory));
        for class in self.classes.iter_mut().flatten() {
            class.growth.on_time(elapsed, parameters);
            class.span = elapsed;
            for kind in [&mut class.established, &mut class.new] {
                kind.traffic.scale(kept);
                kind.remembered *= remembered;
                std::mem::swap(&mut kind.latest, &mut kind.fresh);
                kind.fresh.scale(0.0);
            }
        }
    }

    fn class(&self, class: KeyId) -> Option<&Class> {
        self.classes.get(class.index())?.as_deref()
    }

    /// The drop ratio of a class, which its names share unequally; `None` before its first request.
    pub(crate) fn ratio(&self, class: KeyId) -> Option<DropRatio> {
        Some(self.class(class)?.ratio)
    }

    /// Returns true while clients need to know the bins of the class's names.
    pub(crate) fn is_cut(&self, class: KeyId) -> bool {
        self.class(class).is_some_and(|class| class.is_cut)
    }

    /// The demand of a class; `None` before its first request.
    pub(crate) fn tail(&self, now: MonoTime, class: KeyId) -> Option<Tail> {
        let class = self.class(class)?;
        // The memory is as long as the class is old.
        let memory = self.parameters.name_memory.as_secs_f64();
        let age = (class.growth.age(now) + self.parameters.report_interval).as_secs_f64();
        let filled = 1.0 - (-age / memory).exp();
        let Class { growth, established, new, .. } = class;
        // Requests without a name count as names of one request each.
        let unnamed = (new.remembered / filled - f64::from(new.names) / memory).max(0.0) * memory;
        let mean = |kind: &Kind, names: f64| {
            let mean = kind.remembered / filled / (names + f64::from(kind.names));
            if mean.is_finite() { mean } else { 0.0 }
        };
        let is_surging = class.is_surging(&self.parameters);
        let demand = |kind: &Kind, mean| match is_surging {
            true => kind.latest.demand(mean, class.span.as_secs_f64()),
            false => kind.traffic.demand(mean, self.parameters.name_memory_fast.as_secs_f64()),
        };
        Some(Tail {
            established: demand(established, mean(established, 0.0)),
            new: demand(new, mean(new, unnamed)),
            names: growth.names(),
        })
    }

    /// The demands of the classes that cut names, by line.
    pub(crate) fn cut_classes(&self, now: MonoTime) -> impl Iterator<Item = (KeyId, Tail)> {
        let cut = (0..self.classes.len() as u32).map(KeyId).filter(|line| self.is_cut(*line));
        cut.filter_map(move |line| Some((line, self.tail(now, line)?)))
    }

    /// The part of a class's traffic that no tenant limit refuses.
    pub(crate) fn within(&self, now: MonoTime, class: KeyId, tenant_limit: f64) -> f64 {
        let tail = if tenant_limit.is_finite() { self.tail(now, class) } else { None };
        let part = tail.map_or(1.0, |tail| tail.within(tenant_limit) / tail.offered());
        if part.is_finite() { part } else { 1.0 }
    }

    /// The sum of the floors of a class's established names, as far as they ask for it.
    pub(crate) fn floors(&self, now: MonoTime, class: KeyId, floor: f64) -> f64 {
        let tail = if floor > 0.0 { self.tail(now, class) } else { None };
        tail.map_or(0.0, |tail| tail.established.passes(floor))
    }

    /// The cut at which a class passes all but `ratio` of its demand, and the ratio of names that a client knows nothing
    /// of.
    pub(crate) fn cut(
        &mut self,
        now: MonoTime,
        class: KeyId,
        ratio: DropRatio,
        spread: &Spread,
    ) -> (TailCut, DropRatio) {
        let tenant_limit = Rate::computed(spread.tenant_limit).filter(|_| spread.tenant_limit.is_finite());
        let all = |ratio| TailCut { ratio, tenant_limit, ..TailCut::default() };
        let Some(tail) = self.tail(now, class) else { return (all(ratio), ratio) };
        let Some(class) = self.classes.get_mut(class.index()).and_then(Option::as_mut) else {
            return (all(ratio), ratio);
        };
        class.ratio = ratio;
        class.is_cut = ratio > DropRatio::NONE || tail.within(spread.tenant_limit) < tail.offered();
        // Before the traffic of a class is known, all of it has one ratio.
        if ratio == DropRatio::NONE || ratio == DropRatio::ALL || tail.offered() < TRAFFIC_MIN {
            let nothing = TailCut { tenant_limit, ..TailCut::NOTHING_PASSES };
            return (if ratio == DropRatio::ALL { nothing } else { all(ratio) }, ratio);
        }
        let cut = tail.cut(1.0 - ratio.as_f64(), spread);
        let established = tail.established.uncounted_part(cut.level);
        let mut new = tail.new.uncounted_part(cut.new_level);
        // In a young class a name of which a client knows nothing is an established one, but clients cannot tell it from a
        // request without a name: both have the mean ratio.
        let (names, others) = (tail.established.uncounted, tail.new.uncounted);
        if class.growth.is_young(now, &self.parameters) && names + others > 0.0 {
            new = (names * established + others * new) / (names + others);
        }
        let refused = |passes| {
            let (all, passes) = (Rate::computed(1.0), Rate::computed(passes));
            all.zip(passes).map_or(ratio, |(all, passes)| DropRatio::of_excess(all, passes))
        };
        let (established, new) = (refused(established), refused(new));
        let level = |level: f64| Rate::computed((level * 1e6).round() / 1e6);
        (TailCut { level: level(cut.level), new_level: level(cut.new_level), ..all(established) }, new)
    }
}

fn class_at(classes: &mut Vec<Option<Box<Class>>>, now: MonoTime, line: KeyId) -> &mut Class {
    if classes.len() <= line.index() {
        classes.resize_with(line.index() + 1, || None);
    }
    classes[line.index()].get_or_insert_with(|| {
        let (established, new) = Default::default();
        let span = Duration::ZERO;
        Box::new(Class {
            growth: Growth::new(now),
            established,
            new,
            ratio: DropRatio::NONE,
            is_cut: false,
            span,
        })
    })
}

/// A name and its class, both of which are known.
fn known<'a>(
    classes: &'a mut [Option<Box<Class>>],
    names: &'a mut [NameMemory],
    class: KeyId,
    id: KeyId,
) -> Option<(&'a mut Class, &'a mut NameMemory)> {
    Some((classes.get_mut(class.index())?.as_mut()?, names.get_mut(id.index())?))
}

impl Class {
    /// Returns true if the requests of the latest period exceed those of the last second by more than chance: they alone
    /// tell then which names the surge is of.
    fn is_surging(&self, parameters: &Parameters) -> bool {
        let both = |of: fn(&Kind) -> &Traffic| of(&self.established).total() + of(&self.new).total();
        let latest = both(|kind| &kind.latest);
        let part = self.span.as_secs_f64() / parameters.name_memory_fast.as_secs_f64();
        let expected = both(|kind| &kind.traffic) * part;
        latest >= parameters.counts_min && latest > expected + parameters.surge_deviations * expected.sqrt()
    }

    fn kind(&mut self, established: bool) -> &mut Kind {
        if established { &mut self.established } else { &mut self.new }
    }

    fn establish(&mut self, name: &mut NameMemory) {
        let before = name.standing();
        name.establish();
        self.follow(before, name);
    }

    /// Moves a name with its traffic to its present standing.
    #[inline]
    fn follow(&mut self, before: Standing, name: &NameMemory) {
        let after = name.standing();
        if before == after {
            return;
        }
        self.kind(before.established).put(before.bin, -1, -name.latest());
        self.kind(after.established).put(after.bin, 1, name.latest());
    }
}

impl Kind {
    #[inline]
    fn add(&mut self, bin: Option<Bin>, requests: f64, parameters: &Parameters) {
        *self.traffic.of(bin) += requests;
        *self.fresh.of(bin) += requests;
        if bin.is_none() {
            self.remembered += requests / parameters.name_memory.as_secs_f64();
        }
    }

    /// Puts names with their traffic under a bin, or takes them away.
    fn put(&mut self, bin: Option<Bin>, names: i32, traffic: f64) {
        let held = self.traffic.of(bin);
        *held = (*held + traffic).max(0.0);
        if bin.is_none() {
            self.names = self.names.saturating_add_signed(names);
        }
    }
}

impl Traffic {
    #[inline]
    fn of(&mut self, bin: Option<Bin>) -> &mut f64 {
        let Some(bin) = bin else { return &mut self.uncounted };
        if self.bins.is_empty() {
            self.bins.resize(Bin::COUNT, 0.0);
        }
        &mut self.bins[bin.index()]
    }

    fn scale(&mut self, by: f64) {
        self.bins.iter_mut().for_each(|traffic| *traffic *= by);
        self.uncounted *= by;
    }

    fn total(&self) -> f64 {
        self.bins.iter().sum::<f64>() + self.uncounted
    }

    /// The demand of requests that arrived in a time, of names with a mean rate.
    fn demand(&self, mean: f64, seconds: f64) -> Demand {
        let bins = self.bins.iter().map(|traffic| traffic / seconds).collect();
        Demand { bins, uncounted: self.uncounted / seconds, mean }
    }
}
