//! The children of a parent: who they are, since when, how far each has been heard and told.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use crate::directive::{Audience, Board, Directives, Epoch, Message};
use crate::exchange::{StreamId, StreamRejected};
use crate::kill::drill::Drill;
use crate::kill::{KillGeneration, Kills};
use crate::names::Bucket;
use crate::quantity::MonoTime;
use crate::report::{Books, Echo, Identity, InstanceId, Role};

/// How long the books of a child that went away are kept. One that comes back later is taken over by its own
/// figures (see [`Books`]), so forgetting costs at most what was unconfirmed.
pub const REMEMBERED: Duration = Duration::from_secs(120);
/// A child that has nothing new to hear is told at least this often that its parent lives, or once in each interval it
/// reports at, if that is longer.
pub const HEARTBEAT: Duration = Duration::from_millis(500);

/// All children of one parent, up to a bound.
#[derive(Debug)]
pub struct Sessions {
    /// The parent.
    own: InstanceId,
    children: BTreeMap<InstanceId, Child>,
    streams: HashMap<StreamId, InstanceId>,
    /// Who went away, and when, in that order; who has come back since is still among them.
    away: VecDeque<(MonoTime, InstanceId)>,
    connected: usize,
    children_max: usize,
    keys_per_child_max: usize,
    /// The same of an aggregator, which speaks for many.
    keys_per_aggregator_max: usize,
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
    /// The version of the kill generations that it knows.
    kills: u64,
    /// The buckets it has been told about, as far as they are posted.
    audience: Audience,
    /// The board's version that it knows of all of them.
    seen: u64,
    /// The buckets it wants to hear about from now on.
    fresh: BTreeSet<Bucket>,
}

/// What stands at the top of every message, the same for all children; of the kill generations, what changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The controller's epoch, if it was heard.
    pub epoch: Option<Epoch>,
    /// The highest kill generation held.
    pub kill: KillGeneration,
    /// The version of all kill generations.
    pub kills: u64,
    /// The latest drill heard of.
    pub drill: Drill,
    /// The hash of the policy in force.
    pub policy_hash: Option<u64>,
    /// How often to report; `None` leaves it to the child.
    pub report_interval: Option<Duration>,
}

impl Head {
    /// A head that says nothing but what is killed.
    #[must_use]
    pub fn of(kills: &Kills) -> Self {
        Self {
            epoch: None,
            kill: kills.fleet(),
            kills: kills.version(),
            drill: kills.drill(),
            policy_hash: None,
            report_interval: None,
        }
    }
}

impl Sessions {
    /// An empty roster of the parent `own`, for at most `children_max` children, those who are away but remembered
    /// included, with at most `keys_per_child_max` keys each.
    #[must_use]
    pub fn new(own: InstanceId, children_max: usize, keys_per_child_max: usize) -> Self {
        Self {
            own,
            children: BTreeMap::new(),
            streams: HashMap::new(),
            away: VecDeque::new(),
            connected: 0,
            children_max,
            keys_per_child_max,
            keys_per_aggregator_max: keys_per_child_max,
        }
    }

    /// The same, but children that are aggregators may have so many keys each.
    #[must_use]
    pub fn with_keys_of_aggregators(self, keys_max: usize) -> Self {
        Self { keys_per_aggregator_max: keys_max, ..self }
    }

    /// The parent.
    #[must_use]
    pub const fn own(&self) -> InstanceId {
        self.own
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
    ) -> Result<&mut Child, StreamRejected> {
        let instance = identity.instance;
        let present = self.children.get(&instance).and_then(|child| child.stream);
        if present.is_some_and(|present| present > stream) {
            return Err(StreamRejected::Unknown);
        }
        if !self.children.contains_key(&instance) && self.children.len() >= self.children_max {
            let longest_away = self.children.values().filter(|child| child.stream.is_none());
            let Some(evicted) =
                longest_away.min_by_key(|child| child.heard).map(|child| child.identity.instance)
            else {
                return Err(StreamRejected::Full(self.children_max));
            };
            self.children.remove(&evicted);
        }
        self.streams.insert(stream, instance);
        let keys_max = match identity.role {
            Role::Client => self.keys_per_child_max,
            Role::Aggregator => self.keys_per_aggregator_max,
        };
        let child = self.children.entry(instance).or_insert_with(|| Child {
            books: Books::new(instance, self.own, keys_max),
            identity: identity.clone(),
            stream: None,
            since: now,
            heard: now,
            confirmed: 0,
            told: Told::default(),
        });
        child.identity = identity;
        self.connected += usize::from(child.stream.is_none());
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
        self.connected -= 1;
        if self.away.len() >= 2 * self.children_max {
            // Children that come and go leave entries behind that say nothing any more.
            let mut away = std::mem::take(&mut self.away);
            away.retain(|(at, instance)| self.is_away_since(*at, *instance));
            self.away = away;
        }
        self.away.push_back((now, instance));
        Some(instance)
    }

