//! Which endpoint has which bucket, and when that changes: an aggregator that stays away loses its buckets to the
//! others, one that is back takes them again once the books allow it. Pure: the subscription says what time it is.

pub(crate) mod endpoints;
mod rendezvous;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::quantity::MonoTime;

use crate::assignment::rendezvous::home;

/// How long a lost aggregator keeps its buckets unless told otherwise.
///
/// A restart takes seconds, and clients return from one over as long again. Meanwhile they act on what they hold,
/// which is what the controller counts on: it holds the share of an aggregator it does not hear in full for 30 s
/// ([`HELD`](plimsoll_core::law::presence::HELD)). Whoever moves earlier has its traffic counted twice for the rest of
/// that time, where it was and where it is, and is refused about half of it; whoever moves later uses what was given
/// to others. This leaves room for the loss to be noticed, which takes up to 3 s, and for two roll-ups.
pub const GRACE: Duration = Duration::from_secs(20);
/// How long an aggregator that was never reached keeps a bucket: nothing was ever said to it, so nothing is counted
/// twice. One attempt to connect takes up to 2 s.
const NEVER_REACHED: Duration = Duration::from_secs(3);
/// How long an aggregator must have been back before it is given its buckets: one that flaps should not be.
const STEADY: Duration = Duration::from_secs(5);
/// How long counts are withheld for what was sent before to be confirmed: several times as long as that takes.
const WITHHELD_MAX: Duration = Duration::from_secs(3);
/// When to try again where that was in vain.
const RETRY: Duration = Duration::from_secs(10);
/// How long after a bucket's counts the ratios follow: until then the new place has shown the controller no traffic, and
/// would refuse nearly all of it. Two ticks of the controller and the way to it and back.
const WORDS_FOLLOW: Duration = Duration::from_secs(2);

/// An endpoint, numbered as it was first listed; never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct EndpointId(pub(crate) u32);

/// Where every bucket is.
#[derive(Debug)]
pub(crate) struct Spread {
    grace: Duration,
    endpoints: BTreeMap<EndpointId, Watched>,
    next: u32,
    /// By bucket.
    berths: Vec<Berth>,
    /// Those that may have buckets now.
    candidates: Vec<EndpointId>,
    /// Buckets that went from one to another.
    moved: u64,
}

#[derive(Debug)]
struct Watched {
    name: Arc<str>,
    /// Whether it is one of those given; one that no longer is keeps its stream until its buckets have left.
    listed: bool,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Never reached, since when.
    Awaited(MonoTime),
    /// It has answered on its present stream, since when.
    Live(MonoTime),
    /// Its stream ended, when.
    Lost(MonoTime),
}

/// Where one bucket is.
#[derive(Debug)]
struct Berth {
    bucket: Arc<str>,
    owner: Option<EndpointId>,
    /// Where it belongs.
    wanted: Option<EndpointId>,
    /// Counts are withheld since then, for the bucket to leave in good order.
    leaving: Option<MonoTime>,
    /// Not before then again.
    retry: MonoTime,
    /// Until then the words stay as they are.
    silent: Option<MonoTime>,
}

/// What the rest of the client knows that bears on a move.
pub(crate) trait Scene {
    /// Whether everything that was sent of a bucket's counts is confirmed.
    fn is_settled(&self, bucket: usize, at: EndpointId) -> bool;

    /// Whether an aggregator has said what holds for a bucket, so that moving there takes nothing away.
    fn has_word(&self, bucket: usize, at: EndpointId) -> bool;

    /// Whether an aggregator hears the controller. One that does not lives on what it was given before, and has
    /// nothing for a bucket that comes from elsewhere.
    fn is_led(&self, at: EndpointId) -> bool;
}

/// What has changed for a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Its counts go elsewhere from now on.
    Moved {
        /// Which bucket.
        bucket: usize,
        /// Where they went; `None` if nowhere.
        from: Option<EndpointId>,
        /// Where they go.
        to: EndpointId,
    },
    /// What its owner says holds again, as far as it was not listened to.
    Heard(usize),
}

impl Spread {
    pub(crate) fn new(grace: Duration) -> Self {
        Self {
            grace,
            endpoints: BTreeMap::new(),
            next: 0,
            berths: Vec::new(),
            candidates: Vec::new(),
            moved: 0,
        }
    }

