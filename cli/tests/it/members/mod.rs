//! Several controllers on a real store, of which one leads.

mod copy;
mod store;
mod takeovers;

use plimsoll_testing::fleet::{BUCKET, policy};
use plimsoll_testing::members::{Members, ZONES};
use plimsoll_testing::process::{Process, http_get, message, outcome, succeed, until, until_true};
use plimsoll_testing::turns::{IDLE, turn};
use serde_json::Value;

const PROMOTE: [&str; 8] = [
    "rollout", "promote", BUCKET, "--to", "enforce", "--force", "--reason", "x",
];

fn operate(members: &Members, args: &[&str]) -> String {
    succeed(&[args, &["--controller", &members.urls("admin")]].concat())
}

/// Returns the output of `plimsoll status --all`, healthy or not.
fn shown(members: &Members) -> String {
    outcome(&["status", "--all", "--controller", &members.urls("admin")]).1
}

/// Waits until every aggregator has directives of a later epoch, and returns the earliest of their epochs. None of them
/// may ever go back.
fn until_later(members: &Members, than: u64) -> u64 {
    let mut seen = members.epochs();
    until("all aggregators to follow the leader", || {
        let now = members.epochs();
        for (before, now) in seen.iter().zip(&now) {
            assert!(*now >= *before || *now == 0, "epoch {now} after {before}");
        }
        seen = now;
        seen.iter().min().copied().filter(|epoch| *epoch > than)
    })
}

fn is_killed_everywhere(members: &Members) -> bool {
    let is_killed = |tier: &Process| {
        let generation = tier.status()["kill_generation"].as_u64();
        generation.is_some_and(|it| it % 2 == 1)
    };
    members.aggregators.iter().all(is_killed)
}

#[test]
fn successor_keeps_every_order() {
    let _turn = turn(IDLE);
    let started = Members::start(
        "successor_keeps_every_order",
        3,
        &policy(100, "shadow", false),
    );
    let Some(mut members) = started else { return };
    let first = members.until_led();
    let epoch = until_later(&members, 0);
    operate(&members, &PROMOTE);
    // A policy that is not valid keeps no member from leading with that of the store.
    for other in (0..3).filter(|number| *number != first) {
        members.write(other, "policy.yaml", "buckets: 5\n");
    }
    members.controllers[first].kill_9();
    let second = members.until_led_without(first);
    let epoch = until_later(&members, epoch);
    assert!(shown(&members).contains("policy files are refused"));
    let status = members.status(second).unwrap();
    assert_eq!(status["buckets"][BUCKET]["mode"], "enforce");
    assert_eq!(status["state_lost"], Value::Null);

    // A standby takes a kill for the leader.
    members.restart(first);
    let standby = members.controllers[first].url("admin");
    succeed(&["kill", "on", "--reason", "drill", "--controller", &standby]);
    until_true("the kill to reach all zones", || {
        is_killed_everywhere(&members)
    });
    let (_, refused) = outcome(&["status", "--controller", &standby]);
    assert!(refused.contains("this controller stands by"), "{refused}");
    // Its console opens, and is told which one leads.
    let standby = members.controllers[first].address("admin");
    let (code, page) = http_get(standby, "/");
    assert!(
        code == 200 && page.contains("data-token=\"optional\""),
        "{page}"
    );
    let (code, told) = http_get(standby, "/console/stream");
    assert!(code == 421 && told.contains("leads"), "{code} {told}");

    until_true("the status to show all members", || {
        shown(&members).matches("stands by, version").count() == 2
    });
    let resigned = operate(&members, &["resign"]);
    assert!(resigned.contains("stands by"), "{resigned}");
    let third = members.until_led_without(second);
    until_later(&members, epoch);
    assert_eq!(members.status(third).unwrap()["killed"], true);
    operate(&members, &["kill", "off"]);
    members.controllers[third].terminate();
    let fourth = members.until_led_without(third);
    assert_eq!(members.status(fourth).unwrap()["killed"], false);
}

#[test]
fn frozen_leader_stands_by_when_it_wakes() {
    let _turn = turn(IDLE);
    let test = "frozen_leader_stands_by_when_it_wakes";
    let started = Members::start(test, 2, &policy(100, "enforce", false));
    let Some(members) = started else { return };
    let first = members.until_led();
    let epoch = until_later(&members, 0);
    members.controllers[first].signal("STOP");
    members.until_led_without(first);
    let epoch = until_later(&members, epoch);
    members.controllers[first].signal("CONT");
    members.controllers[first]
        .wait_for(|line| message(line).is_some_and(|text| text.starts_with("the lead is lost")));
    // One leader is left, and all follow it.
    assert_ne!(members.until_led_without(first), first);
    assert!(
        members.epochs().iter().all(|it| *it == epoch),
        "{:?}",
        members.epochs()
    );
    assert_eq!(members.epochs().len(), ZONES.len());
}

#[test]
fn leader_without_the_store_goes_on() {
    let _turn = turn(IDLE);
    let test = "leader_without_the_store_goes_on";
    let started = Members::start(test, 2, &policy(100, "shadow", false));
    let Some(mut members) = started else { return };
    let leader = members.until_led();
    let epoch = until_later(&members, 0);
    members.store.iter_mut().for_each(|server| server.stop());
    until_true(
        "the aggregators to know that the lead is unconfirmed",
        || {
            let mut aggregators = members.aggregators.iter();
            aggregators.all(|it| it.status()["parent_unconfirmed"] == true)
        },
    );
    assert_eq!(members.epochs(), [epoch; 3]);
    let admin = members.urls("admin");
    let (_, refused) = outcome(&[&PROMOTE[..], &["--controller", &admin]].concat());
    assert!(refused.contains("the store does not confirm"), "{refused}");
    // A kill waits for nothing.
    let killed = operate(&members, &["kill", "on", "--reason", "drill"]);
    assert!(killed.contains("could not save this"), "{killed}");
    until_true("the kill to reach all zones", || {
        is_killed_everywhere(&members)
    });

    members.store.iter_mut().for_each(|server| server.start());
    until("the state to be saved", || {
        let status = members.status(members.leader(&[0, 1])?)?;
        (status["members"]["confirmed"] == true && status["state_unsaved"].is_null()).then_some(())
    });
    members.controllers[leader].kill_9();
    let successor = members.until_led_without(leader);
    assert_eq!(members.status(successor).unwrap()["killed"], true);
}
