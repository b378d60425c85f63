//! Takeovers in the midst of orders: the leader ends around the moment at which it takes an order, and its successor has
//! every order that was acknowledged.

use std::thread;
use std::time::Duration;

use plimsoll_testing::fleet::{BUCKET, policy};
use plimsoll_testing::members::Members;
use plimsoll_testing::process::{Process, outcome, until};
use plimsoll_testing::turns::{IDLE, turn};

use super::{operate, until_later};

const TAKEOVERS: usize = 12;
/// A takeover of so many is by `kill -9`, which takes as long as the lease; the others are by SIGTERM.
const OF_KILLS: usize = 4;
const REASON: [&str; 2] = ["--reason", "x"];

/// What the orders so far have made of the fleet.
#[derive(Clone, Debug, PartialEq)]
struct Ordered {
    killed: bool,
    mode: String,
    limit: f64,
}

fn on_leader(members: &Members, leader: usize) -> Option<Ordered> {
    let status = members.status(leader)?;
    let bucket = &status["buckets"][BUCKET];
    Some(Ordered {
        killed: status["killed"].as_bool()?,
        mode: bucket["mode"].as_str()?.to_owned(),
        limit: bucket["limit_rps"].as_f64()?,
    })
}

/// The parts of the limit that all zones have.
fn held(members: &Members) -> f64 {
    let part = |aggregator: &Process| {
        let bucket = &aggregator.status()["buckets"][BUCKET];
        bucket["hold_rps"].as_f64().unwrap_or(0.0)
    };
    members.aggregators.iter().map(part).sum()
}

/// The order of a round, and what it changes.
fn order(round: usize, of: &mut Ordered) -> Vec<&'static str> {
    let words: &[&str] = match round % 4 {
        0 => {
            "enforce".clone_into(&mut of.mode);
            &["rollout", "promote", BUCKET, "--to", "enforce", "--force"]
        }
        1 => {
            "shadow".clone_into(&mut of.mode);
            &["rollout", "abort", BUCKET]
        }
        2 => {
            of.killed = true;
            &["kill", "on"]
        }
        _ => {
            of.killed = false;
            &["kill", "off"]
        }
    };
    [words, &REASON].concat()
}

fn is_acknowledged((code, shown): &(i32, String)) -> bool {
    *code == 0 && !shown.contains("could not save this")
}

#[test]
fn takeovers_lose_no_acknowledged_order() {
    let _turn = turn(IDLE);
    let test = "takeovers_lose_no_acknowledged_order";
    let started = Members::start(test, 3, &policy(100, "shadow", false));
    let Some(mut members) = started else { return };
    let admin = members.urls("admin");
    let mut leader = members.until_led();
    let mut epoch = until_later(&members, 0);
    let mut ordered = on_leader(&members, leader).unwrap();
    let mut acknowledged = 0;
    for round in 0..TAKEOVERS {
        // Aggregators are sent only what is saved.
        ordered.limit += 1.0;
        for number in 0..3 {
            let edited = policy(ordered.limit as u32, "shadow", false);
            members.write(number, "policy.yaml", &edited);
        }
        until("the edit to be acknowledged", || {
            let is_held = (held(&members) - ordered.limit).abs() < 0.01;
            (is_held && on_leader(&members, leader)? == ordered).then_some(())
        });
        let before = ordered.clone();
        let order = order(round, &mut ordered);
        let command = [&order[..], &["--controller", &admin]].concat();
        // Before, while and after the leader takes the order.
        let moment = Duration::from_millis(u64::from(getrandom::u32().unwrap() % 250));
        let answer = thread::scope(|scope| {
            let answer = scope.spawn(|| outcome(&command));
            thread::sleep(moment);
            let leader = &mut members.controllers[leader];
            if round % OF_KILLS == OF_KILLS - 1 {
                leader.kill_9();
            } else {
                leader.terminate();
            }
            answer.join().unwrap()
        });
        let successor = members.until_led_without(leader);
        if is_acknowledged(&answer) {
            acknowledged += 1;
            // A standby may have taken a kill for the next leader, which carries it out after its first directives.
            until("the acknowledged order", || {
                (on_leader(&members, successor)? == ordered).then_some(())
            });
        } else {
            let now = until("the successor's status", || on_leader(&members, successor));
            assert!(now == before || now == ordered, "{now:?} after {order:?}");
            operate(&members, &order);
        }
        members.restart(leader);
        leader = successor;
        epoch = until_later(&members, epoch);
        assert_eq!(on_leader(&members, leader).unwrap(), ordered, "{order:?}");
    }
    assert!(acknowledged > 0, "each order was refused");
}
