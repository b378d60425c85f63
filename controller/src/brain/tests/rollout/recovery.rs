//! A controller without a state among aggregators that have directives of an earlier one.

use super::*;
use crate::rollout::Promotion;
use crate::state::{Cause, Command};
use plimsoll_core::decision::Mode;
use plimsoll_core::directive::{BucketDirective, Leader, Terms};
use plimsoll_core::kill::Scope;
use plimsoll_core::names::Text;
use plimsoll_core::report::ReportedMode;

use Mode::{Canary, Enforce, Shadow};

/// An aggregator that an earlier controller sent this mode.
fn directed(zone: &str, number: u64, mode: Mode) -> Scripted {
    let mut aggregator = Scripted::new(zone, number);
    let terms = Terms {
        mode,
        ..Terms::default()
    };
    aggregator.board.apply(&BucketDirective {
        bucket: bucket(),
        whole: true,
        terms,
        keys: Vec::new(),
    });
    aggregator.epoch = Some(Epoch(5));
    aggregator
}

fn to_enforce(reason: &Text) -> Promotion<'_> {
    Promotion {
        entry: "api",
        to: Some(Enforce),
        force: Some(reason),
        reason: None,
    }
}

fn stage(brain: &Brain) -> Mode {
    brain.durable().stages["api"].stage
}

/// The stage after aggregators with these modes have greeted a controller without a state.
fn recovered(durable: &DurableState, file: &str, modes: &[Mode]) -> Fleet {
    let policy = policy(&enforced_with("").replace("mode: enforce", &format!("mode: {file}")));
    let zones = modes
        .iter()
        .zip(1..)
        .map(|(mode, number)| directed(&format!("z{number}"), number, *mode));
    let mut fleet = Fleet::restored(durable.clone(), policy, zones.collect());
    fleet.run(1.0);
    fleet
}

#[test]
fn stages_come_back_from_aggregators() {
    for (file, modes, expected) in [
        ("enforce", vec![Enforce], Enforce),
        ("canary", vec![Enforce], Canary),
        ("enforce", vec![Canary, Enforce], Canary),
        ("enforce", vec![Enforce, Shadow], Shadow),
        // One is outvoted by two.
        ("enforce", vec![Shadow, Enforce, Enforce], Enforce),
        ("enforce", vec![Enforce, Shadow, Canary], Canary),
        ("enforce", vec![Shadow, Enforce, Shadow], Shadow),
        ("canary", vec![Enforce, Enforce, Enforce], Canary),
    ] {
        for durable in [DurableState::lost(), DurableState::first_start()] {
            let fleet = recovered(&durable, file, &modes);
            assert_eq!(
                stage(&fleet.brain),
                expected,
                "{modes:?}, file {file}, lost: {}",
                durable.lost
            );
            assert!(fleet.brain.durable().loss.is_some());
        }
    }
    let fleet = recovered(
        &DurableState::lost(),
        "enforce",
        &[Shadow, Enforce, Enforce],
    );
    let last = fleet.brain.durable().history.back().unwrap();
    assert_eq!(last.cause, Cause::Recovered);
    assert_eq!(
        last.why[0],
        "aggregator z1/z1-aggregator has shadow, and is outvoted"
    );
}

#[test]
fn lost_state_leaves_an_enforcing_fleet_enforcing() {
    for lost in [DurableState::lost(), DurableState::first_start()] {
        let mut fleet = settled(enforced());
        let reason = Text::new("drill").unwrap();
        fleet
            .brain
            .on_kill(&Scope::Fleet, Command::learned(None))
            .unwrap();
        fleet.run(1.0);
        let now = fleet.now();
        assert!(fleet.brain.on_kill_ends(now, &Scope::Fleet).0);
        fleet.brain.promote(now, to_enforce(&reason)).unwrap();
        fleet.run(1.0);
        assert_eq!(
            (fleet.zones[0].mode(), fleet.brain.durable().loss.clone()),
            (Enforce, None)
        );
        fleet.loses_state(lost);
        for _ in 0..80 {
            fleet.run(0.5);
            let modes = fleet.zones.iter().map(Scripted::mode).collect::<Vec<_>>();
            assert_eq!(
                (stage(&fleet.brain), modes),
                (Enforce, vec![Enforce, Enforce])
            );
        }
        assert_eq!(
            fleet.brain.kills().fleet().0,
            2,
            "the number of the kill came back"
        );
        assert!(
            fleet.brain.durable().loss.is_some(),
            "until it is acknowledged"
        );
        assert!(fleet.brain.acknowledge_loss().is_some() && fleet.brain.durable().loss.is_none());
    }
}

