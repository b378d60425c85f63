//! Sizes of reports: parts within the bounds of a message, and bytes per key.

use plimsoll_core::kill::{KillNews, KillsBelow};
use std::mem::swap;

use super::{check_reports, defining};
use plimsoll_core::directive::{LIMITED_MAX, Leader};
use plimsoll_core::report::{
    CALLERS_MAX, ClientCounts, Greeting, ReportedNames, SubscriptionChanges,
};

use crate::tests::*;

fn largest_spread() -> Spread {
    let spread = Spread::of(
        (1..60_000_000).step_by(211).map(|us| (us, u64::MAX)),
        u64::MAX,
    );
    assert!(spread.latencies().len() > SPREAD_STEPS_MAX / 2);
    spread
}

fn largest_report(keys: usize) -> Report {
    let most = Counts {
        offered: u64::MAX,
        dropped: u64::MAX,
        guard_dropped: u64::MAX,
        would_dropped: u64::MAX,
        would_guard_dropped: u64::MAX,
        quota_dropped: u64::MAX,
        would_quota_dropped: u64::MAX,
        quota_repeated: u64::MAX,
        retried: u64::MAX,
    };
    let text = |number: usize| longest(number);
    let bucket = |number| Bucket::new(&text(number)).unwrap();
    let definition = |number| KeyDefinition {
        key: Key {
            bucket: bucket(0),
            tenant: Tenant::new(&text(number)).unwrap(),
        },
        base: most,
        sent: most,
        continues: true,
    };
    let planned = |number| Key {
        bucket: bucket(0),
        tenant: Tenant::new(&(text(number) + "%~" + &"p".repeat(PLAN_BYTES_MAX))).unwrap(),
    };
    let order = |number| {
        let id = OrderId {
            scope: Scope::Bucket(bucket(number)),
            given_at: InstanceId(u128::MAX),
        };
        let order = KillOrder {
            generation: KillGeneration(u64::MAX),
            age: Duration::from_millis(u64::MAX),
            ends_held: true,
        };
        (id, order)
    };
    let claim = |number| {
        let [service, name] = [1, 2].map(|_| Name::new(&text(number)).unwrap());
        let claim = KillClaim {
            generation: KillGeneration(u64::MAX),
            zone: Zone::new(&text(number)).unwrap(),
            service,
            name,
        };
        (Scope::Bucket(bucket(number)), claim)
    };
    Report {
        seq: 1,
        greeting: Greeting {
            identity: Some(Identity {
                instance: InstanceId(u128::MAX),
                name: Name::new(&text(1)).unwrap(),
                service: Name::new(&text(2)).unwrap(),
                zone: Zone::new(&text(3)).unwrap(),
                role: Role::Aggregator,
            }),
            version: Some(Name::new(&text(1)).unwrap()),
            holds: (0..keys)
                .map(|number| (bucket(number), largest_rate()))
                .collect(),
            established: (0..keys).map(|number| definition(number).key).collect(),
        },
        time: Some(MonoTime::from_micros(MICROS_MAX)),
        lead: Some(Leader::from(Epoch(u64::MAX))).into(),
        kills: KillNews {
            fleet: KillGeneration(u64::MAX),
            buckets: (0..keys.min(KILLED_BUCKETS_MAX))
                .map(|number| (bucket(number), KillGeneration(u64::MAX)))
                .collect(),
            orders: (0..keys.min(KILL_ORDERS_MAX)).map(order).collect(),
            drill: Drill(u64::MAX),
        },
        kills_below: KillsBelow {
            claims: (0..keys.min(CLAIMS_MAX)).map(claim).collect(),
            drill: Drill(u64::MAX),
            spreads: (0..keys.min(SPREAD_ZONES_MAX))
                .map(|number| (Zone::new(&text(number)).unwrap(), largest_spread()))
                .collect(),
        },
        children: u32::MAX,
        clients: ClientCounts {
            killed_locally: u32::MAX,
            quota_store_down: u32::MAX,
            connected: u32::MAX,
        },
        more: false,
        path: Path(vec![InstanceId(u128::MAX); 2 * Path::IDS_MAX]),
        subscriptions: SubscriptionChanges {
            added: (0..keys).map(bucket).collect(),
            ended: (0..keys).map(bucket).collect(),
        },
        modes: (0..keys)
            .map(|number| (bucket(number), largest_mode()))
            .collect(),
        names: ReportedNames {
            limited: (0..keys.min(LIMITED_MAX))
                .map(|number| (planned(number), largest_rate()))
                .collect(),
            callers: (0..keys.min(CALLERS_MAX))
                .map(|number| (planned(number), largest_rate()))
                .collect(),
            ..ReportedNames::default()
        },
        definitions: (0..).map(KeyId).zip((0..keys).map(definition)).collect(),
        tallies: (0..)
            .map(KeyId)
            .zip((0..keys).map(|_| Tally {
                counts: most,
                late: most,
            }))
            .collect(),
        evidence: largest_evidence(keys.min(4_096)),
        leaving: true,
    }
}

