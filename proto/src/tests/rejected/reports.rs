//! Reports out of range.

use std::time::{Duration, Instant};

use plimsoll_core::names::InvalidName;
use plimsoll_core::report::CALLERS_MAX;

use super::{Rejected, check_last_rejected, invalid_name, too_many};
use crate::DecodeError::{Bin, Definition, Instance, Parts, Undefined, Unsorted, Zero};
use crate::tests::*;

fn report() -> wire::Report {
    wire::Report {
        seq: 1,
        ..wire::Report::default()
    }
}

fn greeting(change: impl FnOnce(&mut wire::Identity)) -> wire::Report {
    let mut identity = wire::Identity {
        instance: vec![7; 16],
        name: "host-7:8080".to_owned(),
        service: "checkout-api".to_owned(),
        zone: "eu-west-1a".to_owned(),
        role: wire::Role::Client as i32,
    };
    change(&mut identity);
    wire::Report {
        identity: Some(identity),
        ..report()
    }
}

fn defines(bucket: &str, tenant: &str) -> wire::KeyDefinition {
    wire::KeyDefinition {
        bucket: bucket.to_owned(),
        tenant: tenant.to_owned(),
        ..wire::KeyDefinition::default()
    }
}

fn definitions(from: u32, keys: u32) -> Vec<wire::KeyDefinition> {
    (from..from + keys).map(defined).collect()
}

fn counts(ids: impl IntoIterator<Item = u32>, offered: u64) -> wire::Report {
    let mut next = 0;
    let gap = |id: u32| id - std::mem::replace(&mut next, id + 1);
    let id_gaps: Vec<u32> = ids.into_iter().map(gap).collect();
    let offered = vec![offered; id_gaps.len()];
    let count_deltas = Some(wire::Columns {
        offered,
        ..wire::Columns::default()
    });
    wire::Report {
        count_deltas,
        id_gaps,
        ..report()
    }
}

fn mode(directed: i32) -> wire::BucketMode {
    wire::BucketMode {
        bucket: "a".to_owned(),
        directed,
        unapplied: 1,
    }
}

fn hold(bucket: &str) -> wire::Hold {
    wire::Hold {
        bucket: bucket.to_owned(),
        milli_rps: 1,
    }
}

fn with_evidence(change: impl FnOnce(&mut wire::Evidence)) -> wire::Report {
    let mut evidence = wire::Evidence {
        bucket: "b".to_owned(),
        mode: wire::Mode::Canary as i32,
        latency_bin_gaps: vec![7],
        latency_counts: vec![1],
        ..wire::Evidence::default()
    };
    change(&mut evidence);
    wire::Report {
        evidence: vec![evidence],
        ..report()
    }
}

fn more(report: wire::Report) -> wire::Report {
    wire::Report {
        more: true,
        ..report
    }
}

fn check_report_rejected(parts: Vec<wire::Report>, error: &DecodeError) {
    let mut decoder = ReportDecoder::default();
    check_last_rejected(parts, error, |part| decoder.decode(part));
}

fn defined(id: u32) -> wire::KeyDefinition {
    wire::KeyDefinition {
        id,
        ..defines("b", "t")
    }
}

fn callers(tenant: &str, names: usize) -> Vec<wire::NameRate> {
    let caller = wire::NameRate {
        bucket: "b".to_owned(),
        tenant: tenant.to_owned(),
        milli_rps: 1,
    };
    vec![caller; names]
}

fn path(lengths: &[usize]) -> Vec<Vec<u8>> {
    lengths.iter().map(|length| vec![7; *length]).collect()
}

fn with(change: impl FnOnce(&mut wire::Report)) -> wire::Report {
    let mut changed = report();
    change(&mut changed);
    changed
}

fn counted(ids: &[u32], offered: u64) -> wire::Report {
    wire::Report {
        definitions: definitions(0, 3),
        ..counts(ids.iter().copied(), offered)
    }
}

