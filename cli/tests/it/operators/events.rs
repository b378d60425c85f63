//! `plimsoll events` on a real fleet: an incident is read back in the order in which it happened, also after a restart of
//! the controller, which a follower survives.

use plimsoll_testing::fleet::{Fleet, TENANTS, policy};
use plimsoll_testing::process::{Process, command, succeed, until, until_true};
use serde_json::Value;

fn kinds(events: &[Value]) -> Vec<String> {
    let kind = |event: &Value| event["kind"].as_str().unwrap().to_owned();
    events.iter().map(kind).collect()
}

#[test]
fn incident_is_read_back_in_order() {
    let mut fleet = Fleet::without_services(&policy(1_000, "shadow", false), TENANTS);
    let url = fleet.controller.url("admin");
    let order = |args: &[&str]| succeed(&[args, &["--controller", &url]].concat());
    let events = || -> Vec<Value> {
        let shown = order(&["events", "--since", "1h", "-o", "json"]);
        let lines = shown.lines();
        lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    };
    let until_told = |kind: &str| {
        until_true(kind, || kinds(&events()).iter().any(|it| it == kind));
    };
    let follower = Process::spawn(&["events", "--follow", "-o", "json", "--controller", &url]);
    until_told("aggregator_joined");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut unread = command("plimsoll", &["events", "--follow", "--controller", &url]);
    let mut unread = unread.stdout(writer).spawn().unwrap();
    let ended = until("the end without a reader", || unread.try_wait().unwrap());
    assert_eq!(ended.code(), Some(0));
    fleet.save_policy(&policy(1_200, "shadow", false));
    until("the policy", || {
        events()
            .iter()
            .find(|it| it["text"].as_str().unwrap().contains("1000 -> 1200"))
            .map(drop)
    });
    order(&[
        "kill",
        "on",
        "--bucket",
        "checkout",
        "--reason",
        "too many refusals",
    ]);
    until_told("kill_on");
    order(&[
        "kill",
        "off",
        "--bucket",
        "checkout",
        "--reason",
        "it was the database",
    ]);
    order(&["rollout", "promote", "checkout"]);
    fleet.zones[1].aggregator.kill_9();
    until_told("aggregator_lost");
    // Saved within a second.
    let saved = |text: &str| text.matches("aggregator_lost").count() == 1;
    let file = fleet
        .policy_path()
        .with_file_name("state")
        .join("events.ndjson");
    until_true("the events are saved", || {
        std::fs::read_to_string(&file).is_ok_and(|text| saved(&text))
    });
    let before = events();
    fleet.controller.kill_9();
    fleet.restart_controller();
    until_told("controller_started");

    let found = events();
    assert_eq!(found[..before.len()], before, "a restart keeps them");
    let told = kinds(&found);
    let expected = [
        "policy_in_force",
        "controller_started",
        "aggregator_joined",
        "aggregator_joined",
        "policy_in_force",
        "kill_on",
        "kill_off",
        "promoted",
        "aggregator_lost",
        "controller_started",
    ];
    assert_eq!(told, expected, "{found:#?}");
    assert_eq!(found[5]["why"], "too many refusals");
    assert!(found[6]["why"] == "it was the database" && found[6]["by"].is_string());
    assert!(
        found[9]["text"]
            .as_str()
            .unwrap()
            .contains("after it had ended without a shutdown")
    );
    let numbers: Vec<u64> = found
        .iter()
        .map(|it| it["number"].as_u64().unwrap())
        .collect();
    assert!(numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
    let last = numbers.last();
    let followed = until("the follower sees the restart", || {
        let lines = follower.output_lines();
        let is_there = lines
            .last()
            .is_some_and(|it| it["number"].as_u64().as_ref() == last);
        is_there.then_some(lines)
    });
    assert_eq!(followed, found);

    let text = order(&["events"]);
    let line = text.lines().find(|line| line.contains("critical")).unwrap();
    let said = "kill switch on for checkout: nothing of it is refused (";
    assert!(
        line.contains(said) && line.ends_with("too many refusals)"),
        "{text}"
    );
}
