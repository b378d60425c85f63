//! The traffic of one class of unlisted names: of established and new names by the bins of their rates, and by what
//! clients knew of a name when they decided its requests.

use std::time::Duration;

use plimsoll_core::law::parameters;
use plimsoll_core::law::tail::{Bin, Cut, Demand, Growth, NameMemory, Standing, Tail};
use plimsoll_core::quantity::{DropRatio, MonoTime};

use super::TRAFFIC_MIN;

/// The distance in bins that chance moves a name with few counts.
const BINS_NEAR: usize = 3;

#[derive(Debug)]
pub(super) struct Class {
    pub(super) growth: Growth,
    /// The number of its names.
    pub(super) members: u32,
    established: Kind,
    new: Kind,
    /// The traffic that clients decided by the ratio of established names, and by that of unknown names.
    as_established: Mix,
    as_unknown: Mix,
    /// The drop ratio of the whole class, and true if some of its requests are refused, at the latest directives.
    pub(super) ratio: DropRatio,
    pub(super) is_cut: bool,
    /// The span of the latest period of the fast loop.
    span: Duration,
}

/// Established names, or new ones. Rates in requests/s.
#[derive(Debug, Default)]
pub(super) struct Kind {
    recent: Recent,
    /// The traffic of uncounted names, which have no bin, in the memory of names.
    remembered: f64,
    /// The number of uncounted names.
    pub(super) names: u32,
}

/// The requests that clients decided by one ratio, in the fast memory, by the present standing of
/// their names. A client receives a standing only after it has reported a request of the name, and
/// other clients may not know it yet.
#[derive(Debug, Default)]
struct Mix {
    established: Recent,
    new: Recent,
}

#[derive(Debug, Default)]
struct Recent {
    traffic: Traffic,
    /// Traffic of the present period of the fast loop.
    fresh: Traffic,
    /// Traffic of the latest period that has ended.
    latest: Traffic,
}

/// Requests, or requests/s, of names.
#[derive(Debug, Default)]
struct Traffic {
    /// Traffic of counted names by bin; empty without any.
    bins: Vec<f64>,
    uncounted: f64,
}

impl Class {
    pub(super) fn new(now: MonoTime) -> Self {
        Self {
            growth: Growth::new(now),
            members: 0,
            established: Kind::default(),
            new: Kind::default(),
            as_established: Mix::default(),
            as_unknown: Mix::default(),
            ratio: DropRatio::NONE,
            is_cut: false,
            span: Duration::ZERO,
        }
    }

    pub(super) fn on_time(&mut self, elapsed: Duration) {
        let kept = |memory: Duration| (-elapsed.as_secs_f64() / memory.as_secs_f64()).exp();
        let (kept, remembered) = (
            kept(parameters::NAME_MEMORY_FAST),
            kept(parameters::NAME_MEMORY),
        );
        self.growth.on_time(elapsed);
        self.span = elapsed;
        for kind in [&mut self.established, &mut self.new] {
            kind.recent.fade(kept);
            kind.remembered *= remembered;
        }
        for mix in [&mut self.as_established, &mut self.as_unknown] {
            mix.established.fade(kept);
            mix.new.fade(kept);
        }
    }

    pub(super) fn tail(&self, now: MonoTime, is_surging: bool, report_interval: Duration) -> Tail {
        // The memory is as long as the class is old.
        let memory = parameters::NAME_MEMORY.as_secs_f64();
        let age = (self.growth.age(now) + report_interval).as_secs_f64();
        let filled = 1.0 - (-age / memory).exp();
        let Self {
            growth,
            established,
            new,
            ..
        } = self;
        // Requests without a name count as names of one request each.
        let unnamed = (new.remembered / filled - f64::from(new.names) / memory).max(0.0) * memory;
        let mean = |kind: &Kind, names: f64| {
            let mean = kind.remembered / filled / (names + f64::from(kind.names));
            if mean.is_finite() { mean } else { 0.0 }
        };
        let seconds = if is_surging {
            self.span
        } else {
            parameters::NAME_MEMORY_FAST
        }
        .as_secs_f64();
        let demand = |kind: &Kind, mean| kind.recent.of(is_surging).demand(mean, seconds);
        Tail {
            established: demand(established, mean(established, 0.0)),
            new: demand(new, mean(new, unnamed)),
            names: growth.names(),
        }
    }

    /// Returns true if the requests of the latest period exceed those of the last second by more
    /// than chance: then only they show which names surge.
    pub(super) fn is_surging(&self) -> bool {
        let both =
            |of: fn(&Kind) -> &Traffic| of(&self.established).total() + of(&self.new).total();
        let latest = both(|kind| kind.recent.of(true));
        let part = self.span.as_secs_f64() / parameters::NAME_MEMORY_FAST.as_secs_f64();
        let expected = both(|kind| kind.recent.of(false)) * part;
        latest >= parameters::COUNTS_MIN
            && latest > expected + parameters::SURGE_DEVIATIONS * expected.sqrt()
    }

    pub(super) fn kind(&mut self, established: bool) -> &mut Kind {
        if established {
            &mut self.established
        } else {
            &mut self.new
        }
    }

