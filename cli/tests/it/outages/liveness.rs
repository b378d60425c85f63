//! Aggregators that are lost, leave, or share a name, and services of another zone, on real
//! processes: each is visible in logs, metrics and status.

use std::fs;
use std::time::Duration;

use plimsoll_testing::fleet::{BUCKET, Fleet, controller_on, policy, start_aggregator};
use plimsoll_testing::process::{Process, message, outcome, until, until_true};
use plimsoll_testing::turns::{IDLE, turn};
use serde_json::Value;

/// So much that the zone that is left uses the whole limit.
const OFFERED: u32 = 900;
const LIMIT: u32 = 300;
const LOST: &str = "zone-a/zone-a-aggregator";

/// A fleet without load and with rates from its controller.
fn fleet() -> Fleet {
    let fleet = Fleet::start(&policy(LIMIT, "enforce", false));
    until("the controller to lead with both zones", || {
        let status = fleet.status()?;
        let connected = status["aggregators"]
            .as_array()?
            .iter()
            .filter(|a| a["connected"] == true)
            .count();
        (status["leading"] == true && connected == 2).then_some(())
    });
    fleet
}

/// Returns the aggregator of zone a in the status of the controller.
fn listed(fleet: &Fleet) -> Option<Value> {
    let status = fleet.status()?;
    status["aggregators"]
        .as_array()?
        .iter()
        .find(|aggregator| aggregator["zone"] == "zone-a")
        .cloned()
}

fn command(fleet: &Fleet, args: &[&str]) -> (i32, String) {
    outcome(&[args, &["--controller", &fleet.controller.url("admin")]].concat())
}

/// Waits until a process has logged an error or another line that begins with `text`, and returns
/// it.
fn logged(process: &Process, text: &str) -> Value {
    process.wait_for(|line| message(line).is_some_and(|message| message.starts_with(text)))
}

fn of_lost(fleet: &Fleet, name: &str) -> f64 {
    fleet.controller_metric(name, "zone=\"zone-a\"")
}

