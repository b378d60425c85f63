//! The division between tenants: weights, floors, tenant limits, and invented names. Boosts, rows of a catalogue and exact quotas of
//! tenants.

mod boosts;
mod catalogue;
mod definitions;
mod quotas;
mod why;

use std::collections::BTreeSet;

use super::*;
use plimsoll_core::decision::Mode;
use plimsoll_core::law::tail::{Bin, Demand, Tail};
use plimsoll_core::names::KeyId;
use plimsoll_core::report::{Counts, KeyDefinition, Ledger, SubscriptionChanges};

const WEIGHTS: &str = "gold: { weight: 4 }, plain: { weight: 1 }, free: { weight: 0.25 }";

fn tenants(listed: &str, floor: u32) -> String {
    format!(
        "tenants: {{ default: {{ weight: 1 }}, {listed} }}\nfairness: {{ min_floor_rps: {floor} }}\n"
    )
}

fn steady(policy: Arc<Policy>, offered: &[(&str, f64)]) -> Fleet {
    let mut zones = vec![
        Scripted::new("a", 1),
        Scripted::new("b", 2),
        Scripted::new("c", 3),
    ];
    for (zone, part) in zones.iter_mut().zip([0.5, 0.3, 0.2]) {
        for (name, rps) in offered {
            zone.offers(name, rps * part);
        }
    }
    let mut fleet = Fleet::new(policy, zones);
    fleet.run(30.0);
    fleet
}

#[test]
fn traffic_without_a_limit_is_shown() {
    for limit in ["unlimited", "{ learned: { percentile: 95 } }"] {
        let policy = enforced_with("").replace("limit: 1000", &format!("limit: {limit}"));
        let fleet = steady(
            policy_of(&policy, &tenants(WEIGHTS, 0)),
            &[("plain", 2000.0), ("free", 100.0)],
        );
        check_near(fleet.bucket_status().traffic.offered_rps, 2_100.0, 100.0);
    }
}

fn tail(names: u32, rate: f64) -> Tail {
    let mut bins = vec![0.0; Bin::COUNT];
    bins[Bin::of(rate).index()] = f64::from(names) * rate;
    Tail {
        established: Demand {
            bins,
            ..Demand::default()
        },
        names,
        ..Tail::default()
    }
}

#[test]
fn unlisted_names_share_one_default_level() {
    let policy = policy_of(&enforced_with(""), &tenants("acme: { weight: 1 }", 0));
    let mut zones = vec![Scripted::new("a", 1), Scripted::new("b", 2)];
    // Ten heavy names in one zone, and as many requests of a hundred light ones in the other.
    zones[0].offers("default", 1_000.0);
    zones[1].offers("default", 1_000.0);
    zones[0].offers("acme", 1_000.0);
    (zones[0].tail, zones[1].tail) = (Some(tail(10, 100.0)), Some(tail(100, 10.0)));
    let mut fleet = Fleet::new(policy, zones);
    fleet.run(30.0);
    // A share for each of them would leave 9 requests/s to acme.
    check_near(fleet.passing(20.0, &["acme"])[0], 500.0, 25.0);
    let rates = [0, 1].map(|zone: usize| fleet.zones[zone].rate("default").unwrap());
    let levels = [rates[0] / 10.0, rates[1] / 100.0];
    assert!((levels[0] / levels[1] - 1.0).abs() < 0.05, "{levels:?}");
    check_near(rates.iter().sum(), 500.0, 25.0);
}

#[test]
fn unlisted_floors_hold_half_the_limit() {
    for (names, floor, due) in [(20, 20, 400.0), (100, 20, 500.0), (20, 0, 10.0)] {
        let policy = policy_of(&enforced_with(""), &tenants("acme: { weight: 100 }", floor));
        let mut zone = Scripted::new("a", 1).offering("acme", 3_000.0);
        zone.offers("default", f64::from(names) * 20.0);
        zone.tail = Some(tail(names, 20.0));
        let mut fleet = Fleet::new(policy, vec![zone]);
        fleet.run(30.0);
        let passing = fleet.passing(20.0, &["default"])[0];
        assert!(
            (passing / due - 1.0).abs() < 0.05,
            "{names} with {floor}: {passing}"
        );
    }
}

