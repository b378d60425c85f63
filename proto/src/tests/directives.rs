//! Round trips of directives, in parts within the bounds of a message.

use plimsoll_core::directive::{
    CATALOGUED_MAX, CatalogueNews, ClassTerms, LIMITED_MAX, Leader, LimitOwner, NEAREST_BYTES_MAX,
    NewShare, STANDINGS_MAX, SentLead, TailCut, Unlisted,
};
use plimsoll_core::kill::KillNews;
use plimsoll_core::law::tail::Standing;

use super::quotas::any_quotas;
use super::*;

pub(super) fn bytes_of(directives: &Directives) -> Vec<Vec<u8>> {
    let each = encode_directives(directives.clone().into()).map(|part| {
        let mut bytes = Vec::new();
        part.encode(&mut bytes);
        assert_eq!(bytes.len(), part.encoded_len());
        bytes
    });
    each.collect()
}

/// Returns the first message, decoded only by prost.
fn first_part(directives: &Directives) -> wire::Directives {
    wire::Directives::decode(bytes_of(directives).remove(0).as_slice()).unwrap()
}

pub(super) fn check_directives(directives: &Directives) -> usize {
    let mut decoder = DirectivesDecoder::default();
    let parts = bytes_of(directives);
    for (part, left) in parts.iter().zip((0..parts.len()).rev()) {
        assert!(part.len() <= MESSAGE_BYTES_MAX, "{} bytes", part.len());
        let part = wire::Directives::decode(part.as_slice()).unwrap();
        assert!(
            part.buckets
                .iter()
                .map(|bucket| bucket.keys.len())
                .sum::<usize>()
                <= KEYS_PER_PART_MAX
        );
        let decoded = decoder.decode(part).unwrap();
        assert_eq!(decoded.as_ref(), (left == 0).then_some(directives));
    }
    parts.len()
}

fn directive(name: &str, whole: bool, tenants: usize) -> BucketDirective {
    let ratio = |number: usize| DropRatio::new(DropRatio::ONE - number as u32).unwrap();
    BucketDirective {
        bucket: Bucket::new(name).unwrap(),
        whole,
        terms: Terms {
            limit: Limit::PerSecond(Rate::new(100.0).unwrap()),
            mode: Mode::Enforce,
            ..Terms::default()
        },
        keys: (0..tenants)
            .map(|number| KeyDirective {
                tenant: Tenant::new(&longest(number)).unwrap(),
                values: Values {
                    ratio: (number % 3 > 0).then(|| ratio(number)),
                    ..Values::default()
                },
            })
            .collect(),
    }
}

pub(super) fn message(buckets: Vec<BucketDirective>) -> Directives {
    Directives {
        lead: Epoch(1).into(),
        seq: 1,
        buckets,
        ..Directives::default()
    }
}

#[test]
fn large_directives_keep_the_snapshot_flag() {
    for whole in [false, true] {
        let large = |name| directive(name, whole, 5_000);
        assert!(check_directives(&message(vec![large("a"), large("b")])) > 2);
        // Sizes around the end of a part, and a bucket that starts where another one filled a part.
        for tenants in [0, 1, 1_021, 1_022, 1_023, 1_024, 1_025, 2_046, 2_047] {
            let fits = |name| directive(name, whole, tenants);
            check_directives(&message(vec![
                fits("a"),
                fits("b"),
                directive("c", !whole, 1),
            ]));
        }
        let many = (0..5_000)
            .map(|number| directive(&longest(number), whole, 0))
            .collect();
        assert!(check_directives(&message(many)) > 1);
    }
    assert_eq!(
        check_directives(&message(Vec::new())),
        1,
        "a heartbeat is one message"
    );
}

fn round_trip(sent: BucketDirective) -> BucketDirective {
    let part = first_part(&message(vec![sent]));
    let arrived = DirectivesDecoder::default().decode(part).unwrap().unwrap();
    arrived.buckets[0].clone()
}

fn round_trip_limit(limit: Limit) -> Limit {
    let mut sent = directive("a", true, 0);
    sent.terms.limit = limit;
    round_trip(sent).terms.limit
}

#[test]
fn encoded_limits_keep_zero_distinct() {
    let rate = |per_second: f64| Limit::PerSecond(Rate::new(per_second).unwrap());
    let table = [
        (Limit::Unknown, Limit::Unknown),
        (Limit::Unlimited, Limit::Unlimited),
        (rate(0.0), rate(0.0)),
        (rate(f64::MIN_POSITIVE), rate(0.001)),
        (rate(0.000_4), rate(0.001)),
        (rate(0.001), rate(0.001)),
        // 0.07 * 1000 is slightly more than 70 in floating point.
        (rate(0.07), rate(0.07)),
        (rate(1.0 / 3.0), rate(0.333)),
        (rate(999.999_6), rate(1_000.0)),
        (Limit::PerSecond(Rate::MAX), Limit::PerSecond(Rate::MAX)),
    ];
    for (sent, expected) in table {
        assert_eq!(round_trip_limit(sent), expected, "{sent:?}");
    }
}

