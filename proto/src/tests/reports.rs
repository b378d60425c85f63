//! Round trips of reports, in parts within the bounds of a message.

use proptest::sample::Index;

use super::*;

fn any_counts() -> impl Strategy<Value = Counts> {
    let count = prop_oneof![0..1_000u64, any::<u64>()];
    [count.clone(), count.clone(), count.clone(), count.clone(), count].prop_map(
        |[offered, dropped, guard_dropped, would_dropped, would_guard_dropped]| Counts {
            offered,
            dropped,
            guard_dropped,
            would_dropped,
            would_guard_dropped,
        },
    )
}

fn any_tally() -> impl Strategy<Value = Tally> {
    (any_counts(), any_counts()).prop_map(|(counts, late)| Tally { counts, late })
}

fn any_identity() -> impl Strategy<Value = Identity> {
    let role = select(vec![Role::Client, Role::Aggregator]);
    (any::<u128>(), NAME, NAME, NAME, role).prop_map(|(instance, name, service, zone, role)| Identity {
        instance: InstanceId(instance),
        name: Name::new(&name).unwrap(),
        service: Name::new(&service).unwrap(),
        zone: Zone::new(&zone).unwrap(),
        role,
    })
}

fn any_definition() -> impl Strategy<Value = KeyDefinition> {
    (any_bucket(), any_tenant(), any_counts(), any_counts(), any::<bool>()).prop_map(
        |(bucket, tenant, base, sent, continues)| KeyDefinition {
            key: Key { bucket, tenant },
            base,
            sent,
            continues,
        },
    )
}

/// Generates a report without keys, counts and sequence number.
fn any_report() -> impl Strategy<Value = Report> {
    let head = (option::of(any_identity()), option::of(0..=MICROS_MAX));
    let claims = (option::of(1..=u64::MAX), any::<u64>(), any::<u32>(), any::<bool>());
    let path = vec(any::<u128>().prop_map(InstanceId), 0..=2 * Path::IDS_MAX);
    let path = path.prop_map(Path::new);
    let asked = btree_set(any_bucket(), 0..4);
    let holds = btree_map(any_bucket(), any_rate(), 0..4);
    (head, claims, path, asked, holds).prop_map(
        |((identity, micros), (epoch, kill, children, leaving), path, asked, holds)| Report {
            seq: 0,
            identity,
            time: micros.map(MonoTime::from_micros),
            epoch: epoch.map(Epoch),
            kill: KillGeneration(kill),
            kills: [(Bucket::new("killed").unwrap(), KillGeneration(kill))].into(),
            ordered: [Scope::Fleet, Scope::Bucket(Bucket::new("killed").unwrap())].into(),
            ended: [Scope::Fleet, Scope::Bucket(Bucket::new("over").unwrap())].into(),
            drill: Drill(kill / 2),
            spreads: [(Zone::new("a").unwrap(), Spread::of([(7, 1), (kill, 3)], kill))].into(),
            children,
            path,
            asked: asked.into_iter().collect(),
            holds,
            definitions: BTreeMap::new(),
            tallies: Tallies::default(),
            evidence: Batches::default(),
            leaving,
        },
    )
}

/// One report of a stream: its head, its definitions, which may reuse an id, and the increase of some counts.
type Step = (Report, Vec<(Option<Index>, KeyDefinition)>, Vec<(Index, Tally)>);

fn any_step() -> impl Strategy<Value = Step> {
    let definitions = vec((option::weighted(0.2, any::<Index>()), any_definition()), 0..8);
    (any_report(), definitions, vec((any::<Index>(), any_tally()), 0..20))
}

/// Generates the reports of one stream. Ids are defined and reused along the way; counts only grow.
pub(super) fn any_stream() -> impl Strategy<Value = Vec<Report>> {
    vec(any_step(), 1..5).prop_map(|steps| {
        let mut held: Vec<Tally> = Vec::new();
        let mut reports = Vec::new();
        for ((mut report, definitions, counts), seq) in steps.into_iter().zip(1..) {
            report.seq = seq;
            for (reused, definition) in definitions {
                let reused = reused.filter(|_| !held.is_empty());
                let id = reused.map_or(held.len(), |index| index.index(held.len()));
                held.resize(held.len().max(id + 1), Tally::ZERO);
                held[id] = Tally::ZERO;
                report.definitions.insert(KeyId(id as u32), definition);
            }
            let mut tallies = BTreeMap::new();
            let counts = if held.is_empty() { Vec::new() } else { counts };
            for (id, new) in counts {
                let id = id.index(held.len());
                held[id] = held[id].plus(new);
                tallies.insert(KeyId(id as u32), held[id]);
            }
            report.tallies = tallies.into_iter().collect();
            reports.push(report);
        }
        reports
    })
}

