//! Tests of the bound on what one instance can have decided, and of reports that come in parts.

use super::*;
use crate::names::TablePlace;

/// Requests/s that a client is believed to decide in these tests.
const PER_S: u64 = 1_000;

struct Parent {
    books: Books,
    seq: u64,
    clients: u32,
    late_room: u64,
    ledger: Taken,
}

#[derive(Default)]
struct Taken {
    by_id: BTreeMap<u32, Tally>,
}

impl Ledger for Taken {
    fn place(&mut self, _: KeyId, key: &Key) -> Option<TablePlace> {
        Some(TablePlace {
            id: KeyId(u32::from(key.tenant.as_str().as_bytes()[0])),
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
        assert!(new.delta.is_consistent(), "{:?}", new.delta);
        let held = self.by_id.entry(place?.id.0).or_insert(Tally::ZERO);
        *held = held.plus(new.delta);
        place
    }
}

impl Parent {
    fn new() -> Self {
        let books = Books::new(PARENT, 100).with_bounds(PER_S, CLIENTS_MAX);
        Self {
            books,
            seq: 0,
            clients: 1,
            late_room: u64::MAX,
            ledger: Taken::default(),
        }
    }

    fn report(&mut self, ms: u64, tallies: &[(u32, Tally)]) -> Report {
        self.seq += 1;
        Report {
            seq: self.seq,
            time: Some(MonoTime::from_micros(ms * 1_000)),
            clients: ClientCounts {
                connected: self.clients,
                ..ClientCounts::default()
            },
            tallies: tallies
                .iter()
                .map(|(id, tally)| (KeyId(*id), *tally))
                .collect(),
            ..Report::default()
        }
    }

    fn enter(&mut self, report: &Report) -> Entered {
        let now = report.time.unwrap();
        self.books.check(report).unwrap();
        self.books
            .enter_into(now, report, self.late_room, &mut self.ledger)
    }

    fn begun() -> Self {
        let mut parent = Self::new();
        let mut first = parent.report(0, &[]);
        first.definitions = [(KeyId(0), definition("a")), (KeyId(1), definition("b"))].into();
        parent.enter(&first);
        parent
    }

    /// Reports `total` requests of the key `a` at this time. Returns the requests counted and cut.
    fn total(&mut self, ms: u64, total: u64) -> (u64, u64) {
        let report = self.report(ms, &[(0, tally(total))]);
        let entered = self.enter(&report);
        (entered.counted, entered.cut)
    }

    /// What was counted of the key `a`.
    fn of_a(&self) -> Tally {
        self.ledger.by_id[&u32::from(b'a')]
    }

    fn counted(&self) -> u64 {
        self.ledger
            .by_id
            .values()
            .map(|tally| tally.counts.offered)
            .sum()
    }
}

#[test]
fn excess_requests_are_cut_once() {
    let mut parent = Parent::begun();
    assert_eq!(parent.total(100, 50), (50, 0));
    // 0.1 s at the bound, and the second that is carried.
    assert_eq!(parent.total(200, 2_050), (1_100, 900));
    assert_eq!(
        parent.total(300, 2_060),
        (10, 0),
        "what was cut is not reported again"
    );
    assert_eq!(parent.counted() + 900, 2_060, "decided = counted + cut");
}

#[test]
fn unused_allowance_is_carried_one_second() {
    let mut parent = Parent::begun();
    (1..=50).for_each(|tenth| assert_eq!(parent.total(tenth * 100, 0), (0, 0)));
    assert_eq!(parent.total(5_100, 10_000), (1_100, 8_900));
}

#[test]
fn cut_counts_stay_consistent_in_every_column() {
    let mut parent = Parent::begun();
    let counts = Counts {
        offered: 3_000_000,
        dropped: 1_000_000,
        guard_dropped: 999_999,
        would_dropped: 1_000_001,
        would_guard_dropped: 77,
        quota_dropped: 0,
        would_quota_dropped: 0,
        quota_repeated: 3_000_000,
        retried: 2_999_999,
    };
    let late = Tally {
        counts,
        late: counts,
    };
    let report = parent.report(1_000, &[(0, late), (1, tally(7))]);
    let entered = parent.enter(&report);
    assert_eq!(entered.cut + entered.counted, 6_000_007);
    // Late counts are of an unknown time.
    assert_eq!(entered.cut, 0);
    let beyond = PER_S * 86_400 * 2;
    let counts = refused(beyond, beyond);
    let late = Tally {
        counts,
        late: counts,
    };
    let mut parent = Parent::begun();
    let report = parent.report(1_000, &[(0, late)]);
    let entered = parent.enter(&report);
    assert_eq!((entered.counted, entered.cut), (beyond / 2, beyond / 2));
    assert_eq!(parent.of_a().counts.dropped, beyond / 2);
}

#[test]
fn memory_refusals_are_cut_alone() {
    let repeated = |offered, quota_repeated| {
        on_time(Counts {
            offered,
            quota_dropped: offered,
            quota_repeated,
            ..Counts::ZERO
        })
    };
    for (reported, counted) in [
        (repeated(0, 1_100), repeated(0, 1_100)),
        (repeated(0, 11_000), repeated(0, 1_100)),
        (repeated(0, u64::MAX), repeated(0, 1_100)),
        (repeated(5_500, 5_500), repeated(550, 550)),
        (repeated(2_200, 0), repeated(1_100, 0)),
    ] {
        let mut parent = Parent::begun();
        let report = parent.report(100, &[(0, tally(0))]);
        parent.enter(&report);
        let report = parent.report(200, &[(0, reported)]);
        let entered = parent.enter(&report);
        assert_eq!(parent.of_a(), counted, "{reported:?}");
        assert_eq!(
            (entered.counted, entered.counted + entered.cut),
            (1_100, reported.counts.asked())
        );
    }
}

#[test]
fn instance_history_multiplies_its_bound_hundredfold() {
    let mut parent = Parent::begun();
    let mut total = 0;
    for second in 1..=600 {
        total += 500;
        assert_eq!(parent.total(second * 1_000, total), (500, 0));
    }
    total += 40_000;
    assert_eq!(
        parent.total(601_000, total),
        (40_000, 0),
        "100 times 500 requests/s are believed"
    );
    for second in 602..=1_200 {
        total += 10_000_000;
        let (counted, cut) = parent.total(second * 1_000, total);
        assert_eq!(counted + cut, 10_000_000);
        assert!(counted <= 2 * 100 * PER_S, "{counted} after {second} s");
    }
}

#[test]
fn report_after_a_long_cut_counts_fully() {
    let mut parent = Parent::begun();
    assert_eq!(parent.total(100, 50), (50, 0));
    assert_eq!(
        parent.total(3_600_000, 3_000_000),
        (2_999_950, 0),
        "an hour at the bound"
    );
    let mut fresh = Parent::begun();
    fresh.books.open();
    fresh.seq = 0;
    let definition = KeyDefinition {
        key: key("a"),
        base: offered(10),
        sent: offered(20),
        continues: false,
    };
    let mut report = fresh.report(100, &[(0, tally(5_000_000))]);
    report.definitions = [(KeyId(0), definition)].into();
    let entered = fresh.enter(&report);
    assert_eq!(
        (entered.counted, entered.unconfirmed, entered.cut),
        (4_999_980, 10, 0),
        "taken over"
    );
}

#[test]
fn requests_given_up_beyond_belief_are_cut() {
    let mut parent = Parent::new();
    let definition = |tenant| KeyDefinition {
        key: key(tenant),
        base: offered(0),
        sent: offered(u64::MAX),
        continues: false,
    };
    let mut report = parent.report(0, &[(0, tally(u64::MAX)), (1, tally(u64::MAX))]);
    report.definitions = [(KeyId(0), definition("a")), (KeyId(1), definition("b"))].into();
    let entered = parent.enter(&report);
    assert_eq!((entered.counted, entered.unconfirmed), (0, PER_S * 86_400));
    assert_eq!(entered.cut, u64::MAX - PER_S * 86_400);
}

#[test]
fn aggregator_bound_counts_every_client_below() {
    let mut parent = Parent::begun();
    parent.clients = 5;
    assert_eq!(parent.total(100, 500), (500, 0));
    parent.clients = 0;
    assert_eq!(
        parent.total(200, 1_000),
        (500, 0),
        "clients that have just left"
    );
    assert_eq!(parent.total(300, 3_000), (1_100, 900));
}

#[test]
fn only_unverified_times_exhaust_their_room() {
    let mut parent = Parent::begun();
    parent.late_room = 100;
    assert_eq!(
        parent.total(60_000, 5_000),
        (5_000, 0),
        "a minute is verified"
    );
    let late = Tally {
        counts: offered(10_000),
        late: offered(5_000),
    };
    let report = parent.report(61_000, &[(0, late)]);
    let entered = parent.enter(&report);
    assert_eq!(
        (entered.counted, entered.counted_late, entered.cut),
        (100, 100, 4_900)
    );
}

#[test]
fn refusals_wait_for_their_requests() {
    let by_quota = |offered, quota_dropped| Counts {
        quota_dropped,
        ..self::offered(offered)
    };
    let kinds: [fn(u64, u64) -> Counts; 2] = [refused, by_quota];
    for counts in kinds {
        let mut parent = Parent::begun();
        for (ms, reported, entered) in [
            (100, (50, 0), (50, 0)),
            (200, (60, 40), (60, 10)),
            (300, (65, 40), (65, 15)),
            (400, (165, 40), (165, 40)),
        ] {
            let [reported, entered] =
                [reported, entered].map(|(offered, dropped)| on_time(counts(offered, dropped)));
            let report = parent.report(ms, &[(0, reported)]);
            parent.enter(&report);
            assert_eq!(parent.of_a(), entered, "after {ms} ms");
        }
    }
}

#[test]
fn report_parts_count_as_the_whole() {
    let mut parent = Parent::begun();
    let whole = parent.report(1_000, &[(0, tally(400)), (1, tally(1_900))]);
    let part = |id: usize, more| Report {
        more,
        tallies: whole.tallies.iter().skip(id).take(1).collect(),
        ..whole.clone()
    };
    let first = parent.enter(&part(0, true));
    assert_eq!((first.counted, first.cut, parent.books.seq()), (400, 0, 1));
    let other = Report {
        seq: 3,
        ..part(1, false)
    };
    assert_eq!(
        parent.books.check(&other),
        Err(InvalidReport::Late { held: 1, got: 3 })
    );
    let last = parent.enter(&part(1, false));
    assert_eq!((last.span, last.first_span), (first.span, first.first_span));
    assert_eq!(
        (last.counted, last.cut),
        (1_600, 300),
        "one allowance for the whole report"
    );
    assert_eq!(parent.books.seq(), 2);
    assert_eq!(parent.total(2_000, 1_400).0, 1_000);
}

#[test]
fn unfinished_report_is_not_counted_again() {
    let mut parent = Parent::begun();
    let part = Report {
        more: true,
        ..parent.report(1_000, &[(0, tally(400))])
    };
    parent.enter(&part);
    parent.books.open();
    parent.seq = 0;
    let definition = KeyDefinition {
        key: key("a"),
        base: Counts::ZERO,
        sent: offered(400),
        continues: true,
    };
    let mut report = parent.report(2_000, &[(0, tally(450))]);
    report.definitions = [(KeyId(0), definition)].into();
    let entered = parent.enter(&report);
    assert_eq!(
        (entered.counted, entered.unconfirmed, parent.counted()),
        (50, 0, 450)
    );
}
