//! The sessions of a parent with its children: identity, counts received, and directives sent.

mod checks;
mod child;
mod key_room;
mod shares;

pub use child::{ChildSession, Head};

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use crate::directive::Audience;
use crate::exchange::{StreamId, StreamRejected};
use crate::names::Bucket;
use crate::quantity::MonoTime;
use crate::report::{
    Books, CLIENTS_MAX, ClientCounts, DECISIONS_PER_S_MAX, Entered, Identity, InstanceId, Ledger,
    Report, Role,
};
use child::SentState;
use key_room::KeyRoom;
use shares::Shares;

/// Time that the books of a disconnected child are kept. A child that returns later is taken over
/// by its own figures (see [`Books`]), so that forgetting costs at most the unconfirmed counts.
pub const REMEMBERED: Duration = Duration::from_secs(120);
/// The interval of heartbeats to a child without changes, unless its report interval is longer.
pub const HEARTBEAT: Duration = Duration::from_millis(500);

/// The keys of all clients of a parent: with some 450 bytes for each, what the memory of an aggregator is sized for.
pub const CLIENT_KEYS_MAX: usize = 1_250_000;
/// Children with cut counts that are waiting to be logged.
const CUT_MAX: usize = 64;

/// The sessions of all children of one parent, up to a bound.
#[derive(Debug)]
pub struct Sessions {
    /// The instance of the parent.
    own: InstanceId,
    children: BTreeMap<InstanceId, ChildSession>,
    /// The child of each stream that has greeted and not ended, also of one that was replaced.
    streams: HashMap<StreamId, InstanceId>,
    /// The children without a stream, in the order of their disconnections.
    away: BTreeSet<(MonoTime, InstanceId)>,
    children_max: usize,
    keys_per_child_max: usize,
    /// The bound for a child that is an aggregator.
    keys_per_aggregator_max: usize,
    /// Requests/s that a client is believed to decide.
    decisions_per_s_max: u64,
    shares: Shares,
    key_room: KeyRoom,
    /// Children with cut counts that have at least doubled since they were last taken.
    cut: Vec<InstanceId>,
}

impl Sessions {
    /// Creates the sessions of the parent `own`, for at most `children_max` children, disconnected but
    /// remembered ones included, with at most `keys_per_child_max` keys each.
    pub fn new(own: InstanceId, children_max: usize, keys_per_child_max: usize) -> Self {
        Self {
            own,
            children: BTreeMap::new(),
            streams: HashMap::new(),
            away: BTreeSet::new(),
            children_max,
            keys_per_child_max,
            keys_per_aggregator_max: keys_per_child_max,
            decisions_per_s_max: DECISIONS_PER_S_MAX,
            shares: Shares::new(children_max),
            key_room: KeyRoom::new(CLIENT_KEYS_MAX),
            cut: Vec::new(),
        }
    }

    /// Sets another bound on the keys of children that are aggregators.
    #[must_use]
    pub fn with_keys_of_aggregators(self, keys_max: usize) -> Self {
        Self {
            keys_per_aggregator_max: keys_max,
            ..self
        }
    }

    /// Sets the requests/s that a client is believed to decide. What a child reports above that is cut.
    #[must_use]
    pub fn with_decisions_per_s_max(self, decisions_per_s_max: u64) -> Self {
        Self {
            decisions_per_s_max,
            ..self
        }
    }

    /// The instance of the parent.
    pub const fn own(&self) -> InstanceId {
        self.own
    }

