//! Kills by command, by an aggregator's report and with a time to live, and the directives that follow.

use super::*;
use crate::aggregators::leadership::Mandate;
use crate::state::Command;
use plimsoll_core::decision::Mode;
use plimsoll_core::kill::drill::Drill;
use plimsoll_core::kill::{KillGeneration, Scope};
use plimsoll_core::names::Text;

fn because(until_s: Option<i64>) -> Command {
    Command {
        reason: Some(Text::new("a test").unwrap()),
        until_s,
        ..Command::default()
    }
}

fn modes(fleet: &Fleet) -> Vec<Mode> {
    fleet.zones.iter().map(Scripted::mode).collect()
}

#[test]
fn order_is_sent_after_its_save_ends() {
    for full in [false, true] {
        let mut fleet = settled(enforced());
        let (now, stream) = (fleet.now(), fleet.zones[0].stream);
        fleet.brain.on_kill(&Scope::Fleet, because(None)).unwrap();
        assert_eq!(
            fleet.brain.directives(now, stream),
            None,
            "not before it is saved"
        );
        assert!(!fleet.brain.is_in_effect());
        if full {
            fleet.brain.on_save_failed("no room".to_owned());
        } else {
            save(&mut fleet.brain);
        }
        assert!(fleet.brain.is_in_effect() && fleet.brain.is_saved() != full);
        let sent = fleet.brain.directives(now, stream).unwrap();
        assert_eq!(
            (sent.kill, sent.buckets[0].terms.mode),
            (KillGeneration(1), Mode::Shadow),
            "full: {full}"
        );
        assert_eq!(sent.buckets[0].terms.kill.fleet, KillGeneration(1));
    }
}

#[test]
fn aggregators_away_are_those_without_a_stream() {
    let mut fleet = settled(enforced());
    assert_eq!(fleet.brain.aggregators_away().count(), 0);
    let (now, stream) = (fleet.now(), fleet.zones[1].stream);
    fleet.brain.on_close(now, stream);
    let away: Vec<_> = fleet
        .brain
        .aggregators_away()
        .map(|(zone, _)| zone.to_string())
        .collect();
    assert_eq!(away, ["b"]);
}

#[test]
fn drill_waits_for_all_aggregators() {
    let mut fleet = settled(enforced());
    let stages = |fleet: &Fleet| {
        (
            fleet.brain.durable().kill,
            fleet.brain.durable().stages.clone(),
        )
    };
    let (now, before) = (fleet.now(), stages(&fleet));
    let drill = fleet.brain.begin_drill(now);
    assert_eq!(
        (drill, fleet.brain.drill_timing().silent_aggregators()),
        (Drill(1), 2)
    );
    fleet.run(1.0);
    assert!(
        !fleet.brain.drill_timing().is_complete(),
        "the scripted aggregators confirm no drills"
    );
    assert!(
        fleet
            .brain
            .drill_timing()
            .spreads()
            .values()
            .all(|spread| spread.confirmed() == 0)
    );
    assert_eq!(
        (modes(&fleet), stages(&fleet)),
        (vec![Mode::Enforce; 2], before)
    );
    assert_eq!(fleet.brain.begin_drill(now), Drill(2));
}

/// Another leader may have ended an earlier kill meanwhile, with the number after it.
#[test]
fn unsaved_kill_passes_numbers_of_others() {
    for (mandate, far) in [
        (Mandate::Directory, false),
        (Mandate::Elected { confirmed: true }, true),
        (Mandate::Elected { confirmed: false }, true),
    ] {
        for failed_before in [false, true] {
            let mut fleet = settled(enforced());
            fleet.brain.leadership.mandate = mandate;
            if failed_before {
                fleet.brain.on_save_failed("no answer".to_owned());
            }
            fleet.brain.on_kill(&Scope::Fleet, because(None)).unwrap();
            if !failed_before {
                fleet.brain.on_save_failed("no answer".to_owned());
            }
            let kill = fleet.brain.durable().kill;
            assert!(kill.is_killed() && (kill.0 > 1_000) == far, "{kill:?}");
            let (now, stream) = (fleet.now(), fleet.zones[0].stream);
            let sent = fleet.brain.directives(now, stream).unwrap();
            assert_eq!((sent.kill, sent.unconfirmed), (kill, far));
            fleet.brain.on_save_failed("no answer".to_owned());
            assert_eq!(fleet.brain.durable().kill, kill, "once");
            save(&mut fleet.brain);
            let sent = fleet.brain.directives(now + at(1_000).since(at(0)), stream);
            let is_confirmed = mandate != Mandate::Elected { confirmed: false };
            assert_eq!(sent.is_none_or(|sent| !sent.unconfirmed), is_confirmed);
        }
    }
}

#[test]
fn stored_order_is_carried_out_once() {
    let mut fleet = settled(enforced());
    let order = |fleet: &mut Fleet, created| {
        fleet
            .brain
            .on_stored_kill(created, &Scope::Fleet, because(None))
    };
    assert!(order(&mut fleet, 7));
    let now = fleet.now();
    fleet.brain.on_kill_ends(now, &Scope::Fleet);
    // Its key could not be deleted, and another controller leads.
    fleet.restarts();
    assert!(!order(&mut fleet, 7) && !fleet.brain.durable().kill.is_killed());
    fleet.brain.retain_stored_kills(&[7].into());
    assert!(!order(&mut fleet, 7) && order(&mut fleet, 8));
    fleet.brain.retain_stored_kills(&[].into());
    assert!(fleet.brain.durable().orders_done.is_empty());
}
