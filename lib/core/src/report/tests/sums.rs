//! Counts of a parent over all its children: no child takes the room of another, and no sum comes
//! near 64 bits.

use super::*;
use crate::exchange::StreamId;
use crate::exchange::sessions::Sessions;
use crate::names::TablePlace;

/// Requests/s that a client is believed to decide in these tests.
const PER_S: u64 = 1_000_000;
const DAY: u64 = 86_400;
const ALL: u64 = 1 << 60;

#[derive(Default)]
struct Sum(u128);

impl Ledger for Sum {
    fn place(&mut self, _: KeyId, _: &Key) -> Option<TablePlace> {
        Some(TablePlace {
            id: KeyId(0),
            generation: 0,
        })
    }

    fn add(
        &mut self,
        place: Option<TablePlace>,
        _: KeyId,
        _: &Key,
        new: New,
    ) -> Option<TablePlace> {
        self.0 += u128::from(new.delta.counts.offered);
        place
    }
}

/// A parent, and the time by its clock and by its children's clocks.
struct Parent {
    sessions: Sessions,
    sum: Sum,
    micros: u64,
    streams: u64,
}

struct Reporter {
    instance: u128,
    stream: StreamId,
    seq: u64,
    clients: u32,
    total: Tally,
}

impl Parent {
    fn new(children_max: usize) -> Self {
        let sessions = Sessions::new(PARENT, children_max, 100).with_decisions_per_s_max(PER_S);
        Self {
            sessions,
            sum: Sum::default(),
            micros: 1_000_000,
            streams: 0,
        }
    }

    fn pass(&mut self, seconds: f64) {
        self.micros += (seconds * 1e6) as u64;
    }

    fn greeted(&mut self, role: Role, instance: u128, clients: u32) -> Reporter {
        let mut reporter = self.greet(role, instance, clients);
        self.take(&mut reporter, 0, 0);
        reporter
    }

    fn greet(&mut self, role: Role, instance: u128, clients: u32) -> Reporter {
        self.streams += 1;
        let stream = StreamId(self.streams);
        let identity = Identity {
            role,
            instance: InstanceId(instance),
            ..identity()
        };
        let mut reporter = Reporter {
            instance,
            stream,
            seq: 0,
            clients,
            total: Tally::ZERO,
        };
        let definition = KeyDefinition {
            key: key("a"),
            base: Counts::ZERO,
            sent: Counts::ZERO,
            continues: false,
        };
        let report = Report {
            greeting: Some(identity.clone()).into(),
            definitions: [(KeyId(0), definition)].into(),
            time: None,
            tallies: Tallies::default(),
            ..reporter.next(self)
        };
        self.sessions.check(stream, &report).unwrap();
        let now = MonoTime::from_micros(self.micros);
        self.sessions.open(now, stream, identity).unwrap();
        self.sessions
            .enter(now, stream, &report, &mut self.sum)
            .unwrap();
        reporter
    }

    /// Enters a report with more requests, some of them late. Returns the counted requests.
    fn take(&mut self, child: &mut Reporter, offered: u64, late: u64) -> u64 {
        let more = |before: Counts, more| Counts {
            offered: before.offered + more,
            ..before
        };
        child.total.counts = more(child.total.counts, offered);
        child.total.late = more(child.total.late, late);
        let report = child.next(self);
        self.sessions.check(child.stream, &report).unwrap();
        let now = MonoTime::from_micros(self.micros);
        let entered = self
            .sessions
            .enter(now, child.stream, &report, &mut self.sum)
            .unwrap();
        assert_eq!(entered.counted + entered.cut, offered);
        entered.counted
    }
}

impl Reporter {
    fn next(&mut self, parent: &Parent) -> Report {
        self.seq += 1;
        Report {
            seq: self.seq,
            time: Some(MonoTime::from_micros(parent.micros)),
            clients: ClientCounts {
                connected: self.clients,
                ..ClientCounts::default()
            },
            tallies: [(KeyId(0), self.total)].into(),
            ..Report::default()
        }
    }
}

#[test]
fn client_is_one_client_whatever_it_says() {
    let mut parent = Parent::new(10);
    let mut liar = parent.greeted(Role::Client, 1, 10_000_000);
    parent.pass(1.0);
    assert_eq!(
        parent.take(&mut liar, ALL, 0),
        2 * PER_S,
        "a second, and the one that is carried"
    );
    let late = parent.take(&mut liar, ALL, ALL);
    assert!(
        (PER_S * DAY..2 * PER_S * DAY).contains(&late),
        "{late:e}: about a day"
    );
    let greeting = Report {
        greeting: Some(Identity {
            instance: InstanceId(1),
            role: Role::Aggregator,
            ..identity()
        })
        .into(),
        ..Report::default()
    };
    let refused = parent.sessions.check(StreamId(9), &greeting).map(|_| ());
    assert!(
        matches!(refused, Err(crate::exchange::StreamRejected::WrongTier(_))),
        "{refused:?}"
    );
}

#[test]
fn late_counts_of_one_child_spare_others() {
    for (role, clients) in [(Role::Client, 10_000_000), (Role::Aggregator, 10_000_000)] {
        let mut parent = Parent::new(20_000);
        let mut honest = parent.greeted(Role::Client, 1, 0);
        for instance in 2..100 {
            let mut liar = parent.greeted(role, instance, clients);
            for _ in 0..7 {
                parent.take(&mut liar, ALL, ALL);
            }
        }
        for _ in 0..10 {
            // As of an overloaded aggregator.
            parent.pass(1.1);
            assert_eq!(parent.take(&mut honest, 110_000, 0), 110_000);
        }
        parent.pass(59.0);
        assert_eq!(parent.take(&mut honest, 590_000, 0), 590_000);
        let mut new = parent.greeted(Role::Client, 1_000, 0);
        parent.pass(0.3);
        assert_eq!(parent.take(&mut new, 30_000, 0), 30_000);
        parent.pass(60.0);
        assert_eq!(
            parent.take(&mut new, 1_000_000, 1_000_000),
            1_000_000,
            "there is room for late counts again"
        );
    }
}

