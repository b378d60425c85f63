//! The children of a parent: who they are, since when, how far each has been heard and told.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use crate::bucket::Bucket;
use crate::directive::{Board, BucketDirective, Directives, Epoch, Values};
use crate::exchange::{Refused, StreamId};
use crate::kill::KillGeneration;
use crate::report::{Books, Echo, Identity, InstanceId};
use crate::time::MonoTime;

/// How long the books of a child that went away are kept. One that comes back later is taken over by its own
/// figures (see [`Books`]), so forgetting costs at most what was unconfirmed.
pub const REMEMBERED: Duration = Duration::from_secs(120);
/// A child that has nothing new to hear is told at least this often that its parent lives.
pub const HEARTBEAT: Duration = Duration::from_millis(500);

/// All children of one parent, up to a bound.
#[derive(Debug)]
pub struct Roster {
    /// The parent.
    own: InstanceId,
    children: BTreeMap<InstanceId, Child>,
    streams: HashMap<StreamId, InstanceId>,
    children_max: usize,
    keys_per_child_max: usize,
}

/// One child.
#[derive(Debug)]
pub struct Child {
    /// What it says of itself.
    pub identity: Identity,
    /// What was counted of it.
    pub books: Books,
    /// Its present stream; `None` while it is away.
    pub stream: Option<StreamId>,
    /// When it first spoke here.
    pub since: MonoTime,
    /// When it was last heard.
    pub heard: MonoTime,
    /// Its highest report that the controller is known to have covered.
    pub confirmed: u64,
    told: Told,
}

/// What a child has been told on its present stream.
#[derive(Debug, Default)]
struct Told {
    seq: u64,
    at: Option<MonoTime>,
    head: Option<Head>,
    /// The board's version that the child knows of each bucket it has.
    buckets: BTreeMap<Bucket, u64>,
}

/// What stands at the top of every message, the same for all children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The controller's epoch, if it was heard.
    pub epoch: Option<Epoch>,
    /// The highest kill generation held.
    pub kill: KillGeneration,
    /// The hash of the policy in force.
    pub policy_hash: Option<u64>,
}

impl Roster {
    /// An empty roster of the parent `own`, for at most `children_max` children, those who are away but remembered
    /// included, with at most `keys_per_child_max` keys each.
    #[must_use]
    pub fn new(own: InstanceId, children_max: usize, keys_per_child_max: usize) -> Self {
        let (children, streams) = (BTreeMap::new(), HashMap::new());
        Self { own, children, streams, children_max, keys_per_child_max }
    }

    /// Begins a stream of a child, which replaces an older stream of the same instance.
    ///
    /// # Errors
    /// When every place is taken by a child that is connected, or when a later stream of the child has overtaken
    /// this one.
    pub fn open(
        &mut self,
        now: MonoTime,
        stream: StreamId,
        identity: Identity,
    ) -> Result<&mut Child, Refused> {
        let instance = identity.instance;
        let present = self.children.get(&instance).and_then(|child| child.stream);
        if present.is_some_and(|present| present > stream) {
            return Err(Refused::Unknown);
        }
        if !self.children.contains_key(&instance) && self.children.len() >= self.children_max {
            let longest_away = self.children.values().filter(|child| child.stream.is_none());
            let Some(evicted) =
                longest_away.min_by_key(|child| child.heard).map(|child| child.identity.instance)
            else {
                return Err(Refused::Full(self.children_max));
            };
            self.children.remove(&evicted);
        }
        self.streams.insert(stream, instance);
        let child = self.children.entry(instance).or_insert_with(|| Child {
            books: Books::new(instance, self.own, self.keys_per_child_max),
            identity: identity.clone(),
            stream: None,
            since: now,
            heard: now,
            confirmed: 0,
            told: Told::default(),
        });
        child.identity = identity;
        child.stream = Some(stream);
        child.heard = now;
        child.confirmed = 0;
        child.told = Told::default();
        child.books.open();
        Ok(child)
    }

    /// Ends a stream. The child is remembered for [`REMEMBERED`]. Returns its instance if this was its present
    /// stream, not one that was replaced.
    pub fn close(&mut self, now: MonoTime, stream: StreamId) -> Option<InstanceId> {
        let instance = self.streams.remove(&stream)?;
        let child = self.children.get_mut(&instance).filter(|child| child.stream == Some(stream))?;
        child.stream = None;
        child.heard = now;
        Some(instance)
    }

