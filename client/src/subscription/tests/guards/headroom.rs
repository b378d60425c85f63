//! Headroom pools: bursts that fit below the limit pass, tokens follow the directive, and keys at their tenant
//! limit take none.

use plimsoll_core::decision::token_bucket::TokenCount;
use plimsoll_core::directive::{Headroom, PoolDepth, ZonePool};
use plimsoll_core::law::{Guard, parameters};
use proptest::prelude::*;

use super::super::*;
use super::{TICK, depth, guard, shared_by, stopped};
use crate::hot::decision::Part;

fn pool(shared: Option<f64>, offered: f64) -> ZonePool {
    ZonePool {
        rate: shared.map_or(Headroom::None, |shared| Headroom::Shared(rate(shared))),
        offered: rate(offered),
        depth: PoolDepth::nearest(12.0),
        burst: TokenCount::new(60.0),
    }
}

fn pooled(clients: u32, mode: Mode, pool: impl Into<Option<ZonePool>>) -> Terms {
    Terms {
        pool: pool.into(),
        ..shared_by(clients, mode)
    }
}

fn pool_depth(pool: &ZonePool, clients: u32) -> u64 {
    Guard::pool(pool, None, clients, TokenCount::NONE)
        .depth
        .whole()
}

#[test]
fn headroom_lets_a_quarter_limit_burst_pass() {
    // A limit of 240 requests/s. Two clients use a quarter; one of them gets 30 in one burst.
    let burst = |pool: Option<ZonePool>| {
        let mut client = TestClient::new();
        client.run("acme", 20, |_| 0);
        client.direct(
            pooled(2, Mode::Enforce, pool),
            &[("default", guard(90.0, 60.0))],
        );
        (0..30).filter(|_| client.admit("acme").is_admit()).count()
    };
    assert!(burst(None) < 20, "{} of 30 by the guard alone", burst(None));
    assert_eq!(burst(Some(pool(None, 60.0))), burst(None), "no headroom");
    assert_eq!(burst(Some(pool(Some(180.0), 60.0))), 30);
}

#[test]
fn keys_share_one_headroom_pool() {
    let mut client = TestClient::new();
    client.table.declare("other").unwrap();
    client.subscription.report(client.now);
    let zone = pool(Some(180.0), 60.0);
    let own = guard(0.0, 1e9);
    let keys = [("acme", own), ("default", own), ("stopped", stopped(own))];
    let mut message = client.message(pooled(1, Mode::Enforce, zone), &keys);
    let other = BucketDirective {
        bucket: Bucket::new("other").unwrap(),
        ..message.buckets[0].clone()
    };
    message.buckets.push(other);
    client.receive(message).unwrap();
    let guard_alone = depth(0.0) as u64;
    assert_eq!(u64::from(client.drain("stopped")), guard_alone);
    assert_eq!(
        u64::from(client.drain("acme")),
        guard_alone + pool_depth(&zone, 1)
    );
    assert_eq!(
        u64::from(client.drain("stranger")),
        guard_alone,
        "acme has used the pool"
    );
    let of_other = (0..1_000)
        .filter(|_| client.admit_in("other", "acme").is_admit())
        .count() as u64;
    assert_eq!(
        of_other,
        guard_alone + pool_depth(&zone, 1),
        "another bucket has another pool"
    );
    // A key that is not stopped anymore draws on the pool, with the tokens that are left.
    client.run("stopped", 100, |_| 0);
    let freed = Values {
        at_tenant_limit: Some(false),
        ..own
    };
    client.direct(
        pooled(1, Mode::Enforce, zone),
        &[("default", own), ("stopped", freed)],
    );
    assert!(u64::from(client.drain("stopped")) > guard_alone);
}

#[test]
fn headroom_tokens_vanish_and_return_with_time() {
    let mut client = TestClient::new();
    let zone = pool(Some(180.0), 60.0);
    let keys = [("default", guard(0.0, 1e9))];
    let guard_alone = depth(0.0) as u64;
    client.direct(pooled(1, Mode::Enforce, zone), &keys);
    // The thread holds a batch of the pool.
    (0..=guard_alone).for_each(|_| assert!(client.admit("acme").is_admit()));
    client.direct(pooled(1, Mode::Enforce, pool(None, 60.0)), &keys);
    assert_eq!(client.drain("acme"), 0);
    client.run("acme", 10, |_| 0);
    assert_eq!(client.drain("acme"), 0, "no rate either");
    client.direct(pooled(1, Mode::Enforce, zone), &keys);
    assert_eq!(client.drain("acme"), 0, "a directive adds no tokens");
    client.direct(pooled(1, Mode::Enforce, None), &keys);
    client.run("acme", 10, |_| 0);
    let back = client.drain("acme");
    assert!(
        (8..=10).contains(&back),
        "{back} in 0.1 s at 90 requests/s: a pool left out is unchanged"
    );
}

#[test]
fn pool_adds_nothing_to_a_cold_rate() {
    let mut client = TestClient::new();
    let zone = pool(Some(180.0), 60.0);
    client.subscription.set_cold_rate(api(), Rate::ZERO);
    client.direct(pooled(1, Mode::Enforce, zone), &[("default", ratio(None))]);
    assert_eq!(client.drain("acme"), 0);
    client.direct(
        pooled(1, Mode::Enforce, zone),
        &[("default", guard(0.0, 1e9))],
    );
    assert_eq!(u64::from(client.drain("acme")), pool_depth(&zone, 1));
}

