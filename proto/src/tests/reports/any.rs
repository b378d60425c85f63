//! Generators of reports.

use plimsoll_core::kill::{KillNews, KillsBelow};
use plimsoll_core::law::tail::{Bin as RateBin, Demand, Tail};
use plimsoll_core::report::{
    ClientCounts, Greeting, ReportedLead, ReportedNames, SubscriptionChanges,
};
use proptest::sample::Index;

use crate::tests::*;

fn any_counts() -> impl Strategy<Value = Counts> {
    let count = prop_oneof![0..1_000u64, any::<u64>()];
    let columns: [_; COLUMNS] = std::array::from_fn(|_| count.clone());
    columns.prop_map(Counts::of_columns)
}

fn any_tally() -> impl Strategy<Value = Tally> {
    (any_counts(), any_counts()).prop_map(|(counts, late)| Tally { counts, late })
}

fn any_identity() -> impl Strategy<Value = Identity> {
    let role = select(vec![Role::Client, Role::Aggregator]);
    (any::<u128>(), NAME, NAME, NAME, role).prop_map(|(instance, name, service, zone, role)| {
        Identity {
            instance: InstanceId(instance),
            name: Name::new(&name).unwrap(),
            service: Name::new(&service).unwrap(),
            zone: Zone::new(&zone).unwrap(),
            role,
        }
    })
}

fn claim(generation: u64) -> KillClaim {
    let [service, name] = ["shop", "host:1"].map(|name| Name::new(name).unwrap());
    KillClaim {
        generation: KillGeneration(generation),
        zone: Zone::new("a").unwrap(),
        service,
        name,
    }
}

fn tail(bins: &BTreeMap<usize, u32>, number: u32) -> Tail {
    let mut traffic = vec![0.0; if bins.is_empty() { 0 } else { RateBin::COUNT }];
    bins.iter()
        .for_each(|(at, milli)| traffic[*at] = f64::from(*milli) / 1e3);
    let number = f64::from(number);
    let established = Demand {
        bins: traffic,
        uncounted: number / 1e3,
        mean: number / 1e6,
    };
    Tail {
        established,
        new: Demand {
            uncounted: number / 1e3,
            ..Demand::default()
        },
        names: number as u32,
    }
}

fn any_definition() -> impl Strategy<Value = KeyDefinition> {
    (
        any_bucket(),
        any_tenant(),
        any_counts(),
        any_counts(),
        any::<bool>(),
    )
        .prop_map(|(bucket, tenant, base, sent, continues)| KeyDefinition {
            key: Key { bucket, tenant },
            base,
            sent,
            continues,
        })
}

