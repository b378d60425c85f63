//! Tests of the relay at a tier, with scripted messages of its parent and children.

use std::time::Duration;

use super::*;
use crate::kill::{KILL_ORDERS_MAX, Kill, KillNews, KillOrder};
use crate::names::Name;
use crate::report::Echo;

const FLEET: Scope = Scope::Fleet;

fn bucket() -> Bucket {
    Bucket::new("api").unwrap()
}

fn at(ms: u64) -> MonoTime {
    MonoTime::from_elapsed(Duration::from_millis(ms))
}

fn enforce(known: u64) -> Terms {
    let kill = Kill {
        fleet: KillGeneration(known),
        ..Kill::default()
    };
    Terms {
        mode: Mode::Enforce,
        kill,
        ..Terms::default()
    }
}

fn directives(generation: u64, confirmed: u64) -> Directives {
    let echo = Echo {
        confirmed,
        ..Echo::default()
    };
    Directives {
        kills: KillGeneration(generation).into(),
        echo,
        ..Directives::default()
    }
}

fn process(instance: u128, role: Role) -> Identity {
    Identity {
        instance: InstanceId(instance),
        name: Name::new("host:1").unwrap(),
        service: Name::new("shop").unwrap(),
        zone: Zone::new("a").unwrap(),
        role,
    }
}

fn relay() -> KillRelay {
    KillRelay::new(InstanceId(9))
}

fn report(relay: &mut KillRelay, seq: u64) -> Report {
    report_at(0, relay, seq)
}

fn report_at(ms: u64, relay: &mut KillRelay, seq: u64) -> Report {
    let mut report = Report {
        seq,
        ..Report::default()
    };
    relay.fill(at(ms), &mut report);
    report
}

/// The scopes and generations of the orders in a report, by the process where they were given.
fn orders(report: &Report) -> Vec<(&Scope, u128, u64)> {
    let orders = report.kills.orders.iter();
    orders
        .map(|(id, order)| (&id.scope, id.given_at.0, order.generation.0))
        .collect()
}

/// An order for the fleet, given by this process.
fn order(given_at: u128, generation: u64) -> (OrderId, KillOrder) {
    let id = OrderId {
        scope: FLEET,
        given_at: InstanceId(given_at),
    };
    let order = KillOrder {
        generation: KillGeneration(generation),
        age: Duration::from_millis(3),
        ends_held: false,
    };
    (id, order)
}

/// Takes a report of a child with an order, as given by `given_at`, and returns true if a report is due.
fn child_order(relay: &mut KillRelay, child: &Identity, given_at: u128, generation: u64) -> bool {
    let report = Report {
        kills: KillNews {
            fleet: KillGeneration(generation),
            orders: [order(given_at, generation)].into(),
            ..KillNews::default()
        },
        ..Report::default()
    };
    relay.on_report(at(0), child, &report)
}

#[test]
fn unconfirmed_order_keeps_its_buckets_in_shadow() {
    let mut relay = relay();
    assert_eq!(
        (
            relay.order(at(0), &FLEET, true),
            relay.order(at(0), &FLEET, true)
        ),
        (Ok(true), Ok(false))
    );
    assert_eq!(relay.order(at(0), &FLEET, false), Ok(true));
    assert_eq!(relay.kills().fleet(), KillGeneration(2));
    assert_eq!(relay.mode(&bucket(), &enforce(2)), Mode::Shadow);
    let sent = report(&mut relay, 7);
    assert_eq!(
        (sent.kills.fleet, orders(&sent)),
        (KillGeneration(2), vec![(&FLEET, 9, 2)])
    );
    relay.on_directives(at(0), &directives(2, 6)).unwrap();
    assert_eq!(relay.mode(&bucket(), &enforce(2)), Mode::Shadow);
    relay.on_directives(at(0), &directives(2, 7)).unwrap();
    assert_eq!(relay.mode(&bucket(), &enforce(2)), Mode::Enforce);
    assert_eq!(relay.mode(&bucket(), &enforce(1)), Mode::Shadow);
}

#[test]
fn unconfirmed_leader_confirms_no_order() {
    let mut relay = relay();
    relay.order(at(0), &FLEET, true).unwrap();
    report(&mut relay, 1);
    let mut unconfirmed = directives(1, 1);
    unconfirmed.lead.unconfirmed = true;
    relay.on_directives(at(0), &unconfirmed).unwrap();
    relay.on_open();
    // The next leader has ended an earlier kill, and has not heard of this one.
    assert_eq!(orders(&report(&mut relay, 1)), vec![(&FLEET, 9, 1)]);
    relay.on_directives(at(0), &directives(2, 0)).unwrap();
    assert!(relay.kills().fleet().is_killed());
    relay.on_directives(at(0), &directives(3, 1)).unwrap();
    relay.on_open();
    assert!(report(&mut relay, 1).kills.orders.is_empty());
}