/// The only space is the second byte.
fn spaced(field: &'static str) -> DecodeError {
    invalid_name(field, InvalidName::Byte { byte: ' ', at: 1 })
}

fn empty(field: &'static str) -> DecodeError {
    invalid_name(field, InvalidName::Empty)
}

fn unknown(field: &'static str, value: i32) -> DecodeError {
    DecodeError::Enumeration { field, value }
}

fn columns(field: &'static str, got: usize, expected: usize) -> DecodeError {
    DecodeError::Columns {
        field,
        got,
        expected,
    }
}

#[test]
fn reports_out_of_range_are_rejected() {
    let most = KEYS_PER_PART_MAX;
    let name = |length| invalid_name("tenant", InvalidName::TooLong(length));
    let table: [Rejected<wire::Report>; 25] = [
        (|it| it.seq = 0, Zero("seq")),
        (|it| it.version = "1 2".to_owned(), spaced("version")),
        (|it| it.epoch = Some(0), Zero("epoch")),
        (|it| it.path = path(&[16, 15]), Instance(15)),
        (|it| it.path = path(&[17]), Instance(17)),
        (|it| it.path = path(&[0]), Instance(0)),
        (|it| it.path = path(&[16; 17]), too_many("path", 17, 16)),
        (
            |it| it.subscriptions = vec!["a b".to_owned()],
            spaced("subscriptions"),
        ),
        (
            |it| it.subscriptions = vec!["b".to_owned(); 4_097],
            too_many("subscriptions", 4_097, most),
        ),
        (|it| it.modes = vec![mode(4)], unknown("mode", 4)),
        (|it| it.holds = vec![hold("a b")], spaced("holds")),
        (|it| it.holds = vec![hold("a"), hold("")], empty("holds")),
        (
            |it| it.holds = vec![hold("b"); 4_097],
            too_many("holds", 4_097, most),
        ),
        (
            |it| it.callers = callers("t", 513),
            too_many("callers", 513, CALLERS_MAX),
        ),
        (|it| it.callers = callers("t ", 1), spaced("callers")),
        (
            |it| it.definitions = vec![defines("", "t")],
            empty("bucket"),
        ),
        (
            |it| it.definitions = vec![defines("b", "a b")],
            spaced("tenant"),
        ),
        (
            |it| it.definitions = vec![defines("b", &longest(0).repeat(2))],
            name(256),
        ),
        (|it| it.definitions = vec![defined(1)], Definition(1)),
        (
            |it| it.definitions = vec![defined(u32::MAX)],
            Definition(u32::MAX),
        ),
        (|it| it.definitions = vec![defined(0); 2], Definition(0)),
        (
            |it| it.definitions = vec![defined(0); 4_097],
            too_many("definitions", 4_097, most),
        ),
        (|it| it.id_gaps = vec![u32::MAX; 3], Undefined(u32::MAX)),
        (|it| *it = counts([0], 1), Undefined(0)),
        (|it| *it = counts([0, 1, 2, 7], 1), Undefined(0)),
    ];
    for (change, error) in table {
        check_report_rejected(vec![with(change)], &error);
    }
    check_report_rejected(vec![counted(&[0, 1, 3], 1)], &Undefined(3));
    let many = too_many("id_gaps", 4_097, most);
    check_report_rejected(vec![counts(0..4_097, 1)], &many);
}

#[test]
fn greetings_out_of_range_are_rejected() {
    let table: [Rejected<wire::Identity>; 9] = [
        (|it| it.instance.truncate(15), Instance(15)),
        (|it| it.instance.push(0), Instance(17)),
        (|it| it.instance.clear(), Instance(0)),
        (|it| it.name.clear(), empty("name")),
        (|it| it.service = "a b".to_owned(), spaced("service")),
        (|it| it.zone = "a b".to_owned(), spaced("zone")),
        (|it| it.role = 0, unknown("role", 0)),
        (|it| it.role = 3, unknown("role", 3)),
        (|it| it.role = -1, unknown("role", -1)),
    ];
    for (change, error) in table {
        check_report_rejected(vec![greeting(change)], &error);
    }
}

