//! The shipped alerts, evaluated by a real Prometheus server on real fleets: each fires on its
//! fault and is resolved when the fault is over.

use std::collections::BTreeSet;
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use plimsoll_client::Limiter;
use plimsoll_testing::fleet::{Fleet, policy};
use plimsoll_testing::process::{Process, http, run, until};
use plimsoll_testing::turns::{IDLE, turn};
use rustix::process::{Resource, getrlimit};
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::house::root;
use crate::prometheus::RealPrometheus;
use crate::prometheus::extra_gates::HelpDesk;

const LIMIT: u32 = 300;
const OFFERED: u32 = 900;

/// Returns the shipped rules with waits of 1 s before an alert fires.
pub(crate) fn rules() -> String {
    let shipped = fs::read_to_string(root().join("charts/plimsoll/alerts.yaml")).unwrap();
    let line = |line: &str| match line.trim_start().strip_prefix("for: ") {
        Some(_) => line.replace(line.trim_start(), "for: 1s"),
        None => line.to_owned(),
    };
    shipped.lines().map(|text| line(text) + "\n").collect()
}

fn shipped() -> BTreeSet<String> {
    let rules = rules();
    rules
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("- alert: "))
        .map(str::to_owned)
        .collect()
}

/// Alerts of trust, which fire in separate tests.
pub(crate) const OF_TRUST: [&str; 6] = [
    "PlimsollCertificateExpiring",
    "PlimsollCertificateUntrusted",
    "PlimsollCredentialsRefused",
    "PlimsollHandshakesFailing",
    "PlimsollAdminRefused",
    "PlimsollAuditFailing",
];

/// Alerts of exact quotas, which fire in separate tests.
pub(crate) const OF_QUOTAS: [&str; 2] = ["PlimsollQuotaStoreFailing", "PlimsollQuotaDegraded"];

/// Alerts of several controllers, which fire in separate tests.
pub(crate) const OF_MEMBERS: [&str; 5] = [
    "PlimsollNoLeader",
    "PlimsollLeadUnconfirmed",
    "PlimsollMembersMissing",
    "PlimsollMemberFilesDiffer",
    "PlimsollStoreEndpointFailing",
];

pub(crate) const SIDECAR_LATE: &str = "PlimsollSidecarLate";

/// Alert of a fault that no sound fleet has.
const UNDERADMITTING: &str = "PlimsollUnderadmitting";

/// Server that scrapes processes and evaluates the rules.
pub(crate) struct Alerts {
    server: RealPrometheus,
    address: SocketAddr,
    pub(crate) fired: BTreeSet<String>,
}

impl Alerts {
    /// Starts the server on every process of a fleet.
    fn start(test: &str, fleet: &Fleet) -> Option<Self> {
        let aggregators = fleet
            .zones
            .iter()
            .map(|zone| zone.aggregator.address("admin"));
        let services = fleet.services().map(|service| service.address("listen"));
        Self::of(
            test,
            [fleet.controller.address("admin")]
                .into_iter()
                .chain(aggregators)
                .chain(services)
                .collect(),
        )
    }

    /// Starts the server, and waits until it scrapes all pages and nothing fires.
    pub(crate) fn of(test: &str, pages: Vec<SocketAddr>) -> Option<Self> {
        let mut alerts = Self::scraping(test, pages)?;
        alerts.until_firing(&[]);
        Some(alerts)
    }

    /// Starts the server, and waits until it scrapes all pages.
    pub(crate) fn scraping(test: &str, pages: Vec<SocketAddr>) -> Option<Self> {
        // The server scrapes itself, too.
        let count = (pages.len() + 1).to_string();
        let server = RealPrometheus::start_with_rules(test, pages, &rules())?;
        let address = server.url().trim_start_matches("http://").parse().unwrap();
        let alerts = Self {
            server,
            address,
            fired: BTreeSet::new(),
        };
        alerts.until_pages("1", &count);
        Some(alerts)
    }

    fn get(&self, path: &str) -> Option<Value> {
        let (code, body) = http(self.address, "GET", path, &[]).ok()?;
        (code == 200).then(|| serde_json::from_str(&body).unwrap())
    }

    /// Waits until as many pages are up, by `1`, or down, by `0`.
    pub(crate) fn until_pages(&self, up: &str, count: &str) {
        until(&format!("{count} pages of up {up}"), || {
            let answer = self.get(&format!("/api/v1/query?query=count(up%3D%3D{up})"))?;
            (answer["data"]["result"][0]["value"][1] == *count).then_some(())
        });
    }