    #[inline]
    pub(super) fn add(&mut self, standing: Standing, requests: f64, held: Option<Standing>) {
        // This client decides by the new standing from now on, but the next request may be another client's.
        let repeated = if held == Some(standing) {
            requests
        } else {
            requests.min(1.0)
        };
        let decided = held.filter(|held| held.bin.is_some()).unwrap_or(standing);
        self.kind(decided.established)
            .recent
            .add(decided.bin, repeated);
        self.kind(standing.established)
            .recent
            .add(standing.bin, requests - repeated);
        if standing.bin.is_none() {
            self.kind(standing.established).remember(requests);
        }
        self.mix(held)
            .into_iter()
            .for_each(|mix| mix.add(standing, repeated));
    }

    pub(super) fn add_unnamed(&mut self, requests: f64, held: Option<Standing>) {
        self.new.recent.add(None, requests);
        self.new.remember(requests);
        self.mix(held)
            .into_iter()
            .for_each(|mix| mix.add(Standing::default(), requests));
    }

    /// The parts that pass at a cut: of the requests that clients decide by the ratio of established names, and of
    /// those that they decide by the ratio of unknown names. `tail` was judged by the same requests.
    pub(super) fn parts(
        &self,
        now: MonoTime,
        tail: &Tail,
        cut: Cut,
        is_surging: bool,
    ) -> (f64, f64) {
        let of_established = tail.established.uncounted_part(cut.level);
        let of_new = tail.new.uncounted_part(cut.new_level);
        // In a young class a name unknown to a client is an established one.
        let of_unknown = if self.growth.is_young(now) {
            of_established
        } else {
            of_new
        };
        let part = |mix: &Mix, otherwise| mix.part(tail, cut, is_surging).unwrap_or(otherwise);
        (
            part(&self.as_established, of_established),
            part(&self.as_unknown, of_unknown),
        )
    }

    /// The requests that are decided like those of a name with a standing that a client holds;
    /// `None` if it has its own ratio.
    fn mix(&mut self, held: Option<Standing>) -> Option<&mut Mix> {
        match held.unwrap_or_default() {
            Standing { bin: Some(_), .. } => None,
            Standing {
                established: true, ..
            } => Some(&mut self.as_established),
            Standing {
                established: false, ..
            } => Some(&mut self.as_unknown),
        }
    }

    pub(super) fn establish(&mut self, name: &mut NameMemory) {
        let before = name.standing();
        name.establish();
        self.follow(before, name.standing(), name.latest());
    }

    /// Moves a name with its latest requests to another standing. If the new bin is near, the requests remain where
    /// clients decided them.
    #[inline]
    pub(super) fn follow(&mut self, before: Standing, after: Standing, latest: f64) {
        let index = |standing: Standing| standing.bin.map(Bin::index);
        let is_near = index(before)
            .zip(index(after))
            .is_some_and(|(one, other)| one.abs_diff(other) <= BINS_NEAR);
        if before == after || before.established == after.established && is_near {
            return;
        }
        let moved = self.kind(before.established).remove(before.bin, latest);
        self.kind(after.established).put(after.bin, moved);
    }
}

impl Kind {
    fn remember(&mut self, requests: f64) {
        self.remembered += requests / parameters::NAME_MEMORY.as_secs_f64();
    }

    fn put(&mut self, bin: Option<Bin>, requests: f64) {
        *self.recent.traffic.of(bin) += requests;
        self.names += u32::from(bin.is_none());
    }

    /// Removes a name from a bin, and returns its requests there.
    pub(super) fn remove(&mut self, bin: Option<Bin>, requests: f64) -> f64 {
        self.names = self.names.saturating_sub(u32::from(bin.is_none()));
        let held = self.recent.traffic.of(bin);
        let removed = requests.max(0.0).min(*held);
        *held -= removed;
        removed
    }
}

impl Mix {
    fn add(&mut self, Standing { established, bin }: Standing, requests: f64) {
        let recent = if established {
            &mut self.established
        } else {
            &mut self.new
        };
        recent.add(bin, requests);
    }

    fn part(&self, tail: &Tail, cut: Cut, is_surging: bool) -> Option<f64> {
        let demand = |recent: &Recent, mean| recent.of(is_surging).demand(mean, 1.0);
        let established = demand(&self.established, tail.established.mean);
        let new = demand(&self.new, tail.new.mean);
        let all = established.total() + new.total();
        (all > TRAFFIC_MIN)
            .then(|| (established.passes(cut.level) + new.passes(cut.new_level)) / all)
    }
}

impl Recent {
    #[inline]
    fn add(&mut self, bin: Option<Bin>, requests: f64) {
        *self.traffic.of(bin) += requests;
        *self.fresh.of(bin) += requests;
    }

    fn fade(&mut self, kept: f64) {
        self.traffic.scale(kept);
        std::mem::swap(&mut self.latest, &mut self.fresh);
        self.fresh.scale(0.0);
    }

    /// The requests that a demand follows from: in a surge only the latest period.
    const fn of(&self, is_surging: bool) -> &Traffic {
        if is_surging {
            &self.latest
        } else {
            &self.traffic
        }
    }
}

impl Traffic {
    #[inline]
    fn of(&mut self, bin: Option<Bin>) -> &mut f64 {
        let Some(bin) = bin else {
            return &mut self.uncounted;
        };
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

    fn demand(&self, mean: f64, seconds: f64) -> Demand {
        let bins = self.bins.iter().map(|traffic| traffic / seconds).collect();
        Demand {
            bins,
            uncounted: self.uncounted / seconds,
            mean,
        }
    }
}
