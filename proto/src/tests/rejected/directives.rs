//! Directives out of range, and values at the ends of every range.

use plimsoll_core::names::InvalidName;

use super::{Rejected, check_last_rejected, invalid_name, too_many};
use crate::DecodeError::{Range, Zero};
use crate::tests::*;

/// The highest rate that is accepted, in thousandths.
const MILLI_RPS_MAX: u64 = 1_000_000_000_000_000;

fn directives(buckets: Vec<wire::BucketDirective>) -> wire::Directives {
    wire::Directives {
        epoch: Some(1),
        seq: 1,
        buckets,
        ..wire::Directives::default()
    }
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
    wire::KeyDirective {
        tenant: tenant.to_owned(),
        ratio,
        ..wire::KeyDirective::default()
    }
}

fn check_directives_rejected(parts: Vec<wire::Directives>, error: &DecodeError) {
    let mut decoder = DirectivesDecoder::default();
    check_last_rejected(parts, error, |part| decoder.decode(part));
}

fn of_bucket(change: impl FnOnce(&mut wire::BucketDirective)) -> wire::Directives {
    let mut changed = bucket("b", Vec::new());
    change(&mut changed);
    directives(vec![changed])
}

fn of_ratio(units: u32) -> wire::Directives {
    of_bucket(|it| it.keys = vec![key("t", Some(units))])
}

fn of_weight(weight_nano: u64) -> wire::Directives {
    let mut entitled = key("t", None);
    entitled.entitlement.get_or_insert_default().weight_nano = weight_nano;
    of_bucket(|it| it.keys = vec![entitled])
}

#[test]
fn directives_out_of_range_are_rejected() {
    let above = |units| Range(DropRatio::new(units).unwrap_err());
    let no_weight = |weight| Range(Weight::new(weight).unwrap_err());
    let no_rate = |milli: u64| DecodeError::Rate(Rate::new(milli as f64 / 1e3).unwrap_err());
    let no_presences = |thousandths| Range(Presences::new(thousandths).unwrap_err());
    let no_mode = |value| DecodeError::Enumeration {
        field: "mode",
        value,
    };
    let hold = |milli| of_bucket(|it| it.hold_milli_rps = Some(milli));
    let presences = |thousandths| of_bucket(|it| it.presences_milli = Some(thousandths));
    let percent = |milli| of_bucket(|it| it.canary_milli_percent = milli);
    let mode = |mode| of_bucket(|it| it.mode = mode);
    let most = KEYS_PER_PART_MAX;
    let table = [
        (of_ratio((1 << 31) + 1), above((1 << 31) + 1)),
        (of_ratio(u32::MAX), above(u32::MAX)),
        (of_weight(0), no_weight(0.0)),
        (of_weight(999), no_weight(0.000_000_999)),
        (
            of_weight(1_000_000_000_000_001),
            no_weight(1_000_000.000_000_001),
        ),
        (of_weight(u64::MAX), no_weight(u64::MAX as f64 / 1e9)),
        (hold(MILLI_RPS_MAX + 1), no_rate(MILLI_RPS_MAX + 1)),
        (hold(u64::MAX), no_rate(u64::MAX)),
        (presences(0), no_presences(0)),
        (presences(999), no_presences(999)),
        (percent(100_001), DecodeError::Percent(100_001)),
        (percent(u32::MAX), DecodeError::Percent(u32::MAX)),
        (mode(0), no_mode(0)),
        (mode(4), no_mode(4)),
        (
            of_bucket(|it| it.bucket.clear()),
            invalid_name("bucket", InvalidName::Empty),
        ),
        (
            of_bucket(|it| it.keys = vec![key("*", None)]),
            invalid_name("tenant", InvalidName::Byte { byte: '*', at: 0 }),
        ),
        (
            directives(vec![bucket("b", vec![key("t", None); 2_049]); 2]),
            too_many("keys", 4_098, most),
        ),
        (
            directives(vec![bucket("b", Vec::new()); 4_097]),
            too_many("buckets", 4_097, most),
        ),
    ];
    for (part, error) in table {
        check_directives_rejected(vec![part], &error);
    }
    let heads: [Rejected<wire::Directives>; 4] = [
        (|it| it.seq = 0, Zero("seq")),
        (|it| it.epoch = Some(0), Zero("epoch")),
        (
            |it| it.report_interval_ms = Some(0),
            Zero("report_interval_ms"),
        ),
        (|it| it.epoch = None, DecodeError::ValuesWithoutEpoch),
    ];
    for (change, error) in heads {
        let mut part = of_bucket(|_| ());
        change(&mut part);
        check_directives_rejected(vec![part], &error);
    }
    let seconds: [Rejected<wire::Directives>; 3] = [
        (|it| it.seq = 2, DecodeError::Parts("seq")),
        (|it| it.epoch = Some(2), DecodeError::Parts("epoch")),
        (|it| it.epoch = None, DecodeError::Parts("epoch")),
    ];
    for (change, error) in seconds {
        let mut parts = vec![directives(Vec::new()); 2];
        parts[0].more = true;
        change(&mut parts[1]);
        check_directives_rejected(parts, &error);
    }
}

/// The terms of a bucket as a child decodes them.
fn decoded_terms(change: impl FnOnce(&mut wire::BucketDirective)) -> Terms {
    let decoded = DirectivesDecoder::default().decode(of_bucket(change));
    decoded.unwrap().unwrap().buckets.remove(0).terms
}

