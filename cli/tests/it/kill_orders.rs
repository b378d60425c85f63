//! Kills that are ordered and ended in different places, on real processes: without a controller, in a chain of
//! aggregators, for one bucket, and at single clients.

use std::fs;
use std::process::Output;

use serde_json::Value;
use tempfile::TempDir;

use crate::fleet::{BUCKET, Fleet, TENANTS, policy};
use crate::kill::{admin, kill, kill_json, text};
use crate::process::{Process, http, http_get, run, until};
use crate::turns::{IDLE, turn};

/// Runs `plimsoll kill`, and returns the exit code and what it printed.
fn try_kill(args: &[&str]) -> (Option<i32>, String) {
    let Output { status, stdout, stderr } = run(&[&["kill"], args].concat());
    (status.code(), [text(&stdout), text(&stderr)].concat())
}

/// The generation of the fleet's kill switch at an admin port.
fn generation(process: &Process) -> Option<u64> {
    let (_, page) = http(process.address("admin"), "GET", "/kill", &[]).ok()?;
    serde_json::from_str::<Value>(&page).ok()?["fleet"]["generation"].as_u64()
}

#[test]
fn ended_kill_does_not_come_back_with_an_aggregator_that_returns_later() {
    let _turn = turn(IDLE);
    let mut fleet = Fleet::start(&policy(100, "enforce", false));
    until("both aggregators to be connected", || {
        let status = fleet.status()?;
        let connected = |aggregator: &Value| aggregator["connected"] == true;
        (status["aggregators"].as_array()?.iter().filter(|a| connected(a)).count() == 2).then_some(())
    });
    let controller = admin(&fleet.controller);
    let aggregators = [0, 1].map(|zone| admin(&fleet.zones[zone].aggregator));
    fleet.controller.kill_9();
    for aggregator in &aggregators {
        let output = kill(&["on", "--reason", "no controller", "--aggregator", aggregator]);
        assert!(output.contains("killed: the whole fleet, generation 1"), "{output}");
    }
    fleet.zones[1].aggregator.signal("STOP");
    fleet.restart_controller();
    until("the controller to learn of the kill", || (generation(&fleet.controller)? == 1).then_some(()));
    let output = kill(&["off", "--controller", &controller]);
    assert!(output.contains("no longer killed: the whole fleet, generation 2"), "{output}");
    assert!(
        output.contains(
            "not connected: zone-b/zone-b-aggregator; a kill that was ordered there before does not come back with it, \
             though its buckets are in shadow then; a later one does"
        ),
        "{output}"
    );
    fleet.zones[1].aggregator.signal("CONT");
    until("the other aggregator to take the end", || {
        (generation(&fleet.zones[1].aggregator)? == 2).then_some(())
    });
    assert_eq!(generation(&fleet.controller), Some(2));
    let status = kill_json(&["status", "--controller", &controller]);
    assert_eq!((&status["fleet"]["killed"], &status["away"]), (&false.into(), &Value::Array(vec![])));

    // A later order of the same aggregator is another kill, and its end there ends it.
    kill(&["on", "--reason", "again", "--aggregator", &aggregators[1]]);
    until("the later kill to reach the controller", || (generation(&fleet.controller)? == 3).then_some(()));
    kill(&["off", "--aggregator", &aggregators[1]]);
    until("its end to reach the controller", || (generation(&fleet.controller)? == 4).then_some(()));
}

#[test]
fn kill_ends_above_the_aggregator_where_it_was_ordered_and_ended_without_a_controller() {
    let _turn = turn(IDLE);
    let free = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    let aggregator = |name: &str, parent: &str| {
        Process::start(&[&["aggregator", "--name", name, "--controller", parent], &free[..]].concat())
    };
    // No controller listens on this port.
    let upper = aggregator("upper", "http://127.0.0.1:9");
    let lower = aggregator("lower", &format!("http://{}", upper.address("listen")));
    let (at_upper, at_lower) = (admin(&upper), admin(&lower));
    kill(&["on", "--reason", "x", "--aggregator", &at_lower]);
    until("the kill to reach the upper aggregator", || (generation(&upper)? == 1).then_some(()));
    let (code, output) = try_kill(&["off", "--aggregator", &at_upper]);
    assert_eq!(code, Some(1), "{output}");
    assert_eq!(
        output,
        "still killed: the whole fleet, generation 1, because an aggregator below orders it: end it there, or at the \
         controller once that is back\n"
    );
    kill(&["off", "--aggregator", &at_lower]);
    until("the end to reach the upper aggregator", || (generation(&upper)? == 2).then_some(()));
    assert_eq!(generation(&lower), Some(2));
}

