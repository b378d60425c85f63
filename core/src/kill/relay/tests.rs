//! Tests of the relay at a tier, with scripted messages of its parent and children.

use std::time::Duration;

use super::*;
use crate::kill::Kill;
use crate::report::Echo;

const FLEET: Scope = Scope::Fleet;

fn bucket() -> Bucket {
    Bucket::new("api").unwrap()
}

fn at(ms: u64) -> MonoTime {
    MonoTime::from_elapsed(Duration::from_millis(ms))
}

/// Terms that enforce, decided with knowledge of this generation of the fleet.
fn enforce(known: u64) -> Terms {
    let kill = Kill { fleet: KillGeneration(known), ..Kill::default() };
    Terms { mode: Mode::Enforce, kill, ..Terms::default() }
}

fn directives(generation: u64, confirmed: u64) -> Directives {
    let echo = Echo { confirmed, ..Echo::default() };
    Directives { kill: KillGeneration(generation), echo, ..Directives::default() }
}

fn report(relay: &mut KillRelay, seq: u64) -> Report {
    let mut report = Report { seq, ..Report::default() };
    relay.fill(&mut report);
    report
}

fn child_order(ordered: bool, generation: u64) -> Report {
    let scopes = |given: bool| if given { [FLEET].into() } else { [].into() };
    let kill = KillGeneration(generation);
    Report { kill, ordered: scopes(ordered), ended: scopes(!ordered), ..Report::default() }
}

#[test]
fn unconfirmed_order_keeps_its_buckets_in_shadow() {
    let mut relay = KillRelay::default();
    assert_eq!((relay.order(&FLEET, true), relay.order(&FLEET, true)), (Ok(true), Ok(false)));
    assert_eq!(relay.order(&FLEET, false), Ok(true));
    assert_eq!(relay.kills().fleet(), KillGeneration(2));
    assert_eq!(relay.mode(&bucket(), &enforce(2)), Mode::Shadow);
    let sent = report(&mut relay, 7);
    assert_eq!((sent.kill, sent.ended), (KillGeneration(2), [FLEET].into()));
    relay.on_directives(&directives(2, 6)).unwrap();
    assert_eq!(relay.mode(&bucket(), &enforce(2)), Mode::Shadow);
    relay.on_directives(&directives(2, 7)).unwrap();
    assert_eq!(relay.mode(&bucket(), &enforce(2)), Mode::Enforce);
    assert_eq!(relay.mode(&bucket(), &enforce(1)), Mode::Shadow);
}

#[test]
fn order_is_sent_once_on_each_stream() {
    let mut relay = KillRelay::default();
    let alone = Scope::Bucket(bucket());
    relay.order(&alone, true).unwrap();
    let killed = [(bucket(), KillGeneration(1))].into();
    for stream in 0..2 {
        let first = report(&mut relay, 1);
        assert_eq!((&first.ordered, &first.kills), (&[alone.clone()].into(), &killed), "stream {stream}");
        let second = report(&mut relay, 2);
        assert!(second.ordered.is_empty() && second.kills.is_empty(), "stream {stream}");
        relay.on_open();
    }
}

#[test]
fn unconfirmed_order_outlives_the_end_of_another_kill() {
    for (confirmed, generation) in [(0, 3), (1, 2)] {
        let mut relay = KillRelay::default();
        relay.order(&FLEET, true).unwrap();
        report(&mut relay, 1);
        assert_eq!(relay.on_directives(&directives(2, confirmed)), Ok(true));
        assert_eq!(relay.kills().fleet(), KillGeneration(generation), "confirmed: {confirmed}");
    }
}

#[test]
fn implausible_generation_is_rejected_and_confirms_nothing() {
    let mut relay = KillRelay::default();
    relay.order(&FLEET, true).unwrap();
    report(&mut relay, 1);
    assert!(matches!(relay.on_directives(&directives(u64::MAX, 1)), Err(StaleDirective::KillJump { .. })));
    assert_eq!(relay.on_directives(&directives(2, 0)), Ok(true));
    assert_eq!(relay.kills().fleet(), KillGeneration(3));
}

#[test]
fn order_of_a_child_aggregator_is_relayed_with_a_later_generation() {
    let mut relay = KillRelay::default();
    relay.on_directives(&directives(2, 0)).unwrap();
    let (child, order) = (InstanceId(1), child_order(true, 1));
    assert!(!relay.on_report(at(0), child, Role::Client, &order), "a client gives no orders");
    assert!(relay.on_report(at(0), child, Role::Aggregator, &order));
    assert_eq!(relay.kills().fleet(), KillGeneration(3));
    assert_eq!(report(&mut relay, 1).ordered, [FLEET].into());
}

#[test]
fn end_of_a_child_aggregators_order_does_not_end_another() {
    let mut relay = KillRelay::default();
    let child = InstanceId(1);
    assert!(relay.on_report(at(0), child, Role::Aggregator, &child_order(false, 2)));
    assert_eq!(relay.mode(&bucket(), &enforce(2)), Mode::Shadow);
    assert_eq!(report(&mut relay, 1).ended, [FLEET].into());
    relay.order(&FLEET, true).unwrap();
    assert!(relay.on_report(at(1), child, Role::Aggregator, &child_order(false, 4)));
    assert_eq!(relay.kills().fleet(), KillGeneration(5));
    assert!(report(&mut relay, 2).ended.is_empty());
}

#[test]
fn drill_is_joined_once_confirmed_upwards_and_timed() {
    let mut relay = KillRelay::default();
    let zone = Zone::new("a").unwrap();
    let child = || {
        let due = DueChild { zone: Zone::new("a").unwrap(), role: Role::Client, clients: 1 };
        std::iter::once((InstanceId(1), due))
    };
    assert!(relay.on_drill(at(0), Drill(7), Some(&zone), child()));
    assert!(!relay.on_drill(at(5), Drill(7), Some(&zone), child()));
    assert!(relay.is_report_due());
    let sent = report(&mut relay, 1);
    assert_eq!((sent.drill, sent.spreads[&zone].missing), (Drill(7), 1));
    assert!(!relay.is_report_due() && report(&mut relay, 2).spreads.is_empty());
    let answer = Report { drill: Drill(7), ..Report::default() };
    assert!(!relay.on_report(at(40), InstanceId(1), Role::Client, &answer));
    let sent = report(&mut relay, 3);
    assert_eq!((sent.spreads[&zone].confirmed(), sent.spreads[&zone].missing), (1, 0));
    assert!(relay.timing().is_complete());
    assert_eq!(relay.begin_drill(at(50), Some(&zone), child()), Drill(8));
    relay.on_close(InstanceId(1));
    assert!(relay.timing().is_complete(), "a closed stream is not waited for");
}
