//! Every way in which a message may be out of range, and the word it is refused with.

use plimsoll_core::bucket::InvalidName;

use super::*;

fn report() -> wire::Report {
    wire::Report { seq: 1, ..wire::Report::default() }
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
    wire::Report { identity: Some(identity), ..report() }
}

fn defines(bucket: &str, tenant: &str) -> wire::KeyDefinition {
    wire::KeyDefinition {
        bucket: bucket.to_owned(),
        tenant: tenant.to_owned(),
        ..wire::KeyDefinition::default()
    }
}

fn counts(ids: impl IntoIterator<Item = u32>) -> Vec<wire::KeyCounts> {
    ids.into_iter().map(|id| wire::KeyCounts { id, ..wire::KeyCounts::default() }).collect()
}

fn more(report: wire::Report) -> wire::Report {
    wire::Report { more: true, ..report }
}

fn invalid_name(field: &'static str, source: InvalidName) -> Invalid {
    Invalid::Name { field, source }
}

fn too_many(field: &'static str, got: usize, most: usize) -> Invalid {
    Invalid::TooMany { field, got, most }
}

/// All parts but the last are taken, the last one is refused.
fn check_report_refused(parts: Vec<wire::Report>, why: &Invalid) {
    let mut decoder = ReportDecoder::default();
    let last = parts.len() - 1;
    for (at, part) in parts.into_iter().enumerate() {
        let decoded = decoder.decode(part);
        if at < last {
            assert_eq!(decoded, Ok(None), "part {at} before {why}");
        } else {
            assert_eq!(decoded.as_ref(), Err(why));
        }
    }
}

#[test]
fn reports_out_of_range_are_refused() {
    let with = |definition| wire::Report { definitions: vec![definition], ..report() };
    let space = InvalidName::Byte { byte: ' ', at: 1 };
    let enumeration = |value| Invalid::Enumeration { field: "role", value };
    let part_max = KEYS_PER_PART_MAX;
    let table = [
        (vec![wire::Report::default()], Invalid::Zero("seq")),
        (vec![wire::Report { epoch: Some(0), ..report() }], Invalid::Zero("epoch")),
        (vec![greeting(|identity| identity.instance.truncate(15))], Invalid::Instance(15)),
        (vec![greeting(|identity| identity.instance.push(0))], Invalid::Instance(17)),
        (vec![greeting(|identity| identity.instance.clear())], Invalid::Instance(0)),
        (vec![greeting(|identity| identity.name.clear())], invalid_name("name", InvalidName::Empty)),
        (vec![greeting(|identity| identity.service = "a b".to_owned())], invalid_name("service", space)),
        (vec![greeting(|identity| identity.zone = "a b".to_owned())], invalid_name("zone", space)),
        (vec![greeting(|identity| identity.role = 0)], enumeration(0)),
        (vec![greeting(|identity| identity.role = 3)], enumeration(3)),
        (vec![greeting(|identity| identity.role = -1)], enumeration(-1)),
        (vec![with(defines("", "t"))], invalid_name("bucket", InvalidName::Empty)),
        (vec![with(defines("b", "a b"))], invalid_name("tenant", space)),
        (vec![with(defines("b", &longest(0).repeat(2)))], invalid_name("tenant", InvalidName::TooLong(256))),
        (vec![wire::Report { asked: vec!["a b".to_owned()], ..report() }], invalid_name("asked", space)),
        (vec![wire::Report { counts: counts([1, 1]), ..report() }], Invalid::Unsorted(1)),
        (vec![wire::Report { counts: counts([3, 5, 4]), ..report() }], Invalid::Unsorted(4)),
        (vec![wire::Report { counts: counts(0..=4_096), ..report() }], too_many("counts", 4_097, part_max)),
        (
            vec![wire::Report { definitions: vec![defines("b", "t"); 4_097], ..report() }],
            too_many("definitions", 4_097, part_max),
        ),
        (
            vec![wire::Report { asked: vec!["b".to_owned(); 4_097], ..report() }],
            too_many("asked", 4_097, part_max),
        ),
        (vec![more(report()), wire::Report { seq: 2, ..report() }], Invalid::Parts("seq")),
        (vec![more(report()), wire::Report { time_us: Some(1), ..report() }], Invalid::Parts("time")),
        (vec![more(report()), greeting(|_| ())], Invalid::Parts("identity")),
        (vec![more(greeting(|_| ())), greeting(|_| ())], Invalid::Parts("identity")),
    ];
    for (parts, why) in table {
        check_report_refused(parts, &why);
    }
}

#[test]
fn a_report_in_endless_parts_is_refused_at_its_bound() {
    let part =
        |number: u32| more(wire::Report { counts: counts((number * 4_096..).take(4_096)), ..report() });
    let parts = (0..257).map(part).collect();
    check_report_refused(parts, &too_many("counts", KEYS_PER_MESSAGE_MAX + 4_096, KEYS_PER_MESSAGE_MAX));
}

fn directives(buckets: Vec<wire::BucketDirective>) -> wire::Directives {
    wire::Directives { epoch: Some(1), seq: 1, buckets, ..wire::Directives::default() }
}

