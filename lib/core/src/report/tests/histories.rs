//! Random histories of one child with two parents, links that break anywhere, and keys handed over between
//! links: no request is counted twice, and every missing request is counted as unconfirmed.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::collection::vec;
use proptest::prelude::*;

use super::{identity, key};
use crate::exchange::sessions::Sessions;
use crate::exchange::{StreamId, StreamRejected};
use crate::names::{Key, KeyId};
use crate::quantity::MonoTime;
use crate::report::{Counts, Echo, InstanceId, Outbox, Report, Tally};

const KEYS: usize = 2;
const INSTANCE: InstanceId = InstanceId(7);

/// The next event. An impossible event (a report without a stream) does nothing.
#[derive(Clone, Debug)]
enum Step {
    /// Requests come for one of the keys. Some are refused, by the coin, by a quota, or from the memory of one.
    Decide { key: usize, new: Counts },
    /// The child begins a stream with this parent on this uplink, regardless of the earlier state.
    Connect { uplink: usize, parent: usize },
    /// The child sends a report; it is now on its way.
    Send(usize),
    /// A report arrives at this parent, on one of the streams that carry any.
    Arrive(usize, usize),
    /// This parent's counts reach the controller.
    RollUp(usize),
    /// The controller's acknowledgement of its oldest roll-up reaches this parent.
    Receipt(usize),
    /// The parent's acknowledgement reaches the child.
    Echo(usize),
    /// The child loses a stream. Messages on their way may still arrive.
    Break(usize),
    /// Messages on their way to this parent are lost, and the streams with them.
    Lose(usize),
    /// This parent loses its memory, and every count that has not reached the controller.
    Crash(usize),
    /// This parent forgets the disconnected child but keeps its own counts.
    Forget(usize),
    /// Everything arrives and is confirmed before the child turns to this parent.
    Move(usize),
    /// A key moves to the other uplink, regardless of messages on their way.
    Hand(usize),
    /// A key is finished if all its counts are confirmed, and its place is given to a key that
    /// counts from zero: with another name, or with the same one.
    Finish { key: usize, renames: bool },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Decided,
    /// In a parent's books, not yet at the controller.
    Entered(usize),
    Counted,
    /// It was in the books of a parent that crashed.
    Lost,
}

struct World {
    now: MonoTime,
    keys: Vec<Counted>,
    uplinks: [Uplink; 2],
    streams: u64,
    parents: [ParentSide; 2],
    ids: HashMap<(StreamId, KeyId), usize>,
    unconfirmed: u64,
}

/// One key in one life.
#[derive(Default)]
struct Counted {
    name: usize,
    decided: Counts,
    counted: Counts,
    fates: Vec<Fate>,
    finished: bool,
    at: (usize, usize),
}

#[derive(Default)]
struct Uplink {
    outbox: Outbox,
    line: Option<Line>,
    places: Vec<Option<usize>>,
}

#[derive(Clone, Copy)]
struct Line {
    parent: usize,
    stream: StreamId,
}

/// A report on its way, and the life of the name of each key that it defines.
#[derive(Debug)]
struct Sent {
    report: Report,
    lives: BTreeMap<KeyId, usize>,
}

struct ParentSide {
    id: InstanceId,
    roster: Sessions,
    arriving: Vec<(StreamId, VecDeque<Sent>)>,
    /// Entered, not yet rolled up, by key.
    pending: BTreeMap<usize, Counts>,
    /// The report contained in each roll-up that is not acknowledged yet.
    rollups: VecDeque<(StreamId, u64)>,
}

impl Default for ParentSide {
    fn default() -> Self {
        static LIVES: AtomicU64 = AtomicU64::new(100);
        let id = InstanceId(LIVES.fetch_add(1, Ordering::Relaxed).into());
        Self {
            id,
            roster: Sessions::new(id, 1, 100),
            arriving: Vec::new(),
            pending: BTreeMap::new(),
            rollups: VecDeque::new(),
        }
    }
}