fn canary(bucket: &str) -> CohortKey {
    CohortKey {
        bucket: Bucket::new(bucket).unwrap(),
        mode: Mode::Canary,
        side: Side::Canary,
    }
}

fn largest_evidence(buckets: usize) -> Evidence {
    let mut latency = Histogram::default();
    (1..16).for_each(|bin| latency.add(Bin::new(129 * bin).unwrap(), u64::MAX));
    let most = u64::MAX;
    let outcomes = Outcomes {
        offered: most,
        refused: most,
        would_dropped: most,
        failed: most,
        unobserved: most,
        latency,
        instances: u32::MAX,
    };
    let mut evidence = Evidence::default();
    for number in 0..buckets {
        evidence.put(canary(&longest(number)), outcomes.clone());
    }
    evidence
}

#[test]
fn latency_free_evidence_claims_nothing_unobserved() {
    let outcomes = |bins: u16| {
        let mut latency = Histogram::default();
        (0..bins).for_each(|bin| latency.add(Bin::new(bin).unwrap(), 1));
        Outcomes {
            offered: 9_999,
            unobserved: 4,
            latency,
            ..Outcomes::default()
        }
    };
    for (buckets, is_cut) in [(128, false), (129, true)] {
        let mut evidence = Evidence::default();
        for number in 0..buckets {
            let bins = if number == 0 { 0 } else { 2_048 };
            evidence.put(canary(&format!("b{number:03}")), outcomes(bins));
        }
        // One bin more than a report may have.
        evidence.put(canary("z"), outcomes(1));
        let report = Report {
            seq: 1,
            evidence,
            ..Report::default()
        };
        let parts = ReportEncoder::default().encode(&report);
        let unobserved: u64 = parts
            .iter()
            .flat_map(|part| &part.evidence)
            .map(|one| one.unobserved)
            .sum();
        assert_eq!(
            unobserved,
            if is_cut { 0 } else { 4 * (buckets + 1) },
            "{buckets} buckets"
        );
    }
}

#[test]
fn ten_thousand_longest_names_fit_their_messages() {
    let evidence = largest_evidence(1);
    let next = Report {
        seq: 2,
        definitions: BTreeMap::new(),
        evidence,
        ..largest_report(1)
    };
    // A greeting has no keys.
    let mut largest = largest_report(10_000);
    largest.greeting.identity = None;
    let parts = check_reports(&[largest, next]);
    assert!(parts[0] > 10_000 / KEYS_PER_PART_MAX, "{parts:?}");
    assert_eq!(parts[1], 1);
}

/// Each report has only one list, so that no other list hides a wrong estimate of its entries.
#[test]
fn every_single_list_fits_its_messages() {
    let mut largest = largest_report(5_000);
    let bare = Report {
        seq: u64::MAX,
        ..largest_report(0)
    };
    type Give = fn(&mut Report, &mut Report);
    let lists: [(&str, Give); 10] = [
        ("subscriptions", |to, of| {
            swap(&mut to.subscriptions.added, &mut of.subscriptions.added)
        }),
        ("unsubscriptions", |to, of| {
            swap(&mut to.subscriptions.ended, &mut of.subscriptions.ended)
        }),
        ("holds", |to, of| {
            swap(&mut to.greeting.holds, &mut of.greeting.holds)
        }),
        ("modes", |to, of| swap(&mut to.modes, &mut of.modes)),
        ("established", |to, of| {
            swap(&mut to.greeting.established, &mut of.greeting.established)
        }),
        ("kill_orders", |to, of| {
            swap(&mut to.kills.orders, &mut of.kills.orders)
        }),
        ("kill_claims", |to, of| {
            swap(&mut to.kills_below.claims, &mut of.kills_below.claims)
        }),
        ("definitions", |to, of| {
            swap(&mut to.definitions, &mut of.definitions)
        }),
        ("id_gaps", |to, of| swap(&mut to.tallies, &mut of.tallies)),
        ("evidence", |to, of| {
            swap(&mut to.evidence, &mut of.evidence)
        }),
    ];
    for (list, give) in lists {
        let mut report = bare.clone();
        give(&mut report, &mut largest);
        let mut encoder = ReportEncoder::default();
        let _ = encoder.encode(&defining(5_000));
        let sizes: Vec<usize> = encoder
            .encode(&report)
            .iter()
            .map(Message::encoded_len)
            .collect();
        let (_, full) = sizes.split_last().unwrap();
        assert!(sizes.len() > 1, "{list}: {sizes:?}");
        assert!(
            sizes.iter().all(|bytes| *bytes <= MESSAGE_BYTES_MAX),
            "{list}: {sizes:?}"
        );
        assert!(
            full.iter().all(|bytes| *bytes > MESSAGE_BYTES_MAX / 10 * 9),
            "{list}: {sizes:?}"
        );
    }
}

