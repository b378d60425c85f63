//! Kills by command, by an aggregator's report and with a time to live, and the directives that follow.

use super::*;
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
