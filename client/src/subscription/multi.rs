//! A limiter with several aggregators: which of them is told and asked of which bucket, and how a bucket's books go from
//! one to another.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::names::{Bucket, KeyId};
use plimsoll_core::directive::{BucketDirective, Epoch, Values};
use plimsoll_core::report::Handover;
use plimsoll_core::quantity::MonoTime;

use super::session::{REPORT_INTERVAL, Strand};
use super::{ONLY, Subscription};
use crate::assignment::{EndpointId, Scene, Spread, Turn};

/// How often it is looked at whether a bucket has to go elsewhere.
const TURN_PERIOD: Duration = Duration::from_millis(100);
/// An aggregator whose word is older than this does not hear the controller: one that does has a roll-up covered every
/// half second, and says so at least as often.
const LED_WITHIN: Duration = Duration::from_secs(3);

/// Where every bucket is, and what belongs to each.
#[derive(Debug)]
pub(super) struct Several {
    spread: Spread,
    /// By bucket: its keys, by their ids in the table.
    members: Vec<Vec<u32>>,
    /// By key: its bucket.
    bucket_of: Vec<usize>,
    /// By bucket: the epoch of what holds.
    epochs: Vec<Option<Epoch>>,
    turned: MonoTime,
}

/// What the limiter's endpoints are like, for metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Endpoints {
    /// Each one's name, whether it is live, and how many buckets it has.
    pub(crate) each: Vec<(String, bool, usize)>,
    /// Buckets that went from one to another.
    pub(crate) moved: u64,
}

impl Several {
    pub(super) fn add_bucket(&mut self, bucket: &Bucket) {
        self.spread.add(bucket.as_str());
        self.members.push(Vec::new());
        self.epochs.push(None);
    }

    pub(super) fn asks(&self, bucket: usize, of: EndpointId) -> bool {
        self.spread.asks(bucket, of)
    }

    /// Whether a key's counts wait for those before them to be confirmed.
    pub(super) fn is_withheld(&self, key: u32) -> bool {
        self.bucket_of.get(key as usize).is_some_and(|bucket| self.spread.is_withheld(*bucket))
    }

    /// Who is told of a bucket.
    pub(super) fn owner(&self, bucket: usize) -> Option<EndpointId> {
        self.spread.owner(bucket)
    }

    /// Who is told what a key counts.
    pub(super) fn owner_of(&self, key: u32) -> Option<EndpointId> {
        self.spread.owner(*self.bucket_of.get(key as usize)?)
    }

    /// Whether an endpoint has any bucket.
    pub(super) fn has_any(&self, id: EndpointId) -> bool {
        (0..self.members.len()).any(|bucket| self.spread.owner(bucket) == Some(id))
    }
}

/// A limiter as its moves are judged.
struct View<'a> {
    subscription: &'a Subscription,
    members: &'a [Vec<u32>],
    now: MonoTime,
}

impl Scene for View<'_> {
    fn is_settled(&self, bucket: usize, at: EndpointId) -> bool {
        let Some(strand) = self.subscription.strands.get(&at) else { return true };
        self.members.get(bucket).is_none_or(|members| members.iter().all(|key| strand.is_settled(*key)))
    }

    fn has_word(&self, bucket: usize, at: EndpointId) -> bool {
        let Some(name) = self.subscription.buckets.get(bucket) else { return false };
        if self.subscription.board.get(name).is_none() {
            return true;
        }
        let posted = self.subscription.strands.get(&at).and_then(|strand| strand.heard.get(name));
        posted.is_some_and(|posted| {
            let has_value = |values: Values| values.ratio.is_some() || values.guard.is_some();
            posted.terms().limit.per_second().is_none() || posted.keys().any(|(_, values)| has_value(values))
        })
    }

    fn is_led(&self, at: EndpointId) -> bool {
        let age = self.subscription.strands.get(&at).and_then(|strand| strand.upstream_age(self.now));
        age.is_some_and(|age| age <= LED_WITHIN)
    }
}

impl Subscription {
    /// From now on there may be several aggregators; as yet there are none. A lost one keeps its buckets for `grace`.
    pub(crate) fn spread_over_several(&mut self, grace: Duration) {
        self.strands.clear();
        let several = Several {
            spread: Spread::new(grace),
            members: Vec::new(),
            bucket_of: Vec::new(),
            epochs: Vec::new(),
            turned: MonoTime::ZERO,
        };
        self.several = Some(several);
    }

    /// These are the endpoints from now on, by name. Yields those that were not known.
    pub(crate) fn list(&mut self, now: MonoTime, names: &[Arc<str>]) -> Vec<(EndpointId, Arc<str>)> {
        let Some(several) = &mut self.several else { return Vec::new() };
        let new = several.spread.list(now, names);
        // What an earlier process kept is the oldest that may be believed.
        let epoch = if self.from_kept { self.epoch } else { None };
        for (id, _) in &new {
            self.strands.insert(*id, Strand::new(epoch));
        }
        new
    }

    /// Endpoints that are no longer listed and have nothing any more.
    pub(crate) fn retire(&mut self) -> Vec<EndpointId> {
        self.several.as_mut().map(|several| several.spread.retire()).unwrap_or_default()
    }

    /// The conversation with an endpoint that was [retired](Self::retire) has ended.
    pub(crate) fn forget(&mut self, id: EndpointId) {
        self.strands.remove(&id);
    }

    /// Who there is.
    pub(crate) fn endpoints(&self) -> Endpoints {
        let Some(several) = &self.several else { return Endpoints::default() };
        let each = several.spread.endpoints().map(|(name, live, buckets)| (name.to_owned(), live, buckets));
        Endpoints { each: each.collect(), moved: several.spread.moved() }
    }

