//! The limiter as a child of its aggregator: reports what was counted, publishes what is directed. Pure: the feed
//! carries its messages.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::bucket::{Bucket, Key, KeyId};
use plimsoll_core::directive::{Board, Directives, Epoch, Order, Stale, Terms, Values};
use plimsoll_core::exchange::Child;
use plimsoll_core::kill::KillGeneration;
use plimsoll_core::law::ZoneGuard;
use plimsoll_core::report::{Counts, Identity, Outbox, Report, Tally};
use plimsoll_core::rollout::Mode;
use plimsoll_core::time::MonoTime;

use crate::guards::Guards;
use crate::roll::{Change, Roll};
use crate::table::Table;
use crate::word::Word;

/// How often to report until the parent says otherwise.
const REPORT_INTERVAL: Duration = Duration::from_millis(100);

/// What a limiter holds and has sent: a [`Child`] of its zone's aggregator.
///
/// The [`Feed`](crate::Feed) carries its messages over a stream; [`Limiter::detached`](crate::Limiter::detached) gives
/// it to a caller who carries them in some other way.
#[derive(Debug)]
pub struct Subscription {
    identity: Identity,
    table: Arc<Table>,
    buckets: Vec<Bucket>,
    roll: Roll,
    guards: Guards,
    /// Buckets already asked for on the present stream.
    asked: usize,
    greeted: bool,
    outbox: Outbox,
    order: Order,
    board: Board,
    kill: KillGeneration,
    /// Keys with a word of their own, by bucket.
    own: HashMap<Bucket, Vec<u32>>,
    interval: Duration,
    upstream: Option<(MonoTime, Duration)>,
    refused: u64,
}

impl Subscription {
    pub(crate) fn new(identity: Identity, table: Arc<Table>) -> Self {
        Self {
            identity,
            table,
            buckets: Vec::new(),
            roll: Roll::default(),
            guards: Guards::default(),
            asked: 0,
            greeted: false,
            outbox: Outbox::default(),
            order: Order::default(),
            board: Board::default(),
            kill: KillGeneration::default(),
            own: HashMap::new(),
            interval: REPORT_INTERVAL,
            upstream: None,
            refused: 0,
        }
    }

    /// Takes notice of names that the request path entered since.
    fn look(&mut self) {
        let known = self.buckets.len();
        self.table.buckets.entered(|id| {
            let name = self.table.buckets.read(id);
            self.buckets.extend(name.and_then(|(_, name)| Bucket::new(&name).ok()));
            true
        });
        (known..self.buckets.len()).for_each(|id| self.publish(id));
        for change in self.roll.look(&self.table, &self.buckets) {
            if let Change::Entered(id) | Change::Replaced(id) | Change::Woke(id) = change {
                self.publish_key(id);
            }
        }
    }

    /// Lets idle keys leave.
    fn sweep(&mut self, now: MonoTime) {
        let room = self.table.keys.room();
        let is_crowded = room.free < room.ids / 2;
        // What has a directive of its own stays as long as there is room; it would come back with the next directive.
        let stays = |id| !is_crowded && self.table.has_word(id);
        // Until the outbox can tell a parent that another key has an id, none is given to another.
        let settled = |_, _| false;
        for change in self.roll.sweep(now, &self.table, stays, settled) {
            if let Change::Offered(id) = change {
                self.guards.remove(id);
                self.own.values_mut().for_each(|own| own.retain(|key| *key != id));
            }
        }
    }

    /// Time passes: to be called about every 10 ms, off the request path. Refills the guards.
    pub fn on_tick(&mut self, now: MonoTime) {
        // What is offered is measured with each report; while nobody asks for reports, here.
        if self.guards.measured().is_some_and(|at| now.since(at) >= self.interval * 2) {
            self.look();
            self.guards.measure(now, &self.table, self.roll.places());
        }
        self.guards.refill(now, &self.table);
    }

    /// What was decided for each key so far.
    pub fn counts(&mut self) -> BTreeMap<Key, Counts> {
        self.look();
        let all = self.roll.keys().iter().zip((0..).map(KeyId));
        all.map(|(key, id)| (key.clone(), self.roll.counts(&self.table, id))).collect()
    }

    /// What becomes of a bucket's refusals here and now, shadow while killed; `None` before the first directive.
    pub(crate) fn mode_of(&self, bucket: &Bucket) -> Option<Mode> {
        self.board.get(bucket).map(|posted| self.mode(posted.terms().mode))
    }

    /// The highest epoch applied.
    pub(crate) const fn epoch(&self) -> Option<Epoch> {
        self.order.epoch()
    }

    /// How long ago the controller last heard of this zone, all hops' waits included; `None` if it never did.
    pub(crate) fn upstream_age(&self, now: MonoTime) -> Option<Duration> {
        self.upstream.map(|(at, age)| age + now.since(at))
    }

    /// Messages that were not applied because they were older than what is held.
    pub(crate) const fn refused(&self) -> u64 {
        self.refused
    }

    const fn mode(&self, directed: Mode) -> Mode {
        if self.kill.is_killed() { Mode::Shadow } else { directed }
    }

    /// Whether refusals are carried out here and now.
    fn enforces(&self, terms: &Terms) -> bool {
        match self.mode(terms.mode) {
            Mode::Shadow => false,
            Mode::Canary => terms.cohort.contains(&self.identity.name),
            Mode::Enforce => true,
        }
    }