fn any_limit() -> impl Strategy<Value = Limit> {
    prop_oneof![
        Just(Limit::Unknown),
        Just(Limit::Unlimited),
        any_rate().prop_map(Limit::PerSecond)
    ]
}

fn any_terms() -> impl Strategy<Value = Terms> {
    let mode = select(vec![Mode::Shadow, Mode::Canary, Mode::Enforce]);
    let cohort = (0..=100_000u32, any::<u64>()).prop_map(|(milli, salt)| Cohort {
        percent: Percent::new(f64::from(milli) / 1e3).unwrap(),
        salt,
    });
    let coin = select(vec![Coin::Dithered, Coin::Coherent]);
    let presences =
        option::of((1_000..=u32::MAX).prop_map(|number| Presences::new(number).unwrap()));
    let headroom = || prop_oneof![Just(Headroom::None), any_rate().prop_map(Headroom::Shared)];
    let pool = (
        headroom(),
        any_rate(),
        1_000..=12_000u32,
        0..1_000_000_000_000u64,
    )
        .prop_map(|(rate, offered, depth, burst)| ZonePool {
            rate,
            offered,
            depth: PoolDepth::new(depth).unwrap(),
            burst: TokenCount::new(burst as f64 / 1e3),
        });
    let headrooms = (option::of(headroom()), option::of(pool));
    let micro = || {
        option::of(
            (0..1_000_000_000_000u64).prop_map(|micro| Rate::new(micro as f64 / 1e6).unwrap()),
        )
    };
    let ratio = (0..=DropRatio::ONE).prop_map(|units| DropRatio::new(units).unwrap());
    let cut = (micro(), micro(), ratio, option::of(any_rate())).prop_map(
        |(level, new_level, ratio, tenant_limit)| TailCut {
            level,
            new_level,
            ratio,
            tenant_limit,
        },
    );
    let new_share = (0..=1_000_000u32).prop_map(|millionths| NewShare::new(millionths).unwrap());
    let tail = (option::of(cut), option::of(new_share));
    let shares = (
        presences,
        option::of(any_rate()),
        option::of(any::<u32>()),
        headrooms,
        tail,
    );
    let coherence = option::of((any::<[u8; 16]>(), any::<u64>())).prop_map(|coherence| {
        coherence.map(|(key, salt)| Coherence {
            key: CoinKey::from_bytes(key),
            salt,
        })
    });
    (
        any_limit(),
        mode,
        cohort,
        (coin, coherence),
        shares,
        option::of(any_quotas()),
    )
        .prop_map(|(limit, mode, cohort, (coin, coherence), shares, quotas)| {
            let (presences, hold, clients, (headroom, pool), (cut, new_share)) = shares;
            Terms {
                named: presences.is_some(),
                unlisted: clients
                    .map(|number| Unlisted::new(Bucket::new(&format!("b{number}")).ok().as_ref())),
                limit,
                mode,
                kill: Kill {
                    fleet: KillGeneration(cohort.salt),
                    bucket: KillGeneration(cohort.salt / 3),
                },
                cohort,
                coin,
                coherence,
                presences,
                hold,
                headroom,
                clients,
                pool,
                plans: [(
                    Tenant::class_of_plan("free").unwrap(),
                    ClassTerms { cut, new_share },
                )]
                .into_iter()
                .filter(|_| cut.is_some())
                .collect(),
                cut,
                new_share,
                quotas,
            }
        })
}

/// Generates entitlements that the wire carries exactly.
fn any_entitlement() -> impl Strategy<Value = Entitlement> {
    let weight = prop_oneof![1_000..10_000u64, 1_000..=1_000_000_000_000_000u64]
        .prop_map(|nano| Weight::new(nano as f64 / 1e9).unwrap());
    (weight, any_rate(), option::of(any_rate())).prop_map(|(weight, floor, tenant_limit)| {
        Entitlement {
            weight,
            floor,
            tenant_limit,
            limit_owner: LimitOwner::Plan,
        }
    })
}

