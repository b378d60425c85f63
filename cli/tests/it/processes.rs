//! The main paths on real processes, real streams and real HTTP: the limit is kept in total, operators can change
//! their mind, and nothing that dies takes the protection with it.

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::fleet::{BUCKET, Fleet, Rates, TENANTS, policy};
use crate::process::{Process, http_get, message, run, until};

const LIMIT: u32 = 300;
const OFFERED: f64 = 1_200.0;
/// Long enough for 1,500 admitted requests, whose number varies by 2 % of itself.
const SPAN: Duration = Duration::from_secs(5);

/// One fleet at a time: a machine with two cores has no room for two.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static FLEETS: Mutex<()> = Mutex::new(());
    FLEETS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn overloaded_fleet() -> Fleet {
    let mut fleet = Fleet::start(&policy(LIMIT, "enforce", false));
    fleet.ask(OFFERED);
    fleet.until_rates("the limit to be kept", SPAN, keeps(LIMIT));
    fleet
}

fn keeps(limit: u32) -> impl Fn(&Rates) -> bool {
    move |rates| {
        rates.offered > 3.0 * f64::from(limit) && (rates.admitted / f64::from(limit) - 1.0).abs() < 0.1
    }
}

#[test]
fn the_limit_is_kept_in_total_and_follows_the_policy() {
    let _alone = alone();
    let mut fleet = overloaded_fleet();
    let status = fleet.status().unwrap();
    assert_eq!(status["buckets"][BUCKET]["mode"], "enforce");
    assert!(status["buckets"][BUCKET]["tenants"]["acme"]["dropped"].as_u64() > Some(0));

    for (number, zone) in fleet.zones.iter().enumerate() {
        let (_, body) = http_get(zone.aggregator.address("admin"), "/status");
        let status: serde_json::Value = serde_json::from_str(&body).unwrap();
        let clients = status["clients"].as_array().unwrap();
        let names: BTreeSet<String> =
            clients.iter().map(|client| client["name"].as_str().unwrap().to_owned()).collect();
        let listen = zone.services.iter().map(|service| service.address("listen").to_string());
        assert_eq!(names, listen.collect(), "each is known by the address it listens on");
        assert_eq!(status["clients"][0]["connected"], true, "{status}");
        let sample = fleet.sample_zone(number);
        assert!(sample.admit > 0.0 && sample.drop > sample.admit, "both zones share one limit: {sample:?}");
    }

    fleet.save_policy(&policy(LIMIT / 2, "enforce", false));
    fleet.until_rates("half the limit to be kept", SPAN, keeps(LIMIT / 2));

    let seen = fleet.stop_asking();
    for figures in seen {
        assert_eq!(figures["failed"], 0, "every request was answered: {figures}");
        assert!(figures["refused"].as_u64() > figures["served"].as_u64(), "{figures}");
    }
}

#[test]
fn shadow_says_what_enforcement_would_refuse() {
    let _alone = alone();
    let mut fleet = Fleet::start(&policy(LIMIT, "shadow", false));
    fleet.ask(OFFERED);
    let due = 1.0 - f64::from(LIMIT) / OFFERED;
    let rates = fleet.until_rates("the share that would be refused", SPAN, |rates| {
        rates.offered > 3.0 * f64::from(LIMIT) && (rates.would_dropped / rates.offered - due).abs() < 0.02
    });
    assert_eq!(rates.dropped, 0.0, "{rates:?}");
    assert_eq!(fleet.sample().drop, 0.0, "nothing was refused at any time");
}

#[test]
fn the_limit_is_kept_whoever_calls() {
    let _alone = alone();
    let fleet = Fleet::start(&policy(LIMIT, "enforce", false));
    let callers: Result<Vec<Caller>, _> =
        fleet.zones.iter().flat_map(|zone| &zone.services).map(Caller::wrk).collect();
    let Ok(_callers) = callers else {
        skipped("the_limit_is_kept_whoever_calls: wrk is not installed");
        return;
    };
    fleet.until_rates("the limit to be kept", SPAN, keeps(LIMIT));
}

/// A closed-loop HTTP client that is not ours; ends with the test.
struct Caller(Child);