impl Default for World {
    fn default() -> Self {
        let key = |at| Counted {
            name: at,
            at: (0, at),
            ..Counted::default()
        };
        let mut uplinks: [Uplink; 2] = Default::default();
        uplinks[0].places = (0..KEYS).map(Some).collect();
        Self {
            now: MonoTime::default(),
            keys: (0..KEYS).map(key).collect(),
            uplinks,
            streams: 0,
            parents: Default::default(),
            ids: HashMap::new(),
            unconfirmed: 0,
        }
    }
}

impl World {
    fn step(&mut self, step: &Step) {
        self.now = self.now + std::time::Duration::from_millis(100);
        match *step {
            Step::Decide { key, new } => self.decide(key, new),
            Step::Connect { uplink, parent } => self.connect(uplink, parent),
            Step::Send(uplink) => self.send(uplink),
            Step::Arrive(parent, pick) => self.arrive(parent, pick),
            Step::RollUp(parent) => self.roll_up(parent),
            Step::Receipt(parent) => self.receipt(parent),
            Step::Echo(uplink) => self.echo(uplink),
            Step::Break(uplink) => self.uplinks[uplink].line = None,
            Step::Lose(parent) => self.lose(parent),
            Step::Crash(parent) => self.crash(parent),
            Step::Forget(parent) => self.forget(parent),
            Step::Move(parent) => self.move_to(parent),
            Step::Hand(key) => self.hand(key),
            Step::Finish { key, renames } => self.finish(key, renames),
        }
        self.check();
    }

    fn living(&self, pick: usize) -> usize {
        let living: Vec<usize> = (0..self.keys.len())
            .filter(|key| !self.keys[*key].finished)
            .collect();
        living[pick % living.len()]
    }

    fn decide(&mut self, pick: usize, new: Counts) {
        let key = self.living(pick);
        let key = &mut self.keys[key];
        key.decided = key.decided.plus(new);
        key.fates
            .resize(key.decided.asked() as usize, Fate::Decided);
    }

    fn connect(&mut self, uplink: usize, parent: usize) {
        self.streams += 1;
        let stream = StreamId(self.streams);
        self.uplinks[uplink].line = Some(Line { parent, stream });
        self.parents[parent]
            .arriving
            .push((stream, VecDeque::new()));
        self.uplinks[uplink].outbox.open();
    }

    fn send(&mut self, uplink: usize) {
        let Uplink {
            outbox,
            line,
            places,
        } = &mut self.uplinks[uplink];
        let Some(line) = line else { return };
        let mut report = Report {
            time: Some(self.now),
            ..Report::default()
        };
        if outbox.seq() == 0 {
            report.greeting.identity = Some(identity());
        }
        let name = |at: &Option<usize>| key(&at.map_or(999, |at| self.keys[at].name).to_string());
        let names: Vec<Key> = places.iter().map(name).collect();
        let keys = &self.keys;
        let tally_of = |id: KeyId| Tally {
            counts: keys[places[id.index()].unwrap()].decided,
            late: Counts::ZERO,
        };
        outbox.fill(&mut report, &names, tally_of);
        // The owner of the counts is fixed here: when they arrive, a later life may have the name.
        let life_of = |key: &Key| {
            let lives = places.iter().flatten().copied();
            lives
                .into_iter()
                .find(|at| keys[*at].name.to_string() == key.tenant.as_str())
                .unwrap()
        };
        let lives = report
            .definitions
            .iter()
            .map(|(id, definition)| (*id, life_of(&definition.key)));
        let lives = lives.collect();
        let arriving = &mut self.parents[line.parent].arriving;
        if let Some((_, queue)) = arriving
            .iter_mut()
            .find(|(stream, _)| *stream == line.stream)
        {
            queue.push_back(Sent { report, lives });
        }
    }

    fn arrive(&mut self, parent: usize, pick: usize) {
        let busy: Vec<StreamId> = self.parents[parent]
            .arriving
            .iter()
            .filter(|(_, queue)| !queue.is_empty())
            .map(|(stream, _)| *stream)
            .collect();
        if !busy.is_empty() {
            self.arrive_on(parent, busy[pick % busy.len()]);
        }
    }

    fn arrive_on(&mut self, parent: usize, stream: StreamId) {
        let arriving = &mut self.parents[parent].arriving;
        let Some((_, queue)) = arriving.iter_mut().find(|(other, _)| *other == stream) else {
            return;
        };
        let Some(sent) = queue.pop_front() else {
            return;
        };
        if self.enter(parent, stream, &sent).is_err() {
            arriving_without(&mut self.parents[parent], stream);
            self.hang_up(|line| line.stream == stream);
        }
    }

