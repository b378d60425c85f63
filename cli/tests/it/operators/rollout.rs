//! A scripted rollout on real processes, with seconds for days: good traffic is promoted, bad
//! traffic is rolled back, missing data waits, and the history has the reasons.

use std::fs;
use std::net::SocketAddr;

use plimsoll_core::names::Name;
use plimsoll_core::rollout::Cohort;
use plimsoll_core::rollout::Percent;
use plimsoll_testing::fleet::{controller_in, controller_on, start_aggregator};
use plimsoll_testing::process::{FREE_PORT, Process, outcome, until, until_true};
use plimsoll_testing::turns::turn;
use serde_json::Value;
use tempfile::TempDir;

/// One bucket with a limit so high that a stalled load generator causes no surge, one with a limit
/// that is far too low, and one without requests.
const BUCKETS: [&str; 3] = ["good", "tight", "idle"];
const ZONES: [&str; 2] = ["zone-a", "zone-b"];
/// Load of two buckets together, in requests/s.
pub(crate) const OFFERED: u32 = 320;
/// The controller soon treats the reports of a silent zone as stale.
const QUICK: [&str; 2] = ["--feed-stale", "6s"];

/// Half of the instances enforce in canary, and a stage takes two seconds with data. The bound on
/// p99 is above the delays of a busy machine.
fn policy() -> &'static str {
    "buckets:\n  good: { limit: 1000000, mode: shadow }\n  tight: { limit: 5, mode: shadow }\n  \
         idle: { limit: 1000, mode: shadow }\nrollout:\n  canary_percent: 50\n  \
         shadow: { min_days: 0.00002, window_h: 0.002 }\n  \
         canary: { min_hours: 0.0005, window_min: 0.1, max_p99_delta_ms: 400 }\n  min_samples: 40\n"
}

/// A controller and two zones, each with a service inside and one outside the cohort, and load on
/// all of them.
pub(crate) struct Scene {
    directory: TempDir,
    controller: Process,
    aggregators: Vec<Process>,
    services: Vec<Process>,
    load: Vec<Process>,
}

/// Returns the name of an instance that is in the cohorts of all buckets, or in none of them.
fn instance_name(in_cohort: bool, nth: usize) -> String {
    let fits = |name: &String| {
        let instance = Name::new(name).unwrap();
        BUCKETS.iter().all(|bucket| {
            let cohort = Cohort {
                percent: Percent::new(50.0).unwrap(),
                salt: Cohort::salt_of(bucket),
            };
            cohort.contains(&instance) == in_cohort
        })
    };
    (0..)
        .map(|number| format!("shop-{number}"))
        .filter(fits)
        .nth(nth)
        .unwrap()
}

impl Scene {
    fn start() -> Self {
        Self::start_with(policy(), &QUICK)
    }

    /// Starts with another policy of the same buckets, and these flags of the controller.
    pub(crate) fn start_with(policy: &str, flags: &[&str]) -> Self {
        let mut scene = Self::without_services(policy, flags);
        scene.replace_services(&[]);
        scene
    }