    /// Enters a report that was [checked](Self::check), or a part of it. `None` if the stream has ended or was
    /// replaced.
    pub fn enter(
        &mut self,
        now: MonoTime,
        stream: StreamId,
        report: &Report,
        ledger: &mut impl Ledger,
    ) -> Option<Entered> {
        let late_room = self.shares.late_room(now);
        let instance = *self.streams.get(&stream)?;
        let child = self
            .children
            .get_mut(&instance)
            .filter(|child| child.stream == Some(stream))?;
        self.shares.renew(now, child);
        child.last_report = now;
        let before = child.books.keys_held();
        let entered = child.books.enter_into(now, report, late_room, ledger);
        self.key_room
            .on_change(&child.identity, before, child.books.keys_held());
        child.cut = child.cut.saturating_add(entered.cut);
        child.clients.connected = match child.identity.role {
            Role::Client => 1,
            Role::Aggregator => report.clients.connected.min(CLIENTS_MAX),
        };
        if report.greeting.identity.is_some() {
            child.version.clone_from(&report.greeting.version);
        }
        if !report.more {
            let connected = child.clients.connected;
            child.clients = ClientCounts {
                connected,
                ..report.clients.at_most(connected)
            };
            child.take_modes(report);
        }
        let is_news = entered.cut > 0 && child.cut / 2 >= child.cut_taken;
        self.shares.take_late(entered.counted_late);
        if is_news && self.cut.len() < CUT_MAX && !self.cut.contains(&instance) {
            self.cut.push(instance);
        }
        Some(entered)
    }

    /// Takes the children that reported requests which they cannot have decided, each with the number of those
    /// so far. A child is returned again once that number has doubled.
    pub fn take_cut(&mut self) -> Vec<(Identity, u64)> {
        let mut taken = Vec::new();
        for instance in std::mem::take(&mut self.cut) {
            if let Some(child) = self.children.get_mut(&instance) {
                child.cut_taken = child.cut;
                taken.push((child.identity.clone(), child.cut));
            }
        }
        taken
    }

    fn new_books(&self, role: Role) -> Books {
        let clients_max = match role {
            Role::Client => 1,
            Role::Aggregator => CLIENTS_MAX,
        };
        Books::new(self.own, self.keys_max(role)).with_bounds(self.decisions_per_s_max, clients_max)
    }

    const fn keys_max(&self, role: Role) -> usize {
        match role {
            Role::Client => self.keys_per_child_max,
            Role::Aggregator => self.keys_per_aggregator_max,
        }
    }

    /// Begins a stream of a child, which replaces an older stream of the same instance.
    ///
    /// # Errors
    /// If connected children take every place, if a later stream of the child has overtaken this one, or if the
    /// instance has greeted with another role, zone or service.
    pub fn open(
        &mut self,
        now: MonoTime,
        stream: StreamId,
        identity: Identity,
    ) -> Result<&mut ChildSession, StreamRejected> {
        let instance = identity.instance;
        self.check_open(stream, &identity)?;
        if !self.children.contains_key(&instance)
            && self.children.len() >= self.children_max
            && let Some((_, longest_away)) = self.away.first().copied()
        {
            self.remove(longest_away);
        }
        self.streams.insert(stream, instance);
        let mut books = self.new_books(identity.role);
        let shares = &mut self.shares;
        let child = self
            .children
            .entry(instance)
            .or_insert_with(|| ChildSession {
                share_since: shares.open(now, &mut books),
                books,
                identity: identity.clone(),
                version: None,
                stream: None,
                since: now,
                last_report: now,
                unapplied: BTreeMap::new(),
                clients: ClientCounts::default(),
                cut: 0,
                cut_taken: 0,
                confirmed: 0,
                sent: SentState::default(),
            });
        child.identity = identity;
        self.away.remove(&(child.last_report, instance));
        child.stream = Some(stream);
        child.last_report = now;
        child.confirmed = 0;
        child.unapplied.clear();
        child.sent = SentState::default();
        let before = child.books.keys_held();
        child.books.open();
        self.key_room
            .on_change(&child.identity, before, child.books.keys_held());
        Ok(child)
    }

    /// Ends a stream. The child is remembered for [`REMEMBERED`]. Returns its instance if this was
    /// its present stream, and not a replaced one.
    pub fn close(&mut self, now: MonoTime, stream: StreamId) -> Option<InstanceId> {
        let instance = self.streams.remove(&stream)?;
        let child = self
            .children
            .get_mut(&instance)
            .filter(|child| child.stream == Some(stream))?;
        child.stream = None;
        child.last_report = now;
        self.away.insert((now, instance));
        Some(instance)
    }

    /// Removes a child immediately.
    pub fn remove(&mut self, instance: InstanceId) {
        if let Some(removed) = self.children.remove(&instance) {
            self.shares.give_back(&removed.books);
            self.key_room
                .on_change(&removed.identity, removed.books.keys_held(), 0);
            if let Some(stream) = removed.stream {
                self.streams.remove(&stream);
            } else {
                self.away.remove(&(removed.last_report, instance));
            }
        }
    }