#[test]
fn claim_counts_once_and_for_a_while() {
    let mut fleet = recovered(&DurableState::lost(), "enforce", &[Canary]);
    assert_eq!(stage(&fleet.brain), Canary);
    let again = |fleet: &mut Fleet, change: &dyn Fn(&mut Scripted)| {
        fleet.zones[0].reconnects();
        change(&mut fleet.zones[0]);
        fleet.run(1.0);
        stage(&fleet.brain)
    };
    // Another claim of the same aggregator.
    assert_eq!(
        again(&mut fleet, &|zone| zone.board =
            directed("z", 9, Enforce).board),
        Canary
    );
    // The first claim of an aggregator that has only what this controller sent it.
    let mut late = directed("z2", 2, Shadow);
    let mut report = late.report(MonoTime::ZERO);
    report.lead.leader = Some(Leader {
        epoch: Epoch(5),
        instance: Some(fleet.brain.downstream.sessions.own()),
    });
    assert!(report.modes.values().any(|mode| *mode
        == ReportedMode {
            directed: Some(Shadow),
            unapplied: 0
        }));
    fleet
        .brain
        .on_report(fleet.now(), late.stream, report)
        .unwrap();
    assert_eq!(stage(&fleet.brain), Canary);
    // An operator's move stays.
    let now = fleet.now();
    let reason = Text::new("known").unwrap();
    fleet.brain.promote(now, to_enforce(&reason)).unwrap();
    fleet.zones.push(directed("z3", 3, Shadow));
    fleet.run(1.0);
    assert_eq!(stage(&fleet.brain), Enforce);

    let mut fleet = recovered(&DurableState::lost(), "enforce", &[Canary]);
    fleet.run(30.0);
    fleet.zones.push(directed("z2", 2, Shadow));
    fleet.run(1.0);
    assert_eq!(stage(&fleet.brain), Canary, "the time is over");
}

#[test]
fn shadow_after_a_kill_is_kept() {
    let mut fleet = recovered(&DurableState::lost(), "enforce", &[]);
    fleet
        .brain
        .on_kill(&Scope::Fleet, Command::learned(None))
        .unwrap();
    assert!(fleet.brain.on_kill_ends(fleet.now(), &Scope::Fleet).0);
    fleet.zones.push(directed("z1", 1, Enforce));
    fleet.run(1.0);
    assert_eq!(stage(&fleet.brain), Shadow);
}

#[test]
fn first_start_is_no_state_loss() {
    let mut fleet = Fleet::new(enforced(), two_zones());
    fleet.run(40.0);
    fleet.zones.push(Scripted::new("c", 3));
    fleet.zones[0].reconnects();
    fleet.run(1.0);
    assert_eq!(
        (stage(&fleet.brain), &fleet.brain.durable().loss),
        (Enforce, &None)
    );
}

#[test]
fn state_behind_the_fleet_counts_as_lost() {
    let mut fleet = settled(enforced());
    let older = fleet.brain.durable().clone();
    fleet.restarts();
    fleet.run(1.0);
    assert_eq!(fleet.brain.durable().loss, None);
    fleet.restarts();
    fleet.run(1.0);
    fleet.loses_state(older);
    fleet.run(1.0);
    assert!(
        fleet
            .brain
            .durable()
            .loss
            .as_ref()
            .unwrap()
            .contains("epoch 2")
    );
}