    fn hang_up(&mut self, ends: impl Fn(&Line) -> bool) {
        for uplink in &mut self.uplinks {
            uplink.line = uplink.line.filter(|line| !ends(line));
        }
    }

    fn enter(
        &mut self,
        parent: usize,
        stream: StreamId,
        sent: &Sent,
    ) -> Result<(), StreamRejected> {
        let Sent { report, lives } = sent;
        let ParentSide {
            roster, pending, ..
        } = &mut self.parents[parent];
        if roster.by_stream(stream).is_none() {
            let identity = report
                .greeting
                .identity
                .clone()
                .ok_or(StreamRejected::Greeting)?;
            roster.open(self.now, stream, identity)?;
        }
        let child = roster.by_stream(stream).ok_or(StreamRejected::Unknown)?;
        let keys = &mut self.keys;
        let own_id = |key: &Key| {
            let at = lives
                .values()
                .find(|at| keys[**at].name.to_string() == key.tenant.as_str());
            Some(KeyId(*at.unwrap() as u32))
        };
        let entered = child
            .books
            .enter(self.now, report, own_id)
            .expect("a sound child is never refused");
        self.unconfirmed += entered.unconfirmed;
        self.ids
            .extend(lives.iter().map(|(id, at)| ((stream, *id), *at)));
        for entry in entered.entries {
            let at = entry.own.unwrap().index();
            let told = report
                .tallies
                .iter()
                .find(|(id, _)| self.ids[&(stream, *id)] == at);
            let (reached, new) = (told.unwrap().1.counts.asked(), entry.delta.counts.asked());
            for request in reached - new..reached {
                let fate = &mut keys[at].fates[request as usize];
                assert_eq!(
                    *fate,
                    Fate::Decided,
                    "request {request} of key {at} counted again"
                );
                *fate = Fate::Entered(parent);
            }
            let pending = pending.entry(at).or_default();
            *pending = pending.plus(entry.delta.counts);
        }
        Ok(())
    }

    fn roll_up(&mut self, parent: usize) {
        let side = &mut self.parents[parent];
        for (at, pending) in std::mem::take(&mut side.pending) {
            self.keys[at].counted = self.keys[at].counted.plus(pending);
        }
        if let Some(child) = side.roster.get(INSTANCE)
            && let Some(stream) = child.stream
        {
            side.rollups.push_back((stream, child.books.seq()));
        }
        self.settle_fates(parent, Fate::Counted);
    }

    fn receipt(&mut self, parent: usize) {
        let side = &mut self.parents[parent];
        if let Some((stream, seq)) = side.rollups.pop_front()
            && let Some(child) = side.roster.by_stream(stream)
        {
            child.confirmed = child.confirmed.max(seq);
        }
    }

    fn echo(&mut self, uplink: usize) {
        let Uplink {
            outbox,
            line: Some(line),
            ..
        } = &mut self.uplinks[uplink]
        else {
            return;
        };
        let ParentSide { id, roster, .. } = &mut self.parents[line.parent];
        if let Some(child) = roster.by_stream(line.stream) {
            outbox.on_answer(*id);
            outbox.on_echo(Echo {
                covered: child.books.seq(),
                confirmed: child.confirmed,
            });
        }
    }

    fn lose(&mut self, parent: usize) {
        let side = &mut self.parents[parent];
        for (stream, _) in side.arriving.drain(..) {
            side.roster.close(self.now, stream);
        }
        self.hang_up(|line| line.parent == parent);
    }

    fn crash(&mut self, parent: usize) {
        self.parents[parent] = ParentSide::default();
        self.hang_up(|line| line.parent == parent);
        self.settle_fates(parent, Fate::Lost);
    }

    fn forget(&mut self, parent: usize) {
        if self
            .uplinks
            .iter()
            .filter_map(|uplink| uplink.line)
            .all(|line| line.parent != parent)
        {
            self.lose(parent);
            self.parents[parent].roster.remove(INSTANCE);
        }
    }