fn any_report() -> impl Strategy<Value = Report> {
    let head = (option::of(any_identity()), option::of(0..=MICROS_MAX));
    let claims = (
        option::of(1..=u64::MAX),
        any::<u64>(),
        any::<u32>(),
        any::<bool>(),
    );
    let path = vec(any::<u128>().prop_map(InstanceId), 0..=2 * Path::IDS_MAX);
    let path = path.prop_map(Path);
    let subscriptions = btree_set(any_bucket(), 0..4);
    let holds = btree_map(any_bucket(), any_rate(), 0..4);
    let established = vec((any_bucket(), any_tenant()), 0..4);
    let bins = btree_map(0..RateBin::COUNT, 1..1_000_000u32, 0..6);
    let tails = btree_map(any_bucket(), (bins, 0..1_000_000u32), 0..3);
    (
        head,
        claims,
        path,
        subscriptions,
        (holds, established, tails),
    )
        .prop_map(
            |(
                (identity, micros),
                (epoch, kill, children, leaving),
                path,
                subscriptions,
                (holds, established, tails),
            )| Report {
                names: ReportedNames {
                    limited: established
                        .iter()
                        .map(|(bucket, tenant)| {
                            let key = Key {
                                bucket: bucket.clone(),
                                tenant: tenant.clone(),
                            };
                            (key, Rate::new(3.5).unwrap())
                        })
                        .collect(),
                    callers: established
                        .iter()
                        .zip(1..)
                        .map(|((bucket, tenant), number)| {
                            let key = Key {
                                bucket: bucket.clone(),
                                tenant: tenant.clone(),
                            };
                            (key, Rate::new(f64::from(number) + 0.25).unwrap())
                        })
                        .collect(),
                    asked: established
                        .iter()
                        .map(|(_, tenant)| tenant.clone())
                        .collect(),
                    tails: tails
                        .into_iter()
                        .map(|(bucket, (bins, number))| {
                            let tenant = match number % 2 {
                                0 => Tenant::default_class(),
                                _ => Tenant::class_of_plan("free").unwrap(),
                            };
                            (Key { bucket, tenant }, tail(&bins, number))
                        })
                        .collect(),
                },
                seq: 0,
                modes: holds
                    .keys()
                    .map(|bucket| (bucket.clone(), mode(kill)))
                    .collect(),
                greeting: Greeting {
                    version: identity.as_ref().map(|it: &Identity| it.name.clone()),
                    identity,
                    established: established
                        .into_iter()
                        .map(|(bucket, tenant)| Key { bucket, tenant })
                        .collect(),
                    holds,
                },
                time: micros.map(MonoTime::from_micros),
                lead: ReportedLead {
                    leader: epoch.map(|epoch| Leader {
                        epoch: Epoch(epoch),
                        instance: Some(InstanceId(epoch.into())),
                    }),
                    age: epoch.map(|epoch| Duration::from_millis(epoch / 3)),
                    other: epoch.map(|epoch| Leader {
                        epoch: Epoch(epoch),
                        instance: leaving.then_some(InstanceId(kill.into())),
                    }),
                },
                kills: KillNews {
                    fleet: KillGeneration(kill),
                    buckets: [(Bucket::new("killed").unwrap(), KillGeneration(kill))].into(),
                    orders: orders(kill),
                    drill: Drill(kill / 2),
                },
                kills_below: KillsBelow {
                    claims: [(Scope::Fleet, claim(kill))].into(),
                    drill: Drill(kill / 5),
                    spreads: [(
                        Zone::new("a").unwrap(),
                        Spread::of([(7, 1), (kill, 3)], kill),
                    )]
                    .into(),
                },
                children,
                clients: ClientCounts {
                    killed_locally: children / 2,
                    quota_store_down: children / 3,
                    connected: children / 3,
                },
                more: false,
                path,
                subscriptions: SubscriptionChanges {
                    ended: subscriptions.iter().take(2).cloned().collect(),
                    added: subscriptions.into_iter().collect(),
                },
                definitions: BTreeMap::new(),
                tallies: Tallies::default(),
                evidence: Evidence::default(),
                leaving,
            },
        )
}

fn mode(number: u64) -> ReportedMode {
    let modes = [
        None,
        Some(Mode::Shadow),
        Some(Mode::Canary),
        Some(Mode::Enforce),
    ];
    ReportedMode {
        directed: modes[(number % 4) as usize],
        unapplied: number as u32,
    }
}

/// One report of a stream: its head, its definitions, which may reuse an id, and the increase of some counts.
type Step = (
    Report,
    Vec<(Option<Index>, KeyDefinition)>,
    Vec<(Index, Tally)>,
);

fn any_step() -> impl Strategy<Value = Step> {
    let definitions = vec(
        (option::weighted(0.2, any::<Index>()), any_definition()),
        0..8,
    );
    (
        any_report(),
        definitions,
        vec((any::<Index>(), any_tally()), 0..20),
    )
}

/// Generates the reports of one stream. Ids are defined and reused along the way; counts only grow.
pub(in crate::tests) fn any_stream() -> impl Strategy<Value = Vec<Report>> {
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

pub(super) fn any_evidence() -> impl Strategy<Value = Evidence> {
    let cohort = (
        any_bucket(),
        select(vec![Mode::Shadow, Mode::Canary, Mode::Enforce]),
        any::<bool>(),
    );
    let bins = vec((0..BINS as u16, 1..u64::MAX / 64), 0..9);
    let outcomes = (any::<[u64; 5]>(), bins).prop_map(|(numbers, bins)| {
        let mut latency = Histogram::default();
        bins.into_iter()
            .for_each(|(bin, count)| latency.add(Bin::new(bin).unwrap(), count));
        let [offered, refused, would_dropped, failed, unobserved] = numbers;
        let instances = offered as u32;
        Outcomes {
            offered,
            refused,
            would_dropped,
            failed,
            unobserved,
            latency,
            instances,
        }
    });
    vec((cohort, outcomes), 0..5).prop_map(|all| {
        let mut evidence = Evidence::default();
        for ((bucket, mode, canary), outcomes) in all {
            let side = if canary { Side::Canary } else { Side::Control };
            evidence.put(CohortKey { bucket, mode, side }, outcomes);
        }
        evidence
    })
}
