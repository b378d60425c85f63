//! The exchange with aggregators besides the law: epochs, kills, names, and rejected streams.

use super::*;
use plimsoll_core::decision::Mode;
use plimsoll_core::exchange::Path;
use plimsoll_core::report::{Counts, Tally};

fn brain() -> Brain {
    Fleet::new(enforced(), Vec::new()).brain
}

#[test]
fn later_epoch_of_a_child_is_exceeded_and_saved_before_directives_are_sent() {
    let mut brain = brain();
    let mut zone = Scripted::new("a", 1);
    zone.epoch = Some(Epoch(41));
    let report = zone.report(at(0));
    brain.on_report(at(0), zone.stream, report).unwrap();
    assert_eq!(brain.directives(at(0), zone.stream), None, "the epoch is not saved yet");
    save(&mut brain);
    assert_eq!(brain.directives(at(0), zone.stream).unwrap().epoch, Some(Epoch(42)));

    let mut liar = Scripted::new("b", 2);
    liar.epoch = Some(Epoch(u64::MAX - 1));
    let report = liar.report(at(0));
    assert!(matches!(brain.on_report(at(0), liar.stream, report), Err(StreamRejected::EpochJump { .. })));
    assert_eq!(brain.durable().epoch, Epoch(42));
}

#[test]
fn failing_disk_does_not_delay_a_kill() {
    let mut brain = brain();
    let mut zone = Scripted::new("a", 1);
    zone.exchange(&mut brain, at(0));
    let kill = "kill_switch: true\nbuckets: { api: { limit: 1000, mode: enforce } }\n";
    brain.on_policy(policy(kill));
    zone.receive(&mut brain, at(10));
    assert!(!zone.kill.is_killed());
    brain.on_save_failed();
    zone.receive(&mut brain, at(20));
    assert!(zone.kill.is_killed());
    assert_eq!(zone.mode(), Mode::Shadow);
    assert!(brain.unsaved().is_some(), "the save is tried again");
}

#[test]
fn client_is_rejected_with_the_port_of_an_aggregator() {
    let mut brain = brain();
    let mut client = Scripted::new("a", 1);
    client.identity.role = Role::Client;
    let report = client.report(at(0));
    let refused = brain.on_report(at(0), client.stream, report).unwrap_err();
    assert!(refused.to_string().contains("aggregator of its zone"), "{refused}");
}

#[test]
fn path_of_at_most_five_aggregators_without_a_loop_is_accepted() {
    let own = brain().sessions.own();
    let ids = |count: u128| (1..=count).map(|id| InstanceId(1_000 + id)).collect::<Vec<_>>();
    let with_own: Vec<InstanceId> = ids(2).into_iter().chain([own]).collect();
    for (path, judged) in [
        (ids(0), Ok(())),
        (ids(4), Ok(())),
        (ids(5), Err(StreamRejected::TooDeep { aggregators: 6 })),
        (with_own, Err(StreamRejected::Loop)),
    ] {
        let mut brain = brain();
        let mut zone = Scripted::new("a", 1);
        let longer = Report { path: Path(path.clone()), ..zone.report(at(0)) };
        let greeted = brain.on_report(at(0), zone.stream, longer).map(|_| ());
        assert_eq!(greeted, judged, "{path:?}");
        // A path that grows later is checked, too.
        let mut zone = Scripted::new("b", 2);
        let report = zone.report(at(0));
        brain.on_report(at(0), zone.stream, report).unwrap();
        let longer = Report { path: Path(path), ..zone.report(at(500)) };
        assert_eq!(brain.on_report(at(500), zone.stream, longer).map(|_| ()), judged);
    }
}

#[test]
fn names_beyond_the_bound_fold_into_the_default_class() {
    let mut brain = brain();
    brain.keys = Keys::new(at(0), 3);
    brain.keys.declare(&bucket());
    let mut zone = Scripted::new("a", 1);
    let names: Vec<Key> =
        (0..10).map(|n| Key { bucket: bucket(), tenant: tenant(&format!("t{n}")) }).collect();
    let mut report = Report { identity: Some(zone.identity.clone()), time: Some(at(0)), ..Report::default() };
    let counts = Counts { offered: 7, ..Counts::ZERO };
    zone.outbox.on_answer(InstanceId(9_999));
    zone.outbox.fill(&mut report, &names, |_| Tally { counts, late: Counts::ZERO });
    brain.on_report(at(0), zone.stream, report).unwrap();
    assert_eq!(brain.keys.totals().count(), 3);
    assert_eq!(
        brain.keys.totals().map(|(_, tally)| tally.counts.offered).sum::<u64>(),
        70,
        "no count is lost"
    );
}