#[test]
fn ends_of_every_range_are_accepted() {
    let ends = [
        directives(vec![bucket(
            "b",
            vec![key("t", Some(1 << 31)), key("u", Some(0)), key("v", None)],
        )]),
        wire::Directives {
            epoch: Some(u64::MAX),
            seq: u64::MAX,
            ..wire::Directives::default()
        },
        wire::Directives {
            seq: 1,
            kill_generation: u64::MAX,
            ..wire::Directives::default()
        },
        directives(vec![wire::BucketDirective {
            limit: Some(wire::bucket_directive::Limit::LimitMilliRps(MILLI_RPS_MAX)),
            ..bucket(&longest(0), vec![key("t", None); KEYS_PER_PART_MAX])
        }]),
    ];
    let entitled = |weight_nano| {
        let entitlement = wire::Entitlement {
            weight_nano,
            floor_milli_rps: MILLI_RPS_MAX,
            tenant_limit_milli_rps: Some(MILLI_RPS_MAX),
            limit_owner: 2,
        };
        wire::KeyDirective {
            rate_milli_rps: Some(MILLI_RPS_MAX),
            cap_milli_rps: Some(MILLI_RPS_MAX),
            entitlement: Some(entitlement),
            guard_milli_rps: Some(MILLI_RPS_MAX),
            offered_milli_rps: Some(MILLI_RPS_MAX),
            at_tenant_limit: Some(true),
            ..key("t", None)
        }
    };
    let terms = |presences, canary_milli_percent, depth_milli| wire::BucketDirective {
        canary_milli_percent,
        canary_salt: u64::MAX,
        presences_milli: Some(presences),
        hold_milli_rps: Some(MILLI_RPS_MAX),
        clients: Some(u32::MAX),
        headroom: Some(wire::bucket_directive::Headroom::HeadroomMilliRps(
            MILLI_RPS_MAX,
        )),
        pool: Some(pool(depth_milli)),
        ..bucket("b", vec![entitled(1_000), entitled(1_000_000_000_000_000)])
    };
    let richer = [
        directives(vec![terms(1_000, 100_000, 1_000)]),
        directives(vec![terms(u32::MAX, 0, 12_000)]),
    ];
    for message in ends.into_iter().chain(richer) {
        let decoded = DirectivesDecoder::default().decode(message.clone());
        assert!(matches!(decoded, Ok(Some(_))), "{decoded:?}");
    }
}

fn pool(depth_milli: u32) -> wire::Pool {
    wire::Pool {
        rate: Some(wire::pool::Rate::RateMilliRps(MILLI_RPS_MAX)),
        offered_milli_rps: MILLI_RPS_MAX,
        depth_milli,
        burst_milli: u64::MAX,
    }
}

#[test]
fn out_of_range_pool_depth_is_rejected() {
    for depth_milli in [0, 999, 12_001, u32::MAX] {
        let sent = of_bucket(|it| it.pool = Some(pool(depth_milli)));
        let decoded = DirectivesDecoder::default().decode(sent);
        let error = DecodeError::Range(PoolDepth::new(depth_milli).unwrap_err());
        assert_eq!(decoded.unwrap_err(), error);
    }
}

#[test]
fn headroom_without_value_means_unchanged() {
    use wire::bucket_directive::Headroom as Wire;
    let decode = |headroom, rate| {
        let pool = wire::Pool {
            rate,
            ..pool(1_000)
        };
        let terms = decoded_terms(|it| (it.headroom, it.pool) = (headroom, Some(pool)));
        (terms.headroom, terms.pool.unwrap().rate)
    };
    let zero = Headroom::Shared(Rate::ZERO);
    for (headroom, rate, expected) in [
        (None, None, (None, Headroom::None)),
        (
            Some(Wire::NoHeadroom(false)),
            Some(wire::pool::Rate::None(false)),
            (None, Headroom::None),
        ),
        (
            Some(Wire::NoHeadroom(true)),
            Some(wire::pool::Rate::None(true)),
            (Some(Headroom::None), Headroom::None),
        ),
        (
            Some(Wire::HeadroomMilliRps(0)),
            Some(wire::pool::Rate::RateMilliRps(0)),
            (Some(zero), zero),
        ),
    ] {
        assert_eq!(decode(headroom, rate), expected);
    }
}

#[test]
fn false_unlimited_is_an_unknown_limit() {
    use wire::bucket_directive::Limit as Wire;
    for (yes, expected) in [(true, Limit::Unlimited), (false, Limit::Unknown)] {
        let terms = decoded_terms(|it| it.limit = Some(Wire::Unlimited(yes)));
        assert_eq!(terms.limit, expected);
    }
}

#[test]
fn report_interval_is_capped_at_one_minute() {
    let message = wire::Directives {
        report_interval_ms: Some(u32::MAX),
        ..directives(Vec::new())
    };
    let decoded = DirectivesDecoder::default()
        .decode(message)
        .unwrap()
        .unwrap();
    assert_eq!(decoded.report_interval, Some(Duration::from_secs(60)));
}

#[test]
fn unknown_coins_decode_to_the_default() {
    for (coin, expected) in [
        (0, Coin::Dithered),
        (1, Coin::Dithered),
        (2, Coin::Dithered),
        (3, Coin::Coherent),
        (4, Coin::Dithered),
        (-1, Coin::Dithered),
    ] {
        let terms = decoded_terms(|it| it.coin = coin);
        assert_eq!(terms.coin, expected, "{coin}");
    }
}