#[test]
fn commands_name_what_is_killed_and_refuse_a_bucket_that_is_not_known() {
    let _turn = turn(IDLE);
    let with_pattern = policy(100, "enforce", false)
        .replace("rollout:", "  \"api/*\": { limit: 5, mode: shadow }\nrollout:");
    let fleet = Fleet::start(&with_pattern);
    let controller = admin(&fleet.controller);
    let aggregator = admin(&fleet.zones[0].aggregator);
    until("the aggregator to know the bucket", || {
        let (_, page) = http_get(fleet.zones[0].aggregator.address("admin"), "/status");
        serde_json::from_str::<Value>(&page).ok()?["buckets"].get(BUCKET).map(drop)
    });
    for (tier, url) in [("--controller", &controller), ("--aggregator", &aggregator)] {
        for (verb, reason) in [("on", &["--reason", "x"][..]), ("off", &[])] {
            let (code, output) = try_kill(&[&[verb, "--bucket", "chekout", tier, url], reason].concat());
            assert_eq!(code, Some(2), "{output}");
            assert!(
                output.contains(
                    "no bucket `chekout` is known, by the policy or by traffic; did you mean `checkout`?"
                ),
                "{output}"
            );
        }
    }
    // A pattern of the policy covers it.
    kill(&["on", "--reason", "x", "--bucket", "api/orders", "--controller", &controller]);
    kill(&["off", "--bucket", "api/orders", "--controller", &controller]);

    kill(&["on", "--reason", "wrong limit", "--bucket", BUCKET, "--controller", &controller]);
    let (code, output) = try_kill(&["off", "--controller", &controller]);
    assert_eq!(code, Some(1), "{output}");
    assert!(output.starts_with("nothing to end: the whole fleet is not killed\n"), "{output}");
    assert!(output.contains("still killed: bucket checkout, generation 1, \"wrong limit\""), "{output}");
    assert!(output.ends_with("; end it with `plimsoll kill off --bucket checkout`\n"), "{output}");
    let output = kill(&["off", "--bucket", BUCKET, "--controller", &controller]);
    assert!(
        output.contains("no longer killed: bucket checkout, generation 2; it stays in shadow"),
        "{output}"
    );
    let output = kill(&["off", "--controller", &controller]);
    assert_eq!(output, "nothing to end: the whole fleet is not killed\n");

    kill(&["on", "--reason", "x", "--controller", &controller]);
    kill(&["off", "--controller", &controller]);
    let output = kill(&["status", "--controller", &controller]);
    assert!(
        output.contains(
            "in shadow since a kill: checkout; to enforce again: `plimsoll rollout promote NAME --to enforce --force \
             --reason TEXT`\n"
        ),
        "{output}"
    );
    let why = ["--force", "--reason", "the limit is right", "--controller", &controller];
    assert!(run(&[&["rollout", "promote", BUCKET, "--to", "enforce"], &why[..]].concat()).status.success());
    assert!(!kill(&["status", "--controller", &controller]).contains("in shadow since"));
}

#[test]
fn clients_that_are_killed_locally_are_shown_at_every_tier() {
    let _turn = turn(IDLE);
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("kill");
    let flag = file.display().to_string();
    let fleet = Fleet::start_with(&policy(100, "enforce", false), TENANTS, &["--kill-file", &flag]);
    let controller = admin(&fleet.controller);
    let of_fleet = || fleet.status()?["killed_locally"].as_u64();
    let rollout = || {
        let ended = run(&["rollout", "status", "--controller", &controller]);
        text(&ended.stdout)
    };
    until("all services to be connected", || {
        let children = |zone| fleet.aggregator_metric(zone, "plimsoll_children");
        (children(0) + children(1) == 4.0).then_some(())
    });
    assert_eq!(of_fleet(), Some(0));
    assert!(!rollout().contains("killed locally"));
    fs::write(&file, "").unwrap();
    until("the controller to learn of four clients", || (of_fleet()? == 4).then_some(()));
    assert_eq!(fleet.aggregator_metric(0, "plimsoll_clients_killed_locally"), 2.0);
    assert_eq!(fleet.controller_metric("plimsoll_clients_killed_locally", "zone=\"zone-b\""), 2.0);
    let (_, page) = http_get(fleet.zones[0].aggregator.address("admin"), "/status");
    let status: Value = serde_json::from_str(&page).unwrap();
    assert_eq!((&status["killed_locally"], &status["clients"][0]["killed_locally"]), (&2.into(), &1.into()));
    let line = "killed locally: 4 clients of the fleet, by a kill file; they refuse nothing";
    assert!(rollout().contains(line), "{}", rollout());
    let output = kill(&["status", "--controller", &controller]);
    let line = "killed locally: 4 clients, by a kill file; `/status` of an aggregator lists them";
    assert!(output.contains(line), "{output}");
    fs::remove_file(&file).unwrap();
    until("the controller to learn that none is", || (of_fleet()? == 0).then_some(()));
}
