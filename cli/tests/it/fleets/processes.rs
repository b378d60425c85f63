//! The main paths on real processes, streams and HTTP: the limit holds in total, operators change
//! policies, and protection continues while any tier is down.

use std::collections::BTreeSet;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use plimsoll_testing::fleet::{BUCKET, Fleet, Rates, policy};
use plimsoll_testing::is_installed;
use plimsoll_testing::process::{
    Process, command, message, outcome_of, succeed, until, until_true,
};
use plimsoll_testing::turns::{ALL, turn};

const LIMIT: u32 = 300;
const OFFERED: u32 = 1_200;
/// Span of averages: long enough for 1,500 admitted requests. Their number varies by 2 %.
const SPAN: Duration = Duration::from_secs(5);

fn overloaded_fleet() -> Fleet {
    let mut fleet = Fleet::start(&policy(LIMIT, "enforce", false));
    fleet.start_patient_load(OFFERED.into());
    fleet.until_rates("the limit to hold", SPAN, holds(LIMIT));
    fleet
}

fn holds(limit: u32) -> impl Fn(&Rates) -> bool {
    move |rates| {
        rates.offered > 3.0 * f64::from(limit)
            && (rates.admitted / f64::from(limit) - 1.0).abs() < 0.1
    }
}

#[test]
fn total_limit_holds_and_follows_the_policy() {
    let _turn = turn(OFFERED);
    let mut fleet = overloaded_fleet();
    let status = fleet.status().unwrap();
    assert_eq!(status["buckets"][BUCKET]["mode"], "enforce");
    assert!(status["buckets"][BUCKET]["tenants"]["acme"]["dropped"].as_u64() > Some(0));

    for (number, zone) in fleet.zones.iter().enumerate() {
        let status = zone.aggregator.status();
        let clients = status["clients"].as_array().unwrap();
        let names: BTreeSet<String> = clients
            .iter()
            .map(|client| client["name"].as_str().unwrap().to_owned())
            .collect();
        let listen = zone
            .services
            .iter()
            .map(|service| service.address("listen").to_string());
        assert_eq!(
            names,
            listen.collect(),
            "clients are named after their listen address"
        );
        assert_eq!(status["clients"][0]["connected"], true, "{status}");
        let sample = fleet.sample_zone(number);
        assert!(
            sample.admit > 0.0 && sample.drop > sample.admit,
            "both zones share the limit: {sample:?}"
        );
    }

    fleet.save_policy(&policy(LIMIT / 2, "enforce", false));
    fleet.until_rates("half the limit to hold", SPAN, holds(LIMIT / 2));

    let summaries = fleet.stop_load();
    for figures in summaries {
        assert_eq!(
            figures["failed"], 0,
            "every request was answered: {figures}"
        );
        assert!(
            figures["refused"].as_u64() > figures["served"].as_u64(),
            "{figures}"
        );
    }
}

#[test]
fn limit_holds_for_an_independent_caller() {
    let _turn = turn(ALL);
    let fleet = Fleet::start(&policy(LIMIT, "enforce", false));
    let callers: Result<Vec<Wrk>, _> = fleet
        .zones
        .iter()
        .flat_map(|zone| &zone.services)
        .map(Wrk::start)
        .collect();
    let Ok(_callers) = callers else {
        plimsoll_testing::skipped("limit_holds_for_an_independent_caller: wrk is not installed");
        return;
    };
    fleet.until_rates("the limit to hold", SPAN, holds(LIMIT));
}

/// The closed-loop load generator wrk, killed on drop.
struct Wrk(Child);

impl Wrk {
    fn start(service: &Process) -> std::io::Result<Self> {
        let address = format!("http://{}/{BUCKET}", service.address("listen"));
        let mut wrk = Command::new("wrk");
        wrk.args(["-t1", "-c2", "-d120s", "-H", "x-tenant: acme", &address]);
        wrk.stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map(Self)
    }
}

