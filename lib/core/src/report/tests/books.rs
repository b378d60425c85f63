//! Tests of the parent's books: counts entered, the point of continuation, and reports refused.

use super::*;
use crate::names::TablePlace;

fn books() -> Books {
    let mut books = Books::new(PARENT, 100);
    let counts = refused(10, 1);
    let first = Report {
        seq: 1,
        time: Some(MonoTime::from_micros(1)),
        definitions: [(KeyId(0), definition("a"))].into(),
        tallies: [(
            KeyId(0),
            Tally {
                counts,
                late: offered(2),
            },
        )]
        .into(),
        ..Report::default()
    };
    let second = Report {
        seq: 2,
        definitions: [(KeyId(1), definition("b"))].into(),
        ..Report::default()
    };
    for report in [first, second] {
        enter(&mut books, &report).unwrap();
    }
    books
}

/// Enters a report with every key in place `own = its number in order of appearance`.
pub(super) fn enter(books: &mut Books, report: &Report) -> Result<Entered, InvalidReport> {
    books.enter(MonoTime::ZERO, report, |key| {
        Some(KeyId(u32::from(key.tenant.as_str().as_bytes()[0])))
    })
}

/// Checks that an invalid report is refused for the given reason, interns no key and changes nothing: the
/// good report sent in its place counts as usual.
fn check_refused(broken: &Report, why: &InvalidReport) {
    let mut books = books();
    let answer = books.enter(MonoTime::ZERO, broken, |key| {
        panic!("{key:?} asked for room")
    });
    assert_eq!(answer.as_ref(), Err(why));
    assert_eq!(books.seq(), 2);

    let counts = refused(15, 2);
    let good = Report {
        seq: 3,
        time: Some(MonoTime::from_micros(2_000)),
        definitions: [(KeyId(2), definition("c"))].into(),
        tallies: [
            (
                KeyId(0),
                Tally {
                    counts,
                    late: offered(2),
                },
            ),
            (KeyId(1), tally(4)),
            (KeyId(2), tally(3)),
        ]
        .into(),
        ..Report::default()
    };
    let entered = enter(&mut books, &good).unwrap();
    let observed = |tenant: u8, delta| Entry {
        own: Some(KeyId(u32::from(tenant))),
        delta,
        origin: Origin::Observed,
    };
    assert_eq!(
        entered.entries,
        [
            observed(b'a', on_time(refused(5, 1))),
            observed(b'b', tally(4)),
            observed(b'c', tally(3))
        ],
        "after {why}"
    );
    assert_eq!((entered.unconfirmed, entered.rejected_keys), (0, 0));
    assert_eq!(entered.span.map(|span| span.as_micros()), Some(1_999));
}