    /// These are the endpoints from now on, by name. Yields those that were not known.
    pub(crate) fn list(&mut self, now: MonoTime, names: &[Arc<str>]) -> Vec<(EndpointId, Arc<str>)> {
        for watched in self.endpoints.values_mut() {
            watched.listed = names.contains(&watched.name);
        }
        let mut new = Vec::new();
        for name in names {
            if self.endpoints.values().any(|watched| watched.name == *name) {
                continue;
            }
            let id = EndpointId(self.next);
            self.next += 1;
            let watched = Watched { name: Arc::clone(name), listed: true, state: State::Awaited(now) };
            self.endpoints.insert(id, watched);
            new.push((id, Arc::clone(name)));
        }
        self.choose(now);
        new
    }

    /// An endpoint has answered on a new stream.
    pub(crate) fn on_live(&mut self, now: MonoTime, id: EndpointId) {
        if let Some(watched) = self.endpoints.get_mut(&id)
            && !watched.is_live()
        {
            watched.state = State::Live(now);
        }
    }

    /// An endpoint's stream has ended.
    pub(crate) fn on_lost(&mut self, now: MonoTime, id: EndpointId) {
        if let Some(watched) = self.endpoints.get_mut(&id)
            && watched.is_live()
        {
            watched.state = State::Lost(now);
        }
    }

    /// Endpoints that are no longer listed and have no bucket any more are forgotten; yields them.
    pub(crate) fn retire(&mut self) -> Vec<EndpointId> {
        let is_used = |id: &EndpointId| self.berths.iter().any(|berth| berth.owner == Some(*id));
        let idle = self.endpoints.iter().filter(|(id, watched)| !watched.listed && !is_used(id));
        let idle: Vec<EndpointId> = idle.map(|(id, _)| *id).collect();
        for id in &idle {
            self.endpoints.remove(id);
        }
        idle
    }

    /// One more bucket, numbered densely. It begins where it belongs.
    pub(crate) fn add(&mut self, bucket: &str) {
        let wanted = self.home(bucket);
        self.berths.push(Berth {
            bucket: bucket.into(),
            owner: wanted,
            wanted,
            leaving: None,
            retry: MonoTime::ZERO,
            silent: None,
        });
    }

    /// Who has a bucket.
    pub(crate) fn owner(&self, bucket: usize) -> Option<EndpointId> {
        self.berths.get(bucket)?.owner
    }

    /// Whether an endpoint should be asked for a bucket: it has it, or is about to.
    pub(crate) fn asks(&self, bucket: usize, of: EndpointId) -> bool {
        self.berths.get(bucket).is_some_and(|berth| [berth.owner, berth.wanted].contains(&Some(of)))
    }

    /// Whether a bucket's counts wait for those before them to be confirmed.
    pub(crate) fn is_withheld(&self, bucket: usize) -> bool {
        self.berths.get(bucket).is_some_and(|berth| berth.leaving.is_some())
    }

    /// Whether ratios of a bucket's owner are taken; its modes and limits always are.
    pub(crate) fn listens(&self, bucket: usize) -> bool {
        self.berths.get(bucket).is_some_and(|berth| berth.leaving.is_none() && berth.silent.is_none())
    }

    /// How many buckets went from one endpoint to another.
    pub(crate) const fn moved(&self) -> u64 {
        self.moved
    }

    /// Every endpoint: its name, whether it is live, and how many buckets it has.
    pub(crate) fn endpoints(&self) -> impl Iterator<Item = (&str, bool, usize)> {
        let buckets = |id| self.berths.iter().filter(|berth| berth.owner == Some(id)).count();
        self.endpoints.iter().map(move |(id, watched)| (&*watched.name, watched.is_live(), buckets(*id)))
    }

    /// Time passes. Linear in the endpoints, and in buckets times endpoints when one came or went.
    pub(crate) fn on_tick(&mut self, now: MonoTime, scene: &impl Scene) -> Vec<Turn> {
        self.choose(now);
        let mut turns = Vec::new();
        let mut berths = std::mem::take(&mut self.berths);
        for (bucket, berth) in berths.iter_mut().enumerate() {
            turns.extend(self.turn(now, bucket, berth, scene));
        }
        self.berths = berths;
        let is_move = |turn: &&Turn| matches!(turn, Turn::Moved { from: Some(_), .. });
        self.moved += turns.iter().filter(is_move).count() as u64;
        turns
    }