fn any_values() -> impl Strategy<Value = Values> {
    let ratio = (0..=DropRatio::ONE).prop_map(|units| DropRatio::new(units).unwrap());
    let rate = || option::of(any_rate());
    let at_tenant_limit = option::of(any::<bool>());
    (
        option::of(ratio),
        rate(),
        rate(),
        option::of(any_entitlement()),
        rate(),
        rate(),
        at_tenant_limit,
    )
        .prop_map(
            |(ratio, rate, cap, entitlement, guard, offered, at_tenant_limit)| Values {
                ratio,
                rate,
                cap,
                entitlement,
                guard,
                offered,
                at_tenant_limit,
            },
        )
}

fn any_bucket_directive() -> impl Strategy<Value = BucketDirective> {
    let key =
        (any_tenant(), any_values()).prop_map(|(tenant, values)| KeyDirective { tenant, values });
    (any_bucket(), any::<bool>(), any_terms(), vec(key, 0..8)).prop_map(
        |(bucket, whole, terms, keys)| BucketDirective {
            bucket,
            whole,
            terms,
            keys,
        },
    )
}

pub(super) fn any_directives() -> impl Strategy<Value = Directives> {
    let head = (
        1..=u64::MAX,
        1..=u64::MAX,
        any::<u64>(),
        option::of(any::<u64>()),
        option::of(any::<u32>()),
    );
    let echo =
        (any::<u64>(), any::<u64>()).prop_map(|(covered, confirmed)| Echo { covered, confirmed });
    let spans = (option::of(any::<u64>()), option::of(1..=60_000u64));
    (head, echo, spans, vec(any_bucket_directive(), 0..6)).prop_map(
        |((epoch, seq, kill, policy_hash, children), echo, (age_ms, interval_ms), buckets)| {
            Directives {
                parent: children.map(|children| InstanceId(children.into())),
                lead: SentLead {
                    leader: Some(Leader {
                        epoch: Epoch(epoch),
                        instance: Some(InstanceId(seq.into())),
                    }),
                    forgotten: KillGeneration(kill / 7),
                    policy_hash,
                    unconfirmed: kill % 2 == 1,
                },
                seq,
                kills: KillNews {
                    fleet: KillGeneration(kill),
                    buckets: [(Bucket::new("killed").unwrap(), KillGeneration(kill))].into(),
                    drill: Drill(kill / 2),
                    orders: orders(kill),
                },
                echo,
                upstream_age: age_ms.map(Duration::from_millis),
                report_interval: interval_ms.map(Duration::from_millis),
                children,
                above: children.unwrap_or_default(),
                grants: [(Bucket::new("granted").unwrap(), TokenCount::new(25.0))].into(),
                standings: (0..8)
                    .map(|at| {
                        (
                            KeyId(kill as u32 % 1_000 + at * at),
                            Standing::from_code(at * 48).unwrap(),
                        )
                    })
                    .collect(),
                limits: children.map(|children| {
                    let key = Key {
                        bucket: Bucket::new("limited").unwrap(),
                        tenant: Tenant::new("acme%~free").unwrap(),
                    };
                    vec![(key, Rate::new(children.into()).unwrap())]
                }),
                catalogue: CatalogueNews {
                    hash: policy_hash,
                    names: vec![
                        (
                            Tenant::new("acme").unwrap(),
                            Tenant::class_of_plan("pro").unwrap(),
                        ),
                        (Tenant::new("initech").unwrap(), Tenant::default_class()),
                    ],
                    keys: vec![
                        (KeyId(kill as u32), Tenant::class_of_plan("pro").unwrap()),
                        (KeyId(0), Tenant::default_class()),
                    ],
                },
                buckets,
            }
        },
    )
}

fn largest_cut() -> TailCut {
    let most = Some(largest_rate());
    TailCut {
        level: most,
        new_level: most,
        ratio: DropRatio::ALL,
        tenant_limit: most,
    }
}

fn of_plan(number: usize) -> (Tenant, ClassTerms) {
    let name = format!("{number:0>width$}", width = PLAN_BYTES_MAX);
    let terms = ClassTerms {
        cut: Some(largest_cut()),
        new_share: Some(NewShare::of(1.0)),
    };
    (Tenant::class_of_plan(&name).unwrap(), terms)
}