#[test]
fn evidence_out_of_range_is_rejected() {
    let bins = "evidence.latency_bin_gaps";
    let two = columns("evidence.latency_counts", 2, 1);
    let table: [Rejected<wire::Evidence>; 8] = [
        (|it| it.bucket = "a b".to_owned(), spaced("evidence")),
        (|it| it.mode = 0, unknown("mode", 0)),
        (|it| it.mode = 4, unknown("mode", 4)),
        (|it| it.latency_bin_gaps = vec![2_048], Bin(2_048)),
        (|it| it.latency_bin_gaps = vec![u32::MAX], Bin(u32::MAX)),
        (
            |it| (it.latency_bin_gaps, it.latency_counts) = (vec![2_047, 0], vec![1, 1]),
            Bin(2_048),
        ),
        (|it| it.latency_counts = vec![1, 1], two),
        (
            |it| it.latency_bin_gaps = vec![0; 2_049],
            too_many(bins, 2_049, 2_048),
        ),
    ];
    for (change, error) in table {
        check_report_rejected(vec![with_evidence(change)], &error);
    }
}

#[test]
fn parts_that_do_not_join_are_rejected() {
    let with_callers = |names| with(|it| it.callers = callers("t", names));
    let first = || with(|it| it.definitions = vec![defined(0)]);
    let fourth = with(|it| it.definitions = vec![defined(3)]);
    let table = [
        (report(), with(|it| it.path = path(&[16])), Parts("path")),
        (report(), with(|it| it.seq = 2), Parts("seq")),
        (report(), with(|it| it.time_us = Some(1)), Parts("time")),
        (report(), greeting(|_| ()), Parts("identity")),
        (greeting(|_| ()), greeting(|_| ()), Parts("identity")),
        (first(), first(), Definition(0)),
        (counted(&[0], 1), fourth, Parts("definitions")),
        (counted(&[0, 2], 1), counts([2], 1), Unsorted(2)),
        (counted(&[0, 2], 1), counts([1], 1), Unsorted(1)),
        (
            with_callers(200),
            with_callers(201),
            too_many("callers", 401, CALLERS_MAX),
        ),
    ];
    for (first, second, error) in table {
        check_report_rejected(vec![more(first), second], &error);
    }
}

type Column = fn(&mut wire::Columns) -> &mut Vec<u64>;

const EACH_COLUMN: [Column; COLUMNS] = [
    |columns| &mut columns.offered,
    |columns| &mut columns.dropped,
    |columns| &mut columns.guard_dropped,
    |columns| &mut columns.would_dropped,
    |columns| &mut columns.would_guard_dropped,
    |columns| &mut columns.quota_dropped,
    |columns| &mut columns.would_quota_dropped,
    |columns| &mut columns.quota_repeated,
    |columns| &mut columns.retried,
];

#[test]
fn columns_of_another_length_are_rejected() {
    for column in EACH_COLUMN {
        for got in [2, 4] {
            let mut deltas = wire::Columns::default();
            *column(&mut deltas) = vec![1; got];
            let mut part = counted(&[0, 1, 2], 1);
            part.late_deltas = Some(deltas.clone());
            check_report_rejected(vec![part.clone()], &columns("late_deltas", got, 3));
            part.count_deltas = Some(deltas);
            check_report_rejected(vec![part.clone()], &columns("count_deltas", got, 3));
            part.id_gaps.clear();
            check_report_rejected(vec![part], &columns("count_deltas", got, 0));
        }
    }
}