#[test]
fn order_of_an_unconfirmed_leader_is_repeated_to_the_next() {
    let mut relay = relay();
    let sent = |generation| {
        let mut sent = directives(generation, 1);
        sent.lead.unconfirmed = true;
        sent.kills.orders = [order(7, generation)].into();
        sent
    };
    // The end of an order that is not held is nothing to repeat.
    relay.on_directives(at(0), &sent(2)).unwrap();
    assert!(orders(&report(&mut relay, 1)).is_empty());
    relay.on_directives(at(0), &sent(3)).unwrap();
    assert_eq!(orders(&report(&mut relay, 2)), vec![(&FLEET, 7, 3)]);
    relay.on_open();
    // The next leader has ended another kill.
    relay.on_directives(at(0), &directives(4, 0)).unwrap();
    assert_eq!(orders(&report(&mut relay, 1)), vec![(&FLEET, 7, 3)]);
    assert_eq!(relay.kills().fleet(), KillGeneration(5));
    relay.on_directives(at(0), &sent(6)).unwrap();
    assert_eq!(orders(&report(&mut relay, 2)), vec![(&FLEET, 7, 6)]);
    assert!(!relay.kills().fleet().is_killed());
}

#[test]
fn order_is_sent_once_on_each_stream() {
    let mut relay = relay();
    let alone = Scope::Bucket(bucket());
    relay.order(at(0), &alone, true).unwrap();
    let killed = [(bucket(), KillGeneration(1))].into();
    for stream in 0..2 {
        let first = report(&mut relay, 1);
        assert_eq!(
            (orders(&first), &first.kills.buckets),
            (vec![(&alone, 9, 1)], &killed),
            "stream {stream}"
        );
        let second = report(&mut relay, 2);
        assert!(
            second.kills.orders.is_empty() && second.kills.buckets.is_empty(),
            "stream {stream}"
        );
        relay.on_open();
    }
}

#[test]
fn unconfirmed_order_outlives_another_kill() {
    for (confirmed, generation) in [(0, 3), (1, 2)] {
        let mut relay = relay();
        relay.order(at(0), &FLEET, true).unwrap();
        report(&mut relay, 1);
        assert_eq!(
            relay.on_directives(at(0), &directives(2, confirmed)),
            Ok(true)
        );
        assert_eq!(
            relay.kills().fleet(),
            KillGeneration(generation),
            "confirmed: {confirmed}"
        );
    }
}

#[test]
fn implausible_generation_is_rejected_and_confirms_nothing() {
    let mut relay = relay();
    relay.order(at(0), &FLEET, true).unwrap();
    report(&mut relay, 1);
    assert!(matches!(
        relay.on_directives(at(0), &directives(u64::MAX, 1)),
        Err(StaleDirective::KillJump { .. })
    ));
    assert_eq!(relay.on_directives(at(0), &directives(2, 0)), Ok(true));
    assert_eq!(relay.kills().fleet(), KillGeneration(3));
}

#[test]
fn implausible_generation_is_taken_by_no_evidence() {
    let mut relay = relay();
    let claim = Report {
        kills: KillGeneration(1).into(),
        ..Report::default()
    };
    relay.on_tick(at(0));
    relay.on_report(at(0), &process(1, Role::Client), &claim);
    assert!(relay.on_tick(at(2_000)), "the claim counts");
    let mut directives = directives(u64::MAX, 0);
    directives.lead.leader = Some(crate::directive::Leader::default());
    assert!(matches!(
        relay.on_directives(at(2_100), &directives),
        Err(StaleDirective::KillJump { .. })
    ));
    assert_eq!(relay.kills().fleet(), KillGeneration(0));
}

#[test]
fn child_order_gains_one_generation() {
    let mut relay = relay();
    relay.on_directives(at(0), &directives(2, 0)).unwrap();
    assert!(
        !child_order(&mut relay, &process(1, Role::Client), 1, 1),
        "a client gives no orders"
    );
    assert!(child_order(&mut relay, &process(1, Role::Aggregator), 1, 1));
    assert_eq!(relay.kills().fleet(), KillGeneration(3));
    assert_eq!(orders(&report(&mut relay, 1)), [(&FLEET, 1, 1)]);
}

#[test]
fn order_ages_at_every_aggregator() {
    let [mut lower, mut upper] = [InstanceId(1), InstanceId(2)].map(KillRelay::new);
    lower.order(at(1_000), &FLEET, true).unwrap();
    let ages = |report: &Report| -> Vec<u128> {
        let orders = report.kills.orders.values();
        orders.map(|order| order.age.as_millis()).collect()
    };
    let sent = report_at(1_500, &mut lower, 1);
    assert_eq!(ages(&sent), [500]);
    // The clocks of two machines have nothing in common.
    upper.on_report(at(70), &process(1, Role::Aggregator), &sent);
    assert_eq!(ages(&report_at(100, &mut upper, 1)), [530]);
}

