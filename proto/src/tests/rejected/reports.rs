//! Reports out of range.

use std::time::{Duration, Instant};

use plimsoll_core::names::InvalidName;
use plimsoll_core::report::CALLERS_MAX;

use super::{check_last_rejected, invalid_name, too_many};
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
    (from..from + keys)
        .map(|id| wire::KeyDefinition {
            id,
            ..defines("b", "t")
        })
        .collect()
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

#[test]
fn reports_out_of_range_are_rejected() {
    let with = |definition| wire::Report {
        definitions: vec![definition],
        ..report()
    };
    let space = InvalidName::Byte { byte: ' ', at: 1 };
    let enumeration = |value| DecodeError::Enumeration {
        field: "role",
        value,
    };
    let part_max = KEYS_PER_PART_MAX;
    let called = |tenant: &str, names| wire::Report {
        callers: vec![
            wire::NameRate {
                bucket: "b".to_owned(),
                tenant: tenant.to_owned(),
                milli_rps: 1,
            };
            names
        ],
        ..report()
    };
    let counted = |ids: &[u32], offered| wire::Report {
        definitions: definitions(0, 3),
        ..counts(ids.iter().copied(), offered)
    };
    let with_columns = |change: fn(&mut wire::Columns)| {
        let mut columns = wire::Columns::default();
        change(&mut columns);
        wire::Report {
            count_deltas: Some(columns),
            ..counted(&[0, 1, 2], 0)
        }
    };
    let columns = |field, got| DecodeError::Columns {
        field,
        got,
        expected: 3,
    };
    let path = |lengths: &[usize]| {
        let path = lengths.iter().map(|length| vec![7; *length]).collect();
        wire::Report { path, ..report() }
    };
    let table = [
        (vec![wire::Report::default()], DecodeError::Zero("seq")),
        (
            vec![wire::Report {
                epoch: Some(0),
                ..report()
            }],
            DecodeError::Zero("epoch"),
        ),
        (
            vec![greeting(|identity| identity.instance.truncate(15))],
            DecodeError::Instance(15),
        ),
        (
            vec![greeting(|identity| identity.instance.push(0))],
            DecodeError::Instance(17),
        ),
        (
            vec![greeting(|identity| identity.instance.clear())],
            DecodeError::Instance(0),
        ),
        (vec![path(&[16, 15])], DecodeError::Instance(15)),
        (vec![path(&[17])], DecodeError::Instance(17)),
        (vec![path(&[0])], DecodeError::Instance(0)),
        (
            vec![path(&[16; 17])],
            DecodeError::TooMany {
                field: "path",
                got: 17,
                most: 16,
            },
        ),
        (
            vec![more(report()), path(&[16])],
            DecodeError::Parts("path"),
        ),
        (
            vec![greeting(|identity| identity.name.clear())],
            invalid_name("name", InvalidName::Empty),
        ),
        (
            vec![greeting(|identity| identity.service = "a b".to_owned())],
            invalid_name("service", space),
        ),
        (
            vec![greeting(|identity| identity.zone = "a b".to_owned())],
            invalid_name("zone", space),
        ),
        (vec![greeting(|identity| identity.role = 0)], enumeration(0)),
        (vec![greeting(|identity| identity.role = 3)], enumeration(3)),
        (
            vec![greeting(|identity| identity.role = -1)],
            enumeration(-1),
        ),
        (
            vec![with(defines("", "t"))],
            invalid_name("bucket", InvalidName::Empty),
        ),
        (
            vec![with(defines("b", "a b"))],
            invalid_name("tenant", space),
        ),
        (
            vec![with(defines("b", &longest(0).repeat(2)))],
            invalid_name("tenant", InvalidName::TooLong(256)),
        ),
        (
            vec![wire::Report {
                subscriptions: vec!["a b".to_owned()],
                ..report()
            }],
            invalid_name("subscriptions", space),
        ),
        (
            vec![wire::Report {
                modes: vec![mode(4)],
                ..report()
            }],
            DecodeError::Enumeration {
                field: "mode",
                value: 4,
            },
        ),
        (
            vec![wire::Report {
                version: "1 2".to_owned(),
                ..report()
            }],
            invalid_name("version", space),
        ),
        (
            vec![wire::Report {
                holds: vec![hold("a b")],
                ..report()
            }],
            invalid_name("holds", space),
        ),
        (
            vec![wire::Report {
                holds: vec![hold("a"), hold("")],
                ..report()
            }],
            invalid_name("holds", InvalidName::Empty),
        ),
        (
            vec![with_evidence(|evidence| evidence.bucket = "a b".to_owned())],
            invalid_name("evidence", space),
        ),
        (
            vec![with_evidence(|evidence| evidence.mode = 0)],
            DecodeError::Enumeration {
                field: "mode",
                value: 0,
            },
        ),
        (
            vec![with_evidence(|evidence| evidence.mode = 4)],
            DecodeError::Enumeration {
                field: "mode",
                value: 4,
            },
        ),
        (
            vec![with_evidence(|evidence| {
                evidence.latency_bin_gaps = vec![2_048]
            })],
            DecodeError::Bin(2_048),
        ),
        (
            vec![with_evidence(|evidence| {
                evidence.latency_bin_gaps = vec![u32::MAX]
            })],
            DecodeError::Bin(u32::MAX),
        ),
        (
            vec![with_evidence(|evidence| {
                evidence.latency_bin_gaps = vec![2_047, 0];
                evidence.latency_counts = vec![1, 1];
            })],
            DecodeError::Bin(2_048),
        ),
        (
            vec![with_evidence(|evidence| {
                evidence.latency_counts = vec![1, 1]
            })],
            DecodeError::Columns {
                field: "evidence.latency_counts",
                got: 2,
                expected: 1,
            },
        ),
        (
            vec![with_evidence(|evidence| {
                evidence.latency_bin_gaps = vec![0; 2_049]
            })],
            DecodeError::TooMany {
                field: "evidence.latency_bin_gaps",
                got: 2_049,
                most: 2_048,
            },
        ),
        (
            vec![with(wire::KeyDefinition {
                id: 1,
                ..defines("b", "t")
            })],
            DecodeError::Definition(1),
        ),
        (
            vec![with(wire::KeyDefinition {
                id: u32::MAX,
                ..defines("b", "t")
            })],
            DecodeError::Definition(u32::MAX),
        ),
        (
            vec![wire::Report {
                definitions: vec![defines("b", "t"); 2],
                ..report()
            }],
            DecodeError::Definition(0),
        ),
        (
            vec![more(with(defines("b", "t"))), with(defines("b", "t"))],
            DecodeError::Definition(0),
        ),
        (vec![counts([0], 1)], DecodeError::Undefined(0)),
        (vec![counts([0, 1, 2, 7], 1)], DecodeError::Undefined(0)),
        (
            vec![wire::Report {
                id_gaps: vec![u32::MAX; 3],
                ..report()
            }],
            DecodeError::Undefined(u32::MAX),
        ),
        (vec![counted(&[0, 1, 3], 1)], DecodeError::Undefined(3)),
        (
            vec![more(counted(&[0, 2], 1)), counts([2], 1)],
            DecodeError::Unsorted(2),
        ),
        (
            vec![more(counted(&[0, 2], 1)), counts([1], 1)],
            DecodeError::Unsorted(1),
        ),
        (
            vec![
                more(counted(&[0], 1)),
                with(wire::KeyDefinition {
                    id: 3,
                    ..defines("b", "t")
                }),
            ],
            DecodeError::Parts("definitions"),
        ),
        (
            vec![wire::Report {
                id_gaps: Vec::new(),
                ..with_columns(|columns| columns.offered = vec![1])
            }],
            DecodeError::Columns {
                field: "count_deltas",
                got: 1,
                expected: 0,
            },
        ),
        (
            vec![with_columns(|columns| columns.offered = vec![1; 2])],
            columns("count_deltas", 2),
        ),
        (
            vec![with_columns(|columns| columns.dropped = vec![1; 2])],
            columns("count_deltas", 2),
        ),
        (
            vec![with_columns(|columns| columns.guard_dropped = vec![1; 4])],
            columns("count_deltas", 4),
        ),
        (
            vec![with_columns(|columns| columns.would_dropped = vec![1; 2])],
            columns("count_deltas", 2),
        ),
        (
            vec![with_columns(|columns| {
                columns.would_guard_dropped = vec![1; 2]
            })],
            columns("count_deltas", 2),
        ),
        (
            vec![with_columns(|columns| columns.quota_dropped = vec![1; 2])],
            columns("count_deltas", 2),
        ),
        (
            vec![with_columns(|columns| {
                columns.would_quota_dropped = vec![1; 4]
            })],
            columns("count_deltas", 4),
        ),
        (
            vec![with_columns(|columns| columns.quota_repeated = vec![1; 2])],
            columns("count_deltas", 2),
        ),
        (
            vec![wire::Report {
                late_deltas: Some(wire::Columns {
                    dropped: vec![1; 2],
                    ..wire::Columns::default()
                }),
                ..counted(&[0, 1, 2], 1)
            }],
            columns("late_deltas", 2),
        ),
        (
            vec![counts(0..4_097, 1)],
            too_many("id_gaps", 4_097, part_max),
        ),
        (
            vec![wire::Report {
                definitions: vec![defines("b", "t"); 4_097],
                ..report()
            }],
            too_many("definitions", 4_097, part_max),
        ),
        (
            vec![wire::Report {
                subscriptions: vec!["b".to_owned(); 4_097],
                ..report()
            }],
            too_many("subscriptions", 4_097, part_max),
        ),
        (
            vec![wire::Report {
                holds: vec![hold("b"); 4_097],
                ..report()
            }],
            too_many("holds", 4_097, part_max),
        ),
        (
            vec![more(called("t", 200)), called("t", 201)],
            too_many("callers", 401, CALLERS_MAX),
        ),
        (
            vec![called("t", 513)],
            too_many("callers", 513, CALLERS_MAX),
        ),
        (vec![called("t ", 1)], invalid_name("callers", space)),
        (
            vec![more(report()), wire::Report { seq: 2, ..report() }],
            DecodeError::Parts("seq"),
        ),
        (
            vec![
                more(report()),
                wire::Report {
                    time_us: Some(1),
                    ..report()
                },
            ],
            DecodeError::Parts("time"),
        ),
        (
            vec![more(report()), greeting(|_| ())],
            DecodeError::Parts("identity"),
        ),
        (
            vec![more(greeting(|_| ())), greeting(|_| ())],
            DecodeError::Parts("identity"),
        ),
    ];
    for (parts, error) in table {
        check_report_rejected(parts, &error);
    }
}

/// Every column of a key may reach 2^64 - 1 and none may exceed it.
#[test]
fn deltas_that_overflow_a_count_are_rejected() {
    let all = |with: fn(&mut wire::Columns) -> &mut Vec<u64>, seq, late, number| {
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
    let columns: [fn(&mut wire::Columns) -> &mut Vec<u64>; 9] = [
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
    for (column, late) in columns
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
        joined.subscriptions.len(),
        joined.unsubscriptions.len(),
        joined.established.len(),
    );
    assert_eq!(lens, (32_000, 32_000, 64_000));
    assert!(joined.subscriptions.is_sorted() && joined.unsubscriptions.is_sorted());
}