#[test]
fn entitlements_for_holds_are_sent_to_aggregators() {
    let policy = policy_of(&enforced_with(""), &tenants(WEIGHTS, 5));
    let fleet = steady(policy, &[("gold", 3000.0), ("stranger", 100.0)]);
    for (name, weight) in [("gold", 4.0), ("free", 0.25), ("default", 1.0)] {
        let entitlement = fleet.zones[0].values(name).unwrap().entitlement.unwrap();
        let sent = (entitlement.weight.get(), entitlement.floor.per_second());
        assert_eq!(sent, (weight, 5.0), "{name}");
    }
}

#[test]
fn changed_tenants_file_takes_effect_at_once() {
    let policy = policy_of(&enforced_with(""), &tenants(WEIGHTS, 0));
    let mut fleet = steady(policy, &[("gold", 2000.0), ("plain", 2000.0)]);
    check_near(fleet.zones[0].ratio("gold").unwrap(), 0.6, 0.01);
    fleet.brain.on_policy(policy_of(
        &enforced_with(""),
        &tenants("plain: { weight: 4 }, gold: { weight: 1 }", 0),
    ));
    fleet.run(1.0);
    check_near(fleet.zones[0].ratio("gold").unwrap(), 0.9, 0.02);
    check_near(fleet.zones[0].ratio("plain").unwrap(), 0.6, 0.02);
}

#[test]
fn evicted_tenant_is_added_on_return() {
    let policy = policy_of(&enforced_with(""), &tenants(WEIGHTS, 0));
    let zone = Scripted::new("a", 1)
        .offering("gold", 50.0)
        .offering("passing", 400.0)
        .offering("free", 1.0);
    let mut fleet = Fleet::new(policy, vec![zone]);
    fleet.run(20.0);
    let known = |fleet: &Fleet| -> Vec<String> {
        let keys = fleet.brain.keys.totals();
        let names: BTreeSet<_> = keys.map(|(key, _)| key.tenant.to_string()).collect();
        names.into_iter().collect()
    };
    let counted = |fleet: &Fleet| -> u64 {
        let keys = fleet.brain.keys.totals();
        keys.map(|(_, tally)| tally.counts.offered).sum()
    };
    assert_eq!(known(&fleet), ["default", "free", "gold", "passing"]);
    for name in ["passing", "free"] {
        fleet.zones[0].offers(name, 0.0);
    }
    fleet.run(590.0);
    assert_eq!(
        known(&fleet),
        ["default", "free", "gold", "passing"],
        "not idle for long enough"
    );
    fleet.run(80.0);
    assert_eq!(
        known(&fleet),
        ["default", "free", "gold"],
        "a listed tenant stays"
    );
    let before = counted(&fleet);
    assert_eq!(before, 20 * 401 + 690 * 50);

    fleet.zones[0].offers("another", 10.0);
    fleet.run(20.0);
    fleet.zones[0].offers("passing", 400.0);
    fleet.run(20.0);
    assert_eq!(
        known(&fleet),
        ["another", "default", "free", "gold", "passing"]
    );
    assert_eq!(counted(&fleet) - before, 40 * 50 + 40 * 10 + 20 * 400);
}

fn named(name: &str) -> Bucket {
    Bucket::new(name).unwrap()
}

fn junk(numbers: std::ops::Range<usize>) -> Vec<Bucket> {
    numbers
        .map(|number| named(&format!("junk/{number}")))
        .collect()
}

fn asking(aggregator: &Scripted, seq: u64, subscriptions: Vec<Bucket>) -> Report {
    let identity = (seq == 1).then(|| aggregator.identity.clone());
    Report {
        seq,
        greeting: identity.into(),
        subscriptions: subscriptions.into(),
        ..Report::default()
    }
}