    /// A stream to an endpoint has ended.
    pub(crate) fn on_lost(&mut self, id: EndpointId, now: MonoTime) {
        if let Some(several) = &mut self.several {
            several.spread.on_lost(now, id);
        }
    }

    pub(super) fn on_live(&mut self, id: EndpointId, now: MonoTime) {
        if let Some(several) = &mut self.several {
            several.spread.on_live(now, id);
        }
    }

    /// A new key's counts go where its bucket is.
    pub(super) fn take_in(&mut self, key: u32, books: Handover) {
        let (Some(several), Some(place)) = (&mut self.several, self.roll.keys().get(key as usize)) else {
            return;
        };
        let Some(bucket) = self.buckets.iter().position(|bucket| *bucket == place.bucket) else { return };
        let at = key as usize;
        several.bucket_of.resize((at + 1).max(several.bucket_of.len()), bucket);
        several.bucket_of[at] = bucket;
        if let Some(members) = several.members.get_mut(bucket) {
            members.push(key);
        }
        let owner = several.spread.owner(bucket);
        if let Some(strand) = owner.and_then(|owner| self.strands.get_mut(&owner)) {
            strand.adopt(key, place.clone(), books);
        }
    }

    /// The key that had this id is finished: nothing more is told of it.
    pub(super) fn take_out(&mut self, key: u32) {
        let Some(several) = &mut self.several else {
            let only = self.strands.get_mut(&ONLY);
            return only.into_iter().for_each(|strand| strand.outbox.adopt(KeyId(key), Handover::default()));
        };
        let Some(bucket) = several.bucket_of.get(key as usize) else { return };
        if let Some(members) = several.members.get_mut(*bucket) {
            members.retain(|member| *member != key);
        }
        for strand in self.strands.values_mut() {
            strand.release(key);
        }
    }

    /// How long to wait between reports to one of the parents.
    pub(crate) fn interval_of(&self, id: EndpointId) -> Duration {
        self.strands.get(&id).map_or(REPORT_INTERVAL, |strand| strand.interval)
    }

    /// A new stream to one of the parents begins.
    pub(crate) fn open(&mut self, id: EndpointId) {
        if let Some(strand) = self.strands.get_mut(&id) {
            strand.open();
        }
    }

    /// Time passes: buckets that have to go elsewhere do.
    pub(super) fn turn(&mut self, now: MonoTime) {
        let due = |several: &Several| now.since(several.turned) >= TURN_PERIOD;
        if !self.several.as_ref().is_some_and(due) {
            return;
        }
        self.look();
        let Some(mut several) = self.several.take() else { return };
        several.turned = now;
        let view = View { subscription: self, members: &several.members, now };
        let turns = several.spread.on_tick(now, &view);
        for turn in &turns {
            if let Turn::Moved { bucket, from, to } = turn {
                self.hand_over(several.members.get(*bucket).map_or(&[], Vec::as_slice), *from, *to);
            }
        }
        self.several = Some(several);
        for turn in turns {
            let (Turn::Moved { bucket, .. } | Turn::Heard(bucket)) = turn;
            self.hear(bucket);
        }
    }

    /// The books of these keys go from one outbox to another.
    fn hand_over(&mut self, keys: &[u32], from: Option<EndpointId>, to: EndpointId) {
        for key in keys {
            let from = from.and_then(|from| self.strands.get_mut(&from));
            let handover = from.and_then(|strand| strand.release(*key)).unwrap_or_default();
            let strand = self.strands.get_mut(&to);
            if let (Some(strand), Some(name)) = (strand, self.roll.keys().get(*key as usize)) {
                strand.adopt(*key, name.clone(), handover);
            }
        }
    }

    /// Takes up what the owner of a bucket has said of it before it was listened to.
    fn hear(&mut self, bucket: usize) {
        let (Some(several), Some(name)) = (&self.several, self.buckets.get(bucket)) else { return };
        let Some(owner) = several.spread.owner(bucket) else { return };
        let Some(strand) = self.strands.get(&owner) else { return };
        let Some(whole) = strand.heard.since(name, 0) else { return };
        let epoch = strand.order.epoch();
        if self.apply_at(bucket, epoch, whole) {
            self.publish(bucket);
        }
    }

    /// Notes what a parent says of a bucket, and applies it if it is the bucket's owner.
    pub(super) fn apply_of(
        &mut self,
        id: EndpointId,
        epoch: Option<Epoch>,
        directive: &BucketDirective,
    ) -> bool {
        let Some(bucket) = self.buckets.iter().position(|name| *name == directive.bucket) else {
            return false;
        };
        if let Some(strand) = self.strands.get_mut(&id) {
            strand.heard.apply(directive);
        }
        let owner = self.several.as_ref().and_then(|several| several.spread.owner(bucket));
        owner == Some(id) && self.apply_at(bucket, epoch, directive.clone())
    }

    /// Applies what the owner of a bucket says, unless that goes back to an older reign. Ratios and guards are left out
    /// while the bucket's counts are on their way from another aggregator, as those of one that has just started are:
    /// it does not know yet what they would have to be.
    fn apply_at(&mut self, bucket: usize, epoch: Option<Epoch>, mut directive: BucketDirective) -> bool {
        let Some(several) = &mut self.several else { return false };
        let listens = several.spread.listens(bucket);
        let Some(held) = several.epochs.get_mut(bucket) else { return false };
        if epoch < *held {
            self.refused += 1;
            return false;
        }
        *held = epoch;
        if !listens && self.board.get(&directive.bucket).is_some() {
            directive.keys.iter_mut().for_each(|key| key.values = Values::default());
        }
        self.from_kept = false;
        self.board.apply(&directive)
    }
}