#[test]
fn invalid_report_leaves_the_books_unchanged() {
    let good = Report {
        seq: 3,
        time: Some(MonoTime::from_micros(1_000)),
        ..Report::default()
    };
    let counts = |id: u32, counts: Counts, late: Counts| Report {
        tallies: [(KeyId(id), Tally { counts, late })].into(),
        ..good.clone()
    };
    let defines = |id: u32, base: u64, sent: u64| Report {
        definitions: [(
            KeyId(id),
            KeyDefinition {
                key: key("c"),
                base: offered(base),
                sent: offered(sent),
                continues: false,
            },
        )]
        .into(),
        ..good.clone()
    };
    let of = |offered, dropped, would_dropped| Counts {
        offered,
        dropped,
        would_dropped,
        ..Counts::ZERO
    };
    let guarded = |offered, guard_dropped, would_dropped, would_guard_dropped| Counts {
        guard_dropped,
        would_guard_dropped,
        ..of(offered, 1, would_dropped)
    };
    let by_quota = |offered, quota_dropped, would_quota_dropped, quota_repeated| Counts {
        quota_dropped,
        would_quota_dropped,
        quota_repeated,
        ..of(offered, 1, 2)
    };
    let none = Counts::ZERO;

    let late = |got| {
        (
            Report {
                seq: got,
                ..good.clone()
            },
            InvalidReport::Late { held: 2, got },
        )
    };
    let inconsistent = |tenant: &str| InvalidReport::Inconsistent(key(tenant));
    let went_back = |tenant: &str| InvalidReport::WentBack(key(tenant));
    let table = [
        late(0),
        late(1),
        late(2),
        (defines(3, 0, 0), InvalidReport::Definition(3)),
        (defines(u32::MAX, 0, 0), InvalidReport::Definition(u32::MAX)),
        (defines(2, 6, 5), went_back("c")),
        (defines(1, 6, 5), went_back("c")),
        (
            Report {
                tallies: counts(1, of(4, 0, 0), none).tallies,
                ..defines(1, 0, 5)
            },
            went_back("c"),
        ),
        (counts(2, of(1, 0, 0), none), InvalidReport::Undefined(2)),
        (
            counts(u32::MAX, of(1, 0, 0), none),
            InvalidReport::Undefined(u32::MAX),
        ),
        (counts(1, of(3, 0, 0), of(3, 1, 0)), inconsistent("b")),
        (counts(0, of(9, 1, 0), offered(2)), went_back("a")),
        (counts(0, of(12, 0, 0), offered(2)), went_back("a")),
        (counts(0, of(12, 1, 0), offered(1)), went_back("a")),
        (
            Report {
                tallies: counts(2, of(4, 0, 0), none).tallies,
                ..defines(2, 0, 5)
            },
            went_back("c"),
        ),
        (
            Report {
                time: None,
                ..counts(0, of(12, 1, 0), offered(2))
            },
            InvalidReport::Timeless,
        ),
        // One invalid entry rejects the whole report.
        (
            Report {
                definitions: [(KeyId(2), definition("c"))].into(),
                tallies: [(KeyId(1), tally(99)), (KeyId(3), tally(1))].into(),
                ..good.clone()
            },
            InvalidReport::Undefined(3),
        ),
    ];
    for (broken, why) in &table {
        check_refused(broken, why);
    }
    let late = offered(2);
    for (now, late) in [
        (of(12, 13, 0), late),
        (of(12, 7, 6), late),
        (of(u64::MAX, u64::MAX, 1), late),
        (guarded(12, 12, 0, 0), late),
        (guarded(12, 6, 6, 0), late),
        (guarded(12, 0, 4, 5), late),
        (guarded(12, u64::MAX, 0, 0), late),
        // Nine passed.
        (by_quota(12, 10, 0, 0), late),
        (by_quota(12, 5, 5, 0), late),
        (by_quota(12, u64::MAX, 9, 0), late),
        (by_quota(12, 0, 0, u64::MAX), late),
        // More late than counted.
        (of(12, 1, 0), offered(13)),
        (
            of(12, 1, 0),
            Counts {
                guard_dropped: 1,
                ..late
            },
        ),
        (
            by_quota(12, 3, 3, 3),
            Counts {
                quota_repeated: 4,
                ..late
            },
        ),
    ] {
        check_refused(&counts(0, now, late), &inconsistent("a"));
    }
}

#[test]
fn report_without_time_counts_nothing() {
    let mut books = books();
    let alive = Report {
        seq: 3,
        ..Report::default()
    };
    assert_eq!(enter(&mut books, &alive).unwrap(), Entered::default());
    let next = Report {
        seq: 4,
        time: Some(MonoTime::from_micros(500_001)),
        ..Report::default()
    };
    let span = enter(&mut books, &next).unwrap().span;
    assert_eq!(
        span.map(|span| span.as_millis()),
        Some(500),
        "from the last report with a time"
    );
}