    /// Forgets a child at once.
    pub fn remove(&mut self, instance: InstanceId) {
        self.children.remove(&instance);
        self.streams.retain(|_, owner| *owner != instance);
    }

    /// Forgets children that have been away for long; returns who.
    pub fn prune(&mut self, now: MonoTime) -> Vec<InstanceId> {
        let gone: Vec<InstanceId> = self
            .children
            .values()
            .filter(|child| child.stream.is_none() && now.since(child.heard) > REMEMBERED)
            .map(|child| child.identity.instance)
            .collect();
        for instance in &gone {
            self.remove(*instance);
        }
        gone
    }

    /// The child whose present stream this is.
    pub fn by_stream(&mut self, stream: StreamId) -> Option<&mut Child> {
        let instance = self.streams.get(&stream)?;
        self.children.get_mut(instance).filter(|child| child.stream == Some(stream))
    }

    /// A child by its instance.
    #[must_use]
    pub fn get(&self, instance: InstanceId) -> Option<&Child> {
        self.children.get(&instance)
    }

    /// A child by its instance, to be changed.
    pub fn get_mut(&mut self, instance: InstanceId) -> Option<&mut Child> {
        self.children.get_mut(&instance)
    }

    /// Whether a stream was known and has been replaced by a newer one, or its child was removed.
    #[must_use]
    pub fn is_superseded(&self, stream: StreamId) -> bool {
        let child = self.streams.get(&stream).and_then(|instance| self.children.get(instance));
        child.is_none_or(|child| child.stream != Some(stream))
    }

    /// Every child, those who are away included.
    pub fn iter(&self) -> impl Iterator<Item = &Child> {
        self.children.values()
    }

    /// Every child that is connected.
    pub fn connected(&self) -> impl Iterator<Item = &Child> {
        self.children.values().filter(|child| child.stream.is_some())
    }

    /// Every child, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Child> {
        self.children.values_mut()
    }
}

impl Child {
    /// The child wants to hear about a bucket from now on.
    pub fn wants(&mut self, bucket: &Bucket) {
        if !self.told.buckets.contains_key(bucket) {
            self.told.buckets.insert(bucket.clone(), 0);
        }
    }

    /// Whether it hears about a bucket.
    #[must_use]
    pub fn is_wanted(&self, bucket: &Bucket) -> bool {
        self.told.buckets.contains_key(bucket)
    }

    /// How many buckets it hears about.
    #[must_use]
    pub fn wanted(&self) -> usize {
        self.told.buckets.len()
    }

    /// Everything must be told again, as if nothing had been.
    pub fn forget_told(&mut self) {
        self.told.head = None;
        self.told.buckets.values_mut().for_each(|seen| *seen = 0);
    }

    /// The next message to this child, if there is anything new or a heartbeat is due. `values` is false while
    /// they must not pass: they are left out then, and told once they may.
    pub fn next_message(
        &mut self,
        now: MonoTime,
        head: Head,
        board: &Board,
        values: bool,
        echo: Echo,
    ) -> Option<Directives> {
        let mut buckets: Vec<BucketDirective> = Vec::new();
        for (bucket, seen) in &mut self.told.buckets {
            let Some(mut news) = board.since(bucket, *seen) else { continue };
            *seen = board.version();
            if !values {
                news.keys.iter_mut().for_each(|key| key.values = Values::default());
            }
            buckets.push(news);
        }
        let due = self.told.at.is_none_or(|at| now.since(at) >= HEARTBEAT);
        if buckets.is_empty() && !due && self.told.head == Some(head) {
            return None;
        }
        self.told.seq += 1;
        self.told.at = Some(now);
        self.told.head = Some(head);
        Some(Directives {
            epoch: head.epoch,
            seq: self.told.seq,
            kill: head.kill,
            policy_hash: head.policy_hash,
            echo,
            upstream_age: None,
            report_interval: None,
            parent: (self.told.seq == 1).then(|| self.books.parent()),
            children: None,
            buckets,
        })
    }
}

#[cfg(test)]
mod tests;