fn bucket(name: &str, keys: Vec<wire::KeyDirective>) -> wire::BucketDirective {
    wire::BucketDirective {
        bucket: name.to_owned(),
        mode: wire::Mode::Shadow as i32,
        keys,
        ..wire::BucketDirective::default()
    }
}

fn key(tenant: &str, ratio: Option<u32>) -> wire::KeyDirective {
    wire::KeyDirective { tenant: tenant.to_owned(), ratio }
}

fn check_directives_refused(parts: Vec<wire::Directives>, why: &Invalid) {
    let mut decoder = DirectivesDecoder::default();
    let last = parts.len() - 1;
    for (at, part) in parts.into_iter().enumerate() {
        let decoded = decoder.decode(part);
        if at < last {
            assert_eq!(decoded, Ok(None), "part {at} before {why}");
        } else {
            assert_eq!(decoded.as_ref(), Err(why));
        }
    }
}

#[test]
fn directives_out_of_range_are_refused() {
    let ratio = |units| directives(vec![bucket("b", vec![key("t", Some(units))])]);
    let above = |units| Invalid::Ratio(DropRatio::new(units).unwrap_err());
    let mode = |value| directives(vec![wire::BucketDirective { mode: value, ..bucket("b", Vec::new()) }]);
    let enumeration = |value| Invalid::Enumeration { field: "mode", value };
    let first = |message| wire::Directives { more: true, ..message };
    let none = || directives(Vec::new());
    let part_max = KEYS_PER_PART_MAX;
    let table = [
        (vec![ratio((1 << 31) + 1)], above((1 << 31) + 1)),
        (vec![ratio(u32::MAX)], above(u32::MAX)),
        (vec![wire::Directives { seq: 0, ..none() }], Invalid::Zero("seq")),
        (vec![wire::Directives { epoch: Some(0), ..none() }], Invalid::Zero("epoch")),
        (
            vec![wire::Directives { report_interval_ms: Some(0), ..none() }],
            Invalid::Zero("report_interval_ms"),
        ),
        (
            vec![wire::Directives { epoch: None, ..directives(vec![bucket("b", Vec::new())]) }],
            Invalid::ValuesWithoutEpoch,
        ),
        (vec![mode(0)], enumeration(0)),
        (vec![mode(4)], enumeration(4)),
        (vec![directives(vec![bucket("", Vec::new())])], invalid_name("bucket", InvalidName::Empty)),
        (
            vec![directives(vec![bucket("b", vec![key("*", None)])])],
            invalid_name("tenant", InvalidName::Byte { byte: '*', at: 0 }),
        ),
        (
            vec![directives(vec![bucket("b", vec![key("t", None); 2_049]); 2])],
            too_many("keys", 4_098, part_max),
        ),
        (vec![directives(vec![bucket("b", Vec::new()); 4_097])], too_many("buckets", 4_097, part_max)),
        (vec![first(none()), wire::Directives { seq: 2, ..none() }], Invalid::Parts("seq")),
        (vec![first(none()), wire::Directives { epoch: Some(2), ..none() }], Invalid::Parts("epoch")),
        (vec![first(none()), wire::Directives { epoch: None, ..none() }], Invalid::Parts("epoch")),
    ];
    for (parts, why) in table {
        check_directives_refused(parts, &why);
    }
}

#[test]
fn the_ends_of_every_range_are_taken() {
    let ends = [
        directives(vec![bucket("b", vec![key("t", Some(1 << 31)), key("u", Some(0)), key("v", None)])]),
        wire::Directives { epoch: Some(u64::MAX), seq: u64::MAX, ..wire::Directives::default() },
        wire::Directives { seq: 1, kill_generation: u64::MAX, ..wire::Directives::default() },
        directives(vec![wire::BucketDirective {
            limit: Some(wire::bucket_directive::Limit::LimitMilliRps(u64::MAX)),
            ..bucket(&longest(0), vec![key("t", None); KEYS_PER_PART_MAX])
        }]),
    ];
    for message in ends {
        let decoded = DirectivesDecoder::default().decode(message.clone());
        assert!(matches!(decoded, Ok(Some(_))), "{decoded:?}");
    }
}

#[test]
fn false_is_no_promise_that_there_is_no_limit() {
    let unlimited = |yes| wire::BucketDirective {
        limit: Some(wire::bucket_directive::Limit::Unlimited(yes)),
        ..bucket("b", Vec::new())
    };
    let decode = |bucket| {
        let decoded = DirectivesDecoder::default().decode(directives(vec![bucket])).unwrap().unwrap();
        decoded.buckets[0].limit
    };
    assert_eq!(decode(unlimited(true)), Limit::Unlimited);
    assert_eq!(decode(unlimited(false)), Limit::Unknown);
}

#[test]
fn an_interval_beyond_all_reason_is_cut_to_a_minute() {
    let message = wire::Directives { report_interval_ms: Some(u32::MAX), ..directives(Vec::new()) };
    let decoded = DirectivesDecoder::default().decode(message).unwrap().unwrap();
    assert_eq!(decoded.report_interval, Some(Duration::from_secs(60)));
}