#[test]
fn key_without_room_counts_once_as_rejected() {
    let mut books = books();
    let report = |seq, offered| Report {
        seq,
        time: Some(MonoTime::from_micros(seq)),
        tallies: [(KeyId(2), tally(offered))].into(),
        ..Report::default()
    };
    let first = Report {
        definitions: [(KeyId(2), definition("c"))].into(),
        ..report(3, 5)
    };
    let entered = books.enter(MonoTime::ZERO, &first, |_| None).unwrap();
    let homeless = |delta| Entry {
        own: None,
        delta,
        origin: Origin::Observed,
    };
    assert_eq!(
        (entered.rejected_keys, entered.entries),
        (1, vec![homeless(tally(5))])
    );
    let entered = books
        .enter(MonoTime::ZERO, &report(4, 7), |_| None)
        .unwrap();
    assert_eq!(
        (entered.rejected_keys, entered.entries),
        (0, vec![homeless(tally(2))])
    );
}

/// One key of a child that reconnects: `remembered` by the parent, `base`, `sent` and `value` from the child,
/// and the resulting `counted` and `unconfirmed`.
struct Return {
    continues: bool,
    remembered: Option<u64>,
    base: u64,
    sent: u64,
    value: u64,
    counted: u64,
    unconfirmed: u64,
    origin: Origin,
}

#[test]
fn counting_continues_from_memory_or_base() {
    use Origin::{Observed, TakenOver};
    let row = |remembered, (base, sent, value), counted, unconfirmed, origin| Return {
        continues: true,
        remembered,
        base,
        sent,
        value,
        counted,
        unconfirmed,
        origin,
    };
    for case in [
        // A new key.
        row(None, (0, 0, 9), 9, 0, Observed),
        // The parent remembers everything, a part of what was sent, or only what is confirmed.
        row(Some(30), (10, 30, 35), 5, 0, Observed),
        row(Some(20), (10, 30, 35), 15, 0, Observed),
        row(Some(10), (10, 30, 35), 25, 0, Observed),
        // It remembers less than was confirmed meanwhile, or nothing.
        row(Some(9), (10, 30, 35), 5, 20, TakenOver),
        row(None, (10, 30, 35), 5, 20, TakenOver),
        row(None, (30, 30, 35), 5, 0, TakenOver),
        row(None, (0, 30, 35), 5, 30, TakenOver),
        // It remembers, but another parent may have counted the rest meanwhile.
        Return {
            continues: false,
            ..row(Some(20), (10, 30, 35), 5, 20, TakenOver)
        },
        Return {
            continues: false,
            ..row(Some(30), (10, 30, 35), 5, 20, TakenOver)
        },
        // It remembers more than the child ever sent: another process used the child's instance.
        row(Some(31), (10, 30, 35), 5, 20, TakenOver),
        row(Some(36), (0, 0, 36), 36, 0, Observed),
    ] {
        check_return(&case);
    }
}

fn check_return(case: &Return) {
    let mut books = Books::new(PARENT, 100);
    let greeting = |base, sent, value| Report {
        seq: 1,
        time: Some(MonoTime::from_micros(value)),
        definitions: [(
            KeyId(0),
            KeyDefinition {
                key: key("a"),
                base: offered(base),
                sent: offered(sent),
                continues: case.continues,
            },
        )]
        .into(),
        tallies: [(KeyId(0), tally(value))].into(),
        ..Report::default()
    };
    if let Some(remembered) = case.remembered {
        enter(&mut books, &greeting(0, 0, remembered)).unwrap();
        books.open();
    }
    let entered = enter(&mut books, &greeting(case.base, case.sent, case.value)).unwrap();
    let label = format!(
        "{:?} at {}, {}, {}",
        case.remembered, case.base, case.sent, case.value
    );
    assert_eq!(entered.unconfirmed, case.unconfirmed, "{label}");
    let entry = Entry {
        own: Some(KeyId(u32::from(b'a'))),
        delta: tally(case.counted),
        origin: case.origin,
    };
    assert_eq!(entered.entries, [entry], "{label}");

    let next = Report {
        seq: 2,
        time: Some(MonoTime::from_micros(case.value + 1)),
        tallies: [(KeyId(0), tally(case.value + 2))].into(),
        ..Report::default()
    };
    let entered = enter(&mut books, &next).unwrap();
    let two = Entry {
        own: entry.own,
        delta: tally(2),
        origin: Origin::Observed,
    };
    assert_eq!(
        (entered.unconfirmed, entered.entries),
        (0, vec![two]),
        "{label}: what comes next is plain"
    );
}