/// Orders and ends at an aggregator (`here`) and at the aggregators below it, before the controller knows.
#[test]
fn kill_above_ends_with_its_last_order() {
    #[derive(Clone, Copy, Debug)]
    enum Act {
        Here(bool),
        Child(u128, u64),
        Parent(u64),
    }
    use Act::*;
    let table: &[(&[Act], u64)] = &[
        (&[Child(1, 1)], 1),
        (&[Child(1, 1), Child(1, 2)], 2),
        (&[Child(1, 1), Child(1, 2), Child(1, 3)], 3),
        (&[Child(1, 1), Child(1, 2), Child(1, 1)], 2),
        // The end was given with a generation that is an old one here.
        (&[Parent(4), Child(1, 1)], 5),
        (&[Parent(4), Child(1, 1), Child(1, 2)], 6),
        // The end of one order ends no other.
        (&[Child(1, 1), Child(2, 1), Child(1, 2)], 3),
        (&[Child(1, 1), Child(2, 1), Child(1, 2), Child(2, 4)], 4),
        (&[Here(true), Child(1, 1), Child(1, 2)], 3),
        (&[Here(true), Child(1, 1), Child(1, 2), Here(false)], 4),
        (&[Here(true), Child(1, 1), Here(false)], 1),
        (&[Here(true), Child(1, 1), Here(false), Child(1, 2)], 2),
        (
            &[
                Here(true),
                Child(1, 1),
                Here(false),
                Here(true),
                Child(1, 4),
            ],
            5,
        ),
        (&[Child(1, 1), Here(false)], 1),
        // An end of an unknown order ends none.
        (&[Here(true), Child(1, 2)], 3),
        (&[Parent(1), Child(1, 2)], 2),
    ];
    for (acts, generation) in table {
        let mut relay = relay();
        for act in *acts {
            match *act {
                Here(killed) => drop(relay.order(at(0), &FLEET, killed).unwrap()),
                Child(child, generation) => {
                    child_order(
                        &mut relay,
                        &process(child, Role::Aggregator),
                        child,
                        generation,
                    );
                }
                Parent(generation) => {
                    relay
                        .on_directives(at(0), &directives(generation, 0))
                        .unwrap();
                }
            }
        }
        assert_eq!(
            relay.kills().fleet(),
            KillGeneration(*generation),
            "{acts:?}"
        );
        let is_ordered = relay.is_ordered(&FLEET);
        assert!(!is_ordered || relay.kills().fleet().is_killed(), "{acts:?}");
        assert_eq!(
            relay.mode(&bucket(), &enforce(9)),
            Mode::Shadow,
            "{acts:?}: unconfirmed"
        );
    }
}

#[test]
fn child_cannot_change_a_local_order() {
    let mut relay = relay();
    relay.order(at(0), &FLEET, true).unwrap();
    child_order(&mut relay, &process(1, Role::Aggregator), 9, 2);
    assert_eq!(orders(&report(&mut relay, 1)), [(&FLEET, 9, 1)]);
    assert_eq!(relay.kills().fleet(), KillGeneration(3));
}

#[test]
fn child_orders_leave_room_for_own() {
    let mut relay = relay();
    let orders = 10..10 + KILL_ORDERS_MAX as u128;
    let full = Report {
        kills: KillNews {
            orders: orders.map(|process| order(process, 1)).collect(),
            ..KillNews::default()
        },
        ..Report::default()
    };
    relay.on_report(at(0), &process(1, Role::Aggregator), &full);
    relay.order(at(0), &FLEET, true).unwrap();
    let sent = report(&mut relay, 1).kills.orders;
    assert!(sent.len() < KILL_ORDERS_MAX && sent.keys().any(|id| id.given_at == InstanceId(9)));
}

#[test]
fn confirmed_drill_is_joined_and_timed() {
    let mut relay = relay();
    let zone = Zone::new("a").unwrap();
    let child = || {
        let due = DueChild {
            zone: Zone::new("a").unwrap(),
            role: Role::Client,
            clients: 1,
        };
        std::iter::once((InstanceId(1), due))
    };
    assert!(relay.on_drill(at(0), Drill(7), Some(&zone), child()));
    assert!(!relay.on_drill(at(5), Drill(7), Some(&zone), child()));
    assert!(relay.is_report_due());
    let sent = report(&mut relay, 1);
    assert_eq!(
        (sent.kills.drill, sent.kills_below.spreads[&zone].missing),
        (Drill(7), 1)
    );
    assert!(!relay.is_report_due() && report(&mut relay, 2).kills_below.spreads.is_empty());
    let answer = Report {
        kills: KillNews {
            drill: Drill(7),
            ..KillNews::default()
        },
        ..Report::default()
    };
    assert!(!relay.on_report(at(40), &process(1, Role::Client), &answer));
    let sent = report(&mut relay, 3);
    assert_eq!(
        (
            sent.kills_below.spreads[&zone].confirmed(),
            sent.kills_below.spreads[&zone].missing
        ),
        (1, 0)
    );
    assert!(relay.timing().is_complete());
    assert_eq!(relay.begin_drill(at(50), Some(&zone), child()), Drill(8));
    relay.on_close(InstanceId(1));
    assert!(
        relay.timing().is_complete(),
        "a closed stream is not waited for"
    );
}