#[test]
fn lost_aggregator_stays_visible_until_forgotten() {
    let _turn = turn(OFFERED);
    let mut fleet = fleet();
    fleet.start_patient_load(OFFERED.into());
    until_true("the traffic to be known", || {
        fleet.controller_metric("plimsoll_bucket_offered", "") > f64::from(OFFERED) / 2.0
    });
    let connected = logged(&fleet.controller, "aggregator connected");
    assert!(
        connected["fields"]["zone"].is_string() && connected["fields"]["aggregator"].is_string()
    );
    until_true("the fleet to be healthy", || {
        let (code, text) = command(&fleet, &["status"]);
        code == 0 && text.starts_with("no problems: ")
    });
    // Both zones have their shares.
    fleet.until_rates("the limit to hold", Duration::from_secs(5), |rates| {
        (rates.admitted / f64::from(LIMIT) - 1.0).abs() < 0.1
    });
    fleet.zones[0].aggregator.kill_9();
    let lost = logged(&fleet.controller, "aggregator disconnected");
    assert_eq!(lost["fields"]["zone"], "zone-a");
    assert!(
        lost["fields"]["reason"]
            .as_str()
            .unwrap()
            .starts_with("the connection broke: "),
        "{lost}"
    );
    let (code, text) = command(&fleet, &["status"]);
    assert!(
        code == 1 && text.contains(&format!("{LOST} disconnected for ")),
        "{text}"
    );

    until("its release to be shown before it has expired", || {
        let lost = listed(&fleet)?;
        let is_shown = fleet.controller_metric("plimsoll_bucket_released", "") > 0.0;
        (lost["released"].as_f64()? > 0.0 && lost["expired"] == false && is_shown).then_some(())
    });
    until("the aggregator to expire", || {
        listed(&fleet).filter(|lost| lost["expired"] == true)
    });
    let expired = logged(&fleet.controller, &format!("aggregator {LOST} expired: "));
    assert!(
        message(&expired)
            .unwrap()
            .ends_with(&format!("`plimsoll forget {LOST}`")),
        "{expired}"
    );
    assert_eq!(of_lost(&fleet, "plimsoll_aggregator_expired"), 1.0);
    assert_eq!(of_lost(&fleet, "plimsoll_aggregator_connected"), 0.0);
    assert!(of_lost(&fleet, "plimsoll_aggregator_silent_seconds") >= 59.0);
    assert!(fleet.controller_metric("plimsoll_bucket_released", "") > 0.0);
    until_true("the aggregator to be stale", || {
        of_lost(&fleet, "plimsoll_aggregator_stale") == 1.0
    });

    // Its clients live, and hear nothing of the controller.
    let updates = fleet.services().map(|service| {
        let name = "plimsoll_directive_last_update_timestamp_seconds";
        service.metric("listen", name, "")
    });
    let updates: Vec<f64> = updates.collect();
    assert!(updates[0] + 59.0 < updates[2], "{updates:?}");
    fleet.until_rates(
        "as much beyond the limit as was released",
        Duration::from_secs(3),
        |rates| {
            let beyond = rates.admitted - f64::from(LIMIT);
            let released = fleet.controller_metric("plimsoll_bucket_released", "");
            beyond > 0.1 * f64::from(LIMIT) && (released / beyond - 1.0).abs() < 0.5
        },
    );

    // A restart of the controller changes nothing.
    fleet.controller.kill_9();
    fleet.restart_controller();
    let lost = until("the aggregator to be listed", || listed(&fleet));
    assert!(
        lost["expired"] == true && lost["stale"] == true && lost["connected"] == false,
        "{lost}"
    );
    until_true("the share to be released again", || {
        fleet.controller_metric("plimsoll_bucket_released", "") > 0.0
    });
    let (_, text) = command(&fleet, &["status", "--all"]);
    assert!(
        text.contains(&format!("{LOST} expired, its last report was "))
            && text.contains(&format!(
                "aggregator {LOST}: expired, version unknown, last report 1m "
            )),
        "{text}"
    );
    assert!(
        text.contains("/s of silent aggregators are released to the others"),
        "{text}"
    );

    let (code, text) = command(&fleet, &["forget", "zone-a/zone-a-agregator"]);
    assert_eq!(code, 2, "{text}");
    assert!(text.contains(&format!("did you mean `{LOST}`?")), "{text}");
    until_true("the other aggregator to be connected", || {
        let (code, text) = command(&fleet, &["forget", "zone-b/zone-b-aggregator"]);
        code == 1 && text.contains("is connected: stop it first")
    });
    let (code, text) = command(&fleet, &["forget", LOST]);
    assert_eq!(
        (code, text.as_str()),
        (
            0,
            "forgotten: zone-a/zone-a-aggregator; its share of every limit is free\n"
        )
    );
    assert_eq!(listed(&fleet), None);
    fleet.controller.kill_9();
    fleet.restart_controller();
    until("the controller to lead", || {
        fleet.status().filter(|status| status["leading"] == true)
    });
    assert_eq!(listed(&fleet), None);
}

/// If it did not recognise its own pause, the controller would find its aggregator stale and end
/// the canary.
#[test]
fn frozen_controller_ends_no_canary() {
    let _turn = turn(IDLE);
    let directory = tempfile::tempdir().unwrap();
    fs::write(
        directory.path().join("policy.yaml"),
        policy(300, "canary", false),
    )
    .unwrap();
    let controller = controller_on(&directory, &["--feed-stale", "3s"]);
    let _aggregator = start_aggregator("zone-a", controller.address("listen"));
    let silence = || controller.status()["aggregators"][0]["last_report_s"].as_f64();
    let heard = || until("a report", || silence().filter(|silence| *silence < 1.0));
    heard();
    controller.signal("STOP");
    std::thread::sleep(Duration::from_secs(5));
    controller.signal("CONT");
    // As long as the ticks after the pause take.
    let mut polls = 0;
    until("the time after the pause", || {
        let status = controller.status();
        assert_eq!(status["buckets"][BUCKET]["mode"], "canary", "{status}");
        assert_eq!(status["aggregators"][0]["stale"], false, "{status}");
        polls += 1;
        (polls >= 80 && silence()? < 1.0).then_some(())
    });
}