#[test]
fn small_entries_fill_parts_to_the_limit() {
    let tallies = |keys: u32| (0..keys).map(|id| (KeyId(id), Tally::ZERO)).collect();
    let stream = |keys| {
        [
            defining(5_000),
            Report {
                seq: 2,
                tallies: tallies(keys),
                ..Report::default()
            },
        ]
    };
    assert_eq!(
        check_reports(&[Report {
            seq: 1,
            ..Report::default()
        }]),
        [1],
        "a heartbeat is one message"
    );
    assert_eq!(check_reports(&stream(1_000))[1], 1);
    assert_eq!(check_reports(&stream(4_096))[1], 1);
    assert_eq!(check_reports(&stream(4_097))[1], 2);
    let hold = |number: u32| (Bucket::new(&number.to_string()).unwrap(), Rate::ZERO);
    let holds = Report {
        seq: 1,
        greeting: Greeting {
            holds: (0..4_097).map(hold).collect(),
            ..Greeting::default()
        },
        ..Report::default()
    };
    assert!(check_reports(&[holds])[0] > 1);
}

/// Returns the size of a report with counts of `keys` keys that grow by `grows`, and their late
/// parts by `late`.
fn bytes_of_next(keys: u32, grows: Counts, late: Counts) -> usize {
    let base = Tally {
        counts: Counts {
            offered: 1 << 40,
            dropped: 1 << 39,
            would_dropped: 1 << 38,
            ..Counts::ZERO
        },
        late: Counts::ZERO,
    };
    let next = base.plus(Tally {
        counts: grows,
        late,
    });
    let tallies = |tally| (0..keys).map(|id| (KeyId(id), tally)).collect();
    let first = Report {
        tallies: tallies(base),
        time: Some(MonoTime::ZERO),
        ..defining(keys)
    };
    let second = Report {
        seq: 2,
        tallies: tallies(next),
        time: Some(MonoTime::ZERO),
        ..Report::default()
    };
    let mut encoder = ReportEncoder::default();
    let _ = encoder.encode(&first);
    encoder
        .encode(&second)
        .iter()
        .map(Message::encoded_len)
        .sum()
}

#[test]
fn slowly_growing_key_takes_five_bytes() {
    let of = |offered, dropped| Counts {
        offered,
        dropped,
        ..Counts::ZERO
    };
    let mut repeated = Counts::ZERO;
    repeated.quota_repeated = 127;
    let mut by_quota = of(127, 0);
    by_quota.quota_dropped = 127;
    for (keys, grows, most) in [
        (10, of(1, 0), 5.0),
        (10, of(127, 127), 5.0),
        (1_000, of(127, 127), 3.1),
        (1_000, of(127, 0), 2.1),
        (4_096, of(127, 127), 3.1),
        (10_000, of(127, 127), 3.1),
        (1_000, of(128, 127), 4.1),
        // A column that does not grow takes nothing.
        (1_000, repeated, 2.1),
        (1_000, by_quota, 3.1),
    ] {
        let bytes = bytes_of_next(keys, grows, Counts::ZERO) as f64 / f64::from(keys);
        assert!(
            bytes <= most,
            "{bytes} bytes per key for {keys} keys that grow by {grows:?}"
        );
    }
    let late = bytes_of_next(1_000, of(100, 3), of(100, 3)) as f64 / 1e3;
    assert!(
        late > 5.0 && late < 5.1,
        "late parts have their own columns: {late}"
    );
}