/// Enters a report of names that an aggregator asks for.
fn ask(brain: &mut Brain, ms: u64, aggregator: &Scripted, seq: u64, names: Vec<Bucket>) {
    let report = asking(aggregator, seq, names);
    brain.on_report(at(ms), aggregator.stream, report).unwrap();
}

fn started(policy: Arc<Policy>) -> Brain {
    Fleet::new(policy, Vec::new()).brain
}

fn patterned() -> Brain {
    started(policy(
        "buckets: { b: { limit: 5 }, '*': { limit: 5 } }\nrollout: { require_gates: false }\n",
    ))
}

fn is_sent(brain: &mut Brain, now: MonoTime, stream: StreamId, bucket: &Bucket) -> bool {
    let message = brain.message(now, stream).unwrap();
    message
        .updates()
        .any(|update| update.directive().bucket == *bucket)
}

#[test]
fn junk_buckets_never_block_later_ones() {
    for pattern in ["", "'*': { limit: 5 }, "] {
        let with = |more: &str| {
            policy(&format!(
                "buckets: {{ {pattern}{more} }}\nrollout: {{ require_gates: false }}\n"
            ))
        };
        let mut brain = started(with(""));
        for number in 0..3 {
            let hostile = Scripted::new(&format!("evil{number}"), number + 10);
            let from = number as usize * 10_000;
            ask(&mut brain, 0, &hostile, 1, junk(from..from + 6_000));
        }
        assert!(brain.buckets.states.len() <= 10_000);
        assert!(brain.buckets.no_room.count + brain.buckets.unlisted.count >= 10_000);
        let late: String = (0..200)
            .map(|number| format!("late{number}: {{ limit: 1, mode: enforce }}, "))
            .collect();
        brain.on_policy(with(&late));
        save(&mut brain);
        let honest = Scripted::new("a", 1);
        ask(&mut brain, 10, &honest, 1, vec![]);
        save(&mut brain);
        let message = brain.message(at(10), honest.stream).unwrap();
        let sent = message.updates().filter(|update| {
            let terms = &update.directive().terms;
            terms.named && terms.limit.per_second().is_some() && terms.mode == Mode::Enforce
        });
        assert_eq!(sent.count(), 200, "each is enforced");
    }
}

#[test]
fn one_aggregator_leaves_room_for_the_others() {
    let mut brain = patterned();
    let (hostile, honest) = (Scripted::new("evil", 1), Scripted::new("a", 2));
    ask(&mut brain, 0, &hostile, 1, junk(0..10_000));
    ask(&mut brain, 0, &hostile, 2, junk(10_000..20_000));
    assert_eq!(brain.buckets.states.len(), 1 + 2_500);
    ask(&mut brain, 10, &honest, 1, vec![named("orders")]);
    save(&mut brain);
    assert!(is_sent(&mut brain, at(10), honest.stream, &named("orders")));
}

#[test]
fn names_that_are_given_up_make_room() {
    let mut brain = patterned();
    let evil = Scripted::new("evil", 1);
    for round in 0..4 {
        let names = |round: usize| junk(round * 2_500..(round + 1) * 2_500);
        let unsubscriptions = if round == 0 {
            Vec::new()
        } else {
            names(round - 1)
        };
        let mut next = asking(&evil, 1 + round as u64, names(round));
        next.subscriptions.ended = unsubscriptions;
        brain
            .on_report(at(round as u64), evil.stream, next)
            .unwrap();
    }
    assert_eq!(
        (brain.buckets.states.len(), brain.buckets.room()),
        (1 + 5_000, 0)
    );
    brain.on_tick(at(700_000), 0);
    let honest = Scripted::new("a", 2);
    ask(&mut brain, 700_100, &honest, 1, vec![named("orders")]);
    assert!(brain.buckets.states.contains_key(&named("orders")));
}

