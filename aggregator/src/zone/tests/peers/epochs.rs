//! Epochs and controllers that children claim: evidence for an aggregator that has lost its state, and else
//! without effect. No claim ends a stream.

use plimsoll_core::directive::{EPOCH_STEP_MAX, Leader};
use plimsoll_core::kill::JUMP_MAX;

use super::*;

fn leader(epoch: u64, instance: u128) -> Leader {
    Leader { epoch: Epoch(epoch), instance: Some(InstanceId(instance)) }
}

/// Sends one report of a client that claims to follow a controller.
fn claims(zone: &mut Zone, ms: u64, client: &mut Client, claimed: Leader) {
    let report = client.report(at(ms));
    let report = Report { epoch: Some(claimed.epoch), controller: claimed.instance, ..report };
    zone.on_report(at(ms), client.stream, report).unwrap();
}

/// Passes a message of a controller to a zone.
fn directs(zone: &mut Zone, ms: u64, controller: Leader) -> Result<(), StaleDirective> {
    zone.on_open(at(ms));
    let seq = zone.report(at(ms)).seq;
    let message = Directives { controller: controller.instance, ..Script::ratio(7).message(1, seq) };
    zone.on_directives(at(ms), Directives { epoch: Some(controller.epoch), ..message })
}

#[test]
fn epoch_that_only_clients_remember_reaches_the_controller_while_nothing_came_from_above() {
    let mut zone = zone();
    let mut client = Client::new(1);
    claims(&mut zone, 0, &mut client, leader(41, 9));
    let report = zone.report(at(10));
    assert_eq!((report.leader(), report.controller_age), (Some(leader(41, 9)), None));
    assert_eq!(zone.report(at(20_000)).leader(), None, "the client has left");
}

/// The client raises its claim by the step that a parent would accept, and a far greater one.
#[test]
fn client_cannot_raise_the_epoch_of_its_aggregator_or_end_its_stream() {
    let mut zone = zone();
    directs(&mut zone, 0, leader(3, 9)).unwrap();
    let mut client = Client::new(1);
    let steps =
        (1..=20).map(|step| 3 + step * EPOCH_STEP_MAX).chain((1..=20).map(|step| 3 + step * JUMP_MAX));
    for (ms, epoch) in (30_000..).step_by(1_000).zip(steps.chain([u64::MAX])) {
        claims(&mut zone, ms, &mut client, leader(epoch, 1));
        let report = zone.report(at(ms));
        assert_eq!(report.leader(), Some(leader(3, 9)));
        assert_eq!(report.other_controller, Some(leader(epoch, 1)), "operators are shown it");
    }
    let shown: Vec<&str> = zone.other_controllers().iter(at(71_000)).map(|(peer, _)| peer).collect();
    assert_eq!(shown, ["client a/shop/host:1"]);
    let message = zone.directives(at(71_000), client.stream).unwrap();
    assert_eq!(message.leader(), Some(leader(3, 9)));
}

#[test]
fn claim_of_a_child_aggregator_moves_upwards_through_a_chain_by_one_step_at_most() {
    let (mut lower, mut upper) = (aggregator(101), aggregator(102));
    directs(&mut lower, 0, leader(8, 9)).unwrap();
    directs(&mut upper, 0, leader(5, 7)).unwrap();
    let seq = lower.report(at(500)).seq;
    let confirmed = Directives { controller: Some(InstanceId(9)), ..Script::ratio(7).message(2, seq) };
    lower.on_directives(at(600), Directives { epoch: Some(Epoch(8)), ..confirmed }).unwrap();
    lower.on_open(at(3_500));
    let report = lower.report(at(3_500));
    upper.on_report(at(3_500), StreamId(5), report).unwrap();
    let passed = upper.report(at(4_500));
    assert_eq!(passed.leader(), Some(leader(8, 9)));
    assert_eq!(passed.controller_age, Some(Duration::from_secs(4)), "since the confirmed report was sent");
    for far in [5 + EPOCH_STEP_MAX + 1, u64::MAX] {
        let hostile = lower.report(at(5_000));
        let hostile = Report { epoch: Some(Epoch(far)), controller: Some(InstanceId(1)), ..hostile };
        upper.on_report(at(5_000), StreamId(5), hostile).unwrap();
        assert_eq!(upper.report(at(20_000)).leader(), Some(leader(5, 7)));
    }
}

#[test]
fn of_two_controllers_at_one_epoch_the_higher_instance_leads_and_both_are_shown() {
    let mut zone = zone();
    directs(&mut zone, 0, leader(3, 5)).unwrap();
    assert!(!zone.other_controllers().has_rival(at(0)));
    let (held, got) = (leader(3, 5), leader(3, 1));
    assert_eq!(directs(&mut zone, 100, got), Err(StaleDirective::Rival { held, got }));
    assert!(zone.other_controllers().has_rival(at(100)));
    assert_eq!(zone.counters().stale, 1);
    directs(&mut zone, 200, leader(3, 9)).unwrap();
    let report = zone.report(at(200));
    assert_eq!((report.leader(), report.other_controller), (Some(leader(3, 9)), Some(leader(3, 5))));
    assert_eq!(directs(&mut zone, 300, leader(4, 1)), Ok(()), "a later epoch, as after a restart");
    assert!(!zone.other_controllers().has_rival(at(60_200)));
}