/// Such a greeting carries no key: a child defines keys once the parent has answered on the stream.
#[test]
fn an_overtaken_greeting_subtracts_nothing() {
    let mut books = Books::new(PARENT, 100);
    let report = |sent, value| Report {
        seq: 2,
        time: Some(MonoTime::from_micros(value)),
        definitions: [(
            KeyId(0),
            KeyDefinition {
                key: key("a"),
                base: Counts::ZERO,
                sent: offered(sent),
                continues: true,
            },
        )]
        .into(),
        tallies: [(KeyId(0), tally(value))].into(),
        ..Report::default()
    };
    let overtaken = Report {
        seq: 1,
        ..Report::default()
    };
    let mut counted = 0;
    for report in [report(0, 20), report(35, 36), overtaken, report(36, 40)] {
        books.open();
        let entered = enter(&mut books, &report).unwrap();
        counted += entered
            .entries
            .iter()
            .map(|entry| entry.delta.counts.offered)
            .sum::<u64>();
    }
    assert_eq!(counted, 40);
}

/// A ledger that moves a key returns its new place, which is used from then on.
#[test]
fn counts_follow_their_key() {
    struct Moving(Vec<Option<TablePlace>>);
    impl Ledger for Moving {
        fn place(&mut self, _: KeyId, _: &Key) -> Option<TablePlace> {
            Some(TablePlace {
                id: KeyId(4),
                generation: 1,
            })
        }
        fn add(
            &mut self,
            place: Option<TablePlace>,
            _: KeyId,
            key: &Key,
            new: New,
        ) -> Option<TablePlace> {
            assert_eq!((key.tenant.as_str(), new.delta.counts.offered), ("b", 1));
            self.0.push(place);
            match place {
                Some(place) if place.generation < 3 => Some(TablePlace {
                    generation: place.generation + 1,
                    ..place
                }),
                Some(_) => None,
                None => Some(TablePlace {
                    id: KeyId(9),
                    generation: 3,
                }),
            }
        }
    }
    let (mut books, mut ledger) = (books(), Moving(Vec::new()));
    let generations = |ledger: &Moving| -> Vec<Option<(u32, u32)>> {
        ledger
            .0
            .iter()
            .map(|place| place.map(|place| (place.id.0, place.generation)))
            .collect()
    };
    for offered in 1..=6 {
        let mut report = Report {
            seq: 2 + offered,
            time: Some(MonoTime::from_micros(offered)),
            tallies: [(KeyId(1), tally(offered))].into(),
            ..Report::default()
        };
        if offered == 1 {
            report.definitions.insert(KeyId(1), definition("b"));
        }
        books.enter_into(MonoTime::ZERO, &report, u64::MAX, &mut ledger);
    }
    let due = [
        Some((4, 1)),
        Some((4, 2)),
        Some((4, 3)),
        None,
        Some((9, 3)),
        None,
    ];
    assert_eq!(generations(&ledger), due);
}

#[test]
fn keys_that_a_new_stream_does_not_define_are_forgotten() {
    let mut books = books();
    for tenant in ["c", "d", "e"] {
        books.open();
        assert!(
            books.keys_held() >= 1,
            "the next report may count on from them"
        );
        let report = Report {
            seq: 1,
            time: Some(MonoTime::from_micros(1)),
            definitions: [(KeyId(0), definition(tenant))].into(),
            ..Report::default()
        };
        enter(
            &mut books,
            &Report {
                more: true,
                time: report.time,
                seq: 1,
                ..Report::default()
            },
        )
        .unwrap();
        assert!(books.keys_held() >= 1, "a report has several parts");
        enter(&mut books, &report).unwrap();
        assert_eq!(books.keys_held(), 1);
    }
}