#[test]
fn unlisted_name_is_answered_with_the_nearest() {
    let mut brain = started(enforced());
    let zone = Scripted::new("a", 1);
    let known = brain.policy().exact_buckets().next().unwrap().0.to_string();
    let meant = named(&format!("{known}s"));
    let names = junk(0..10_000).into_iter().chain([meant.clone()]);
    ask(&mut brain, 0, &zone, 1, names.collect());
    assert_eq!(
        (
            brain.buckets.states.len(),
            brain.buckets.unlisted.iter().count()
        ),
        (1, 64)
    );
    assert_eq!(brain.buckets.unlisted.count, 10_001);
    brain.on_tick(at(500), 0);
    save(&mut brain);
    let message = brain.message(at(500), zone.stream).unwrap();
    let answer = message
        .updates()
        .find(|update| update.directive().bucket == meant)
        .unwrap();
    let answer = answer.directive().terms.unlisted.unwrap();
    assert_eq!(answer.nearest(), Some(known.as_str()));
    // A policy that covers it from now on sends it to the aggregator that asked.
    let covers = "buckets: { 'junk/*': { limit: 5 } }\nrollout: { require_gates: false }\n";
    brain.on_policy(policy(covers));
    assert!(brain.buckets.states.contains_key(&junk(9_999..10_000)[0]));
}

#[test]
fn junk_names_leave_room_for_pattern_matches() {
    let patterned =
        policy("buckets: { 'api/*': { limit: 5 } }\nrollout: { require_gates: false }\n");
    let mut brain = started(patterned);
    let zone = Scripted::new("a", 1);
    ask(&mut brain, 0, &zone, 1, junk(0..10_000));
    let covered: Vec<Bucket> = (0..2_500)
        .map(|number| named(&format!("api/{number}")))
        .collect();
    ask(&mut brain, 1, &zone, 2, covered.clone());
    let is_known = |bucket: &Bucket| brain.buckets.states.contains_key(bucket);
    assert!(covered.iter().all(is_known));
    let mut without_room = brain.buckets.no_room.iter();
    assert!(!without_room.any(|(bucket, _)| bucket.as_str().starts_with("api/")));
}

#[test]
fn idle_asked_buckets_return_with_new_counts() {
    let mut brain = patterned();
    let (zone, other) = (Scripted::new("a", 1), named("other"));
    ask(&mut brain, 0, &zone, 1, junk(0..100));
    save(&mut brain);
    let key = Key {
        bucket: other.clone(),
        tenant: Tenant::default_class(),
    };
    let mut seq = 1;
    let mut offered = 0;
    for round in 0..3_u64 {
        let from = round * 1_000_000;
        for step in 0..3 {
            offered += 10;
            seq += 1;
            let now = at(from + 1_000 * step);
            let of = |offered| Counts {
                offered,
                ..Counts::ZERO
            };
            let definition = KeyDefinition {
                key: key.clone(),
                base: of(offered - 10),
                sent: of(offered - 10),
                continues: false,
            };
            let tally = Tally {
                counts: of(offered),
                late: Counts::ZERO,
            };
            let definition = (step == 0).then_some((KeyId(round as u32), definition));
            let report = Report {
                time: Some(now),
                definitions: definition.into_iter().collect(),
                tallies: [(KeyId(round as u32), tally)].into_iter().collect(),
                ..asking(&zone, seq, vec![])
            };
            brain.on_report(now, zone.stream, report).unwrap();
            brain.on_tick(now, 0);
        }
        let (_, tally) = brain.keys.totals().find(|(of, _)| **of == key).unwrap();
        assert_eq!(tally.counts.offered, 30, "{round}");
        save(&mut brain);
        assert!(is_sent(&mut brain, at(from + 2_000), zone.stream, &other));
        seq += 1;
        let unsubscriptions = junk(0..100).into_iter().chain([other.clone()]).collect();
        let given_up = Report {
            subscriptions: SubscriptionChanges {
                ended: unsubscriptions,
                ..SubscriptionChanges::default()
            },
            ..asking(&zone, seq, vec![])
        };
        brain
            .on_report(at(from + 2_500), zone.stream, given_up)
            .unwrap();
        for step in 1..80 {
            brain.on_tick(at(from + 10_000 * step), 0);
        }
        assert_eq!(
            brain.buckets.states.len(),
            1,
            "only the bucket of the policy is left"
        );
        assert_eq!(brain.keys.iter().count(), 1);
    }
}