pub(super) fn largest_directive(name: &str, tenants: usize) -> BucketDirective {
    let most = Some(largest_rate());
    let entitlement = Entitlement {
        weight: Weight::new(Weight::MAX).unwrap(),
        floor: largest_rate(),
        tenant_limit: most,
        limit_owner: LimitOwner::Tenant,
    };
    let values = Values {
        ratio: Some(DropRatio::ALL),
        rate: most,
        cap: most,
        entitlement: Some(entitlement),
        guard: most,
        offered: most,
        at_tenant_limit: Some(true),
    };
    let tenant = |number| Tenant::new(&longest(number)).unwrap();
    BucketDirective {
        bucket: Bucket::new(name).unwrap(),
        whole: true,
        terms: Terms {
            named: true,
            unlisted: Some(Unlisted::new(
                Bucket::new(&"x".repeat(NEAREST_BYTES_MAX)).ok().as_ref(),
            )),
            limit: Limit::PerSecond(largest_rate()),
            mode: Mode::Enforce,
            kill: Kill {
                fleet: KillGeneration(u64::MAX),
                bucket: KillGeneration(u64::MAX),
            },
            cohort: Cohort {
                percent: Percent::new(100.0).unwrap(),
                salt: u64::MAX,
            },
            coin: Coin::Coherent,
            coherence: Some(Coherence {
                key: CoinKey::from_bytes([0xff; 16]),
                salt: u64::MAX,
            }),
            presences: Some(Presences::new(u32::MAX).unwrap()),
            hold: most,
            headroom: Some(Headroom::Shared(largest_rate())),
            clients: Some(u32::MAX),
            pool: Some(ZonePool {
                rate: Headroom::Shared(largest_rate()),
                offered: largest_rate(),
                depth: PoolDepth::MAX,
                burst: TokenCount::new(f64::MAX),
            }),
            cut: Some(largest_cut()),
            new_share: Some(NewShare::of(1.0)),
            plans: BTreeMap::new(),
            quotas: None,
        },
        keys: (0..tenants)
            .map(|number| KeyDirective {
                tenant: tenant(number),
                values,
            })
            .collect(),
    }
}