    pub(crate) fn firing(&self) -> Option<BTreeSet<String>> {
        let answer = self.get("/api/v1/alerts")?;
        let alerts = answer["data"]["alerts"].as_array()?.clone();
        let firing = alerts.iter().filter(|alert| alert["state"] == "firing");
        Some(
            firing
                .map(|alert| alert["labels"]["alertname"].as_str().unwrap().to_owned())
                .collect(),
        )
    }

    /// Waits until all of these fire, and nothing else if the list is empty.
    pub(crate) fn until_firing(&mut self, wanted: &[&str]) {
        let mut seen = BTreeSet::new();
        let last = until(&format!("exactly or at least {wanted:?} to fire"), || {
            let firing = self.firing()?;
            if firing != seen {
                eprintln!("firing: {firing:?}");
                seen.clone_from(&firing);
            }
            let fires = wanted.iter().all(|name| firing.contains(*name));
            (fires && (firing.is_empty() || !wanted.is_empty())).then_some(firing)
        });
        self.fired.extend(last);
    }

    /// Waits until none of these fires anymore.
    pub(crate) fn until_resolved(&self, over: &[&str]) {
        until(&format!("{over:?} to be resolved"), || {
            let firing = self.firing()?;
            (!over.iter().any(|name| firing.contains(*name))).then_some(())
        });
    }
}

#[test]
fn lost_aggregator_alerts_fire_until_its_return() {
    let _turn = turn(OFFERED);
    let mut fleet = Fleet::start(&policy(LIMIT, "enforce", false));
    fleet.start_patient_load(OFFERED.into());
    fleet.until_rates("the limit to hold", Duration::from_secs(5), |rates| {
        rates.offered > 2.0 * f64::from(LIMIT) && rates.admitted < 1.1 * f64::from(LIMIT)
    });
    let test = "alerts::lost_aggregator_alerts_fire_until_its_return";
    let Some(mut alerts) = Alerts::start(test, &fleet) else {
        return;
    };

    fleet.zones[0].aggregator.kill_9();
    alerts.until_firing(&[
        "PlimsollAggregatorLost",
        "PlimsollShareReleased",
        "PlimsollNoContact",
    ]);
    alerts.until_firing(&["PlimsollAdmittedAboveLimit"]);
    // Both figures follow the release over 30 s, the rates a few seconds later than the metric.
    fleet.until_rates(
        "as much beyond the limit as was released",
        Duration::from_secs(3),
        |rates| {
            let beyond = rates.admitted - f64::from(LIMIT);
            let released = fleet.controller_metric("plimsoll_bucket_released", "");
            beyond > 0.1 * f64::from(LIMIT) && (released / beyond - 1.0).abs() < 0.5
        },
    );
    // It stays so until an operator acts.
    alerts.until_firing(&[
        "PlimsollAggregatorLost",
        "PlimsollShareReleased",
        "PlimsollAdmittedAboveLimit",
    ]);

    fleet.restart_aggregator(0);
    alerts.until_resolved(&["PlimsollAggregatorLost", "PlimsollShareReleased"]);
    alerts.until_resolved(&["PlimsollAdmittedAboveLimit", "PlimsollNoContact"]);
}

