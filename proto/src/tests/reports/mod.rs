//! Round trips of reports.

mod any;
mod sizes;

use self::any::any_evidence;
pub(super) use self::any::any_stream;
use super::*;
use plimsoll_core::report::Greeting;

fn check_reports(reports: &[Report]) -> Vec<usize> {
    let (mut encoder, mut decoder) = (ReportEncoder::default(), ReportDecoder::default());
    reports
        .iter()
        .map(|report| {
            let parts = encoder.encode(report);
            let mut joined: Option<Report> = None;
            for (part, left) in parts.iter().zip((0..parts.len()).rev()) {
                assert!(
                    part.encoded_len() <= MESSAGE_BYTES_MAX,
                    "{} bytes",
                    part.encoded_len()
                );
                let lists = [
                    part.id_gaps.len(),
                    part.definitions.len(),
                    part.subscriptions.len(),
                    part.holds.len(),
                ];
                assert!(
                    lists.iter().all(|list| *list <= KEYS_PER_PART_MAX),
                    "{lists:?}"
                );
                let part = wire::Report::decode(part.encode_to_vec().as_slice()).unwrap();
                let decoded = decoder.decode(part).unwrap();
                assert_eq!(decoder.is_unfinished(), left > 0);
                if let Some(part) = decoded {
                    assert_eq!(
                        part.more,
                        left > 0,
                        "the keys of each part are passed on at once"
                    );
                    joined = Some(match joined.take() {
                        None => part,
                        Some(mut before) => {
                            before.definitions.extend(part.definitions);
                            let tallies =
                                before.tallies.iter().chain(part.tallies.iter()).collect();
                            Report {
                                definitions: before.definitions,
                                tallies,
                                ..part
                            }
                        }
                    });
                }
            }
            assert_eq!(joined.as_ref(), Some(report));
            parts.len()
        })
        .collect()
}

fn defining(keys: u32) -> Report {
    let definition = |id: u32| {
        let key = Key {
            bucket: Bucket::new("b").unwrap(),
            tenant: Tenant::new(&format!("t{id}")).unwrap(),
        };
        KeyDefinition {
            key,
            base: Counts::ZERO,
            sent: Counts::ZERO,
            continues: false,
        }
    };
    let definitions = (0..keys).map(|id| (KeyId(id), definition(id))).collect();
    Report {
        seq: 1,
        definitions,
        ..Report::default()
    }
}

proptest! {
    #[test]
    fn evidence_survives_a_round_trip(evidence in any_evidence()) {
        check_reports(&[Report { seq: 1, evidence, ..Report::default() }]);
    }
}

/// The example in docs/reference/wire.md, byte by byte.
#[test]
fn report_encodes_to_the_documented_bytes() {
    let tally = |offered, dropped| Tally {
        counts: Counts {
            offered,
            dropped,
            ..Counts::ZERO
        },
        late: Counts::ZERO,
    };
    let report = |seq, tallies: [Tally; 3]| Report {
        seq,
        time: Some(MonoTime::from_micros(1_200_000)),
        tallies: [0, 1, 6].map(KeyId).into_iter().zip(tallies).collect(),
        ..Report::default()
    };
    let mut encoder = ReportEncoder::default();
    let _ = encoder.encode(&defining(7));
    let _ = encoder.encode(&report(
        2,
        [tally(1_000, 500), tally(0, 0), tally(70_000, 9)],
    ));
    let parts = encoder.encode(&report(
        3,
        [tally(1_012, 502), tally(5, 0), tally(70_300, 9)],
    ));
    let expected = [
        [0x08, 0x03].as_slice(),
        &[0x18, 0x80, 0x9f, 0x49],
        &[0x72, 0x03, 0x00, 0x00, 0x04],
        &[0x7a, 0x0b],
        &[0x0a, 0x04, 0x0c, 0x05, 0xac, 0x02],
        &[0x12, 0x03, 0x02, 0x00, 0x00],
    ];
    assert_eq!(parts.len(), 1);
    assert_eq!(parts[0].encode_to_vec(), expected.concat());
}

#[test]
fn positive_hold_never_becomes_zero() {
    let rates = [0.0, f64::MIN_POSITIVE, 0.001, 1.0 / 3.0].map(|rate| Rate::new(rate).unwrap());
    let buckets = ["a", "b", "c", "d"].map(|name| Bucket::new(name).unwrap());
    let report = Report {
        seq: 1,
        greeting: Greeting {
            holds: buckets.into_iter().zip(rates).collect(),
            ..Greeting::default()
        },
        ..Report::default()
    };
    let part = ReportEncoder::default().encode(&report).remove(0);
    let arrived = ReportDecoder::default().decode(part).unwrap().unwrap();
    let arrived: Vec<f64> = arrived
        .greeting
        .holds
        .values()
        .map(|hold| hold.per_second())
        .collect();
    assert_eq!(arrived, [0.0, 0.001, 0.001, 0.333]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn reports_survive_a_round_trip(reports in any_stream()) {
        check_reports(&reports);
    }
}