#[test]
fn untimed_allowance_is_a_refilling_day() {
    let mut parent = Parent::new(10);
    let mut child = parent.greeted(Role::Client, 1, 0);
    for _ in 0..120 {
        parent.pass(1.0);
        assert_eq!(parent.take(&mut child, PER_S, 0), PER_S);
    }
    let most = 100 * PER_S * DAY;
    let late: u64 = (0..100).map(|_| parent.take(&mut child, most, most)).sum();
    assert!(
        late <= most,
        "{late:e} of {most:e}: one day at a hundred times its past"
    );
    let full = parent.take(&mut child, most, most);
    assert_eq!(full, 0);
    parent.pass(3_600.0);
    let hour = 2 * 100 * PER_S * 3_600;
    let again: u64 = (0..100).map(|_| parent.take(&mut child, most, most)).sum();
    assert!(again > 0 && again <= hour, "{again:e} after an hour");
}

#[test]
fn child_only_times_use_the_untimed_allowance() {
    let mut parent = Parent::new(10);
    let mut counted = 0;
    let mut child = parent.greeted(Role::Client, 1, 0);
    for _ in 0..100 {
        // Its clock is a day ahead in each report of its own stream.
        parent.streams += 1;
        child.stream = StreamId(parent.streams);
        let identity = Identity {
            instance: InstanceId(1),
            ..identity()
        };
        let now = MonoTime::from_micros(parent.micros);
        parent
            .sessions
            .open(now, child.stream, identity.clone())
            .unwrap();
        child.total.counts.offered += PER_S * DAY;
        let sent = Counts {
            offered: child.total.counts.offered - PER_S * DAY,
            ..Counts::ZERO
        };
        let definition = KeyDefinition {
            key: key("a"),
            base: Counts::ZERO,
            sent,
            continues: true,
        };
        let report = Report {
            seq: 1,
            time: Some(MonoTime::from_micros(
                parent.micros + parent.streams * DAY * 1_000_000,
            )),
            definitions: [(KeyId(0), definition)].into(),
            tallies: [(KeyId(0), child.total)].into(),
            ..Report::default()
        };
        counted += parent
            .sessions
            .enter(now, child.stream, &report, &mut parent.sum)
            .unwrap()
            .counted;
    }
    assert!(counted < 2 * PER_S * DAY, "{counted:e}: about a day of 100");
}

#[test]
fn honest_absent_children_lose_nothing() {
    let mut parent = Parent::new(20_000);
    // A restarted aggregator: 5,000 clients return to it after six hours.
    let mut aggregator = parent.greeted(Role::Aggregator, 1, 0);
    let mut client = parent.greeted(Role::Client, 2, 0);
    let of_one = 10_000 * 6 * 3_600;
    for clients in 1..=50 {
        aggregator.clients = clients * 100;
        parent.pass(0.5);
        assert_eq!(
            parent.take(&mut aggregator, 100 * of_one, 100 * of_one),
            100 * of_one,
            "{clients}"
        );
    }
    // The stream stood still for six hours.
    parent.pass(6.0 * 3_600.0);
    assert_eq!(parent.take(&mut client, of_one, 0), of_one);
    assert_eq!(
        parent.take(&mut aggregator, 1_000_000, 1_000_000),
        1_000_000
    );
    // A new parent knows no time of it.
    let mut other = Parent::new(20_000);
    let mut first = other.greet(Role::Client, 2, 0);
    assert_eq!(other.take(&mut first, of_one, 0), of_one);
}

#[test]
fn hostile_aggregator_is_cut_at_its_share() {
    let mut parent = Parent::new(1_000);
    let mut honest = parent.greeted(Role::Aggregator, 1, 50);
    let mut liar = parent.greeted(Role::Aggregator, 2, u32::MAX);
    let mut cut_from = None;
    for hour in 1..=24 * 365 {
        parent.pass(3_600.0);
        let offered = 1 << 50;
        let counted = parent.take(&mut liar, offered, 0);
        cut_from = cut_from.or((counted == 0).then_some(hour));
        assert_eq!(
            parent.take(&mut honest, 3_600_000_000, 0),
            3_600_000_000,
            "hour {hour}"
        );
    }
    assert!(cut_from.is_some_and(|hour| hour < 24), "{cut_from:?}");
    assert!(
        parent.sum.0 < 1 << 58,
        "{:e} in a year",
        parent.sum.0 as f64
    );
    let mut new = parent.greeted(Role::Aggregator, 3, 50);
    parent.pass(3_600.0);
    assert_eq!(parent.take(&mut new, 3_600_000_000, 0), 3_600_000_000);
}

#[test]
fn any_number_of_instances_stays_in_range() {
    let mut parent = Parent::new(10);
    for instance in 1..=2_000 {
        let mut liar = parent.greeted(Role::Aggregator, instance, u32::MAX);
        parent.pass(3_600.0 * 24.0);
        for _ in 0..3 {
            parent.take(&mut liar, ALL, 0);
        }
        parent.sessions.remove(InstanceId(liar.instance));
    }
    assert!(parent.sum.0 < 1 << 63, "{:e}", parent.sum.0 as f64);
    assert!(parent.sum.0 > 1 << 62);
}
