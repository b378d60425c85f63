//! Epochs and controllers that children claim: evidence for an aggregator that has lost its state, and else
//! without effect. No claim ends a stream.

use plimsoll_core::directive::{EPOCH_STEP_MAX, Leader};
use plimsoll_core::kill::EPOCH_JUMP_MAX;

use super::*;

fn leader(epoch: u64, instance: u128) -> Leader {
    Leader {
        epoch: Epoch(epoch),
        instance: Some(InstanceId(instance)),
    }
}

fn claims(zone: &mut Zone, ms: u64, client: &mut Client, claimed: Leader) {
    let mut report = client.report(at(ms));
    report.lead.leader = Some(claimed);
    zone.on_report(at(ms), client.stream, report).unwrap();
}

fn directs(zone: &mut Zone, ms: u64, controller: Leader) -> Result<(), StaleDirective> {
    zone.on_open(at(ms));
    let seq = zone.report(at(ms)).seq;
    let mut message = Script::ratio(7).message(1, seq);
    message.lead.leader = Some(controller);
    zone.on_directives(at(ms), message)
}

#[test]
fn unconfirmed_lead_is_shown_and_not_forwarded() {
    let mut zone = zone();
    zone.on_open(at(0));
    let mut client = Client::new(1);
    client.send_report(&mut zone, at(0));
    for (seq, unconfirmed) in [(1, true), (2, false), (3, true)] {
        let mut message = Script::ratio(7).message(seq, 0);
        message.lead.unconfirmed = unconfirmed;
        zone.on_directives(at(seq), message).unwrap();
        let status = crate::admin::status::Status::of(&zone, at(seq));
        assert_eq!(status.parent_unconfirmed, unconfirmed);
        zone.direct(at(seq), true);
        client.send_report(&mut zone, at(500 * seq));
        let sent = client.receive(&mut zone, at(500 * seq)).unwrap();
        assert!(!sent.lead.unconfirmed);
    }
}

/// The client raises its claim by the step that a parent would accept, and a far greater one.
#[test]
fn client_cannot_raise_its_aggregators_epoch() {
    let mut zone = zone();
    directs(&mut zone, 0, leader(3, 9)).unwrap();
    let mut client = Client::new(1);
    let steps = (1..=20)
        .map(|step| 3 + step * EPOCH_STEP_MAX)
        .chain((1..=20).map(|step| 3 + step * EPOCH_JUMP_MAX));
    for (ms, epoch) in (30_000..).step_by(1_000).zip(steps.chain([u64::MAX])) {
        claims(&mut zone, ms, &mut client, leader(epoch, 1));
        let report = zone.report(at(ms));
        assert_eq!(report.lead.leader, Some(leader(3, 9)));
        assert_eq!(
            report.lead.other,
            Some(leader(epoch, 1)),
            "operators are shown it"
        );
    }
    let shown: Vec<&str> = zone
        .upstream
        .leaders
        .others
        .iter(at(71_000))
        .map(|(peer, _)| peer)
        .collect();
    assert_eq!(shown, ["client a/shop/host:1"]);
    let message = zone.directives(at(71_000), client.stream).unwrap();
    assert_eq!(message.lead.leader, Some(leader(3, 9)));
}
