//! Kills ordered at a zone, at its parent and at its children, and drills.

use super::*;
use plimsoll_core::decision::Mode;
use plimsoll_core::kill::{Kill, KillGeneration, KillOrder, OrderId, Scope};
use plimsoll_core::report::ReportedMode;

fn enforces(epoch: u64, seq: u64, generation: u64, known: u64, covered: u64) -> Directives {
    let mut message = Script {
        epoch,
        ..Script::ratio(7)
    }
    .message(seq, covered);
    message.kills.fleet = KillGeneration(generation);
    for bucket in &mut message.buckets {
        bucket.terms.mode = Mode::Enforce;
        bucket.terms.kill = Kill {
            fleet: KillGeneration(known),
            ..Kill::default()
        };
    }
    message
}

fn orders(report: &Report) -> Vec<(Scope, u128, u64)> {
    let orders = report.kills.orders.iter();
    orders
        .map(|(id, order)| (id.scope.clone(), id.given_at.0, order.generation.0))
        .collect()
}

fn sent_to(zone: &mut Zone, client: &mut Client, now: MonoTime) -> (Mode, u64) {
    client.receive(zone, now);
    let mode = client.board.get(&bucket()).unwrap().terms().mode;
    (mode, zone.kills().fleet().0)
}

fn enforcing() -> (Zone, Client) {
    let mut zone = answered();
    zone.on_directives(at(10), enforces(1, 2, 0, 0, 0)).unwrap();
    let mut client = Client::new(1);
    client.send_report(&mut zone, at(20));
    assert_eq!(sent_to(&mut zone, &mut client, at(20)), (Mode::Enforce, 0));
    (zone, client)
}

#[test]
fn order_leaves_shadow_until_a_controller_decides() {
    let (mut zone, mut client) = enforcing();
    assert_eq!(zone.order_kill(at(100), &Scope::Fleet, true), Ok(true));
    assert_eq!(
        zone.order_kill(at(110), &Scope::Fleet, true),
        Ok(false),
        "it is killed already"
    );
    assert_eq!(sent_to(&mut zone, &mut client, at(120)), (Mode::Shadow, 1));
    assert_eq!(zone.order_kill(at(200), &Scope::Fleet, false), Ok(true));
    assert_eq!(sent_to(&mut zone, &mut client, at(210)), (Mode::Shadow, 2));
    // A controller that repeats its directives and claims a generation that it was never sent.
    let report = zone.report(at(220));
    zone.on_directives(at(230), enforces(1, 3, 0, 99, report.seq))
        .unwrap();
    assert_eq!(
        sent_to(&mut zone, &mut client, at(240)),
        (Mode::Enforce, 2),
        "a claim is accepted up to the generation held"
    );
    zone.order_kill(at(250), &Scope::Fleet, true).unwrap();
    zone.order_kill(at(260), &Scope::Fleet, false).unwrap();
    assert_eq!(
        sent_to(&mut zone, &mut client, at(270)),
        (Mode::Shadow, 4),
        "and not beyond it"
    );
    zone.on_directives(at(280), enforces(2, 4, 4, 4, report.seq))
        .unwrap();
    assert_eq!(
        sent_to(&mut zone, &mut client, at(290)),
        (Mode::Shadow, 4),
        "the second order is not confirmed"
    );
    let report = zone.report(at(300));
    zone.on_directives(at(310), enforces(2, 5, 4, 4, report.seq))
        .unwrap();
    assert_eq!(sent_to(&mut zone, &mut client, at(320)), (Mode::Enforce, 4));
}

#[test]
fn only_child_aggregator_orders_are_relayed() {
    let mut zone = answered();
    zone.on_directives(at(10), enforces(1, 2, 2, 2, 0)).unwrap();
    let mut lower = aggregator(300);
    lower.order_kill(at(20), &Scope::Fleet, true).unwrap();
    let greeting = lower.report(at(30));
    assert_eq!(
        greeting.kills.fleet,
        KillGeneration(1),
        "the number is an old one here"
    );
    assert!(
        zone.on_report(at(30), StreamId(300), greeting).unwrap(),
        "all children are sent it"
    );
    assert_eq!(zone.kills().fleet(), KillGeneration(3));
    assert_eq!(orders(&zone.report(at(40))), [(Scope::Fleet, 300, 1)]);

    let mut client = Client::new(1);
    let id = OrderId {
        scope: Scope::Bucket(bucket()),
        given_at: InstanceId(1),
    };
    let order = KillOrder {
        generation: KillGeneration(1),
        age: Duration::ZERO,
        ends_held: false,
    };
    let mut forged = client.report(at(50));
    forged.kills.orders = [(id, order)].into();
    zone.on_report(at(50), client.stream, forged).unwrap();
    assert_eq!(zone.kills().bucket(&bucket()), KillGeneration(0));
}

