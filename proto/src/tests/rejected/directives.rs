//! Directives out of range, and values at the ends of every range.

use plimsoll_core::names::InvalidName;

use super::{check_last_rejected, invalid_name, too_many};
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

#[test]
fn directives_out_of_range_are_rejected() {
    let ratio = |units| directives(vec![bucket("b", vec![key("t", Some(units))])]);
    let above = |units| DecodeError::Range(DropRatio::new(units).unwrap_err());
    let mode = |value| {
        directives(vec![wire::BucketDirective {
            mode: value,
            ..bucket("b", Vec::new())
        }])
    };
    let enumeration = |value| DecodeError::Enumeration {
        field: "mode",
        value,
    };
    let weight = |weight_nano| {
        let entitlement = Some(wire::Entitlement {
            weight_nano,
            ..wire::Entitlement::default()
        });
        directives(vec![bucket(
            "b",
            vec![wire::KeyDirective {
                entitlement,
                ..key("t", None)
            }],
        )])
    };
    let no_weight = |weight| DecodeError::Range(Weight::new(weight).unwrap_err());
    let hold = |milli| {
        let hold_milli_rps = Some(milli);
        directives(vec![wire::BucketDirective {
            hold_milli_rps,
            ..bucket("b", Vec::new())
        }])
    };
    let no_rate = |milli: u64| DecodeError::Rate(Rate::new(milli as f64 / 1e3).unwrap_err());
    let presences = |thousandths| {
        let presences_milli = Some(thousandths);
        directives(vec![wire::BucketDirective {
            presences_milli,
            ..bucket("b", Vec::new())
        }])
    };
    let no_presences = |thousandths| DecodeError::Range(Presences::new(thousandths).unwrap_err());
    let percent = |canary_milli_percent| {
        directives(vec![wire::BucketDirective {
            canary_milli_percent,
            ..bucket("b", Vec::new())
        }])
    };
    let first = |message| wire::Directives {
        more: true,
        ..message
    };
    let none = || directives(Vec::new());
    let part_max = KEYS_PER_PART_MAX;
    let table = [
        (vec![ratio((1 << 31) + 1)], above((1 << 31) + 1)),
        (vec![ratio(u32::MAX)], above(u32::MAX)),
        (
            vec![wire::Directives { seq: 0, ..none() }],
            DecodeError::Zero("seq"),
        ),
        (
            vec![wire::Directives {
                epoch: Some(0),
                ..none()
            }],
            DecodeError::Zero("epoch"),
        ),
        (
            vec![wire::Directives {
                report_interval_ms: Some(0),
                ..none()
            }],
            DecodeError::Zero("report_interval_ms"),
        ),
        (
            vec![wire::Directives {
                epoch: None,
                ..directives(vec![bucket("b", Vec::new())])
            }],
            DecodeError::ValuesWithoutEpoch,
        ),
        (vec![weight(0)], no_weight(0.0)),
        (vec![weight(999)], no_weight(0.000_000_999)),
        (
            vec![weight(1_000_000_000_000_001)],
            no_weight(1_000_000.000_000_001),
        ),
        (vec![weight(u64::MAX)], no_weight(u64::MAX as f64 / 1e9)),
        (vec![hold(MILLI_RPS_MAX + 1)], no_rate(MILLI_RPS_MAX + 1)),
        (vec![hold(u64::MAX)], no_rate(u64::MAX)),
        (vec![presences(0)], no_presences(0)),
        (vec![presences(999)], no_presences(999)),
        (vec![percent(100_001)], DecodeError::Percent(100_001)),
        (vec![percent(u32::MAX)], DecodeError::Percent(u32::MAX)),
        (vec![mode(0)], enumeration(0)),
        (vec![mode(4)], enumeration(4)),
        (
            vec![directives(vec![bucket("", Vec::new())])],
            invalid_name("bucket", InvalidName::Empty),
        ),
        (
            vec![directives(vec![bucket("b", vec![key("*", None)])])],
            invalid_name("tenant", InvalidName::Byte { byte: '*', at: 0 }),
        ),
        (
            vec![directives(vec![
                bucket("b", vec![key("t", None); 2_049]);
                2
            ])],
            too_many("keys", 4_098, part_max),
        ),
        (
            vec![directives(vec![bucket("b", Vec::new()); 4_097])],
            too_many("buckets", 4_097, part_max),
        ),
        (
            vec![first(none()), wire::Directives { seq: 2, ..none() }],
            DecodeError::Parts("seq"),
        ),
        (
            vec![
                first(none()),
                wire::Directives {
                    epoch: Some(2),
                    ..none()
                },
            ],
            DecodeError::Parts("epoch"),
        ),
        (
            vec![
                first(none()),
                wire::Directives {
                    epoch: None,
                    ..none()
                },
            ],
            DecodeError::Parts("epoch"),
        ),
    ];
    for (parts, error) in table {
        check_directives_rejected(parts, &error);
    }
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
        let sent = wire::BucketDirective {
            pool: Some(pool(depth_milli)),
            ..bucket("b", Vec::new())
        };
        let decoded = DirectivesDecoder::default().decode(directives(vec![sent]));
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
        let sent = wire::BucketDirective {
            headroom,
            pool: Some(pool),
            ..bucket("b", Vec::new())
        };
        let decoded = DirectivesDecoder::default()
            .decode(directives(vec![sent]))
            .unwrap()
            .unwrap();
        let terms = decoded.buckets[0].terms.clone();
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
    let unlimited = |yes| wire::BucketDirective {
        limit: Some(wire::bucket_directive::Limit::Unlimited(yes)),
        ..bucket("b", Vec::new())
    };
    let decode = |bucket| {
        let decoded = DirectivesDecoder::default()
            .decode(directives(vec![bucket]))
            .unwrap()
            .unwrap();
        decoded.buckets[0].terms.limit
    };
    assert_eq!(decode(unlimited(true)), Limit::Unlimited);
    assert_eq!(decode(unlimited(false)), Limit::Unknown);
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
        let sent = wire::BucketDirective {
            coin,
            ..bucket("b", Vec::new())
        };
        let decoded = DirectivesDecoder::default()
            .decode(directives(vec![sent]))
            .unwrap()
            .unwrap();
        let terms = decoded.buckets[0].terms.clone();
        assert_eq!(terms.coin, expected, "{coin}");
    }
}