/// Asserts that the reports of one stream survive the round trip, and returns the number of parts of each.
fn check_reports(reports: &[Report]) -> Vec<usize> {
    let (mut encoder, mut decoder) = (ReportEncoder::default(), ReportDecoder::default());
    reports
        .iter()
        .map(|report| {
            let parts = encoder.encode(report);
            for (part, left) in parts.iter().zip((0..parts.len()).rev()) {
                assert!(part.encoded_len() <= MESSAGE_BYTES_MAX, "{} bytes", part.encoded_len());
                let lists =
                    [part.id_gaps.len(), part.definitions.len(), part.subscriptions.len(), part.holds.len()];
                assert!(lists.iter().all(|list| *list <= KEYS_PER_PART_MAX), "{lists:?}");
                let part = wire::Report::decode(part.encode_to_vec().as_slice()).unwrap();
                let decoded = decoder.decode(part).unwrap();
                assert_eq!(decoded.as_ref(), (left == 0).then_some(report));
            }
            parts.len()
        })
        .collect()
}

/// Returns latencies in almost every step of the histogram.
fn largest_spread() -> Spread {
    let spread = Spread::of((1..60_000_000).step_by(211).map(|us| (us, u64::MAX)), u64::MAX);
    assert!(spread.latencies().len() > SPREAD_STEPS_MAX / 2);
    spread
}

/// Returns the first report of a stream with `keys` new keys and the largest values everywhere.
fn largest_report(keys: usize) -> Report {
    let most = Counts {
        offered: u64::MAX,
        dropped: u64::MAX,
        guard_dropped: u64::MAX,
        would_dropped: u64::MAX,
        would_guard_dropped: u64::MAX,
    };
    let text = |number: usize| longest(number);
    let definition = |number| KeyDefinition {
        key: Key { bucket: Bucket::new(&text(0)).unwrap(), tenant: Tenant::new(&text(number)).unwrap() },
        base: most,
        sent: most,
        continues: true,
    };
    Report {
        seq: 1,
        identity: Some(Identity {
            instance: InstanceId(u128::MAX),
            name: Name::new(&text(1)).unwrap(),
            service: Name::new(&text(2)).unwrap(),
            zone: Zone::new(&text(3)).unwrap(),
            role: Role::Aggregator,
        }),
        time: Some(MonoTime::from_micros(MICROS_MAX)),
        epoch: Some(Epoch(u64::MAX)),
        kill: KillGeneration(u64::MAX),
        kills: (0..keys.min(KILLED_BUCKETS_MAX))
            .map(|number| (Bucket::new(&text(number)).unwrap(), KillGeneration(u64::MAX)))
            .collect(),
        ordered: (0..keys.min(KILLED_BUCKETS_MAX))
            .map(|number| Scope::Bucket(Bucket::new(&text(number)).unwrap()))
            .chain([Scope::Fleet])
            .collect(),
        ended: (0..keys.min(KILLED_BUCKETS_MAX))
            .map(|number| Scope::Bucket(Bucket::new(&text(number)).unwrap()))
            .chain([Scope::Fleet])
            .collect(),
        drill: Drill(u64::MAX),
        spreads: (0..keys.min(SPREAD_ZONES_MAX))
            .map(|number| (Zone::new(&text(number)).unwrap(), largest_spread()))
            .collect(),
        children: u32::MAX,
        path: Path::new(vec![InstanceId(u128::MAX); 2 * Path::IDS_MAX]),
        asked: (0..keys).map(|number| Bucket::new(&text(number)).unwrap()).collect(),
        holds: (0..keys).map(|number| (Bucket::new(&text(number)).unwrap(), largest_rate())).collect(),
        definitions: (0..).map(KeyId).zip((0..keys).map(definition)).collect(),
        tallies: (0..).map(KeyId).zip((0..keys).map(|_| Tally { counts: most, late: most })).collect(),
        evidence: largest_evidence(1, keys.min(4_096)),
        leaving: true,
    }
}