#[test]
fn subscribed_bucket_stays() {
    let mut brain = patterned();
    let zone = Scripted::new("a", 1);
    for step in 0..100 {
        let names = if step == 0 { junk(0..2) } else { Vec::new() };
        ask(&mut brain, step * 30_000, &zone, step + 1, names);
        brain.on_tick(at(step * 30_000), 0);
    }
    assert_eq!(brain.buckets.states.len(), 3);
    let given_up = Report {
        subscriptions: SubscriptionChanges {
            ended: junk(0..1),
            ..SubscriptionChanges::default()
        },
        ..asking(&zone, 101, vec![])
    };
    brain
        .on_report(at(3_000_000), zone.stream, given_up)
        .unwrap();
    let child = brain.downstream.sessions.by_stream(zone.stream).unwrap();
    assert!(!child.is_subscribed(&junk(0..1)[0]) && child.is_subscribed(&junk(1..2)[0]));
}

#[test]
fn invented_tenants_leave_room_for_listed_ones() {
    let of = |tenants: &str| policy_of(&enforced_with(""), tenants);
    let mut keys = Keys::new(at(0), 10);
    keys.on_policy(&of("tenants: { default: {}, listed: {} }"));
    keys.declare(&bucket());
    let key = |name: &str| Key {
        bucket: bucket(),
        tenant: tenant(name),
    };
    let mut expect = |key: &Key| {
        keys.entering().place(KeyId(0), key);
        keys.iter()
            .map(|(_, key)| key.clone())
            .collect::<Vec<Key>>()
    };
    let many = (0..100)
        .map(|number| expect(&key(&format!("invented{number}"))))
        .last();
    assert_eq!(many.map(|keys| keys.len()), Some(10));
    assert!(expect(&key("listed")).contains(&key("listed")));
    let unknown = Key {
        bucket: named("unknown"),
        tenant: tenant("listed"),
    };
    assert_eq!(
        expect(&unknown).len(),
        11,
        "a bucket without room has no keys"
    );
}

#[test]
fn connected_aggregator_is_posted_its_answers() {
    let text = format!(
        "buckets: {{ {}: {{ limit: 5 }}, '*': {{ limit: 5 }} }}\n",
        bucket()
    );
    let mut fleet = Fleet::new(policy(&text), Vec::new());
    let of = |fleet: &Fleet, zone: &Scripted| -> Vec<Bucket> {
        let place = (zone.identity.zone.clone(), zone.identity.name.clone());
        let aggregator = fleet.brain.downstream.aggregators.get(&place).unwrap();
        let posted = aggregator.board.iter();
        posted.map(|(bucket, _)| bucket.clone()).collect()
    };
    let (asker, other) = (Scripted::new("a", 1), Scripted::new("b", 2));
    let asked = Bucket::new("asked").unwrap();
    ask(&mut fleet.brain, 0, &asker, 1, vec![asked.clone()]);
    ask(&mut fleet.brain, 0, &other, 1, Vec::new());
    assert_eq!(of(&fleet, &asker), [bucket(), asked.clone()]);
    assert_eq!(of(&fleet, &other), [bucket()]);
    let later = asking(&other, 2, vec![asked.clone()]);
    let answered = fleet.brain.on_report(at(10), other.stream, later);
    assert!(answered.unwrap(), "the streams are woken");
    assert_eq!(
        of(&fleet, &other),
        [bucket(), asked],
        "at once, although the bucket is known"
    );

    fleet.brain.on_close(at(20), other.stream);
    fleet.brain.on_tick(at(500), 0);
    assert_eq!(of(&fleet, &other), []);
    assert_eq!(of(&fleet, &asker).len(), 2);
}
