//! The limiter as a child of its aggregators: reports what was counted, publishes what is directed. Pure: the feed
//! carries its messages.

mod evidence;
mod keeping;
mod multi;
mod publish;
mod session;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::names::{Bucket, Key, KeyId};
use plimsoll_core::decision::coherent::Coherence;
use plimsoll_core::directive::{Board, BucketDirective, Directives, Epoch, StaleDirective};
use plimsoll_core::exchange::Child;
use plimsoll_core::kill::Kills;
use plimsoll_core::quantity::Rate;
use plimsoll_core::report::{Counts, Handover, Identity, Report, Tally};
use plimsoll_core::quantity::MonoTime;

use crate::hot::guards::Guards;
use crate::interner::key_registry::{Change, Roll};
use crate::assignment::EndpointId;
use crate::hot::table::Table;

pub(crate) use evidence::Watched;
use evidence::Witness;
use multi::Several;
use session::Strand;

/// The one conversation of a limiter that has only one.
const ONLY: EndpointId = EndpointId(0);

/// Names a state of all that is kept for a later process: another one when any of it has changed.
type Version = (u64, Option<Epoch>, u64);

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
    strands: BTreeMap<EndpointId, Strand>,
    /// Who has what, where there may be several; else all is the only one's.
    several: Option<Several>,
    /// What holds, whoever said it.
    board: Board,
    /// The highest epoch applied on any stream.
    epoch: Option<Epoch>,
    kills: Kills,
    /// This process alone only observes, because somebody on its machine says so.
    observes: bool,
    /// What coherent coins draw by.
    coherence: Option<Coherence>,
    /// Keys with a word of their own, by bucket.
    own: HashMap<Bucket, Vec<u32>>,
    /// What the service lets pass of buckets that nobody has spoken of.
    cold: BTreeMap<Bucket, Rate>,
    /// Nobody has spoken since what was kept by an earlier process was taken up.
    from_kept: bool,
    /// The state that was last kept.
    kept: Version,
    witness: Witness,
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
            strands: BTreeMap::from([(ONLY, Strand::new(None))]),
            several: None,
            board: Board::default(),
            epoch: None,
            kills: Kills::default(),
            observes: false,
            coherence: None,
            own: HashMap::new(),
            cold: BTreeMap::new(),
            from_kept: false,
            kept: Version::default(),
            witness: Witness::default(),
            refused: 0,
        }
    }

    /// Lets so many requests/s of a bucket pass here until something is directed for it.
    pub(crate) fn set_cold(&mut self, bucket: Bucket, rate: Rate) {
        self.cold.insert(bucket, rate);
        self.look();
        (0..self.buckets.len()).for_each(|id| self.publish(id));
    }

    /// Takes notice of names that the request path entered since.
    fn look(&mut self) {
        let known = self.buckets.len();
        self.table.buckets.entered(|id| {
            let name = self.table.buckets.read(id);
            self.buckets.extend(name.and_then(|(_, name)| Bucket::new(&name).ok()));
            true
        });
        for id in known..self.buckets.len() {
            if let (Some(several), Some(bucket)) = (&mut self.several, self.buckets.get(id)) {
                several.add_bucket(bucket);
            }
            self.publish(id);
        }
        for change in self.roll.look(&self.table, &self.buckets) {
            match change {
                Change::Entered(id) => self.take_in(id, Handover::FIRST),
                Change::Replaced(id) => {
                    self.take_out(id);
                    self.take_in(id, Handover::default());
                }
                Change::Woke(_) | Change::Offered(_) => {}
            }
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
        let settled = |KeyId(id), counts| match &self.several {
            None => self.strands.get(&ONLY).is_none_or(|strand| strand.has_reported(id, counts)),
            Some(several) => {
                let strand = several.owner_of(id).and_then(|owner| self.strands.get(&owner));
                strand.map_or(counts == Counts::ZERO, |strand| strand.has_reported_here(id, counts))
            }
        };
        for change in self.roll.sweep(now, &self.table, stays, settled) {
            if let Change::Offered(id) = change {
                self.guards.remove(id);
                self.own.values_mut().for_each(|own| own.retain(|key| *key != id));
            }
        }
    }

    /// Time passes: to be called about every 10 ms, off the request path. Refills the guards.
    pub fn on_tick(&mut self, now: MonoTime) {
        // Something is held for names before they are asked for.
        if self.from_kept || !self.cold.is_empty() {
            self.look();
        }
        // What is offered is measured with each report; while nobody asks for reports, and where several do, here.
        let due = if self.several.is_some() { self.report_interval() } else { self.report_interval() * 2 };
        if self.guards.measured().is_some_and(|at| now.since(at) >= due) {
            self.look();
            self.guards.measure(now, &self.table, self.roll.places());
        }
        self.guards.refill(now, &self.table);
        self.turn(now);
    }

    /// What was decided for each key so far.
    pub fn counts(&mut self) -> BTreeMap<Key, Counts> {
        self.look();
        let all = self.roll.keys().iter().zip((0..).map(KeyId));
        all.map(|(key, id)| (key.clone(), self.roll.counts(&self.table, id))).collect()
    }

    /// The highest epoch applied.
    pub(crate) const fn epoch(&self) -> Option<Epoch> {
        self.epoch
    }

    /// How long ago the controller last heard of this zone, all hops' waits included; `None` if it never did. Of
    /// several aggregators, the one that speaks for a bucket and heard it the longest ago.
    pub(crate) fn upstream_age(&self, now: MonoTime) -> Option<Duration> {
        let speaks = |id: &EndpointId| self.several.as_ref().is_none_or(|several| several.has_any(*id));
        let speaking = self.strands.iter().filter(|(id, _)| speaks(id));
        speaking.filter_map(|(_, strand)| strand.upstream_age(now)).max()
    }

    /// Messages that were not applied because they were older than what is held.
    pub(crate) const fn refused(&self) -> u64 {
        self.refused
    }

    /// From now on this process alone only observes, or no longer, whatever anybody directs; true when that is new.
    pub(crate) fn observe(&mut self, only: bool) -> bool {
        let is_new = std::mem::replace(&mut self.observes, only) != only;
        if is_new {
            (0..self.buckets.len()).for_each(|id| self.publish(id));
        }
        is_new
    }

    /// Whether this process alone only observes.
    pub(crate) const fn observes(&self) -> bool {
        self.observes
    }

    /// Whether one of the parents waits to know what was heard.
    pub(crate) fn is_report_due_to(&self, id: EndpointId) -> bool {
        self.strands.get(&id).is_some_and(|strand| strand.drill_told < self.kills.drill())
    }

    /// What to say now to one of the parents.
    pub(crate) fn report_to(&mut self, id: EndpointId, now: MonoTime) -> Report {
        self.look();
        self.sweep(now);
        let Some(strand) = self.strands.get_mut(&id) else { return Report::default() };
        let several = self.several.as_ref();
        let is_wanted = |bucket| several.is_none_or(|several| several.asks(bucket, id));
        let asked = strand.ask(self.buckets.len(), is_wanted);
        let mut report = Report {
            identity: (!strand.greeted).then(|| self.identity.clone()),
            time: Some(now),
            epoch: self.epoch,
            kill: self.kills.fleet(),
            kills: self.kills.since(strand.kills_told),
            drill: self.kills.drill(),
            asked: asked.into_iter().map(|bucket| self.buckets[bucket].clone()).collect(),
            ..Report::default()
        };
        strand.greeted = true;
        (strand.kills_told, strand.drill_told) = (self.kills.version(), self.kills.drill());
        let (roll, table, witness) = (&self.roll, &self.table, &mut self.witness);
        let mut note = |key: u32, new| witness.note(roll.places(), key, new);
        match several {
            None => {
                let tally = |id| Tally { counts: roll.counts(table, id), late: Counts::ZERO };
                strand.outbox.fill_noting(&mut report, roll.keys(), tally, |id, new| note(id.0, new));
            }
            Some(several) => {
                let counts = |key| {
                    if several.is_withheld(key) { Counts::ZERO } else { roll.counts(table, KeyId(key)) }
                };
                strand.fill(&mut report, counts, note);
            }
        }
        self.testify(id, now, &mut report);
        let Some(strand) = self.strands.get(&id) else { return report };
        let several = self.several.as_ref();
        // What is offered is first measured when the parent can know of it too: a share of what it does not know of
        // would look like all there is. And two reports may follow each other at once, when a stream breaks or ends; a
        // rate over so little time is noise.
        let lately = match several {
            None => self.guards.measured().is_some_and(|at| now.since(at) < strand.interval / 2),
            Some(_) => self.guards.measured().is_some(),
        };
        if report.time.is_some() && !lately {
            self.guards.measure(now, &self.table, self.roll.places());
        }
        report
    }

    /// Takes a message of one of the parents.
    pub(crate) fn take(
        &mut self,
        id: EndpointId,
        now: MonoTime,
        directives: Directives,
    ) -> Result<(), StaleDirective> {
        let Some(strand) = self.strands.get_mut(&id) else { return Ok(()) };
        if let Err((held, got)) = self.kills.check(directives.kill, &directives.kills) {
            self.refused += 1;
            return Err(StaleDirective::KillJump { held, got });
        }
        // A kill is never too old to be heard, and a receipt is for this stream, whoever reigns.
        let turned = self.kills.merge(directives.kill, &directives.kills);
        self.kills.hear_drill(directives.drill);
        strand.outbox.on_echo(directives.echo);
        directives.parent.into_iter().for_each(|parent| strand.answered(parent));
        let accepted = strand.order.accept(directives.epoch, directives.seq);
        if accepted.is_ok() {
            if let Some(age) = directives.upstream_age {
                strand.upstream = Some((now, age));
            }
            strand.interval = directives.report_interval.unwrap_or(strand.interval);
            self.epoch = self.epoch.max(directives.epoch);
        } else {
            self.refused += 1;
        }
        if directives.parent.is_some() {
            self.on_live(id, now);
        }
        let mut news = if accepted.is_ok() { directives.buckets } else { Vec::new() };
        for directive in &mut news {
            directive.terms.kill = directive.terms.kill.at_most(self.kills.of(&directive.bucket));
        }
        let mut changed: BTreeSet<&Bucket> = BTreeSet::new();
        for directive in &news {
            // What was never asked for takes no room here.
            if self.buckets.contains(&directive.bucket) && self.apply(id, directives.epoch, directive) {
                changed.insert(&directive.bucket);
            }
        }
        for bucket in 0..self.buckets.len() {
            if turned || changed.contains(&self.buckets[bucket]) {
                self.publish(bucket);
            }
        }
        accepted
    }

    /// Applies what a parent says of a bucket, if it is the one to be listened to; true when that changed anything.
    fn apply(&mut self, id: EndpointId, epoch: Option<Epoch>, directive: &BucketDirective) -> bool {
        if self.several.is_some() {
            return self.apply_of(id, epoch, directive);
        }
        self.from_kept = false;
        self.board.apply(directive)
    }
}

impl Child for Subscription {
    fn on_open(&mut self, _now: MonoTime) {
        self.open(ONLY);
    }

    fn report(&mut self, now: MonoTime) -> Report {
        self.report_to(ONLY, now)
    }

    fn on_directives(&mut self, now: MonoTime, directives: Directives) -> Result<(), StaleDirective> {
        self.take(ONLY, now, directives)
    }

    fn is_report_due(&self) -> bool {
        self.is_report_due_to(ONLY)
    }

    fn report_interval(&self) -> Duration {
        self.strands.values().map(|strand| strand.interval).min().unwrap_or(session::REPORT_INTERVAL)
    }
}

#[cfg(test)]
#[cfg(not(feature = "loom"))]
mod tests;