/// Every column of a key may reach 2^64 - 1 and none may exceed it.
#[test]
fn deltas_that_overflow_a_count_are_rejected() {
    let all = |with: Column, seq, late, number| {
        let mut columns = wire::Columns::default();
        *with(&mut columns) = vec![0, number];
        let (count_deltas, late_deltas) = if late {
            (None, Some(columns))
        } else {
            (Some(columns), None)
        };
        wire::Report {
            seq,
            id_gaps: vec![0, 0],
            count_deltas,
            late_deltas,
            ..report()
        }
    };
    for (column, late) in EACH_COLUMN
        .into_iter()
        .flat_map(|column| [(column, false), (column, true)])
    {
        let mut decoder = ReportDecoder::default();
        let first = wire::Report {
            definitions: definitions(0, 2),
            ..all(column, 1, late, u64::MAX)
        };
        let decoded = decoder.decode(first).unwrap().unwrap();
        assert!(
            !decoded
                .tallies
                .iter()
                .any(|tally| tally == (KeyId(1), Tally::ZERO))
        );
        assert!(decoder.decode(all(column, 2, late, 0)).unwrap().is_some());
        assert_eq!(
            decoder.decode(all(column, 3, late, 1)),
            Err(DecodeError::Overflow(1))
        );
    }
}

#[test]
fn unfinished_report_keys_are_passed_on() {
    let mut decoder = ReportDecoder::default();
    let mut part = |part: wire::Report| {
        let keys = decoder.decode(more(part)).unwrap().unwrap();
        assert!(keys.more && decoder.is_unfinished());
        let held = format!("{decoder:?}");
        let held = held.split_once("unfinished: ").unwrap().1.len();
        (keys.definitions.len(), keys.tallies.len(), held)
    };
    let (mut defined, mut counted, mut held) = (0, 0, Vec::new());
    for number in 0..5 {
        let from = number * 4_096;
        let (definitions, tallies, bytes) = part(wire::Report {
            definitions: definitions(from, 4_096),
            ..report()
        });
        (defined, counted) = (defined + definitions, counted + tallies);
        held.push(bytes);
    }
    for number in 0..5_u32 {
        let (definitions, tallies, bytes) = part(counts((number * 4_096..).take(4_096), 1));
        (defined, counted) = (defined + definitions, counted + tallies);
        held.push(bytes);
    }
    assert_eq!(
        (defined, counted),
        (5 * 4_096, 5 * 4_096),
        "every part has all of its entries"
    );
    assert!(held.iter().all(|bytes| *bytes < held[0] + 32), "{held:?}");
    let last = decoder.decode(report()).unwrap().unwrap();
    assert!(!last.more && last.tallies.is_empty() && !decoder.is_unfinished());
}

fn first_error(parts: impl Iterator<Item = wire::Report>) -> (usize, DecodeError) {
    let mut decoder = ReportDecoder::default();
    let decoded = parts.map(|part| decoder.decode(more(part)));
    let (at, error) = decoded
        .enumerate()
        .find(|(_, decoded)| decoded.is_err())
        .unwrap();
    (at, error.unwrap_err())
}

#[test]
fn endless_list_is_rejected_at_its_bound() {
    let names = |number: usize| {
        (number * 4_096..)
            .take(4_096)
            .map(|bucket| bucket.to_string())
    };
    let holds = (0..).map(|number| {
        let holds = names(number).map(|bucket| hold(&bucket)).collect();
        wire::Report { holds, ..report() }
    });
    let subscriptions = (0..).map(|number| wire::Report {
        subscriptions: names(number).collect(),
        ..report()
    });
    let most = 1 << 15;
    assert_eq!(
        first_error(holds),
        (8, too_many("holds", most + 4_096, most))
    );
    assert_eq!(
        first_error(subscriptions),
        (8, too_many("subscriptions", most + 4_096, most))
    );
    let evidence = (0..).map(|number| {
        let change = |evidence: &mut wire::Evidence| {
            evidence.bucket = format!("b{number}");
            evidence.latency_bin_gaps = vec![0; 2_048];
            evidence.latency_counts = vec![1; 2_048];
        };
        with_evidence(change)
    });
    let most = 1 << 18;
    assert_eq!(
        first_error(evidence),
        (
            128,
            too_many("evidence.latency_bin_gaps", most + 2_048, most)
        )
    );
    let empty = std::iter::repeat_with(report);
    assert_eq!(first_error(empty), (4_096, too_many("parts", 4_097, 4_096)));
}