#[test]
fn every_other_alert_fires_and_is_resolved() {
    let _turn = turn(IDLE);
    let good = policy(LIMIT, "enforce", false);
    let mut fleet = Fleet::start(&good);
    until("the controller to lead", || {
        fleet.status().filter(|status| status["leading"] == true)
    });
    let test = "alerts::every_other_alert_fires_and_is_resolved";
    let Some(mut alerts) = Alerts::start(test, &fleet) else {
        return;
    };

    for (name, fault) in [
        ("PlimsollPolicyRefused", "buckets: {".to_owned()),
        (
            "PlimsollPolicyHeld",
            policy(10 * LIMIT, "enforce", false).replace("guardrails: off\n", ""),
        ),
    ] {
        fleet.save_policy(&fault);
        alerts.until_firing(&[name]);
        fleet.save_policy(&good);
        alerts.until_resolved(&[name]);
    }

    let admin = format!("http://{}", fleet.controller.address("admin"));
    let command = |args: &[&str]| {
        let output = run(&[args, &["--controller", &admin]].concat());
        assert!(
            output.status.success(),
            "{args:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    };
    let state = fleet.policy_path().with_file_name("state");
    let saved = state.join("controller.state");
    let older = fs::read(&saved).unwrap();
    command(&["kill", "on", "--reason", "a test"]);
    command(&["kill", "off"]);
    alerts.until_firing(&["PlimsollModeDiffersFromFile"]);
    // A state of an earlier epoch, without the kill.
    fleet.controller.kill_9();
    fleet.restart_controller();
    until("the next epoch to begin", || {
        fleet.status().filter(|status| status["leading"] == true)
    });
    fleet.controller.kill_9();
    fs::write(&saved, older).unwrap();
    fleet.restart_controller();
    alerts.until_firing(&["PlimsollStateLost", "PlimsollModeNotApplied"]);
    command(&["kill", "off"]);
    alerts.until_resolved(&["PlimsollModeNotApplied"]);
    command(&["acknowledge-loss"]);
    alerts.until_resolved(&["PlimsollStateLost"]);
    fleet.save_policy(&policy(LIMIT, "shadow", false));
    alerts.until_resolved(&["PlimsollModeDiffersFromFile"]);

    let (upper, lower) = (
        fleet.controller.address("listen"),
        fleet.zones[0].aggregator.address("listen"),
    );
    let (upper, lower) = (format!("http://{upper}"), format!("http://{lower}"));
    let free = ["--listen", "127.0.0.1:0"];
    let stranger = ["service", "--zone", "zone-x", "--aggregator", &lower];
    let mut stranger = Process::start(&[&stranger[..], &free].concat());
    let twin = [
        "aggregator",
        "--zone",
        "zone-b",
        "--name",
        "zone-b-aggregator",
        "--controller",
        &upper,
    ];
    let mut twin = Process::start(&[&twin[..], &free, &["--admin", "127.0.0.1:0"]].concat());
    alerts.until_firing(&[
        "PlimsollClientsInOtherZones",
        "PlimsollAggregatorNameConflict",
    ]);
    assert!(stranger.terminate().success());
    twin.kill_9();
    alerts.until_resolved(&["PlimsollClientsInOtherZones"]);
    alerts.until_resolved(&["PlimsollAggregatorNameConflict"]);

    let misled = ["service", "--zone", "zone-a", "--aggregator", &upper];
    let mut misled = Process::start(&[&misled[..], &free].concat());
    alerts.until_firing(&["PlimsollChildRefused"]);
    assert!(misled.terminate().success());
    alerts.until_resolved(&["PlimsollChildRefused"]);

    conflict(&mut fleet, &mut alerts);

    fleet.controller.kill_9();
    alerts.until_firing(&["PlimsollZoneOnHold"]);
    fleet.restart_controller();
    alerts.until_resolved(&["PlimsollZoneOnHold"]);

    fleet.controller.kill_9();
    fleet
        .zones
        .iter_mut()
        .for_each(|zone| zone.aggregator.kill_9());
    fleet.restart_controller();
    alerts.until_firing(&["PlimsollTakeoverIncomplete"]);
    (0..fleet.zones.len()).for_each(|zone| fleet.restart_aggregator(zone));
    alerts.until_resolved(&["PlimsollTakeoverIncomplete"]);

    // A directory of files cannot be read as a file.
    fs::remove_file(fleet.policy_path()).unwrap();
    fs::create_dir(fleet.policy_path()).unwrap();
    alerts.until_firing(&["PlimsollPolicyNotRead"]);
    fs::remove_dir(fleet.policy_path()).unwrap();
    fleet.save_policy(&policy(LIMIT, "shadow", false));
    alerts.until_resolved(&["PlimsollPolicyNotRead", "PlimsollPolicyRefused"]);

    let aggregator = &fleet.zones[0].aggregator;
    aggregator.limit(Resource::Nofile, Some(aggregator.descriptors()));
    // The server scrapes the pages over its open connection.
    let waiting = TcpStream::connect(aggregator.address("listen")).unwrap();
    alerts.until_firing(&["PlimsollConnectionsNotAccepted"]);
    aggregator.limit(Resource::Nofile, getrlimit(Resource::Nofile).maximum);
    alerts.until_resolved(&["PlimsollConnectionsNotAccepted"]);
    drop(waiting);

    // A file replaces the directory of the state.
    let away = state.with_extension("away");
    fs::rename(&state, &away).unwrap();
    fs::write(&state, "").unwrap();
    let killed = run(&["kill", "on", "--reason", "a test", "--controller", &admin]);
    assert!(
        killed.status.success(),
        "{}",
        String::from_utf8_lossy(&killed.stderr)
    );
    alerts.until_firing(&["PlimsollStateNotSaved"]);
    fs::remove_file(&state).unwrap();
    fs::rename(&away, &state).unwrap();
    alerts.until_resolved(&["PlimsollStateNotSaved"]);

    // A client requests more buckets than there is room for. Buckets without room are shown for
    // longer than a test waits.
    let runtime = Runtime::new().unwrap();
    let in_runtime = runtime.enter();
    let crowd = Limiter::builder("crowd")
        .zone("zone-a")
        .aggregator(&lower)
        .buckets_max(2_000);
    let (crowd, _feed) = crowd.build().unwrap();
    let buckets: Vec<_> = (0..1_100)
        .map(|bucket| crowd.bucket(&format!("b{bucket}")).unwrap())
        .collect();
    alerts.until_firing(&["PlimsollBucketUnprotected"]);
    drop((buckets, in_runtime));

    let of_a_lost_aggregator = [
        "PlimsollAggregatorLost",
        "PlimsollShareReleased",
        "PlimsollAdmittedAboveLimit",
        "PlimsollNoContact",
    ];
    let elsewhere = of_a_lost_aggregator
        .into_iter()
        .chain([UNDERADMITTING])
        .chain(OF_TRUST)
        .chain(OF_QUOTAS)
        .chain(OF_MEMBERS)
        .chain([SIDECAR_LATE]);
    let tested: BTreeSet<&str> = alerts
        .fired
        .iter()
        .map(String::as_str)
        .chain(elsewhere)
        .collect();
    assert_eq!(tested, shipped().iter().map(String::as_str).collect());
    alerts.server.stop();
}

/// Runs a second controller, which leads, on a copy of the state of the first, and a service in
/// both halves.
fn conflict(fleet: &mut Fleet, alerts: &mut Alerts) {
    let instance = |controller: &Process| {
        let (_, status) = http(controller.address("admin"), "GET", "/status", &[]).unwrap();
        serde_json::from_str::<Value>(&status).unwrap()["instance"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let second = tempfile::tempdir().unwrap();
    fleet.controller.kill_9();
    fs::copy(fleet.policy_path(), second.path().join("policy.yaml")).unwrap();
    let state = fleet
        .policy_path()
        .with_file_name("state")
        .join("controller.state");
    let saved = fs::read(&state).unwrap();
    fleet.restart_controller();
    // The instance of a process is random.
    let twin = until("a controller of a higher instance", || {
        fs::create_dir_all(second.path().join("state")).unwrap();
        fs::write(second.path().join("state/controller.state"), &saved).unwrap();
        let path = |name: &str| second.path().join(name).display().to_string();
        let (policy, state) = (path("policy.yaml"), path("state"));
        let flags = ["controller", "--policy", &policy, "--state-dir", &state];
        let twin = Process::start(
            &[
                &flags[..],
                &["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"],
            ]
            .concat(),
        );
        (instance(&twin) > instance(&fleet.controller)).then_some(twin)
    });
    let parent = format!("http://{}", twin.address("listen"));
    let flags = [
        "aggregator",
        "--zone",
        "zone-a",
        "--name",
        "of-the-twin",
        "--controller",
        &parent,
    ];
    let aggregator = Process::start(
        &[
            &flags[..],
            &["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"],
        ]
        .concat(),
    );
    let both = [&fleet.zones[0].aggregator, &aggregator]
        .map(|one| format!("http://{}", one.address("listen")));
    let both = both.join(",");
    let service = [
        "service",
        "--zone",
        "zone-a",
        "--aggregator",
        &both,
        "--listen",
        "127.0.0.1:0",
    ];
    let service = Process::start(&service);
    alerts.until_firing(&["PlimsollControllerConflict"]);
    drop((service, aggregator, twin));
    alerts.until_resolved(&["PlimsollControllerConflict"]);
}

#[test]
fn underadmission_alert_follows_its_gauge() {
    let page = HelpDesk::showing("plimsoll_underadmitting{bucket=\"api\"}", 0.0);
    let test = "alerts::underadmission_alert_follows_its_gauge";
    let Some(mut alerts) = Alerts::of(test, vec![page.address]) else {
        return;
    };
    *page.tickets.lock().unwrap() = Some(1.0);
    alerts.until_firing(&[UNDERADMITTING]);
    *page.tickets.lock().unwrap() = Some(0.0);
    alerts.until_resolved(&[UNDERADMITTING]);
    alerts.server.stop();
}

#[test]
fn tests_change_only_the_waits_of_alerts() {
    let shipped = fs::read_to_string(root().join("charts/plimsoll/alerts.yaml")).unwrap();
    let changed: Vec<(&str, String)> = shipped
        .lines()
        .zip(rules().lines().map(str::to_owned))
        .filter(|(before, after)| before != after)
        .collect();
    assert!(!changed.is_empty());
    for (before, after) in changed {
        assert!(
            before.trim_start().starts_with("for: ") && after.trim_start() == "for: 1s",
            "{before}"
        );
    }
}
