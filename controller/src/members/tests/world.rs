//! The world of one schedule: events in the order of their times, and faults.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use plimsoll_core::quantity::MonoTime;

use super::super::lead::Lead;
use super::child::Child;
use super::invariants::Ledger;
use super::leader::{Slot, Turn};
use super::model_store::{Answer, Ask, ModelStore};
use super::{Ms, Rng, scopes};

pub(super) const TTL: Ms = 2_000;
/// A request without an answer ends then, as in the client of the store.
const REQUEST_MAX: Ms = 1_000;
/// Faults and operators end then.
const HEALS_AT: Ms = 25_000;
/// Everything has settled by then: a member that has handed the lead over leaves it to others for 10 s.
const LENGTH: Ms = 40_000;
const MEMBERS: usize = 3;
const CHILDREN: usize = 3;
const TRACE_MAX: usize = 400;

#[derive(Debug)]
pub(super) enum Event {
    Member(usize),
    Child(usize),
    Operator,
    Fault,
    /// A request arrives at the store; the answer follows after this time, or never.
    Arrives(Sent, Ask, Option<Ms>),
    Answered(Sent, Option<Box<Answer>>),
    /// A change whose record in the audit log is written.
    Recorded(usize, u64, super::operator::Planned),
}

/// A request of one start of a member.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) member: usize,
    pub(super) slot: Slot,
    pub(super) request: u64,
}

/// One member's process.
pub(super) struct Member {
    pub(super) lead: Lead,
    pub(super) turn: Option<Turn>,
    /// The session's request, and when it was sent.
    pub(super) session: Option<(u64, Ms, Ask)>,
    pub(super) session_at: Ms,
    pub(super) resigns: bool,
    pub(super) reaches_store: bool,
    pub(super) up_at: Ms,
    /// The number of its policy files.
    pub(super) files: u64,
    /// A kill order on its way to the store, and its act.
    pub(super) append: Option<(u64, usize)>,
}

#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) takeovers: u64,
    pub(super) saved: u64,
    pub(super) unsaved: u64,
    pub(super) unconfirmed: u64,
    pub(super) moves: u64,
    pub(super) stale_ends: u64,
}

pub(super) struct World {
    pub(super) now: Ms,
    pub(super) rng: Rng,
    base: Instant,
    queue: BTreeMap<(Ms, u64), Event>,
    pub(super) numbers: u64,
    pub(super) store: ModelStore,
    pub(super) members: Vec<Member>,
    pub(super) children: Vec<Child>,
    pub(super) ledger: Ledger,
    pub(super) trace: Vec<String>,
    pub(super) seen: Seen,
    pub(super) is_store_slow: bool,
    pub(super) heals: bool,
}

