//! The counts match the verdicts under any sequence of directives, kills and requests.

use super::*;
use proptest::prelude::*;

const TENANTS: [&str; 4] = ["acme", "globex", "default", "stranger"];

#[derive(Clone, Debug)]
enum Step {
    Direct(Box<(Terms, Option<Values>, Values)>),
    Kill,
    Ask { tenant: usize, times: u32 },
    Tick,
    Report,
}

fn values() -> impl Strategy<Value = Values> {
    let share = prop_oneof![Just(0.0), Just(1.0), 0.0..1.0f64];
    (
        prop::option::of(share),
        prop::option::of(0.0..2_000.0f64),
        prop::option::of(0.0..2_000.0f64),
    )
        .prop_map(|(share, guard, offered)| Values {
            guard: guard.map(rate),
            offered: offered.map(rate),
            ..ratio(share)
        })
}

fn terms() -> impl Strategy<Value = Terms> {
    let limit = prop_oneof![
        Just(Limit::Unknown),
        Just(Limit::PerSecond(Rate::ZERO)),
        Just(Limit::PerSecond(rate(100.0)))
    ];
    let mode = prop::sample::select(vec![Mode::Shadow, Mode::Canary, Mode::Enforce]);
    let coin = prop::sample::select(vec![Coin::Dithered, Coin::Coherent]);
    (limit, mode, coin, prop::option::of(0..9u32), 0.0..=100.0f64).prop_map(
        |(limit, mode, coin, clients, percent)| {
            let cohort = Cohort {
                percent: Percent::new(percent).unwrap(),
                salt: 1,
            };
            Terms {
                limit,
                mode,
                coin,
                clients,
                cohort,
                ..Terms::default()
            }
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (terms(), prop::option::of(values()), values())
            .prop_map(|directed| Step::Direct(Box::new(directed))),
        1 => Just(Step::Kill),
        6 => (0..TENANTS.len(), 1..200u32).prop_map(|(tenant, times)| Step::Ask { tenant, times }),
        4 => Just(Step::Tick),
        2 => Just(Step::Report),
    ]
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Verdicts {
    offered: u64,
    refused: u64,
}

proptest! {
    #[test]
    fn every_request_counts_once_as_decided(steps in prop::collection::vec(step(), 1..60)) {
        let mut client = TestClient::new();
        let mut verdicts = [Verdicts::default(); TENANTS.len()];
        let (mut may_refuse, mut may_guard) = (false, false);
        for step in steps {
            let before = client.counts();
            match step {
                Step::Direct(directed) => {
                    let (terms, acme, default) = *directed;
                    let keys: Vec<_> =
                        acme.into_iter().map(|acme| ("acme", acme)).chain([("default", default)]).collect();
                    client.direct(terms.clone(), &keys);
                    let api = api();
                    let posted = client.subscription.directives.get(&api).unwrap();
                    let enforces = client.subscription.enforcement.stance(&api, posted).enforces("acme");
                    may_refuse = enforces && terms.limit != Limit::Unknown;
                    may_guard = terms.clients.is_some() && terms.limit != Limit::Unknown;
                }
                Step::Kill => {
                    let kill = KillGeneration(client.subscription.enforcement.kills.fleet().0 / 2 * 2 + 1);
                    let message = Directives {
            kills: kill.into(), ..Directives::default() };
                    // Without an epoch only the kill applies.
                    let _ = client.receive(message);
                    may_refuse = false;
                }
                Step::Ask { tenant, times } => {
                    for _ in 0..times {
                        verdicts[tenant].offered += 1;
                        verdicts[tenant].refused += u64::from(!client.admit(TENANTS[tenant]).is_admit());
                    }
                }
                Step::Tick => {
                    client.now = client.now + Duration::from_millis(10);
                    client.subscription.on_tick(client.now);
                }
                Step::Report => {
                    client.now = client.now + Duration::from_millis(100);
                    client.subscription.report(client.now);
                }
            }
            let counts = client.counts();
            prop_assert!(counts.is_consistent() && counts.covers(before), "{:?} after {:?}", counts, before);
            let news = counts.since(before);
            prop_assert!(may_refuse || news.refused() == 0, "{:?}", news);
            prop_assert!(may_guard || news.guarded() == 0, "{:?}", news);
            let outcomes = counts.passed() + counts.dropped + counts.guard_dropped + counts.would_dropped;
            prop_assert_eq!(outcomes, counts.offered);
        }
        let counts = client.subscription.counts();
        for (tenant, verdicts) in TENANTS.iter().zip(verdicts) {
            let key = Key { bucket: api(), tenant: Tenant::new(tenant).unwrap() };
            let counts = counts.get(&key).copied().unwrap_or_default();
            prop_assert_eq!(Verdicts { offered: counts.offered, refused: counts.refused() }, verdicts, "{}", tenant);
        }
    }
}