impl Drop for Wrk {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Checks for a while that protection lapses in no second.
fn check_protected(fleet: &Fleet, span: Duration) {
    let begin = fleet.sample();
    let mut last = begin;
    until_true("the end of the check", || {
        let now = fleet.sample();
        if now.at - last.at >= Duration::from_secs(1) {
            let rates = last.rates_until(&now);
            // Three quarters of the load are refused; without directives nothing would be. On a
            // machine that is too busy to send so much, load stops and surges, and a surge admits
            // up to 1.65 times the limit.
            let is_held = rates.admitted < 1.65 * f64::from(LIMIT);
            assert!(
                is_held || rates.dropped > 0.4 * rates.offered,
                "protection lapsed: {rates:?}"
            );
            last = now;
        }
        now.at - begin.at >= span
    });
}

/// Checks after an outage that protection and limit hold, every request was answered, and the logs
/// are short.
fn check_recovered(fleet: &mut Fleet) {
    check_protected(fleet, Duration::from_secs(2));
    fleet.until_rates("the limit to hold again", SPAN, holds(LIMIT));
    check_logs_are_short(fleet);
    for figures in fleet.stop_load() {
        assert_eq!(
            figures["failed"], 0,
            "every request was answered: {figures}"
        );
    }
}

fn check_logs_are_short(fleet: &Fleet) {
    let lines = fleet.service_logs();
    // A few for each of four services: started, disconnected, connected again.
    assert!(
        lines.len() < 60,
        "services log too much: {} lines, such as {:?}",
        lines.len(),
        lines.last()
    );
    assert!(
        !lines.iter().any(|line| line.contains("\"ERROR\"")),
        "{lines:?}"
    );
}

#[test]
fn protection_continues_while_the_controller_is_down() {
    let _turn = turn(OFFERED);
    let mut fleet = overloaded_fleet();
    let epoch = fleet.status().unwrap()["epoch"].as_u64().unwrap();
    fleet.controller.kill_9();
    check_protected(&fleet, SPAN);
    fleet.restart_controller();
    let leading = || fleet.status().filter(|status| status["leading"] == true);
    until("the controller to lead again", || {
        check_protected(&fleet, Duration::from_secs(1));
        leading()
    });
    assert!(fleet.status().unwrap()["epoch"].as_u64().unwrap() > epoch);
    check_recovered(&mut fleet);
}

#[test]
fn protection_continues_while_an_aggregator_is_down() {
    let _turn = turn(OFFERED);
    let mut fleet = overloaded_fleet();
    fleet.zones[0].aggregator.kill_9();
    check_protected(&fleet, SPAN);
    fleet.restart_aggregator(0);
    until_true("the clients of the zone to reconnect", || {
        check_protected(&fleet, Duration::from_secs(1));
        let back = fleet.aggregator_metric(0, "plimsoll_children") == 2.0;
        back && fleet.aggregator_metric(0, "plimsoll_warming_up") == 0.0
    });
    check_recovered(&mut fleet);
}

#[test]
fn up_ends_cleanly_with_a_summary() {
    let _turn = turn(ALL);
    let summary_after = |duration: &str| -> serde_json::Value {
        let summary = succeed(&["up", "--duration", duration, "--output", "json"]);
        serde_json::from_str(&summary).unwrap()
    };
    let reasons = |summary: &serde_json::Value, bucket: &str| -> Vec<String> {
        serde_json::from_value(
            summary["buckets"][bucket]["tenants"]["enterprise_acme"]["reasons"].clone(),
        )
        .unwrap()
    };
    let mut summary = summary_after("12s");
    // A busy machine may need longer until the controller knows the rates, and until a tenant has
    // used its quota.
    let is_known = |summary| {
        [reasons(summary, "checkout"), reasons(summary, "reports")]
            .iter()
            .all(|it| !it.is_empty())
    };
    if !is_known(&summary) {
        summary = summary_after("40s");
    }
    assert_eq!(reasons(&summary, "checkout"), ["cluster_overload"]);
    assert_eq!(reasons(&summary, "reports"), ["tenant_quota_exceeded"]);
    let checkout = &summary["buckets"]["checkout"];
    assert_eq!(
        (&checkout["limit_rps"], &checkout["mode"]),
        (&1000.0.into(), &"enforce".into())
    );
    assert!(checkout["offered_rps"].as_f64() >= checkout["admitted_rps"].as_f64());
    assert!(checkout["tenants"]["enterprise_acme"]["offered_rps"].as_f64() > Some(0.0));
    assert!(checkout["tenants"]["enterprise_acme"]["limit_rps"].is_null());
    assert!(summary["buckets"]["api/users"]["drop_ratio"].is_null());

    let mut up = Process::spawn(&["up", "--no-demo", "--log", "info"]);
    up.wait_for(|line| message(line) == Some("connected to the parent"));
    up.signal("INT");
    assert_eq!(up.ended().code(), Some(0));
}

#[test]
fn up_starts_several_controllers() {
    let several = ["up", "--no-demo", "--log", "info", "--controllers", "2"];
    let (code, error) = outcome_of(command("plimsoll", &several).env("PATH", ""));
    assert!(code == 2 && error.contains("etcd-server"), "{error}");
    if !is_installed("etcd", "up_starts_several_controllers") {
        return;
    }
    let mut up = Process::spawn(&several);
    up.wait_for(|line| message(line) == Some("elected: this controller leads"));
    up.wait_for(|line| message(line) == Some("connected to the parent"));
    // A closed terminal sends it twice.
    up.signal("HUP");
    up.signal("HUP");
    assert_eq!(up.ended().code(), Some(0));
}