#[test]
fn split_greeting_with_keys_is_rejected() {
    let keys = || wire::Report {
        definitions: definitions(0, 1),
        ..report()
    };
    check_report_rejected(
        vec![more(greeting(|_| ())), keys()],
        &DecodeError::GreetingKeys,
    );
    let first = wire::Report {
        definitions: definitions(0, 1),
        ..greeting(|_| ())
    };
    check_report_rejected(vec![more(first.clone())], &DecodeError::GreetingKeys);
    assert!(
        ReportDecoder::default().decode(first).unwrap().is_some(),
        "one part is one report"
    );
}

#[test]
fn gaps_and_repetitions_of_seq_are_rejected() {
    let numbered = |seq| wire::Report { seq, ..report() };
    let gap = |expected, got| DecodeError::Gap { expected, got };
    // Reports received, the next part, and the error.
    let table = [
        (0, numbered(2), gap(1, 2)),
        (0, more(numbered(2)), gap(1, 2)),
        (0, numbered(u64::MAX), gap(1, u64::MAX)),
        (1, numbered(3), gap(2, 3)),
        (1, numbered(1), gap(2, 1)),
        (1, more(numbered(1)), gap(2, 1)),
        (5, numbered(5), gap(6, 5)),
        (5, numbered(1), gap(6, 1)),
        (5, numbered(7), gap(6, 7)),
        (
            5,
            wire::Report {
                definitions: vec![defines("b", "t")],
                ..numbered(7)
            },
            gap(6, 7),
        ),
    ];
    for (complete, next, error) in table {
        let mut decoder = ReportDecoder::default();
        for seq in 1..=complete {
            // All parts of one report have the same number.
            assert_eq!(decoder.decode(more(numbered(seq))), Ok(None));
            assert_eq!(decoder.decode(more(numbered(seq))), Ok(None));
            let decoded = decoder.decode(numbered(seq)).unwrap();
            assert_eq!(decoded.map(|report| report.seq), Some(seq));
        }
        assert_eq!(decoder.decode(next), Err(error));
    }
}

#[test]
fn tiny_parts_cost_only_their_size() {
    let mut parts = Vec::new();
    for part in 0..8 {
        let names = |kind: &str| -> Vec<String> {
            (0..4_000)
                .map(|name| format!("{kind}{:06}", part * 4_000 + name))
                .collect()
        };
        let (subscriptions, unsubscriptions) = (names("s"), names("u"));
        parts.push(wire::Report {
            subscriptions,
            unsubscriptions,
            ..report()
        });
    }
    let tenant = |number: usize| wire::TenantName {
        bucket: "b".to_owned(),
        tenant: format!("t{number:06}"),
    };
    for part in 0..16 {
        let established = (part * 4_000..).take(4_000).map(tenant).collect();
        parts.push(wire::Report {
            established,
            ..report()
        });
    }
    parts.resize(
        1_024,
        wire::Report {
            established: vec![tenant(1)],
            ..report()
        },
    );
    parts.resize(4_000, report());
    let mut decoder = ReportDecoder::default();
    let started = Instant::now();
    for part in parts {
        assert_eq!(decoder.decode(more(part)), Ok(None));
    }
    let joined = decoder.decode(report()).unwrap().unwrap();
    // Joined with each part anew, they took 40 s.
    let spent = started.elapsed();
    assert!(spent < Duration::from_secs(10), "{spent:?}");
    let lens = (
        joined.subscriptions.added.len(),
        joined.subscriptions.ended.len(),
        joined.greeting.established.len(),
    );
    assert_eq!(lens, (32_000, 32_000, 64_000));
    assert!(joined.subscriptions.added.is_sorted() && joined.subscriptions.ended.is_sorted());
}
