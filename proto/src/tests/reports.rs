//! Reports between bytes and core, in parts that keep the bounds.

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
    (any_bucket(), any_tenant(), any_counts(), any_counts())
        .prop_map(|(bucket, tenant, base, sent)| KeyDefinition { key: Key { bucket, tenant }, base, sent })
}

/// A report that defines no keys and has no number.
fn any_report() -> impl Strategy<Value = Report> {
    let head = (option::of(any::<u128>()), option::of(any_identity()), option::of(0..=MICROS_MAX));
    let claims = (option::of(1..=u64::MAX), any::<u64>(), any::<u32>(), any::<bool>());
    let asked = btree_set(any_bucket(), 0..4);
    let holds = btree_map(any_bucket(), any_rate(), 0..4);
    let tallies = btree_map(any::<u32>().prop_map(KeyId), any_tally(), 0..20);
    (head, claims, asked, holds, tallies).prop_map(
        |((counted_by, identity, micros), (epoch, kill, children, leaving), asked, holds, tallies)| Report {
            seq: 0,
            counted_by: counted_by.map(InstanceId),
            identity,
            time: micros.map(MonoTime::from_micros),
            epoch: epoch.map(Epoch),
            kill: KillGeneration(kill),
            children,
            asked: asked.into_iter().collect(),
            holds,
            definitions: BTreeMap::new(),
            tallies,
            leaving,
        },
    )
}

/// The reports of one stream, which define keys as they go.
pub(super) fn any_stream() -> impl Strategy<Value = Vec<Report>> {
    vec((any_report(), vec(any_definition(), 0..8)), 1..4).prop_map(|reports| {
        let mut ids = (0..).map(KeyId);
        reports
            .into_iter()
            .zip(1..)
            .map(|((report, definitions), seq)| Report {
                seq,
                definitions: ids.by_ref().zip(definitions).collect(),
                ..report
            })
            .collect()
    })
}

/// Sends the reports of one stream through bytes; returns into how many parts each went.
fn check_reports(reports: &[Report]) -> Vec<usize> {
    let mut decoder = ReportDecoder::default();
    reports
        .iter()
        .map(|report| {
            let parts = encode_report(report);
            for (part, left) in parts.iter().zip((0..parts.len()).rev()) {
                assert!(part.encoded_len() <= MESSAGE_BYTES_MAX, "{} bytes", part.encoded_len());
                let lists = [part.counts.len(), part.definitions.len(), part.asked.len(), part.holds.len()];
                assert!(lists.iter().all(|list| *list <= KEYS_PER_PART_MAX), "{lists:?}");
                let part = wire::Report::decode(part.encode_to_vec().as_slice()).unwrap();
                let whole = decoder.decode(part).unwrap();
                assert_eq!(whole.as_ref(), (left == 0).then_some(report));
            }
            parts.len()
        })
        .collect()
}

/// The first report of a stream with `keys` new keys, everything else in it as large as can be.
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
    };
    Report {
        seq: 1,
        counted_by: Some(InstanceId(u128::MAX)),
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
        children: u32::MAX,
        asked: (0..keys).map(|number| Bucket::new(&text(number)).unwrap()).collect(),
        holds: (0..keys).map(|number| (Bucket::new(&text(number)).unwrap(), largest_rate())).collect(),
        definitions: (0..).map(KeyId).zip((0..keys).map(definition)).collect(),
        // The largest ids take the most room.
        tallies: (0..=u32::MAX)
            .rev()
            .map(KeyId)
            .zip((0..keys).map(|_| Tally { counts: most, late: most }))
            .collect(),
        leaving: true,
    }
}

#[test]
fn ten_thousand_keys_with_the_longest_names_keep_the_bounds_of_a_message() {
    let next = Report { seq: 2, definitions: BTreeMap::new(), ..largest_report(1) };
    let parts = check_reports(&[largest_report(10_000), next]);
    assert!(parts[0] > 10_000 / KEYS_PER_PART_MAX, "{parts:?}");
    assert_eq!(parts[1], 1);
}

/// The same as above with nothing but one list, so that no other list hides what an entry of it is taken for.
#[test]
fn every_list_alone_keeps_the_bounds_of_a_message_and_fills_its_parts() {
    let largest = largest_report(5_000);
    let bare = Report { seq: u64::MAX, ..largest_report(0) };
    let Report { asked, holds, definitions, tallies, .. } = largest;
    for (list, report) in [
        ("asked", Report { asked, ..bare.clone() }),
        ("holds", Report { holds, ..bare.clone() }),
        ("definitions", Report { definitions, ..bare.clone() }),
        ("counts", Report { tallies, ..bare.clone() }),
    ] {
        let sizes: Vec<usize> = encode_report(&report).iter().map(Message::encoded_len).collect();
        let (_, full) = sizes.split_last().unwrap();
        assert!(sizes.len() > 1, "{list}: {sizes:?}");
        assert!(sizes.iter().all(|bytes| *bytes <= MESSAGE_BYTES_MAX), "{list}: {sizes:?}");
        assert!(full.iter().all(|bytes| *bytes > MESSAGE_BYTES_MAX / 10 * 9), "{list}: {sizes:?}");
    }
}

#[test]
fn small_entries_fill_a_part_up_to_its_bound() {
    let tallies = |keys: u32| (0..keys).map(|id| (KeyId(id), Tally::ZERO)).collect();
    let report = |keys| Report { seq: 1, tallies: tallies(keys), ..Report::default() };
    assert_eq!(check_reports(&[Report { seq: 1, ..Report::default() }]), [1], "a heartbeat is a message");
    assert_eq!(check_reports(&[report(1_000)]), [1]);
    assert!(check_reports(&[report(4_097)])[0] > 1);
    let hold = |number: u32| (Bucket::new(&number.to_string()).unwrap(), Rate::ZERO);
    let holds = Report { seq: 1, holds: (0..4_097).map(hold).collect(), ..Report::default() };
    assert!(check_reports(&[holds])[0] > 1);
}

#[test]
fn a_hold_of_zero_and_one_of_almost_zero_are_told_apart() {
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
    fn reports_survive_the_wire(reports in any_stream()) {
        check_reports(&reports);
    }
}