    fn move_to(&mut self, parent: usize) {
        if let Some(line) = self.uplinks[0].line {
            self.send(0);
            self.deliver(0, line);
        }
        self.connect(0, parent);
        self.speak(0);
    }

    fn hand(&mut self, pick: usize) {
        let key = self.living(pick);
        let (from, place) = self.keys[key].at;
        let handed = self.uplinks[from]
            .outbox
            .release(KeyId(place as u32))
            .unwrap();
        self.uplinks[from].places[place] = None;
        let other = &mut self.uplinks[1 - from];
        let free = other
            .places
            .iter()
            .position(Option::is_none)
            .unwrap_or(other.places.len());
        other.places.resize(other.places.len().max(free + 1), None);
        other.places[free] = Some(key);
        other.outbox.adopt(KeyId(free as u32), handed);
        self.keys[key].at = (1 - from, free);
    }

    fn finish(&mut self, pick: usize, renames: bool) {
        let key = self.living(pick);
        let (uplink, place) = self.keys[key].at;
        let Uplink { outbox, places, .. } = &mut self.uplinks[uplink];
        let tally = Tally {
            counts: self.keys[key].decided,
            late: Counts::ZERO,
        };
        if !outbox.is_settled(KeyId(place as u32), tally) {
            return;
        }
        assert!(outbox.replace(KeyId(place as u32)));
        self.keys[key].finished = true;
        let name = if renames {
            self.keys.len()
        } else {
            self.keys[key].name
        };
        places[place] = Some(self.keys.len());
        self.keys.push(Counted {
            name,
            at: (uplink, place),
            ..Counted::default()
        });
    }

    /// The greeting and, once it is answered, the first counts; all of it arrives and is confirmed.
    fn speak(&mut self, uplink: usize) {
        let line = self.uplinks[uplink].line.unwrap();
        for _ in 0..2 {
            self.send(uplink);
            self.deliver(uplink, line);
        }
    }

    fn deliver(&mut self, uplink: usize, Line { parent, stream }: Line) {
        while self.parents[parent]
            .arriving
            .iter()
            .any(|(other, queue)| *other == stream && !queue.is_empty())
        {
            self.arrive_on(parent, stream);
        }
        self.roll_up(parent);
        while !self.parents[parent].rollups.is_empty() {
            self.receipt(parent);
        }
        self.echo(uplink);
    }

    fn settle_fates(&mut self, parent: usize, end: Fate) {
        let fates = self.keys.iter_mut().flat_map(|key| &mut key.fates);
        fates
            .filter(|fate| **fate == Fate::Entered(parent))
            .for_each(|fate| *fate = end);
    }

    /// counted <= decided, at every moment and in every column.
    fn check(&self) {
        for (at, key) in self.keys.iter().enumerate() {
            let pending = self.parents.iter().filter_map(|side| side.pending.get(&at));
            let entered = pending.fold(key.counted, |sum, pending| sum.plus(*pending));
            assert!(
                key.decided.covers(entered),
                "{entered:?} entered of {:?}",
                key.decided
            );
        }
    }

    /// The quiet end: the child is connected to one parent, or with two uplinks to both, and both roll up
    /// everything.
    fn settle(&mut self, parent: usize) {
        self.lose(0);
        self.lose(1);
        for uplink in 0..2 {
            self.connect(uplink, (parent + uplink) % 2);
            self.speak(uplink);
        }
        self.roll_up(1 - parent);
        self.check();
    }

    /// decided <= counted + unconfirmed.
    fn check_accounted(&self) {
        let fates = self.keys.iter().flat_map(|key| &key.fates);
        let missing = fates.filter(|fate| **fate != Fate::Counted).count() as u64;
        assert!(
            missing <= self.unconfirmed,
            "{missing} are missing, {} were given up",
            self.unconfirmed
        );
        let sum =
            |of: fn(&Counted) -> Counts| self.keys.iter().map(|key| of(key).asked()).sum::<u64>();
        assert_eq!(sum(|key| key.counted) + missing, sum(|key| key.decided));
    }

    fn check_exact(&self) {
        for key in &self.keys {
            assert_eq!(key.counted, key.decided);
        }
        assert_eq!(self.unconfirmed, 0);
    }
}