    /// What becomes of one bucket.
    fn turn(&self, now: MonoTime, bucket: usize, berth: &mut Berth, scene: &impl Scene) -> Option<Turn> {
        if berth.silent.is_some_and(|until| now >= until) {
            berth.silent = None;
            return Some(Turn::Heard(bucket));
        }
        let Some(to) = berth.wanted.filter(|wanted| Some(*wanted) != berth.owner && self.is_live(*wanted))
        else {
            return berth.stay(bucket);
        };
        let Some(from) = berth.owner else { return Some(berth.go(now, bucket, to)) };
        match self.endpoints.get(&from) {
            Some(watched) if watched.is_live() => {}
            // What it was sent and did not confirm is lost if it is dead, so it gets the time to return.
            Some(watched) if !self.is_gone(now, watched) => return berth.stay(bucket),
            _ if scene.is_led(to) => return Some(berth.go(now, bucket, to)),
            _ => return None,
        }
        match berth.leaving {
            None => {
                let may_leave = now >= berth.retry && self.is_steady(now, to) && scene.has_word(bucket, to);
                if may_leave && scene.is_led(from) && scene.is_led(to) {
                    berth.leaving = Some(now);
                }
                None
            }
            Some(_) if scene.is_settled(bucket, from) => Some(berth.go(now, bucket, to)),
            Some(since) if now.since(since) >= WITHHELD_MAX => {
                berth.retry = now + RETRY;
                berth.stay(bucket)
            }
            Some(_) => None,
        }
    }

    /// Works out where buckets belong, if that may have changed.
    fn choose(&mut self, now: MonoTime) {
        let candidates =
            self.endpoints.iter().filter(|(_, watched)| watched.listed && !self.is_gone(now, watched));
        let candidates: Vec<EndpointId> = candidates.map(|(id, _)| *id).collect();
        if candidates != self.candidates {
            self.candidates = candidates;
            for at in 0..self.berths.len() {
                let wanted = self.home(&self.berths[at].bucket);
                // Where nobody is left to go to, everything stays where it is.
                self.berths[at].wanted = wanted.or(self.berths[at].owner);
            }
        }
    }

    fn home(&self, bucket: &str) -> Option<EndpointId> {
        let named = |id: &EndpointId| self.endpoints.get(id).map(|watched| (*id, &*watched.name));
        home(bucket, self.candidates.iter().filter_map(named))
    }

    fn is_live(&self, id: EndpointId) -> bool {
        self.endpoints.get(&id).is_some_and(Watched::is_live)
    }

    fn is_steady(&self, now: MonoTime, id: EndpointId) -> bool {
        let Some(Watched { state: State::Live(since), .. }) = self.endpoints.get(&id) else { return false };
        now.since(*since) >= STEADY
    }

    /// Whether an endpoint has been away for too long.
    fn is_gone(&self, now: MonoTime, watched: &Watched) -> bool {
        match watched.state {
            State::Live(_) => false,
            State::Awaited(since) => now.since(since) >= NEVER_REACHED.min(self.grace),
            State::Lost(since) => now.since(since) >= self.grace,
        }
    }
}

impl Watched {
    const fn is_live(&self) -> bool {
        matches!(self.state, State::Live(_))
    }
}

impl Berth {
    /// The bucket stays; counts that were withheld go on.
    fn stay(&mut self, bucket: usize) -> Option<Turn> {
        self.leaving.take().filter(|_| self.silent.is_none()).map(|_| Turn::Heard(bucket))
    }

    fn go(&mut self, now: MonoTime, bucket: usize, to: EndpointId) -> Turn {
        let from = self.owner.replace(to);
        self.leaving = None;
        // Where it was nowhere, there are no other words to keep to.
        self.silent = from.map(|_| now + WORDS_FOLLOW);
        Turn::Moved { bucket, from, to }
    }
}

#[cfg(test)]
mod tests;