/// Returns evidence of `buckets` buckets, each with a few bins in their longest encoding.
fn largest_evidence(seq: u64, buckets: usize) -> Batches {
    let mut latency = Histogram::default();
    (1..16).for_each(|bin| latency.add(Bin::new(129 * bin).unwrap(), u64::MAX));
    let most = u64::MAX;
    let outcomes = Outcomes { offered: most, refused: most, would_dropped: most, failed: most, latency };
    let mut evidence = Evidence::default();
    for number in 0..buckets {
        let bucket = Bucket::new(&longest(number)).unwrap();
        evidence.put(CohortKey { bucket, mode: Mode::Canary, side: Side::Canary }, outcomes.clone());
    }
    Batches::one(seq, evidence)
}

fn any_evidence() -> impl Strategy<Value = Batches> {
    let cohort = (any_bucket(), select(vec![Mode::Shadow, Mode::Canary, Mode::Enforce]), any::<bool>());
    let bins = vec((0..BINS as u16, 1..u64::MAX / 64), 0..9);
    let outcomes = (any::<[u64; 4]>(), bins).prop_map(|([offered, refused, would_dropped, failed], bins)| {
        let mut latency = Histogram::default();
        bins.into_iter().for_each(|(bin, count)| latency.add(Bin::new(bin).unwrap(), count));
        Outcomes { offered, refused, would_dropped, failed, latency }
    });
    vec((cohort, outcomes), 0..5).prop_map(|all| {
        let mut evidence = Evidence::default();
        for ((bucket, mode, canary), outcomes) in all {
            let side = if canary { Side::Canary } else { Side::Control };
            evidence.put(CohortKey { bucket, mode, side }, outcomes);
        }
        Batches::one(1, evidence)
    })
}

proptest! {
    #[test]
    fn evidence_survives_a_round_trip(evidence in any_evidence()) {
        check_reports(&[Report { seq: 1, evidence, ..Report::default() }]);
    }
}

#[test]
fn ten_thousand_keys_with_the_longest_names_stay_within_message_bounds() {
    let evidence = largest_evidence(2, 1);
    let next = Report { seq: 2, definitions: BTreeMap::new(), evidence, ..largest_report(1) };
    let parts = check_reports(&[largest_report(10_000), next]);
    assert!(parts[0] > 10_000 / KEYS_PER_PART_MAX, "{parts:?}");
    assert_eq!(parts[1], 1);
}

/// Each list is alone in its report, so that no other list hides a wrong estimate of its entries.
#[test]
fn every_single_list_fills_its_parts_and_stays_within_message_bounds() {
    let largest = largest_report(5_000);
    let bare = Report { seq: u64::MAX, ..largest_report(0) };
    let Report { asked, holds, definitions, tallies, .. } = largest;
    for (list, report) in [
        ("subscriptions", Report { asked, ..bare.clone() }),
        ("holds", Report { holds, ..bare.clone() }),
        ("definitions", Report { definitions, ..bare.clone() }),
        ("id_gaps", Report { tallies, ..bare.clone() }),
        ("evidence", Report { evidence: largest_evidence(u64::MAX, 4_096), ..bare.clone() }),
    ] {
        let mut encoder = ReportEncoder::default();
        let _ = encoder.encode(&defining(5_000));
        let sizes: Vec<usize> = encoder.encode(&report).iter().map(Message::encoded_len).collect();
        let (_, full) = sizes.split_last().unwrap();
        assert!(sizes.len() > 1, "{list}: {sizes:?}");
        assert!(sizes.iter().all(|bytes| *bytes <= MESSAGE_BYTES_MAX), "{list}: {sizes:?}");
        assert!(full.iter().all(|bytes| *bytes > MESSAGE_BYTES_MAX / 10 * 9), "{list}: {sizes:?}");
    }
}

/// Returns a report that defines `keys` keys.
fn defining(keys: u32) -> Report {
    let definition = |id: u32| {
        let key = Key { bucket: Bucket::new("b").unwrap(), tenant: Tenant::new(&format!("t{id}")).unwrap() };
        KeyDefinition { key, base: Counts::ZERO, sent: Counts::ZERO, continues: false }
    };
    let definitions = (0..keys).map(|id| (KeyId(id), definition(id))).collect();
    Report { seq: 1, definitions, ..Report::default() }
}

