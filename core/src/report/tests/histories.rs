//! One child, two parents and a link that breaks anywhere: whatever happens, no request is counted twice, and none
//! is missing that was not given up by name.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::collection::vec;
use proptest::prelude::*;

use super::{identity, key};
use crate::bucket::{Key, KeyId};
use crate::exchange::{Refused, StreamId};
use crate::report::{Counts, Echo, InstanceId, Outbox, Report, Tally};
use crate::roster::Roster;
use crate::time::MonoTime;

const KEYS: usize = 2;
const INSTANCE: InstanceId = InstanceId(7);

/// What may happen next. Where it makes no sense (a report without a stream), nothing does.
#[derive(Clone, Debug)]
enum Step {
    /// Requests come, some of them are refused.
    Decide { key: usize, admitted: u64, dropped: u64 },
    /// The child begins a stream with this parent, whatever became of the one before.
    Connect(usize),
    /// The child sends a report; it is now on its way.
    Send,
    /// A report arrives at this parent, on one of the streams that carry any.
    Arrive(usize, usize),
    /// This parent's counts reach the controller.
    RollUp(usize),
    /// The controller's receipt for its oldest roll-up reaches this parent.
    Receipt(usize),
    /// The parent's receipt reaches the child.
    Echo,
    /// The child loses its stream. What is on its way may still arrive.
    Break,
    /// What is on its way to this parent is lost, and the streams with it.
    Lose(usize),
    /// This parent loses its memory, and every count that has not reached the controller.
    Crash(usize),
    /// This parent forgets the child, which is away; its own counts it keeps.
    Forget(usize),
    /// Everything arrives and is confirmed before the child turns to this parent.
    Move(usize),
}

/// What became of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Decided,
    /// In a parent's books, not yet at the controller.
    Entered(usize),
    Counted,
    /// It was in the books of a parent that crashed.
    Lost,
}

#[derive(Default)]
struct World {
    now: MonoTime,
    decided: [Counts; KEYS],
    outbox: Outbox,
    line: Option<Line>,
    streams: u64,
    parents: [ParentSide; 2],
    fates: [Vec<Fate>; KEYS],
    counted: [Counts; KEYS],
    unconfirmed: u64,
}

/// The child's present stream.
#[derive(Clone, Copy)]
struct Line {
    parent: usize,
    stream: StreamId,
}

struct ParentSide {
    /// This life of it.
    id: InstanceId,
    roster: Roster,
    arriving: Vec<(StreamId, VecDeque<Report>)>,
    /// Entered, not yet rolled up.
    pending: [Counts; KEYS],
    /// The report contained in each roll-up that has no receipt yet.
    rollups: VecDeque<(StreamId, u64)>,
}

impl Default for ParentSide {
    fn default() -> Self {
        static LIVES: AtomicU64 = AtomicU64::new(100);
        let id = InstanceId(LIVES.fetch_add(1, Ordering::Relaxed).into());
        Self {
            id,
            roster: Roster::new(id, 1, 100),
            arriving: Vec::new(),
            pending: Default::default(),
            rollups: VecDeque::new(),
        }
    }
}

impl World {
    fn step(&mut self, step: &Step) {
        self.now = self.now + std::time::Duration::from_millis(100);
        match *step {
            Step::Decide { key, admitted, dropped } => self.decide(key, admitted, dropped),
            Step::Connect(parent) => self.connect(parent),
            Step::Send => self.send(),
            Step::Arrive(parent, pick) => self.arrive(parent, pick),
            Step::RollUp(parent) => self.roll_up(parent),
            Step::Receipt(parent) => self.receipt(parent),
            Step::Echo => self.echo(),
            Step::Break => self.line = None,
            Step::Lose(parent) => self.lose(parent),
            Step::Crash(parent) => self.crash(parent),
            Step::Forget(parent) => self.forget(parent),
            Step::Move(parent) => self.move_to(parent),
        }
        self.check();
    }

    fn decide(&mut self, key: usize, admitted: u64, dropped: u64) {
        let more = Counts { offered: admitted + dropped, dropped, ..Counts::ZERO };
        self.decided[key] = self.decided[key].plus(more);
        self.fates[key].resize(self.decided[key].offered as usize, Fate::Decided);
    }

    fn connect(&mut self, parent: usize) {
        self.line = None;
        self.streams += 1;
        let stream = StreamId(self.streams);
        self.line = Some(Line { parent, stream });
        self.parents[parent].arriving.push((stream, VecDeque::new()));
        self.outbox.open();
    }