    fn without_services(policy: &str, flags: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("policy.yaml"), policy).unwrap();
        let controller = controller_on(&directory, flags);
        let aggregators = ZONES.map(|zone| start_aggregator(zone, controller.address("listen")));
        Self {
            directory,
            controller,
            aggregators: aggregators.into(),
            services: Vec::new(),
            load: Vec::new(),
        }
    }

    fn start_service(&mut self, zone: usize, in_cohort: bool, flags: &[&str]) {
        let parent = self.aggregators[zone].url("listen");
        let (name, buckets) = (instance_name(in_cohort, zone), BUCKETS.join(","));
        let identity = ["service", "--zone", ZONES[zone], "--name", &name];
        let place = [
            "--aggregator",
            &parent,
            "--buckets",
            &buckets,
            "--listen",
            FREE_PORT,
        ];
        self.services
            .push(Process::start(&[&identity[..], &place, flags].concat()));
    }

    /// Replaces all services; services in the cohort get these flags.
    fn replace_services(&mut self, in_cohort: &[&str]) {
        self.load.clear();
        self.services.clear();
        for zone in [0, 1] {
            self.start_service(zone, true, in_cohort);
            self.start_service(zone, false, &[]);
        }
        for bucket in ["good", "tight"] {
            self.start_load(bucket, OFFERED / 2);
        }
    }

    fn start_load(&mut self, bucket: &str, rps: u32) {
        let targets: Vec<String> = self
            .services
            .iter()
            .map(|service| format!("http://{}/{bucket}", service.address("listen")))
            .collect();
        let (targets, rps) = (targets.join(","), rps.to_string());
        let args = [
            "load", "--target", &targets, "--rps", &rps, "--tenant", "acme",
        ];
        self.load.push(Process::spawn(&args));
    }

    fn restart_controller(&mut self) {
        let [listen, admin] =
            ["listen", "admin"].map(|name| self.controller.address(name).to_string());
        self.controller.kill_9();
        self.controller = controller_in(self.directory.path(), &listen, &admin, &QUICK);
    }

    /// Runs a command of an operator, and returns its exit code and output.
    pub(crate) fn command(&self, args: &[&str]) -> (i32, String) {
        outcome(&[args, &["--controller", &self.controller.url("admin")]].concat())
    }

    fn json(&self, args: &[&str]) -> Value {
        let (code, output) = self.command(&[args, &["--output", "json"]].concat());
        assert_eq!(code, 0, "{args:?}: {output}");
        serde_json::from_str(&output).unwrap()
    }

    pub(crate) fn status(&self, entry: &str) -> Value {
        let all = self.json(&["rollout", "status"]);
        all.as_array()
            .unwrap()
            .iter()
            .find(|status| status["entry"] == entry)
            .unwrap()
            .clone()
    }

    fn stage(&self, entry: &str) -> String {
        self.status(entry)["stage"].as_str().unwrap().to_owned()
    }

    pub(crate) fn admin(&self) -> SocketAddr {
        self.controller.address("admin")
    }

    /// Promotes as soon as the gate passes.
    pub(crate) fn promote(&self, entry: &str, to: &str) {
        let mut before = String::new();
        until_true(&format!("{entry} to be promoted to {to}"), || {
            let (code, output) = self.command(&["rollout", "promote", entry]);
            if output != before {
                // Cargo shows this only if the test fails.
                eprint!("{output}");
                before.clone_from(&output);
            }
            assert!(
                code == 0 || (code == 1 && output.contains("--force --reason")),
                "{output}"
            );
            code == 0
        });
        assert_eq!(self.stage(entry), to);
    }

    /// Waits until the last change of an entry has this cause, and returns it.
    pub(crate) fn last_change(&self, entry: &str, cause: &str) -> Value {
        until(&format!("{entry} to change by {cause}"), || {
            let history = self.json(&["rollout", "history", entry]);
            history
                .as_array()
                .unwrap()
                .last()
                .filter(|change| change["cause"] == cause)
                .cloned()
        })
    }
}