fn arriving_without(side: &mut ParentSide, stream: StreamId) {
    side.arriving.retain(|(other, _)| *other != stream);
}

fn decide() -> impl Strategy<Value = Step> {
    let by_quota = (0..3u64, 0..2u64, prop_oneof![Just(0), 0..5u64]);
    (0..KEYS, 0..5u64, 0..3u64, by_quota).prop_map(
        |(key, admitted, dropped, (quota_dropped, would_quota_dropped, quota_repeated))| {
            let offered = admitted + dropped + quota_dropped + would_quota_dropped;
            let new = Counts {
                offered,
                dropped,
                quota_dropped,
                would_quota_dropped,
                quota_repeated,
                ..Counts::ZERO
            };
            Step::Decide { key, new }
        },
    )
}

fn talk(uplinks: usize, parents: std::ops::Range<usize>) -> impl Strategy<Value = Step> {
    let parent = move || parents.clone();
    let uplink = move || 0..uplinks;
    prop_oneof![
        5 => decide(),
        5 => uplink().prop_map(Step::Send),
        5 => (parent(), 0..3usize).prop_map(|(parent, pick)| Step::Arrive(parent, pick)),
        3 => parent().prop_map(Step::RollUp),
        3 => parent().prop_map(Step::Receipt),
        3 => uplink().prop_map(Step::Echo),
        1 => uplink().prop_map(Step::Break),
        2 => (uplink(), parent()).prop_map(|(uplink, parent)| Step::Connect { uplink, parent }),
        1 => parent().prop_map(Step::Lose),
    ]
}

fn finish() -> impl Strategy<Value = Step> {
    (0..KEYS, any::<bool>()).prop_map(|(key, renames)| Step::Finish { key, renames })
}

fn any_step(uplinks: usize) -> impl Strategy<Value = Step> {
    prop_oneof![
        16 => talk(uplinks, 0..2),
        1 => finish(),
        1 => (0..2usize).prop_map(Step::Crash),
        1 => (0..2usize).prop_map(Step::Forget),
    ]
}

fn any_handing() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (0..KEYS).prop_map(Step::Hand),
        12 => any_step(2).prop_map(|step| match step {
            Step::Connect { uplink, .. } => Step::Connect { uplink, parent: uplink },
            step => step,
        }),
        // Everything sent arrives and is confirmed, so that the next step begins with equal books.
        1 => (0..2usize).prop_map(Step::Move),
    ]
}

/// counted <= decided <= counted + unconfirmed, in every history.
fn check_history(history: &[Step], last: usize) {
    let mut world = World::default();
    history.iter().for_each(|step| world.step(step));
    world.settle(last);
    world.check_accounted();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn nothing_counts_twice_or_vanishes_unnamed(
        history in vec(any_step(1), 0..80), last in 0..2usize,
    ) {
        check_history(&history, last);
    }

    #[test]
    fn keys_handed_back_and_forth_count_once(
        history in vec(any_handing(), 0..120), last in 0..2usize,
    ) {
        check_history(&history, last);
    }

    #[test]
    fn two_uplinks_to_one_parent_are_harmless(
        history in vec(prop_oneof![8 => any_step(2), 1 => (0..KEYS).prop_map(Step::Hand)], 0..80), last in 0..2usize,
    ) {
        check_history(&history, last);
    }

    #[test]
    fn one_parent_that_lives_counts_everything(history in vec(talk(1, 0..1), 0..80)) {
        let mut world = World::default();
        let acquaintance = [Step::Send(0), Step::Arrive(0, 0), Step::Echo(0), Step::Send(0), Step::Arrive(0, 0)];
        for step in [Step::Connect { uplink: 0, parent: 0 }].iter().chain(&acquaintance) {
            world.step(step);
        }
        history.iter().for_each(|step| world.step(step));
        world.settle(0);
        world.check_exact();
    }

    #[test]
    fn living_parents_count_everything_confirmed(
        history in vec(prop_oneof![decide(), (0..2usize).prop_map(Step::Move), finish()], 0..30), last in 0..2usize,
    ) {
        let mut world = World::default();
        history.iter().for_each(|step| world.step(step));
        world.step(&Step::Move(last));
        world.check_exact();
    }
}