#[test]
fn pool_grows_to_the_largest_group() {
    let mut client = TestClient::new();
    client.run("acme", 20, |_| 0);
    let zone = ZonePool {
        burst: TokenCount::NONE,
        ..pool(Some(1_200.0), 0.0)
    };
    let terms = Terms {
        limit: Limit::PerSecond(rate(1_000.0)),
        ..pooled(10, Mode::Enforce, zone)
    };
    client.direct(terms, &[("default", guard(0.0, 1e9))]);
    let group = |tick: u32| if tick == 100 { 50 } else { 0 };
    let passed = [(); 3].map(|()| client.run("acme", 100, group));
    assert!(passed[0] < 40 && passed[2] == 50, "{passed:?} of 50");
}

fn granted(tokens: f64) -> (TestClient, u64) {
    let mut client = TestClient::new();
    let zone = ZonePool {
        depth: PoolDepth::MIN,
        ..pool(Some(20.0), 60.0)
    };
    client.direct(
        pooled(10, Mode::Enforce, zone),
        &[("default", guard(0.0, 1e9))],
    );
    let message = client.message(
        pooled(10, Mode::Enforce, zone),
        &[("default", guard(0.0, 1e9))],
    );
    let grants = [("api", tokens), ("unknown", 9.0)];
    let grants =
        grants.map(|(bucket, tokens)| (Bucket::new(bucket).unwrap(), TokenCount::new(tokens)));
    client
        .receive(Directives {
            grants: grants.into(),
            ..message
        })
        .unwrap();
    (client, depth(0.0) as u64 + pool_depth(&zone, 10))
}

#[test]
fn granted_tokens_pass_once() {
    for (tokens, passes) in [(0.0, 0), (12.0, 12), (25.0, 25), (1e9, 25)] {
        let (mut client, own) = granted(tokens);
        assert_eq!(
            u64::from(client.drain("acme")),
            own + passes,
            "{tokens} granted"
        );
        client.run("acme", 5_000, |_| 0);
        assert!(u64::from(client.drain("acme")) <= own, "{tokens} granted");
    }
}

#[test]
fn granted_tokens_lapse_unused() {
    let steps = |span: Duration| (span.as_millis() / TICK.as_millis()) as u32;
    let lapse = steps(parameters::GRANT_LAPSE);
    for (ticks, passes) in [(0, 20), (lapse - 1, 20), (lapse + 2, 0)] {
        let (mut client, own) = granted(20.0);
        client.run("acme", ticks, |_| 0);
        let left = u64::from(client.drain("acme"));
        assert!(
            (own + passes..=own + passes + 1).contains(&left),
            "{left} after {ticks} ticks"
        );
    }
    let (mut client, _) = granted(20.0);
    let keys = [("default", guard(0.0, 1e9))];
    client.direct(pooled(10, Mode::Enforce, pool(None, 60.0)), &keys);
    assert_eq!(u64::from(client.drain("acme")), depth(0.0) as u64);
    client.direct(pooled(10, Mode::Enforce, pool(Some(20.0), 60.0)), &keys);
    assert_eq!(client.drain("acme"), 0, "a directive brings none back");
}

#[test]
fn uncounted_requests_use_the_pool() {
    let mut client = TestClient::new();
    let zone = pool(Some(180.0), 60.0);
    client.direct(
        pooled(1, Mode::Enforce, zone),
        &[("default", guard(0.0, 1e9)), ("none", ratio(1.0))],
    );
    let target = |client: &TestClient, tenant| client.table.target_by_names("api", tenant).unwrap();
    let both = [target(&client, "acme"), target(&client, "jo")];
    let decide = |client: &mut TestClient, tenants: &[usize]| {
        let counters = client.table.counters.current_thread();
        let ctx = DecideCtx {
            counters,
            draws: &mut client.draws,
        };
        match tenants {
            [one] => client.table.decide(both[*one], ctx).is_admit(),
            _ => client
                .table
                .decide_parts(&mut both.map(|target| Part::new(target, 1)), None, ctx)
                .0
                .is_admit(),
        }
    };
    let all = depth(0.0) as u64 + pool_depth(&zone, 1);
    // Each takes two tokens; the last token is taken once, and returned when the other key finds none.
    let passed = (0..1_000).filter(|_| decide(&mut client, &[0, 1])).count() as u64;
    assert_eq!(passed, all / 2);
    let rest = (0..1_000).filter(|_| decide(&mut client, &[0])).count() as u64;
    assert_eq!(rest, all % 2);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn passes_stay_within_depths_and_refills(
        shared in 0.0..5_000.0f64, factor in 1.0..12.0f64, burst in 0.0..500.0f64,
        offered in prop::collection::vec(0..300u32, 1..100),
    ) {
        let mut client = TestClient::new();
        let zone = ZonePool {
            depth: PoolDepth::nearest(factor),
            burst: TokenCount::new(burst),
            // One client with hardly any of the zone's traffic gets the even half.
            ..pool(Some(shared), 1e12)
        };
        client.direct(pooled(1, Mode::Enforce, zone), &[("default", guard(0.0, 1e12))]);
        let most = Guard::pool(&zone, Some(Rate::ZERO), 1, TokenCount::NONE);
        let ticks = offered.len() as u32;
        let passed = f64::from(client.run("acme", ticks, |tick| offered[tick as usize - 1]));
        let refills = most.rate.per_second() * TICK.as_secs_f64() * f64::from(ticks);
        prop_assert!(passed <= depth(0.0) + most.depth.as_f64() + refills + 0.01);
    }
}