    fn send(&mut self) {
        let Some(line) = self.line else { return };
        let mut report = Report { time: Some(self.now), ..Report::default() };
        if self.outbox.seq() == 0 {
            report.identity = Some(identity());
        }
        let keys: [Key; KEYS] = std::array::from_fn(|id| key(&id.to_string()));
        let decided = &self.decided;
        let tally_of = |id: KeyId| Tally { counts: decided[id.index()], late: Counts::ZERO };
        self.outbox.fill(&mut report, &keys, tally_of);
        let arriving = &mut self.parents[line.parent].arriving;
        let (_, queue) = arriving.iter_mut().find(|(stream, _)| *stream == line.stream).unwrap();
        queue.push_back(report);
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
        let Some((_, queue)) = arriving.iter_mut().find(|(other, _)| *other == stream) else { return };
        let Some(report) = queue.pop_front() else { return };
        if self.enter(parent, stream, &report).is_err() {
            arriving_without(&mut self.parents[parent], stream);
            self.line = self.line.filter(|line| line.stream != stream);
        }
    }

    /// What every tier's parent does with a report.
    fn enter(&mut self, parent: usize, stream: StreamId, report: &Report) -> Result<(), Refused> {
        let ParentSide { roster, pending, .. } = &mut self.parents[parent];
        if roster.by_stream(stream).is_none() {
            let identity = report.identity.clone().ok_or(Refused::Greeting)?;
            roster.open(self.now, stream, identity)?;
        }
        let child = roster.by_stream(stream).ok_or(Refused::Unknown)?;
        let own_id = |key: &Key| key.tenant.as_str().parse().ok().map(KeyId);
        let entered = child.books.enter(self.now, report, own_id).expect("a sound child is never refused");
        self.unconfirmed += entered.unconfirmed;
        for entry in entered.entries {
            let id = entry.own.unwrap();
            let (reached, new) = (report.tallies[&id].counts.offered, entry.delta.counts.offered);
            for request in reached - new..reached {
                let fate = &mut self.fates[id.index()][request as usize];
                assert_eq!(*fate, Fate::Decided, "request {request} of key {} counted again", id.0);
                *fate = Fate::Entered(parent);
            }
            pending[id.index()] = pending[id.index()].plus(entry.delta.counts);
        }
        Ok(())
    }