impl Seen {
    pub(super) fn add(&mut self, other: &Self) {
        self.takeovers += other.takeovers;
        self.saved += other.saved;
        self.unsaved += other.unsaved;
        self.unconfirmed += other.unconfirmed;
        self.moves += other.moves;
        self.stale_ends += other.stale_ends;
    }
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        let members = 2 + usize::from(!seed.is_multiple_of(3));
        debug_assert!(members <= MEMBERS);
        let mut world = Self {
            now: 0,
            rng: Rng(seed),
            base: Instant::now(),
            queue: BTreeMap::new(),
            numbers: 0,
            store: ModelStore::default(),
            members: (0..members).map(|_| Member::new(0, 0)).collect(),
            children: (0..CHILDREN).map(|of| Child::new(of, members)).collect(),
            ledger: Ledger::default(),
            trace: Vec::new(),
            seen: Seen::default(),
            is_store_slow: false,
            heals: false,
        };
        (0..members).for_each(|member| world.after(0, Event::Member(member)));
        (0..CHILDREN).for_each(|child| world.after(50, Event::Child(child)));
        world.after(1_500, Event::Operator);
        world.after(2_000, Event::Fault);
        world
    }

    /// Runs the schedule until an invariant is broken.
    pub(super) fn run(&mut self) -> Result<(), String> {
        while let Some(((at, _), event)) = self.queue.pop_first() {
            if at > LENGTH {
                break;
            }
            self.now = at;
            if at >= HEALS_AT && !std::mem::replace(&mut self.heals, true) {
                self.heal();
            }
            self.store.expire(at);
            self.step(event)?;
            self.check()?;
        }
        self.check_settled()
    }

    pub(super) fn mono(&self) -> MonoTime {
        MonoTime::from_elapsed(Duration::from_millis(self.now))
    }

    pub(super) fn unix_s(&self) -> i64 {
        1_700_000_000 + (self.now / 1_000) as i64
    }

    pub(super) fn instant(&self, at: Ms) -> Instant {
        self.base + Duration::from_millis(at)
    }

    pub(super) fn tell(&mut self, text: String) {
        if self.trace.len() >= TRACE_MAX {
            self.trace.remove(0);
        }
        self.trace.push(format!("{:>6} {text}", self.now));
    }

    pub(super) fn after(&mut self, wait: Ms, event: Event) {
        self.numbers += 1;
        self.queue.insert((self.now + wait, self.numbers), event);
    }

    /// Sends a request to the store. It may be lost, and so may its answer; it may arrive after the member has given up.
    pub(super) fn ask(&mut self, member: usize, slot: Slot, ask: Ask) -> u64 {
        self.numbers += 1;
        let request = self.numbers;
        let sent = Sent {
            member,
            slot,
            request,
        };
        self.after(REQUEST_MAX, Event::Answered(sent, None));
        let is_slow = self.is_store_slow || !self.heals && self.rng.percent(3);
        let way = match is_slow {
            true => self.rng.below(3_000),
            false => self.rng.below(20),
        };
        let is_lost = !self.members[member].reaches_store && self.rng.percent(80);
        if is_lost {
            return request;
        }
        let is_answer_lost = !self.heals && self.rng.percent(4);
        let answer = self.members[member].reaches_store && !is_answer_lost;
        let back = match is_slow {
            true => self.rng.below(900),
            false => self.rng.below(20),
        };
        self.after(way, Event::Arrives(sent, ask, answer.then_some(back)));
        request
    }

    fn step(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Member(member) => {
                if self.now >= self.members[member].up_at {
                    self.session(member);
                    self.turn(member)?;
                }
                let wait = 60 + self.rng.below(60);
                self.after(wait, Event::Member(member));
            }
            Event::Child(child) => {
                self.child(child)?;
                let wait = 100 + self.rng.below(200);
                self.after(wait, Event::Child(child));
            }
            Event::Operator | Event::Fault if self.heals => {}
            Event::Operator => {
                self.operate()?;
                let wait = 100 + self.rng.below(1_200);
                self.after(wait, Event::Operator);
            }
            Event::Fault => {
                self.fault();
                let wait = 200 + self.rng.below(2_500);
                self.after(wait, Event::Fault);
            }
            Event::Arrives(sent, ask, back) => self.arrives(sent, ask, back)?,
            Event::Answered(sent, answer) => self.answered(sent, answer.map(|answer| *answer))?,
            Event::Recorded(member, lead, planned) => self.carry_out(member, lead, planned)?,
        }
        Ok(())
    }

    fn arrives(&mut self, sent: Sent, ask: Ask, back: Option<Ms>) -> Result<(), String> {
        let lead = self.store.lead();
        let writer = match &ask {
            Ask::Save(save) => Some(save.lead),
            _ => None,
        };
        let is_known = !matches!(ask, Ask::Look | Ask::KeepAlive(_) | Ask::List);
        let text = is_known.then(|| match &ask {
            Ask::Save(save) => format!(
                "save by {} after {}: epoch {}, kills {:?}, changes {}",
                save.lead,
                save.after,
                save.durable.epoch.0,
                scopes().map(|scope| save.durable.generation(&scope).0),
                save.durable.changes
            ),
            ask => format!("{ask:?}"),
        });
        let answer = self.store.apply(self.now, TTL, ask);
        if let Some(text) = text {
            let short = match &answer {
                Answer::Opened(_) | Answer::Orders(_) => String::new(),
                answer => format!("{answer:?}"),
            };
            self.tell(format!(
                "store: m{} {text} -> {short} {back:?}",
                sent.member
            ));
        }
        if let (Some(writer), Answer::Saved(_)) = (writer, &answer) {
            self.ledger.on_write(writer, lead, &self.store)?;
        }
        if let Some(back) = back {
            self.after(back, Event::Answered(sent, Some(Box::new(answer))));
        }
        Ok(())
    }

    fn answered(&mut self, sent: Sent, answer: Option<Answer>) -> Result<(), String> {
        let member = &mut self.members[sent.member];
        match sent.slot {
            Slot::Session => {
                let Some((_, at, ask)) = member.session.take_if(|(of, ..)| *of == sent.request)
                else {
                    return Ok(());
                };
                self.on_session(sent.member, at, ask, answer);
            }
            Slot::Append => {
                let Some((_, act)) = member.append.take_if(|(of, _)| *of == sent.request) else {
                    return Ok(());
                };
                if answer.is_some() {
                    self.ledger.acts[act].saved = true;
                    self.tell(format!("m{}: order {act} is saved", sent.member));
                }
            }
            slot => return self.on_turn_answer(sent.member, slot, sent.request, answer),
        }
        Ok(())
    }

    /// The children's streams to a member whose turn ends.
    pub(super) fn streams_of(&self, member: usize) -> BTreeSet<usize> {
        let of = |child: &usize| {
            self.children[*child]
                .parent
                .is_some_and(|(at, _)| at == member)
        };
        (0..self.children.len()).filter(of).collect()
    }
}

impl Member {
    pub(super) fn new(up_at: Ms, files: u64) -> Self {
        Self {
            lead: Lead::new(Duration::from_millis(TTL)),
            turn: None,
            session: None,
            session_at: 0,
            resigns: false,
            reaches_store: true,
            up_at,
            files,
            append: None,
        }
    }
}
