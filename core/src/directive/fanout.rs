//! What many children are told alike: composed once, shared by all of them, with a place for what a carrier makes of it.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use super::{BucketDirective, Directives};
use crate::names::Bucket;

/// Readings of one bucket that are kept apart while nothing changes; whoever has seen less than the oldest of them is
/// told the whole.
const READINGS_MAX: usize = 4;
/// Readings of whole audiences that are kept while nothing changes; further ones are composed for each child.
const EDITIONS_MAX: usize = 1_024;

/// The buckets that a number of children hear about, all the same ones.
pub type Audience = Arc<BTreeSet<Bucket>>;

/// Fanout of several buckets, for everybody who hears about the same ones and has seen as much.
pub type Edition = Arc<[Arc<Fanout>]>;

/// What is told of one bucket, to everybody who has seen as much of it.
#[derive(Debug)]
pub struct Fanout {
    directive: BucketDirective,
    carried: OnceLock<Box<[Chunk]>>,
}

/// A piece of news as a carrier sends it; what the bytes mean is the carrier's affair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// What is sent.
    pub bytes: Box<[u8]>,
    /// How many keys it speaks of.
    pub keys: usize,
}

impl Fanout {
    /// Fanout that nobody has carried yet.
    #[must_use]
    pub const fn new(directive: BucketDirective) -> Self {
        Self { directive, carried: OnceLock::new() }
    }

    /// What is told.
    #[must_use]
    pub const fn directive(&self) -> &BucketDirective {
        &self.directive
    }

    /// What the carrier made of it, which `encode` does once, however many children are told.
    pub fn carried(&self, encode: impl FnOnce(&BucketDirective) -> Box<[Chunk]>) -> &[Chunk] {
        self.carried.get_or_init(|| encode(&self.directive))
    }
}

/// A message on its way to one child: a head of its own, and news that it shares with others.
#[derive(Clone, Debug)]
pub struct Message {
    /// Everything but the buckets.
    pub head: Directives,
    /// What is told to all children alike that hear about the same buckets and have seen as much.
    pub shared: Option<Edition>,
    /// What this child hears about for the first time.
    pub first: Vec<Arc<Fanout>>,
}

impl Message {
    /// All news, in the order they are to be applied.
    pub fn news(&self) -> impl Iterator<Item = &Arc<Fanout>> {
        self.shared.iter().flat_map(|shared| shared.iter()).chain(&self.first)
    }
}

impl From<Message> for Directives {
    fn from(message: Message) -> Self {
        let buckets = message.news().map(|news| news.directive().clone()).collect();
        Self { buckets, ..message.head }
    }
}

impl From<Directives> for Message {
    fn from(mut directives: Directives) -> Self {
        let buckets = std::mem::take(&mut directives.buckets);
        let first = buckets.into_iter().map(|bucket| Arc::new(Fanout::new(bucket))).collect();
        Self { head: directives, shared: None, first }
    }
}

/// What has been composed since the last change of a board, for the next child that has to hear the same.
#[derive(Debug, Default)]
pub(super) struct Readings {
    by_bucket: HashMap<Bucket, Vec<(Seen, Arc<Fanout>)>>,
    /// By the identity of the audience, which each entry keeps from being taken by another.
    editions: HashMap<(usize, Seen), (Audience, Option<Edition>)>,
}

/// How far a child had seen, and whether values may pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Seen {
    pub(super) version: u64,
    pub(super) values: bool,
}

impl Readings {
    /// Something changed: nobody will have to hear the same again.
    pub(super) fn clear(&mut self) {
        self.by_bucket.clear();
        self.editions.clear();
    }

    /// The news of a bucket for those who have `seen` so much; without room for one more reading, the whole.
    pub(super) fn of_bucket(
        &mut self,
        bucket: &Bucket,
        seen: Seen,
        compose: impl FnOnce(Seen) -> BucketDirective,
    ) -> Arc<Fanout> {
        if !self.by_bucket.contains_key(bucket) {
            self.by_bucket.insert(bucket.clone(), Vec::new());
        }
        let Some(readings) = self.by_bucket.get_mut(bucket) else {
            return Arc::new(Fanout::new(compose(seen)));
        };
        let whole = Seen { version: 0, ..seen };
        let known =
            |seen: Seen| readings.iter().find(|(of, _)| *of == seen).map(|(_, news)| Arc::clone(news));
        if let Some(news) = known(seen) {
            return news;
        }
        let alike = readings.iter().filter(|(of, _)| of.values == seen.values && of.version > 0).count();
        let seen = if alike < READINGS_MAX { seen } else { whole };
        if let Some(news) = known(seen) {
            return news;
        }
        let news = Arc::new(Fanout::new(compose(seen)));
        readings.push((seen, Arc::clone(&news)));
        news
    }

    /// The edition for an audience that has `seen` so much, if it was composed before.
    pub(super) fn edition(&self, audience: &Audience, seen: Seen) -> Option<Option<Edition>> {
        self.editions.get(&(identity(audience), seen)).map(|(_, edition)| edition.clone())
    }

    /// Keeps an edition, if there is room.
    pub(super) fn keep(&mut self, audience: &Audience, seen: Seen, edition: &Option<Edition>) {
        if self.editions.len() < EDITIONS_MAX {
            self.editions.insert((identity(audience), seen), (Arc::clone(audience), edition.clone()));
        }
    }
}

fn identity(audience: &Audience) -> usize {
    Arc::as_ptr(audience) as usize
}

/// Audiences by what they hear about, so that children who hear about the same share one.
#[derive(Debug, Default)]
pub(super) struct Audiences {
    known: HashSet<Audience>,
    /// Those nobody belongs to any more are looked for when so many are known.
    sweep_at: usize,
}

impl Audiences {
    /// The audience for these buckets.
    pub(super) fn of(&mut self, buckets: BTreeSet<Bucket>) -> Audience {
        if let Some(known) = self.known.get(&buckets) {
            return Arc::clone(known);
        }
        if self.known.len() >= self.sweep_at {
            self.known.retain(|audience| Arc::strong_count(audience) > 1);
            self.sweep_at = (self.known.len() * 2).max(16);
        }
        let audience = Audience::new(buckets);
        self.known.insert(Arc::clone(&audience));
        audience
    }
}