    fn roll_up(&mut self, parent: usize) {
        let side = &mut self.parents[parent];
        for (counted, pending) in self.counted.iter_mut().zip(&mut side.pending) {
            *counted = counted.plus(std::mem::take(pending));
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

    fn echo(&mut self) {
        let Some(line) = self.line else { return };
        let ParentSide { id, roster, .. } = &mut self.parents[line.parent];
        if let Some(child) = roster.by_stream(line.stream) {
            self.outbox.on_answer(*id);
            self.outbox.on_echo(Echo { covered: child.books.seq(), confirmed: child.confirmed });
        }
    }

    fn lose(&mut self, parent: usize) {
        let side = &mut self.parents[parent];
        for (stream, _) in side.arriving.drain(..) {
            side.roster.close(self.now, stream);
        }
        self.line = self.line.filter(|line| line.parent != parent);
    }

    fn crash(&mut self, parent: usize) {
        self.parents[parent] = ParentSide::default();
        self.line = self.line.filter(|line| line.parent != parent);
        self.settle_fates(parent, Fate::Lost);
    }

    fn forget(&mut self, parent: usize) {
        if self.line.is_none_or(|line| line.parent != parent) {
            self.lose(parent);
            self.parents[parent].roster.remove(INSTANCE);
        }
    }

    fn move_to(&mut self, parent: usize) {
        if let Some(line) = self.line {
            self.send();
            self.deliver(line);
        }
        self.connect(parent);
        self.speak();
    }

    /// The greeting and, once it is answered, the first counts; all of it is heard and confirmed.
    fn speak(&mut self) {
        let line = self.line.unwrap();
        for _ in 0..2 {
            self.send();
            self.deliver(line);
        }
    }

    /// Everything sent on a stream arrives, is rolled up and confirmed.
    fn deliver(&mut self, Line { parent, stream }: Line) {
        while self.parents[parent].arriving.iter().any(|(other, queue)| *other == stream && !queue.is_empty())
        {
            self.arrive_on(parent, stream);
        }
        self.roll_up(parent);
        while !self.parents[parent].rollups.is_empty() {
            self.receipt(parent);
        }
        self.echo();
    }

    fn settle_fates(&mut self, parent: usize, end: Fate) {
        let entered = self.fates.iter_mut().flatten().filter(|fate| **fate == Fate::Entered(parent));
        entered.for_each(|fate| *fate = end);
    }

    /// counted <= decided, at every moment and in every column.
    fn check(&self) {
        for key in 0..KEYS {
            let entered =
                self.parents.iter().fold(self.counted[key], |sum, side| sum.plus(side.pending[key]));
            assert!(self.decided[key].covers(entered), "{entered:?} entered of {:?}", self.decided[key]);
        }
    }

    /// Peace at the end: the child is with one parent, and both roll up all they have.
    fn settle(&mut self, parent: usize) {
        self.lose(0);
        self.lose(1);
        self.connect(parent);
        self.speak();
        self.roll_up(1 - parent);
        self.check();
    }

    /// decided <= counted + unconfirmed.
    fn check_accounted(&self) {
        let missing = self.fates.iter().flatten().filter(|fate| **fate != Fate::Counted).count() as u64;
        assert!(missing <= self.unconfirmed, "{missing} are missing, {} were given up", self.unconfirmed);
        let sum = |counts: &[Counts; KEYS]| counts.iter().map(|counts| counts.offered).sum::<u64>();
        assert_eq!(sum(&self.counted) + missing, sum(&self.decided));
    }

    fn check_exact(&self) {
        assert_eq!(self.counted, self.decided);
        assert_eq!(self.unconfirmed, 0);
    }
}

fn arriving_without(side: &mut ParentSide, stream: StreamId) {
    side.arriving.retain(|(other, _)| *other != stream);
}

fn decide() -> impl Strategy<Value = Step> {
    (0..KEYS, 0..5u64, 0..3u64).prop_map(|(key, admitted, dropped)| Step::Decide { key, admitted, dropped })
}

fn talk(parents: std::ops::Range<usize>) -> impl Strategy<Value = Step> {
    let parent = move || parents.clone();
    prop_oneof![
        5 => decide(),
        5 => Just(Step::Send),
        5 => (parent(), 0..3usize).prop_map(|(parent, pick)| Step::Arrive(parent, pick)),
        3 => parent().prop_map(Step::RollUp),
        3 => parent().prop_map(Step::Receipt),
        3 => Just(Step::Echo),
        1 => Just(Step::Break),
        2 => parent().prop_map(Step::Connect),
        1 => parent().prop_map(Step::Lose),
    ]
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        16 => talk(0..2),
        1 => (0..2usize).prop_map(Step::Crash),
        1 => (0..2usize).prop_map(Step::Forget),
    ]
}

/// counted <= decided <= counted + unconfirmed, whatever happens.
fn check_history(history: &[Step], last: usize) {
    let mut world = World::default();
    history.iter().for_each(|step| world.step(step));
    world.settle(last);
    world.check_accounted();
}

#[test]
fn a_child_that_comes_back_unconfirmed_is_not_counted_twice() {
    let decide = [Step::Decide { key: 0, admitted: 1, dropped: 0 }];
    let report = |parent| {
        [
            Step::Connect(parent),
            Step::Send,
            Step::Arrive(parent, 0),
            Step::Echo,
            Step::Send,
            Step::Arrive(parent, 0),
        ]
    };
    let history = [report(0).as_slice(), &decide, &report(0), &decide, &report(1)].concat();
    check_history(&history, 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn nothing_is_counted_twice_and_nothing_is_missing_unnamed(
        history in vec(any_step(), 0..80), last in 0..2usize,
    ) {
        check_history(&history, last);
    }

    #[test]
    fn one_parent_that_lives_counts_everything(history in vec(talk(0..1), 0..80)) {
        let mut world = World::default();
        let acquaintance = [Step::Send, Step::Arrive(0, 0), Step::Echo, Step::Send, Step::Arrive(0, 0)];
        for step in [Step::Connect(0)].iter().chain(&acquaintance) {
            world.step(step);
        }
        history.iter().for_each(|step| world.step(step));
        world.settle(0);
        world.check_exact();
    }

    #[test]
    fn parents_that_live_count_everything_if_what_was_sent_is_confirmed_before_a_move(
        history in vec(prop_oneof![decide(), (0..2usize).prop_map(Step::Move)], 0..30), last in 0..2usize,
    ) {
        let mut world = World::default();
        history.iter().for_each(|step| world.step(step));
        world.step(&Step::Move(last));
        world.check_exact();
    }
}