#[test]
fn largest_directives_stay_within_message_bounds() {
    let key = Key {
        bucket: Bucket::new(&longest(0)).unwrap(),
        tenant: Tenant::new(&(longest(0) + "%~" + &"p".repeat(PLAN_BYTES_MAX))).unwrap(),
    };
    let message = |buckets| Directives {
        lead: SentLead {
            leader: Some(Leader {
                epoch: Epoch(u64::MAX),
                instance: Some(InstanceId(u128::MAX)),
            }),
            forgotten: KillGeneration(u64::MAX),
            policy_hash: Some(u64::MAX),
            unconfirmed: true,
        },
        seq: u64::MAX,
        kills: KillNews {
            fleet: KillGeneration(u64::MAX),
            buckets: BTreeMap::new(),
            drill: Drill(u64::MAX),
            orders: BTreeMap::new(),
        },
        echo: Echo {
            covered: u64::MAX,
            confirmed: u64::MAX,
        },
        upstream_age: Some(Duration::from_millis(u64::MAX)),
        report_interval: Some(Duration::from_secs(60)),
        parent: Some(InstanceId(u128::MAX)),
        children: Some(u32::MAX),
        above: u32::MAX,
        grants: BTreeMap::new(),
        standings: Vec::new(),
        limits: None,
        catalogue: CatalogueNews {
            hash: Some(u64::MAX),
            ..CatalogueNews::default()
        },
        buckets,
    };
    let buckets = |count: usize, tenants| {
        message(
            (0..count)
                .map(|number| largest_directive(&longest(number), tenants))
                .collect(),
        )
    };
    // Full parts: keys of one bucket, buckets without keys, buckets with one key each.
    for full in [buckets(1, 1_023), buckets(600, 0), buckets(400, 1)] {
        assert_eq!(check_directives(&full), 1);
        assert!(bytes_of(&full)[0].len() > MESSAGE_BYTES_MAX / 4 * 3 - 8 * 1024);
    }
    assert_eq!(
        check_directives(&buckets(1, 1_024)),
        1,
        "the bytes, not the keys, fill a part"
    );
    assert_eq!(check_directives(&buckets(1, 1_300)), 2);
    assert_eq!(check_directives(&buckets(3, 4_000)), 12);
    let killed = |number| {
        let bucket = Bucket::new(&longest(number)).unwrap();
        (bucket, KillGeneration(u64::MAX))
    };
    let granted = |number| {
        let bucket = Bucket::new(&longest(number)).unwrap();
        (bucket, TokenCount::new(f64::from(u32::MAX)))
    };
    let told = |number| {
        let standing = Standing::from_code(Standing::CODE_MAX.into()).unwrap();
        (KeyId(u32::MAX - number), standing)
    };
    let (class, _) = of_plan(0);
    type Change<'a> = &'a dyn Fn(&mut Directives);
    let table: [(usize, &str, Change<'_>); 5] = [
        (2, "kill generations precede the buckets", &|sent| {
            sent.kills.buckets = (0..KILLED_BUCKETS_MAX).map(killed).collect();
        }),
        (1, "a full part has room for grants", &|sent| {
            sent.grants = (0..GRANTS_MAX).map(granted).collect();
        }),
        (2, "standings precede the buckets", &|sent| {
            sent.standings = (0..STANDINGS_MAX as u32).rev().map(told).collect();
        }),
        (
            2,
            "limits precede the buckets, plans fit into a piece",
            &|sent| {
                sent.buckets[0].terms.plans = (0..PLANS_MAX).map(of_plan).collect();
                sent.limits = Some(vec![(key.clone(), largest_rate()); LIMITED_MAX]);
            },
        ),
        (2, "what the catalogue says precedes the buckets", &|sent| {
            sent.catalogue.names = vec![(key.tenant.clone(), class.clone()); CATALOGUED_MAX];
            sent.catalogue.keys = vec![(KeyId(u32::MAX), class.clone()); CATALOGUED_MAX];
        }),
    ];
    for (parts, why, change) in table {
        let mut sent = buckets(1, 1_023);
        change(&mut sent);
        assert_eq!(check_directives(&sent), parts, "{why}");
        sent.buckets.clear();
        assert_eq!(check_directives(&sent), 1, "without buckets, where {why}");
    }
}

fn round_trip_values(values: Values) -> Values {
    let mut sent = directive("a", true, 1);
    sent.keys[0].values = values;
    round_trip(sent).keys[0].values
}

#[test]
fn older_controller_is_never_unconfirmed() {
    let mut sent = message(Vec::new());
    sent.lead.unconfirmed = true;
    assert_eq!(check_directives(&sent), 1);
    // A controller that does not know the field leaves it out.
    let absent = bytes_of(&message(Vec::new())).remove(0);
    let part = wire::Directives::decode(absent.as_slice()).unwrap();
    let decoded = DirectivesDecoder::default().decode(part).unwrap().unwrap();
    assert!(!decoded.lead.unconfirmed && absent.len() < bytes_of(&sent)[0].len());
}

#[test]
fn absent_values_differ_from_zero() {
    fn entitlement(weight: f64, tenant_limit: Option<Rate>) -> Option<Entitlement> {
        Some(Entitlement {
            weight: Weight::new(weight).unwrap(),
            floor: Rate::ZERO,
            tenant_limit,
            limit_owner: LimitOwner::Bucket,
        })
    }
    let changes: [fn(&mut Values); 10] = [
        |_| {},
        |values| values.ratio = Some(DropRatio::NONE),
        |values| values.rate = Some(Rate::ZERO),
        |values| values.cap = Some(Rate::ZERO),
        |values| values.guard = Some(Rate::ZERO),
        |values| values.offered = Some(Rate::ZERO),
        |values| values.at_tenant_limit = Some(false),
        |values| values.at_tenant_limit = Some(true),
        |values| values.entitlement = entitlement(Weight::MIN, None),
        |values| values.entitlement = entitlement(Weight::MAX, Some(Rate::ZERO)),
    ];
    for change in changes {
        let mut values = Values::default();
        change(&mut values);
        assert_eq!(round_trip_values(values), values);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn directives_survive_a_round_trip(directives in any_directives()) {
        check_directives(&directives);
    }

    #[test]
    fn encoded_limit_errs_by_half_a_thousandth(per_second in prop_oneof![0.0..10.0, 0.0..1e12]) {
        let arrived = round_trip_limit(Limit::PerSecond(Rate::new(per_second).unwrap()));
        let arrived = arrived.per_second().unwrap().per_second();
        prop_assert_eq!(arrived == 0.0, per_second == 0.0);
        let tolerance = if per_second < 0.001 { 0.001 } else { 0.000_5 + per_second * f64::EPSILON };
        prop_assert!((arrived - per_second).abs() <= tolerance, "{} became {}", per_second, arrived);
    }

    #[test]
    fn encoded_weight_errs_by_half_a_billionth(weight in prop_oneof![1e-6..1e-5, 1e-6..=1e6]) {
        let entitlement = Entitlement {
            weight: Weight::new(weight).unwrap(),
            floor: Rate::ZERO,
            tenant_limit: None,
            limit_owner: LimitOwner::Bucket,
        };
        let values = Values { entitlement: Some(entitlement), ..Values::default() };
        let arrived = round_trip_values(values).entitlement.unwrap().weight.get();
        let tolerance = 0.5e-9 + weight * 2.0 * f64::EPSILON;
        prop_assert!((arrived - weight).abs() <= tolerance, "{} became {}", weight, arrived);
    }
}
