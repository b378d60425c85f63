//! A child: an aggregator without clients, with the kill switch, the sequence and the board of the real one.

use plimsoll_core::directive::{Board, Directives, Sequence};
use plimsoll_core::kill::{KillRelay, Scope};
use plimsoll_core::names::{Name, Zone};
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::report::{Identity, InstanceId, Outbox, Report, Role, Tally};

use super::Ms;

pub(super) struct Child {
    identity: Identity,
    pub(super) kills: KillRelay,
    pub(super) sequence: Sequence,
    board: Board,
    outbox: Outbox,
    has_greeted: bool,
    pub(super) unconfirmed: bool,
    /// The member and the stream that it follows.
    pub(super) parent: Option<(usize, u64)>,
    /// The members that it reaches.
    pub(super) reaches: Vec<bool>,
    /// When the latest kill that it carries was given, by scope.
    pub(super) carried: [Option<Ms>; 2],
}

impl Child {
    pub(super) fn new(number: usize, members: usize) -> Self {
        let instance = InstanceId(100 + number as u128);
        Self {
            identity: Identity {
                instance,
                name: Name::new(&format!("child-{number}")).unwrap(),
                service: Name::new("aggregator").unwrap(),
                zone: Zone::new(&format!("zone-{number}")).unwrap(),
                role: Role::Aggregator,
            },
            kills: KillRelay::new(instance),
            sequence: Sequence::default(),
            board: Board::default(),
            outbox: Outbox::default(),
            has_greeted: false,
            unconfirmed: false,
            parent: None,
            reaches: vec![true; members],
            carried: [None; 2],
        }
    }

    pub(super) fn open(&mut self, member: usize, stream: u64) {
        self.parent = Some((member, stream));
        (self.has_greeted, self.unconfirmed) = (false, false);
        self.sequence.open();
        self.outbox.open();
        self.kills.on_open();
    }

    pub(super) fn report(&mut self, now: MonoTime) -> Report {
        let is_greeting = !std::mem::replace(&mut self.has_greeted, true);
        let mut report = Report {
            greeting: is_greeting.then(|| self.identity.clone()).into(),
            lead: self.sequence.leader().into(),
            ..Report::default()
        };
        self.outbox.fill(&mut report, &[], |_| Tally::ZERO);
        report.time = None;
        self.kills.fill(now, &mut report);
        report
    }

    /// Takes directives as an aggregator does. Returns false if they are stale.
    pub(super) fn take(&mut self, now: MonoTime, mut directives: Directives) -> bool {
        self.kills.on_directives(now, &directives).unwrap();
        self.outbox.on_echo(directives.echo);
        let answer = directives.parent.take();
        answer
            .into_iter()
            .for_each(|answer| self.outbox.on_answer(answer));
        if self
            .sequence
            .accept(directives.lead.leader, directives.seq)
            .is_err()
        {
            return false;
        }
        self.unconfirmed = directives.lead.unconfirmed;
        for bucket in &mut directives.buckets {
            self.kills.kills().cap_knowledge(bucket);
            self.board.apply(bucket);
        }
        true
    }

    pub(super) fn is_killed(&self, scope: &Scope) -> bool {
        self.kills.kills().generation(scope).is_killed()
    }

    /// Returns true if it refuses requests of the bucket.
    pub(super) fn enforces(&self, scope: &Scope) -> bool {
        let Scope::Bucket(bucket) = scope else {
            return false;
        };
        let posted = self.board.get(bucket);
        posted.is_some_and(|posted| {
            self.kills.mode(bucket, posted.terms()) != plimsoll_core::decision::Mode::Shadow
        })
    }
}
