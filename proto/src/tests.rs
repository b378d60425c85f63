//! What goes in at one end of the wire comes out at the other, within the bounds; anything else is refused.

mod refusals;

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_core::bucket::{Bucket, Key, KeyId, NAME_BYTES_MAX, Name, Tenant, Zone};
use plimsoll_core::directive::{BucketDirective, Directives, Epoch, KeyDirective};
use plimsoll_core::kill::KillGeneration;
use plimsoll_core::rate::{Limit, Rate};
use plimsoll_core::ratio::DropRatio;
use plimsoll_core::report::{Counts, Echo, Identity, InstanceId, KeyDefinition, Report, Role, Tally};
use plimsoll_core::rollout::Mode;
use plimsoll_core::time::MonoTime;
use proptest::collection::{btree_map, btree_set, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use prost::Message;

use super::*;

const NAME: &str = "[A-Za-z0-9._:/@-]{1,128}";
/// The longest span that a point in time on the wire can stand for.
const MICROS_MAX: u64 = u64::MAX / 1_000;

/// A name of the greatest length, told from others by its number.
fn longest(number: usize) -> String {
    format!("{number:0>NAME_BYTES_MAX$}")
}

fn any_counts() -> impl Strategy<Value = Counts> {
    let count = prop_oneof![0..1_000u64, any::<u64>()];
    (count.clone(), count.clone(), count).prop_map(|(offered, dropped, would_dropped)| Counts {
        offered,
        dropped,
        would_dropped,
    })
}

fn any_tally() -> impl Strategy<Value = Tally> {
    (any_counts(), any_counts()).prop_map(|(counts, late)| Tally { counts, late })
}

fn any_bucket() -> impl Strategy<Value = Bucket> {
    NAME.prop_map(|name| Bucket::new(&name).unwrap())
}

fn any_tenant() -> impl Strategy<Value = Tenant> {
    NAME.prop_map(|name| Tenant::new(&name).unwrap())
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

/// A report that defines no keys.
fn any_report() -> impl Strategy<Value = Report> {
    let head =
        (1..=u64::MAX, option::of(any::<u128>()), option::of(any_identity()), option::of(0..=MICROS_MAX));
    let claims = (option::of(1..=u64::MAX), any::<u64>(), any::<u32>(), any::<bool>());
    let asked = btree_set(any_bucket(), 0..4);
    let tallies = btree_map(any::<u32>().prop_map(KeyId), any_tally(), 0..20);
    (head, claims, asked, tallies).prop_map(
        |((seq, counted_by, identity, micros), (epoch, kill, children, leaving), asked, tallies)| Report {
            seq,
            counted_by: counted_by.map(InstanceId),
            identity,
            time: micros.map(MonoTime::from_micros),
            epoch: epoch.map(Epoch),
            kill: KillGeneration(kill),
            children,
            asked: asked.into_iter().collect(),
            definitions: BTreeMap::new(),
            tallies,
            leaving,
        },
    )
}

/// The reports of one stream, which define keys as they go.
fn any_stream() -> impl Strategy<Value = Vec<Report>> {
    vec((any_report(), vec(any_definition(), 0..8)), 1..4).prop_map(|reports| {
        let mut ids = (0..).map(KeyId);
        reports
            .into_iter()
            .map(|(report, definitions)| Report {
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
                assert!(part.counts.len().max(part.definitions.len()) <= KEYS_PER_PART_MAX);
                let part = wire::Report::decode(part.encode_to_vec().as_slice()).unwrap();
                let whole = decoder.decode(part).unwrap();
                assert_eq!(whole.as_ref(), (left == 0).then_some(report));
            }
            parts.len()
        })
        .collect()
}

/// Sends directives through bytes; returns into how many parts they went.
fn check_directives(directives: &Directives) -> usize {
    let mut decoder = DirectivesDecoder::default();
    let parts = encode_directives(directives);
    for (part, left) in parts.iter().zip((0..parts.len()).rev()) {
        assert!(part.encoded_len() <= MESSAGE_BYTES_MAX, "{} bytes", part.encoded_len());
        assert!(part.buckets.iter().map(|bucket| bucket.keys.len()).sum::<usize>() <= KEYS_PER_PART_MAX);
        let part = wire::Directives::decode(part.encode_to_vec().as_slice()).unwrap();
        let whole = decoder.decode(part).unwrap();
        assert_eq!(whole.as_ref(), (left == 0).then_some(directives));
    }
    parts.len()
}

/// A report with `keys` new keys, everything in it as large as can be.
fn largest_report(keys: usize) -> Report {
    let most = Counts { offered: u64::MAX, dropped: u64::MAX, would_dropped: u64::MAX, ..Counts::ZERO };
    let text = |number: usize| longest(number);
    let definition = |number| KeyDefinition {
        key: Key { bucket: Bucket::new(&text(0)).unwrap(), tenant: Tenant::new(&text(number)).unwrap() },
        base: most,
        sent: most,
    };
    Report {
        seq: u64::MAX,
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
    let next = Report { definitions: BTreeMap::new(), ..largest_report(1) };
    let parts = check_reports(&[largest_report(10_000), next]);
    assert!(parts[0] > 10_000 / KEYS_PER_PART_MAX, "{parts:?}");
    assert_eq!(parts[1], 1);
}

#[test]
fn small_keys_fill_a_part_up_to_its_bound() {
    let tallies = |keys: u32| (0..keys).map(|id| (KeyId(id), Tally::ZERO)).collect();
    let report = |keys| Report { seq: 1, tallies: tallies(keys), ..Report::default() };
    assert_eq!(check_reports(&[Report { seq: 1, ..Report::default() }]), [1], "a heartbeat is a message");
    assert_eq!(check_reports(&[report(1_000)]), [1]);
    assert!(check_reports(&[report(4_097)])[0] > 1);
}

fn directive(name: &str, whole: bool, tenants: usize) -> BucketDirective {
    let ratio = |number: usize| DropRatio::new(DropRatio::ONE - number as u32).unwrap();
    BucketDirective {
        bucket: Bucket::new(name).unwrap(),
        whole,
        limit: Limit::PerSecond(Rate::new(100.0).unwrap()),
        mode: Mode::Enforce,
        keys: (0..tenants)
            .map(|number| KeyDirective {
                tenant: Tenant::new(&longest(number)).unwrap(),
                ratio: (number % 3 > 0).then(|| ratio(number)),
            })
            .collect(),
    }
}

fn message(buckets: Vec<BucketDirective>) -> Directives {
    Directives { epoch: Some(Epoch(1)), seq: 1, buckets, ..Directives::default() }
}

#[test]
fn directives_of_any_size_keep_the_bounds_of_a_message_and_whether_they_are_whole() {
    for whole in [false, true] {
        let large = |name| directive(name, whole, 5_000);
        assert!(check_directives(&message(vec![large("a"), large("b")])) > 2);
        // Around the ends of parts, and a bucket that begins where another one ended a part.
        for tenants in [0, 1, 1_021, 1_022, 1_023, 1_024, 1_025, 2_046, 2_047] {
            let fits = |name| directive(name, whole, tenants);
            check_directives(&message(vec![fits("a"), fits("b"), directive("c", !whole, 1)]));
        }
        let many = (0..5_000).map(|number| directive(&longest(number), whole, 0)).collect();
        assert!(check_directives(&message(many)) > 1);
    }
    assert_eq!(check_directives(&message(Vec::new())), 1, "a heartbeat is a message");
}

fn limit_after_the_wire(limit: Limit) -> Limit {
    let sent = message(vec![BucketDirective { limit, ..directive("a", true, 0) }]);
    let part = encode_directives(&sent).remove(0);
    DirectivesDecoder::default().decode(part).unwrap().unwrap().buckets[0].limit
}

#[test]
fn limits_are_exact_to_a_thousandth_and_only_zero_is_zero() {
    let rate = |per_second: f64| Limit::PerSecond(Rate::new(per_second).unwrap());
    let table = [
        (Limit::Unknown, Limit::Unknown),
        (Limit::Unlimited, Limit::Unlimited),
        (rate(0.0), rate(0.0)),
        (rate(f64::MIN_POSITIVE), rate(0.001)),
        (rate(0.000_4), rate(0.001)),
        (rate(0.001), rate(0.001)),
        // A thousand times this is a little more than 70.
        (rate(0.07), rate(0.07)),
        (rate(1.0 / 3.0), rate(0.333)),
        (rate(999.999_6), rate(1_000.0)),
        (rate(f64::MAX), rate(u64::MAX as f64 / 1e3)),
    ];
    for (sent, due) in table {
        assert_eq!(limit_after_the_wire(sent), due, "{sent:?}");
    }
}

fn any_limit() -> impl Strategy<Value = Limit> {
    let thousandths = (0..1u64 << 50).prop_map(|milli| Rate::new(milli as f64 / 1e3).unwrap());
    prop_oneof![Just(Limit::Unknown), Just(Limit::Unlimited), thousandths.prop_map(Limit::PerSecond),]
}

fn any_bucket_directive() -> impl Strategy<Value = BucketDirective> {
    let mode = select(vec![Mode::Shadow, Mode::Canary, Mode::Enforce]);
    let ratio = (0..=DropRatio::ONE).prop_map(|units| DropRatio::new(units).unwrap());
    let key = (any_tenant(), option::of(ratio)).prop_map(|(tenant, ratio)| KeyDirective { tenant, ratio });
    (any_bucket(), any::<bool>(), any_limit(), mode, vec(key, 0..8))
        .prop_map(|(bucket, whole, limit, mode, keys)| BucketDirective { bucket, whole, limit, mode, keys })
}

fn any_directives() -> impl Strategy<Value = Directives> {
    let head = (1..=u64::MAX, 1..=u64::MAX, any::<u64>(), option::of(any::<u64>()), option::of(any::<u32>()));
    let echo = (any::<u64>(), any::<u64>()).prop_map(|(covered, confirmed)| Echo { covered, confirmed });
    let spans = (option::of(any::<u64>()), option::of(1..=60_000u64));
    (head, echo, spans, vec(any_bucket_directive(), 0..6)).prop_map(
        |((epoch, seq, kill, policy_hash, children), echo, (age_ms, interval_ms), buckets)| Directives {
            parent: children.map(|children| InstanceId(children.into())),
            epoch: Some(Epoch(epoch)),
            seq,
            kill: KillGeneration(kill),
            policy_hash,
            echo,
            upstream_age: age_ms.map(Duration::from_millis),
            report_interval: interval_ms.map(Duration::from_millis),
            children,
            buckets,
        },
    )
}

/// Bytes that were a message before they were spoiled: some overwritten, some cut off.
fn spoiled(bytes: &[u8], spoils: &[(Index, u8)], cut: Index) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if !bytes.is_empty() {
        spoils.iter().for_each(|(at, byte)| *at.get_mut(&mut bytes) = *byte);
        bytes.truncate(bytes.len() - cut.index(bytes.len()) / 8);
    }
    bytes
}

fn check_sound_report(report: &Report) {
    assert!(report.seq > 0 && report.epoch != Some(Epoch(0)));
    let definitions = report.definitions.values().map(|definition| &definition.key);
    for name in definitions.clone().map(|key| &key.bucket).chain(&report.asked) {
        assert!(Bucket::new(name.as_str()).is_ok());
    }
    assert!(definitions.clone().all(|key| Tenant::new(key.tenant.as_str()).is_ok()));
}

fn check_sound_directives(directives: &Directives) {
    assert!(directives.seq > 0 && directives.epoch != Some(Epoch(0)));
    assert!(directives.epoch.is_some() || directives.buckets.is_empty());
    assert!(directives.report_interval.is_none_or(|interval| !interval.is_zero()));
    for bucket in &directives.buckets {
        assert!(Bucket::new(bucket.bucket.as_str()).is_ok());
        assert!(bucket.limit.per_second().is_none_or(|rate| rate.per_second().is_finite()));
        for key in &bucket.keys {
            assert!(Tenant::new(key.tenant.as_str()).is_ok());
            assert!(key.ratio.is_none_or(|ratio| ratio <= DropRatio::ALL));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn reports_survive_the_wire(reports in any_stream()) {
        check_reports(&reports);
    }

    #[test]
    fn directives_survive_the_wire(directives in any_directives()) {
        check_directives(&directives);
    }

    #[test]
    fn any_limit_arrives_within_half_a_thousandth(per_second in prop_oneof![0.0..10.0, 0.0..1e12]) {
        let arrived = limit_after_the_wire(Limit::PerSecond(Rate::new(per_second).unwrap()));
        let arrived = arrived.per_second().unwrap().per_second();
        prop_assert_eq!(arrived == 0.0, per_second == 0.0);
        let tolerance = if per_second < 0.001 { 0.001 } else { 0.000_5 + per_second * f64::EPSILON };
        prop_assert!((arrived - per_second).abs() <= tolerance, "{} became {}", per_second, arrived);
    }

    #[test]
    fn spoiled_bytes_are_refused_or_sound(
        reports in any_stream(),
        directives in any_directives(),
        spoils in vec((any::<Index>(), any::<u8>()), 0..6),
        cut: Index,
    ) {
        let mut decoder = ReportDecoder::default();
        for part in reports.iter().flat_map(encode_report) {
            let bytes = spoiled(&part.encode_to_vec(), &spoils, cut);
            if let Ok(part) = wire::Report::decode(bytes.as_slice())
                && let Ok(Some(report)) = decoder.decode(part)
            {
                check_sound_report(&report);
            }
        }
        let mut decoder = DirectivesDecoder::default();
        for part in encode_directives(&directives) {
            let bytes = spoiled(&part.encode_to_vec(), &spoils, cut);
            if let Ok(part) = wire::Directives::decode(bytes.as_slice())
                && let Ok(Some(directives)) = decoder.decode(part)
            {
                check_sound_directives(&directives);
            }
        }
    }

    #[test]
    fn soup_is_refused_or_sound(soup in vec(any::<u8>(), 0..64)) {
        if let Ok(part) = wire::Report::decode(soup.as_slice())
            && let Ok(Some(report)) = ReportDecoder::default().decode(part)
        {
            check_sound_report(&report);
        }
        if let Ok(part) = wire::Directives::decode(soup.as_slice())
            && let Ok(Some(directives)) = DirectivesDecoder::default().decode(part)
        {
            check_sound_directives(&directives);
        }
    }
}