impl Caller {
    fn wrk(service: &Process) -> std::io::Result<Self> {
        let address = format!("http://{}/{BUCKET}", service.address("listen"));
        let mut wrk = Command::new("wrk");
        wrk.args(["-t1", "-c2", "-d120s", "-H", "x-tenant: acme", &address]);
        wrk.stdout(Stdio::null()).stderr(Stdio::null()).spawn().map(Self)
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Tells whoever runs the tests that one could not run, and why.
pub(crate) fn skipped(line: &str) {
    if let Some(file) = std::env::var_os("PLIMSOLL_SKIPPED") {
        let mut file = OpenOptions::new().append(true).create(true).open(file).unwrap();
        writeln!(file, "{line}").unwrap();
    }
}

#[test]
fn a_policy_that_is_broken_changes_nothing_and_says_what_and_where() {
    let _alone = alone();
    let mut fleet = Fleet::start(&policy(LIMIT, "enforce", false));
    let good = fleet.status().unwrap()["policy_hash"].clone();
    let tenants = fleet.policy_path().with_file_name("tenants.yaml");
    let too_large = format!("{}# {}\n", policy(LIMIT, "enforce", false), "x".repeat(2 << 20));
    for (number, (file, text, place, path)) in [
        ("policy.yaml", "bukets: {}\n", "policy.yaml:1:1", "bukets"),
        (
            "policy.yaml",
            "buckets:\n  checkout:\n    limit: -5\n",
            "policy.yaml:3:12",
            "buckets.checkout.limit",
        ),
        ("policy.yaml", "", "policy.yaml:1:1", ""),
        ("policy.yaml", &too_large, "policy.yaml", ""),
        (
            "tenants.yaml",
            "tenants:\n  default: { weight: 1 }\n  default: { weight: 2 }\n",
            "tenants.yaml:3:3",
            "tenants",
        ),
        (
            "tenants.yaml",
            "tenants:\n  default: { weight: .nan }\n",
            "tenants.yaml:2:22",
            "tenants.default.weight",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        if file == "policy.yaml" {
            fleet.save_policy(text);
        } else {
            std::fs::write(&tenants, text).unwrap();
        }
        let refused = (number + 1) as f64;
        until(&format!("{text:.60} to be refused"), || {
            (fleet.controller_metric("plimsoll_policy_reloads_total", "refused") >= refused).then_some(())
        });
        fleet.controller.wait_for(|line| {
            message(line)
                .is_some_and(|said| said.contains("refused") && said.contains(place) && said.contains(path))
        });
        assert_eq!(fleet.controller_metric("plimsoll_policy_refused", ""), 1.0);
        assert_eq!(fleet.status().unwrap()["policy_hash"], good, "{text:.60}");
        fleet.save_policy(&policy(LIMIT, "enforce", false));
        std::fs::write(&tenants, TENANTS).unwrap();
        until("the good files to be taken again", || {
            (fleet.controller_metric("plimsoll_policy_refused", "") == 0.0).then_some(())
        });
        assert_eq!(fleet.status().unwrap()["policy_hash"], good);
    }
    assert_eq!(fleet.controller.terminate().code(), Some(0));
}

#[test]
fn a_kill_stops_all_refusals_and_leaves_shadow_behind_until_somebody_resumes() {
    let _alone = alone();
    let mut fleet = overloaded_fleet();
    let none_refused = |rates: &Rates| rates.offered > 2.0 * f64::from(LIMIT) && rates.dropped == 0.0;
    let in_shadow = |rates: &Rates| none_refused(rates) && rates.would_dropped > f64::from(LIMIT);
    let second = Duration::from_secs(1);

    fleet.save_policy(&policy(LIMIT, "enforce", true));
    fleet.until_rates("refusals to stop", second, in_shadow);
    assert_eq!(fleet.controller_metric("plimsoll_killed", ""), 1.0);

    fleet.save_policy(&policy(LIMIT, "enforce", false));
    until("the kill to end", || (fleet.controller_metric("plimsoll_killed", "") == 0.0).then_some(()));
    let in_shadow_by_its_own_account = |fleet: &Fleet| {
        assert_eq!(fleet.status().unwrap()["buckets"][BUCKET]["mode"], "shadow");
        assert_eq!(fleet.status().unwrap()["buckets"][BUCKET]["file_mode"], "enforce");
        assert_eq!(fleet.controller_metric("plimsoll_bucket_mode", "mode=\"shadow\""), 1.0);
        assert_eq!(fleet.controller_metric("plimsoll_bucket_mode_differs_from_file", ""), 1.0);
    };
    in_shadow_by_its_own_account(&fleet);
    fleet.until_rates("shadow after the kill", second, in_shadow);

    assert_eq!(fleet.controller.terminate().code(), Some(0));
    fleet.restart_controller();
    in_shadow_by_its_own_account(&fleet);
    until("the restarted controller to lead", || fleet.status()?["leading"].as_bool()?.then_some(()));
    fleet.until_rates("shadow after the restart", second, in_shadow);

    fleet.save_policy(&policy(LIMIT, "shadow", false));
    until("the first edge", || (fleet.status()?["buckets"][BUCKET]["file_mode"] == "shadow").then_some(()));
    fleet.save_policy(&policy(LIMIT, "enforce", false));
    fleet.until_rates("the limit to be kept again", SPAN, keeps(LIMIT));
}

/// Watches the services for a while: in no second may protection lapse.
fn check_protected(fleet: &Fleet, span: Duration) {
    let begin = fleet.sample();
    let mut last = begin;
    until("the watch to end", || {
        let now = fleet.sample();
        if now.at - last.at >= Duration::from_secs(1) {
            let rates = last.rates_until(&now);
            // Three quarters of what is offered are refused; without a directive it would be nothing.
            assert!(rates.dropped > 0.4 * rates.offered, "protection lapsed: {rates:?}");
            last = now;
        }
        (now.at - begin.at >= span).then_some(())
    });
}

/// After an outage: protection and limit hold, nobody was left without an answer, and the logs are quiet.
fn check_recovered(fleet: &mut Fleet) {
    check_protected(fleet, Duration::from_secs(2));
    fleet.until_rates("the limit to be kept again", SPAN, keeps(LIMIT));
    check_quiet_logs(fleet);
    for figures in fleet.stop_asking() {
        assert_eq!(figures["failed"], 0, "every request was answered: {figures}");
    }
}

fn check_quiet_logs(fleet: &Fleet) {
    let lines = fleet.service_logs();
    // A handful for each of four services: started, lost, found again.
    assert!(lines.len() < 60, "services log too much: {} lines, such as {:?}", lines.len(), lines.last());
    assert!(!lines.iter().any(|line| line.contains("\"ERROR\"")), "{lines:?}");
}

#[test]
fn a_controller_that_dies_takes_no_protection_with_it() {
    let _alone = alone();
    let mut fleet = overloaded_fleet();
    let epoch = fleet.status().unwrap()["epoch"].as_u64().unwrap();
    fleet.controller.kill_9();
    check_protected(&fleet, SPAN);
    fleet.restart_controller();
    let leads = || fleet.status().filter(|status| status["leading"] == true);
    until("the controller to lead again", || {
        check_protected(&fleet, Duration::from_secs(1));
        leads()
    });
    assert!(fleet.status().unwrap()["epoch"].as_u64().unwrap() > epoch);
    check_recovered(&mut fleet);
}

#[test]
fn an_aggregator_that_dies_takes_no_protection_with_it() {
    let _alone = alone();
    let mut fleet = overloaded_fleet();
    fleet.zones[0].aggregator.kill_9();
    check_protected(&fleet, SPAN);
    fleet.restart_aggregator(0);
    until("the zone's clients to return", || {
        check_protected(&fleet, Duration::from_secs(1));
        let back = fleet.aggregator_metric(0, "plimsoll_children") == 2.0;
        (back && fleet.aggregator_metric(0, "plimsoll_quiet") == 0.0).then_some(())
    });
    check_recovered(&mut fleet);
}

#[test]
fn up_ends_in_good_order_and_says_what_happened() {
    let _alone = alone();
    let ended = run(&["up", "--duration", "4s", "--output", "json"]);
    assert_eq!(ended.status.code(), Some(0), "{}", String::from_utf8_lossy(&ended.stderr));
    let summary: serde_json::Value = serde_json::from_slice(&ended.stdout).unwrap();
    let checkout = &summary["buckets"]["checkout"];
    assert_eq!((&checkout["limit_rps"], &checkout["mode"]), (&1000.0.into(), &"enforce".into()));
    assert!(checkout["offered_rps"].as_f64() >= checkout["admitted_rps"].as_f64());
    assert!(checkout["tenants"]["enterprise_acme"]["offered_rps"].as_f64() > Some(0.0));
    assert!(checkout["tenants"]["enterprise_acme"]["limit_rps"].is_null());
    assert!(summary["buckets"]["api/users"]["drop_ratio"].is_null());

    let mut up = Process::spawn(&["up", "--no-demo", "--log", "info"]);
    up.wait_for(|line| message(line) == Some("connected to the parent"));
    up.signal("INT");
    assert_eq!(up.ended().code(), Some(0));
}
