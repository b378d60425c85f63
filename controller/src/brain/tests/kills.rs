//! Kills by command, by an aggregator's report and with a time to live, and the directives that follow.

use super::*;
use crate::aggregators::leadership::Mandate;
use crate::state::{BucketSwitch, Command};
use plimsoll_core::decision::Mode;
use plimsoll_core::kill::drill::Drill;
use plimsoll_core::kill::{KILLED_BUCKETS_MAX, KillGeneration, KilledBucketsFull, Scope};
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
            (sent.kills.fleet, sent.buckets[0].terms.mode),
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

/// Another leader has not heard of it: the aggregators tell it.
#[test]
fn unsaved_kill_is_sent_as_an_order() {
    for (mandate, is_order) in [
        (Mandate::Directory, false),
        (Mandate::Elected { confirmed: true }, true),
        (Mandate::Elected { confirmed: false }, true),
    ] {
        for failed_before in [false, true] {
            let mut fleet = settled(enforced());
            let (mut now, stream) = (fleet.now(), fleet.zones[0].stream);
            let mut sent = |fleet: &mut Fleet| {
                now = now + Duration::from_secs(1);
                let sent = fleet.brain.directives(now, stream);
                sent.map(|sent| {
                    let orders = sent.kills.orders.values().map(|order| order.generation.0);
                    (sent.lead.unconfirmed, orders.collect::<Vec<_>>())
                })
            };
            fleet.brain.leadership.mandate = mandate;
            if failed_before {
                fleet.brain.on_save_failed("no answer".to_owned());
            }
            let order = |generation| {
                (
                    is_order,
                    is_order.then_some(generation).into_iter().collect(),
                )
            };
            for generation in [1, 3] {
                fleet
                    .brain
                    .on_kill(&Scope::Fleet, because(Some(generation)))
                    .unwrap();
                if !failed_before || generation > 1 {
                    fleet.brain.on_save_failed("no answer".to_owned());
                }
                assert_eq!(sent(&mut fleet), Some(order(generation as u64)));
            }
            save(&mut fleet.brain);
            let saved = sent(&mut fleet);
            assert!(saved.is_none_or(|(_, orders)| orders.is_empty()));
            let now = fleet.now();
            fleet.brain.on_kill_ends(now, &Scope::Fleet);
            save(&mut fleet.brain);
            let ended = sent(&mut fleet).unwrap().1;
            assert_eq!(ended, order(4).1);
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
            .unwrap()
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

#[test]
fn stored_order_without_room_is_an_error() {
    let mut fleet = settled(enforced());
    let bucket = |number: usize| Bucket::new(&format!("b{number}")).unwrap();
    fleet.brain.durable.bucket_kills = (0..KILLED_BUCKETS_MAX)
        .map(|number| {
            let switch = BucketSwitch {
                command: Some(because(None)),
                ..BucketSwitch::default()
            };
            (bucket(number), switch)
        })
        .collect();
    let scope = Scope::Bucket(bucket(KILLED_BUCKETS_MAX));
    let killed = fleet.brain.on_stored_kill(7, &scope, because(None));
    assert_eq!(killed, Err(KilledBucketsFull));
}