    /// Removes children that have been disconnected for longer than [`REMEMBERED`] and returns them. Linear
    /// in their number.
    pub fn prune(&mut self, now: MonoTime) -> Vec<InstanceId> {
        let mut gone = Vec::new();
        while let Some((at, instance)) = self.away.first().copied()
            && now.since(at) > REMEMBERED
        {
            self.remove(instance);
            gone.push(instance);
        }
        gone.sort_unstable();
        gone
    }

    /// Removes buckets from the subscriptions of every child, which asks again if it needs one.
    pub fn unsubscribe(&mut self, gone: &BTreeSet<Bucket>) {
        // Children with one audience keep sharing one.
        let mut kept: HashMap<*const BTreeSet<Bucket>, (Audience, Audience)> = HashMap::new();
        for ChildSession { sent, .. } in self.children.values_mut() {
            sent.fresh.retain(|bucket| !gone.contains(bucket));
            if gone.iter().any(|bucket| sent.audience.contains(bucket)) {
                let shared = kept.entry(Arc::as_ptr(&sent.audience));
                let before = &sent.audience;
                let (_, left) =
                    shared.or_insert_with(|| (Arc::clone(before), Audience::new(&**before - gone)));
                sent.audience = Arc::clone(left);
            }
        }
    }

    /// Maximum number of children, disconnected but remembered ones included.
    pub const fn children_max(&self) -> usize {
        self.children_max
    }

    /// The number of children that disconnected within the last `span` and have not returned. Linear in that number.
    pub fn left_within(&self, now: MonoTime, span: Duration) -> usize {
        let times = self.away.iter().rev().map(|(at, _)| *at);
        times.take_while(|at| now.since(*at) <= span).count()
    }

    /// Returns the child with this present stream.
    pub fn by_stream(&mut self, stream: StreamId) -> Option<&mut ChildSession> {
        let instance = self.streams.get(&stream)?;
        self.children
            .get_mut(instance)
            .filter(|child| child.stream == Some(stream))
    }

    /// Returns a child by its instance.
    pub fn get(&self, instance: InstanceId) -> Option<&ChildSession> {
        self.children.get(&instance)
    }

    /// Returns a child by its instance, mutable.
    pub fn get_mut(&mut self, instance: InstanceId) -> Option<&mut ChildSession> {
        self.children.get_mut(&instance)
    }

    /// Returns true if a newer stream replaced this one, if its child was removed, and for a stream that is not open.
    pub fn is_superseded(&self, stream: StreamId) -> bool {
        let child = self
            .streams
            .get(&stream)
            .and_then(|instance| self.children.get(instance));
        child.is_none_or(|child| child.stream != Some(stream))
    }

    /// Every child, disconnected ones included.
    pub fn iter(&self) -> impl Iterator<Item = &ChildSession> {
        self.children.values()
    }

    /// Every connected child.
    pub fn connected(&self) -> impl Iterator<Item = &ChildSession> {
        self.children
            .values()
            .filter(|child| child.stream.is_some())
    }

    /// The number of connected children.
    pub fn connected_count(&self) -> usize {
        self.children.len().saturating_sub(self.away.len())
    }

    /// Adds up the clients of every connected child.
    pub fn clients(&self) -> ClientCounts {
        self.connected()
            .fold(ClientCounts::default(), |sum, child| {
                sum.plus(child.clients)
            })
    }

    /// The clients, connected here or below, that carry out less than the mode that they were sent, by bucket.
    /// Linear in the children and in the buckets that they name.
    pub fn unapplied(&self) -> BTreeMap<&Bucket, u32> {
        let mut sums = BTreeMap::new();
        for (bucket, clients) in self.connected().flat_map(|child| &child.unapplied) {
            let sum: &mut u32 = sums.entry(bucket).or_default();
            *sum = sum.saturating_add(*clients).min(CLIENTS_MAX);
        }
        sums
    }

    /// Every child, mutable.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut ChildSession> {
        self.children.values_mut()
    }
}

#[cfg(test)]
mod tests;