#[test]
fn small_entries_fill_a_part_up_to_the_key_limit() {
    let tallies = |keys: u32| (0..keys).map(|id| (KeyId(id), Tally::ZERO)).collect();
    let stream = |keys| [defining(5_000), Report { seq: 2, tallies: tallies(keys), ..Report::default() }];
    assert_eq!(check_reports(&[Report { seq: 1, ..Report::default() }]), [1], "a heartbeat is one message");
    assert_eq!(check_reports(&stream(1_000))[1], 1);
    assert_eq!(check_reports(&stream(4_096))[1], 1);
    assert_eq!(check_reports(&stream(4_097))[1], 2);
    let hold = |number: u32| (Bucket::new(&number.to_string()).unwrap(), Rate::ZERO);
    let holds = Report { seq: 1, holds: (0..4_097).map(hold).collect(), ..Report::default() };
    assert!(check_reports(&[holds])[0] > 1);
}

/// Returns the size of a report in which the counts of `keys` keys grow by `grows`, and their late parts by `late`.
fn bytes_of_next(keys: u32, grows: Counts, late: Counts) -> usize {
    let base = Tally {
        counts: Counts { offered: 1 << 40, dropped: 1 << 39, would_dropped: 1 << 38, ..Counts::ZERO },
        late: Counts::ZERO,
    };
    let next = base.plus(Tally { counts: grows, late });
    let tallies = |tally| (0..keys).map(|id| (KeyId(id), tally)).collect();
    let first = Report { tallies: tallies(base), time: Some(MonoTime::ZERO), ..defining(keys) };
    let second = Report { seq: 2, tallies: tallies(next), time: Some(MonoTime::ZERO), ..Report::default() };
    let mut encoder = ReportEncoder::default();
    let _ = encoder.encode(&first);
    encoder.encode(&second).iter().map(Message::encoded_len).sum()
}

#[test]
fn key_takes_at_most_five_bytes_when_two_counts_grow_by_less_than_128() {
    let of = |offered, dropped| Counts { offered, dropped, ..Counts::ZERO };
    for (keys, grows, most) in [
        (10, of(1, 0), 5.0),
        (10, of(127, 127), 5.0),
        (1_000, of(127, 127), 3.1),
        (1_000, of(127, 0), 2.1),
        (4_096, of(127, 127), 3.1),
        (10_000, of(127, 127), 3.1),
        (1_000, of(128, 127), 4.1),
    ] {
        let bytes = bytes_of_next(keys, grows, Counts::ZERO) as f64 / f64::from(keys);
        assert!(bytes <= most, "{bytes} bytes per key for {keys} keys that grow by {grows:?}");
    }
    let late = bytes_of_next(1_000, of(100, 3), of(100, 3)) as f64 / 1e3;
    assert!(late > 5.0 && late < 5.1, "late parts have their own columns: {late}");
}

/// The example in docs/wire.md, byte by byte.
#[test]
fn report_encodes_to_the_documented_bytes() {
    let tally =
        |offered, dropped| Tally { counts: Counts { offered, dropped, ..Counts::ZERO }, late: Counts::ZERO };
    let report = |seq, tallies: [Tally; 3]| Report {
        seq,
        time: Some(MonoTime::from_micros(1_200_000)),
        tallies: [0, 1, 6].map(KeyId).into_iter().zip(tallies).collect(),
        ..Report::default()
    };
    let mut encoder = ReportEncoder::default();
    let _ = encoder.encode(&defining(7));
    let _ = encoder.encode(&report(2, [tally(1_000, 500), tally(0, 0), tally(70_000, 9)]));
    let parts = encoder.encode(&report(3, [tally(1_012, 502), tally(5, 0), tally(70_300, 9)]));
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
    let report = Report { seq: 1, holds: buckets.into_iter().zip(rates).collect(), ..Report::default() };
    let part = encode_report(&report).remove(0);
    let arrived = ReportDecoder::default().decode(part).unwrap().unwrap();
    let arrived: Vec<f64> = arrived.holds.values().map(|hold| hold.per_second()).collect();
    assert_eq!(arrived, [0.0, 0.001, 0.001, 0.333]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn reports_survive_a_round_trip(reports in any_stream()) {
        check_reports(&reports);
    }
}