#[test]
fn ended_order_matches_its_own_kill() {
    let (mut zone, mut client) = enforcing();
    zone.order_kill(at(100), &Scope::Fleet, true).unwrap();
    zone.order_kill(at(110), &Scope::Fleet, false).unwrap();
    assert_eq!(sent_to(&mut zone, &mut client, at(120)), (Mode::Shadow, 2));
    // A controller that has killed, ended the kill and promoted independently arrives at the same generation.
    zone.on_open(at(130));
    zone.on_directives(at(140), enforces(1, 1, 2, 2, 0))
        .unwrap();
    assert_eq!(
        sent_to(&mut zone, &mut client, at(150)),
        (Mode::Shadow, 2),
        "it does not know the order given here"
    );
    let report = zone.report(at(160));
    assert!(
        matches!(orders(&report)[..], [(Scope::Fleet, _, 2)]),
        "it has ended"
    );
    assert!(
        zone.report(at(170)).kills.orders.is_empty(),
        "once on a stream"
    );
    // Even a later generation releases nothing before the order is confirmed.
    zone.on_directives(at(180), enforces(1, 2, 4, 4, 0))
        .unwrap();
    assert_eq!(sent_to(&mut zone, &mut client, at(190)), (Mode::Shadow, 4));
    zone.on_directives(at(200), enforces(1, 3, 6, 6, report.seq))
        .unwrap();
    assert_eq!(sent_to(&mut zone, &mut client, at(210)), (Mode::Enforce, 6));
}

#[test]
fn unapplied_modes_of_clients_are_rolled_up() {
    let (mut zone, mut client) = enforcing();
    let reported = |zone: &mut Zone, ms| {
        let modes = zone.report(at(ms)).modes.into_values();
        modes
            .map(|mode| (mode.directed, mode.unapplied))
            .collect::<Vec<_>>()
    };
    let tell = |zone: &mut Zone, client: &mut Client, bucket: &str, unapplied| {
        let mode = ReportedMode {
            directed: Some(Mode::Enforce),
            unapplied,
        };
        let modes = [(Bucket::new(bucket).unwrap(), mode)].into();
        let report = Report {
            modes,
            ..client.report(at(100))
        };
        zone.on_report(at(100), client.stream, report).unwrap();
    };
    assert_eq!(reported(&mut zone, 50), []);
    // A client counts once, regardless of its claim, and names no bucket that it is not subscribed
    // to.
    tell(&mut zone, &mut client, bucket().as_str(), 7);
    tell(&mut zone, &mut client, "invented", 1);
    assert_eq!(reported(&mut zone, 110), [(None, 1)]);
    zone.on_open(at(120));
    assert_eq!(
        reported(&mut zone, 130),
        [(Some(Mode::Enforce), 1)],
        "a greeting has all"
    );
    tell(&mut zone, &mut client, bucket().as_str(), 0);
    assert_eq!(reported(&mut zone, 210), [(None, 0)]);
    // A kill that the controller's decision did not know.
    zone.order_kill(at(220), &Scope::Fleet, true).unwrap();
    assert_eq!(reported(&mut zone, 230), [(None, 1)]);
}

#[test]
fn end_tells_a_kill_from_a_claim() {
    let (mut zone, mut client) = enforcing();
    zone.order_kill(at(100), &Scope::Fleet, true).unwrap();
    assert_eq!(zone.end_kill(at(110), &Scope::Fleet), Ok((true, false)));
    let claim = Report {
        kills: KillGeneration(7).into(),
        ..client.report(at(120))
    };
    zone.on_report(at(120), client.stream, claim).unwrap();
    assert_eq!(
        zone.kills().fleet(),
        KillGeneration(2),
        "a claim kills nothing"
    );
    assert_eq!(zone.end_kill(at(130), &Scope::Fleet), Ok((false, true)));
    assert_eq!(zone.kills().fleet(), KillGeneration(8));
    assert_eq!(zone.end_kill(at(140), &Scope::Fleet), Ok((false, false)));
}