#[test]
fn good_traffic_promotes_and_bad_rolls_back() {
    let _turn = turn(OFFERED);
    let mut scene = Scene::start();

    // An entry is promoted only with enough data: one without requests waits forever.
    let (code, output) = scene.command(&["rollout", "promote", "idle"]);
    assert_eq!(code, 1, "{output}");
    assert!(output.contains("would-drop ratio is unknown"), "{output}");
    let (code, output) = scene.command(&["rollout", "promote", "god"]);
    assert_eq!(code, 2, "{output}");
    assert!(output.contains("no entry `god`; it has `good`"), "{output}");
    let (code, output) = scene.command(&["rollout", "promote", "good", "--to", "shadow"]);
    assert!(
        code == 2 && output.contains("plimsoll rollout abort"),
        "{output}"
    );
    let (code, output) = scene.command(&["rollout", "promote", "good", "--to", "enforce"]);
    assert!(
        code == 1 && output.contains("canary is skipped"),
        "{output}"
    );

    // Good traffic: shadow, canary, enforce, with the evidence of each.
    scene.promote("good", "canary");
    scene.promote("good", "enforce");
    let change = scene.last_change("good", "promote");
    let evidence = &change["evidence"];
    assert_eq!(
        (&change["from"], &change["to"]),
        (&"canary".into(), &"enforce".into())
    );
    assert!(evidence["with_data_ms"].as_u64() >= Some(1_800), "{change}");
    for side in ["canary", "control"] {
        assert!(evidence[side]["samples"].as_u64() >= Some(40), "{change}");
        assert_eq!(evidence[side]["refused"], 0);
    }
    let (_, output) = scene.command(&["rollout", "history", "good"]);
    assert!(
        output.contains("good: canary -> enforce (promote)") && output.contains("p99"),
        "{output}"
    );

    // Refusals above the gate: promoted only by force, and rolled back as soon as they are
    // reported.
    let (code, output) = scene.command(&["rollout", "promote", "tight"]);
    assert!(code == 1 && output.contains("would-drop ratio"), "{output}");
    let (code, output) = scene.command(&[
        "rollout", "promote", "tight", "--force", "--reason", "a trial",
    ]);
    assert_eq!(code, 0, "{output}");
    let change = scene.last_change("tight", "breach");
    assert_eq!(
        (&change["from"], &change["to"]),
        (&"canary".into(), &"shadow".into())
    );
    assert!(
        change["why"][0]
            .as_str()
            .unwrap()
            .starts_with("drop ratio of the canary cohort"),
        "{change}"
    );
    assert!(
        change["evidence"]["canary"]["refused"].as_u64() > Some(0),
        "{change}"
    );
    let forced = scene.json(&["rollout", "history", "tight"]);
    assert!(
        forced
            .as_array()
            .unwrap()
            .iter()
            .any(|change| change["why"][0] == "a trial"),
        "{forced}"
    );

    // Stages and history survive a restart of the controller.
    scene.restart_controller();
    assert_eq!(
        (scene.stage("good").as_str(), scene.stage("tight").as_str()),
        ("enforce", "shadow")
    );
    assert_eq!(scene.last_change("tight", "breach"), change);

    // The cohort becomes slow: aborted, promoted again, and rolled back.
    let (code, output) = scene.command(&["rollout", "abort", "good", "--reason", "next trial"]);
    assert_eq!(code, 0, "{output}");
    scene.replace_services(&["--workers", "200", "--work-ms", "1000"]);
    scene.promote("good", "canary");
    let change = scene.last_change("good", "breach");
    assert!(
        change["why"][0]
            .as_str()
            .unwrap()
            .starts_with("p99 of the canary cohort is"),
        "{change}"
    );
    assert!(
        change["evidence"]["canary"]["p99_us"].as_u64() > Some(900_000),
        "{change}"
    );

    // A zone is silent: rolled back as soon as its reports are stale.
    scene.replace_services(&[]);
    scene.promote("good", "canary");
    scene.aggregators[1].signal("STOP");
    let change = scene.last_change("good", "stale");
    assert!(
        change["why"][0]
            .as_str()
            .unwrap()
            .starts_with("zone zone-b has sent no report"),
        "{change}"
    );
    let (code, output) = scene.command(&["rollout", "promote", "good"]);
    assert!(code == 1 && output.contains("zone-b"), "{output}");
    scene.aggregators[1].signal("CONT");
    let page = scene.controller.metrics("admin");
    for shown in [
        "plimsoll_rollout_gate{entry=\"good\",result=",
        // From the history, which survived the restart.
        "plimsoll_rollout_last_breach_timestamp_seconds{entry=\"tight\"} ",
    ] {
        assert!(page.contains(shown), "{shown} is missing: {page}");
    }
}