    /// Publishes what holds for the bucket with this id.
    fn publish(&mut self, id: usize) {
        let Some(bucket) = self.buckets.get(id) else { return };
        let Some(posted) = self.board.get(bucket) else { return };
        let enforced = self.enforces(posted.terms());
        let mut own = Vec::new();
        for (tenant, values) in posted.keys() {
            // A key that nobody asks for takes an id only while there are plenty; else it has its words when it enters.
            let Some(key) = self.table.keys.intern_sparingly(id as u32, tenant.as_str()) else { continue };
            direct(&self.table, &mut self.guards, key, posted.terms(), &values, enforced);
            own.push(key);
        }
        own.sort_unstable();
        let before = self.own.insert(bucket.clone(), own.clone()).unwrap_or_default();
        for key in before.into_iter().filter(|key| own.binary_search(key).is_err()) {
            self.table.publish(key, Word::NOTHING);
            self.guards.remove(key);
        }
    }

    /// Publishes what holds for a key that has just entered.
    fn publish_key(&mut self, id: u32) {
        let Some(key) = self.roll.keys().get(id as usize) else { return };
        let Some(posted) = self.board.get(&key.bucket) else { return };
        let Some(values) = posted.own(key.tenant.as_str()) else { return };
        let enforced = self.enforces(posted.terms());
        direct(&self.table, &mut self.guards, id, posted.terms(), &values, enforced);
        let own = self.own.entry(key.bucket.clone()).or_default();
        if let Err(at) = own.binary_search(&id) {
            own.insert(at, id);
        }
    }
}

/// Publishes what holds for one key.
fn direct(table: &Table, guards: &mut Guards, key: u32, terms: &Terms, values: &Values, enforced: bool) {
    let guard = guard_of(terms, values);
    match guard {
        // The tokens are there before anybody can miss them.
        Some(guard) => guards.set(table, key, guard),
        None => guards.remove(key),
    }
    let word = match (values.ratio, guard) {
        (None, None) => Word::NOTHING,
        (ratio, guard) => {
            Word::new(ratio.unwrap_or_default()).enforced(enforced).guarded(guard.is_some()).coin(terms.coin)
        }
    };
    table.publish(key, word);
}

/// The guard that is directed for a key. Without the number of clients to divide it among there is none.
fn guard_of(terms: &Terms, values: &Values) -> Option<ZoneGuard> {
    Some(ZoneGuard {
        limit: terms.limit,
        rate: values.guard?,
        offered: values.offered,
        clients: terms.clients?,
    })
}

impl Child for Subscription {
    fn on_open(&mut self, _now: MonoTime) {
        self.outbox.open();
        self.order.open();
        self.asked = 0;
        self.greeted = false;
    }

    fn report(&mut self, now: MonoTime) -> Report {
        self.look();
        self.sweep(now);
        let mut report = Report {
            identity: (!self.greeted).then(|| self.identity.clone()),
            time: Some(now),
            epoch: self.order.epoch(),
            kill: self.kill,
            asked: self.buckets[self.asked..].to_vec(),
            ..Report::default()
        };
        let (roll, table) = (&self.roll, &self.table);
        let tally = |id| Tally { counts: roll.counts(table, id), late: Counts::ZERO };
        self.outbox.fill(&mut report, roll.keys(), tally);
        // What is offered is first measured when the parent can know of it too: a share of what it does not know of
        // would look like all there is. And two reports may follow each other at once, when a stream breaks or ends; a
        // rate over so little time is noise.
        let lately = self.guards.measured().is_some_and(|at| now.since(at) < self.interval / 2);
        if report.time.is_some() && !lately {
            self.guards.measure(now, &self.table, self.roll.places());
        }
        self.asked = self.buckets.len();
        self.greeted = true;
        report
    }

    fn on_directives(&mut self, now: MonoTime, directives: Directives) -> Result<(), Stale> {
        if !self.kill.believes(directives.kill) {
            self.refused += 1;
            return Err(Stale::KillJump { held: self.kill, got: directives.kill });
        }
        // A kill is never too old to be heard, and a receipt is for this stream, whoever reigns.
        let killed = self.kill.merge(directives.kill);
        self.outbox.on_echo(directives.echo);
        directives.parent.into_iter().for_each(|parent| self.outbox.on_answer(parent));
        let accepted = self.order.accept(directives.epoch, directives.seq);
        if accepted.is_ok() {
            if let Some(age) = directives.upstream_age {
                self.upstream = Some((now, age));
            }
            self.interval = directives.report_interval.unwrap_or(self.interval);
        } else {
            self.refused += 1;
        }
        let news = if accepted.is_ok() { directives.buckets } else { Vec::new() };
        let mut changed: BTreeSet<&Bucket> = BTreeSet::new();
        for directive in &news {
            // What was never asked for takes no room here.
            if self.buckets.contains(&directive.bucket) && self.board.apply(directive) {
                changed.insert(&directive.bucket);
            }
        }
        for id in 0..self.buckets.len() {
            if killed || changed.contains(&self.buckets[id]) {
                self.publish(id);
            }
        }
        accepted
    }

    fn report_interval(&self) -> Duration {
        self.interval
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests;