    /// Forgets a child at once.
    pub fn remove(&mut self, instance: InstanceId) {
        let removed = self.children.remove(&instance);
        self.connected -= usize::from(removed.is_some_and(|child| child.stream.is_some()));
        self.streams.retain(|_, owner| *owner != instance);
    }

    /// Forgets children that have been away for long; returns who. Linear in those who went away that long ago.
    pub fn prune(&mut self, now: MonoTime) -> Vec<InstanceId> {
        let mut gone = Vec::new();
        while let Some((at, instance)) = self.away.front().copied()
            && now.since(at) > REMEMBERED
        {
            self.away.pop_front();
            if self.is_away_since(at, instance) {
                self.remove(instance);
                gone.push(instance);
            }
        }
        gone.sort_unstable();
        gone
    }

    /// How many children are connected.
    #[must_use]
    pub const fn connected_count(&self) -> usize {
        self.connected
    }

    /// How many children went away no longer than `span` ago and have not come back. Linear in who went away within it.
    #[must_use]
    pub fn left_within(&self, now: MonoTime, span: Duration) -> usize {
        let lately = self.away.iter().rev().take_while(|(at, _)| now.since(*at) <= span);
        lately.filter(|(at, instance)| self.is_away_since(*at, *instance)).count()
    }

    fn is_away_since(&self, at: MonoTime, instance: InstanceId) -> bool {
        self.children.get(&instance).is_some_and(|child| child.stream.is_none() && child.heard == at)
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
        if !self.is_wanted(bucket) {
            self.told.fresh.insert(bucket.clone());
        }
    }

    /// Whether it hears about a bucket.
    #[must_use]
    pub fn is_wanted(&self, bucket: &Bucket) -> bool {
        self.told.audience.contains(bucket) || self.told.fresh.contains(bucket)
    }

    /// How many buckets it hears about.
    #[must_use]
    pub fn wanted(&self) -> usize {
        self.told.audience.len() + self.told.fresh.len()
    }

    /// Everything must be told again, as if nothing had been.
    pub fn forget_told(&mut self) {
        self.told.head = None;
        self.told.seen = 0;
    }

    /// The next message to this child, if there is anything new or a heartbeat is due. `values` is false while
    /// they must not pass: they are left out then, and told once they may. O(1) for all but the first child of an
    /// audience after a change, but for buckets that the child hears about for the first time.
    pub fn next_message(
        &mut self,
        now: MonoTime,
        head: Head,
        board: &mut Board,
        values: bool,
        echo: Echo,
        kills: &Kills,
    ) -> Option<Message> {
        let told = &mut self.told;
        let shared = board.edition(&told.audience, told.seen, values);
        let mut first = Vec::new();
        if !told.fresh.is_empty() {
            first.extend(told.fresh.iter().filter_map(|bucket| board.news(bucket, 0, values)));
            let mut buckets = (*told.audience).clone();
            buckets.append(&mut told.fresh);
            told.audience = board.audience(buckets);
        }
        told.seen = board.version();
        let heartbeat = HEARTBEAT.max(head.report_interval.unwrap_or_default());
        let due = told.at.is_none_or(|at| now.since(at) >= heartbeat);
        if shared.is_none() && first.is_empty() && !due && told.head == Some(head) {
            return None;
        }
        let news = kills.since(told.kills);
        told.kills = kills.version();
        told.seq += 1;
        told.at = Some(now);
        told.head = Some(head);
        let parent = (told.seq == 1).then(|| self.books.parent());
        let head = Directives {
            epoch: head.epoch,
            seq: told.seq,
            kill: head.kill,
            kills: news,
            drill: head.drill,
            policy_hash: head.policy_hash,
            echo,
            upstream_age: None,
            report_interval: head.report_interval,
            parent,
            children: None,
            above: 0,
            buckets: Vec::new(),
        };
        Some(Message { head, shared, first })
    }
}

#[cfg(test)]
mod tests;
