//! Faults of a fleet show in the metrics that alerts read, until they are over. What an alert makes of a metric is shown by
//! `charts/plimsoll/alerts.test.yaml`.

use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use plimsoll_client::Limiter;
use plimsoll_testing::fleet::{Fleet, metric, policy};
use plimsoll_testing::process::{FREE, Process, http, succeed, until, until_true};
use plimsoll_testing::turns::{IDLE, turn};
use tokio::runtime::Runtime;

const LIMIT: u32 = 300;
/// Policy files are read at least as often.
const READ_EVERY: Duration = Duration::from_secs(15);

fn fleet() -> Fleet {
    let fleet = Fleet::start(&policy(LIMIT, "enforce", false));
    until("the controller to lead", || {
        fleet.status().filter(|status| status["leading"] == true)
    });
    fleet
}

/// Waits until a tier shows this value, or the sum over the labels.
fn until_shown(tier: &Process, name: &str, value: f64) {
    until(&format!("{name} to be {value}"), || {
        let (_, page) = http(tier.address("admin"), "GET", "/metrics", &[]).ok()?;
        (page.contains(name) && metric(&page, name, "") == value).then_some(())
    });
}

#[test]
fn faults_of_orders_and_files() {
    let _turn = turn(IDLE);
    let mut fleet = fleet();
    let good = policy(LIMIT, "enforce", false);
    let drastic = policy(10 * LIMIT, "enforce", false).replace("guardrails: off\n", "");
    fleet.save_policy(&drastic);
    until_shown(&fleet.controller, "plimsoll_policy_held", 1.0);
    fleet.save_policy(&good);
    until_shown(&fleet.controller, "plimsoll_policy_held", 0.0);

    let admin = fleet.controller.url("admin");
    let kill = |args: &[&str]| succeed(&[&["kill"], args, &["--controller", &admin]].concat());
    kill(&["on", "--reason", "a test"]);
    for name in ["plimsoll_killed", "plimsoll_bucket_killed"] {
        until_shown(&fleet.controller, name, 1.0);
    }
    kill(&["off"]);
    until_shown(&fleet.controller, "plimsoll_killed", 0.0);
    let differs = "plimsoll_bucket_mode_differs_from_file";
    until_shown(&fleet.controller, differs, 1.0);
    fleet.save_policy(&policy(LIMIT, "shadow", false));
    until_shown(&fleet.controller, differs, 0.0);

    // A file replaces the directory of the state.
    let state = fleet.policy_path().with_file_name("state");
    let away = state.with_extension("away");
    fs::rename(&state, &away).unwrap();
    fs::write(&state, "").unwrap();
    kill(&["on", "--reason", "a test"]);
    until_shown(&fleet.controller, "plimsoll_state_unsaved", 1.0);
    fs::remove_file(&state).unwrap();
    fs::rename(&away, &state).unwrap();
    until_shown(&fleet.controller, "plimsoll_state_unsaved", 0.0);

    // A directory cannot be read as a file.
    fs::remove_file(fleet.policy_path()).unwrap();
    fs::create_dir(fleet.policy_path()).unwrap();
    let unread = || {
        let read = fleet.controller_metric("plimsoll_policy_last_read_timestamp_seconds", "");
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        now.as_secs_f64() - read
    };
    until_true("the files to be unread", || {
        unread() > READ_EVERY.as_secs_f64() + 2.0
    });
    fs::remove_dir(fleet.policy_path()).unwrap();
    fleet.save_policy(&good);
    until_true("the files to be read", || unread() < 2.0);

    // Nothing reports to the controller.
    fleet.controller.kill_9();
    fleet
        .zones
        .iter_mut()
        .for_each(|zone| zone.aggregator.kill_9());
    fleet.restart_controller();
    until_shown(&fleet.controller, "plimsoll_takeover_complete", 0.0);
    (0..fleet.zones.len()).for_each(|zone| fleet.restart_aggregator(zone));
    until_shown(&fleet.controller, "plimsoll_takeover_complete", 1.0);
}

#[test]
fn faults_of_children() {
    let _turn = turn(IDLE);
    let fleet = fleet();
    let aggregator = &fleet.zones[0].aggregator;
    let [upper, lower] = [&fleet.controller, aggregator].map(|tier| tier.url("listen"));

    let stranger = ["service", "--zone", "zone-x", "--aggregator", &lower];
    let mut stranger = Process::start(&[&stranger[..], &FREE[..2]].concat());
    until_shown(aggregator, "plimsoll_clients_in_other_zones", 1.0);
    assert!(stranger.terminate().success());
    until_shown(aggregator, "plimsoll_clients_in_other_zones", 0.0);

    let identity = ["--zone", "zone-b", "--name", "zone-b-aggregator"];
    let twin = ["aggregator", "--controller", &upper];
    let mut twin = Process::start(&[&twin[..], &identity, &FREE].concat());
    let misled = ["service", "--zone", "zone-a", "--aggregator", &upper];
    let mut misled = Process::start(&[&misled[..], &FREE[..2]].concat());
    let of_controller = [
        "plimsoll_aggregator_name_conflict",
        "plimsoll_children_refused",
    ];
    for name in of_controller {
        until_shown(&fleet.controller, name, 1.0);
    }
    twin.kill_9();
    assert!(misled.terminate().success());

    // A client requests more buckets than there is room for.
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
    until_true("buckets without room", || {
        fleet.aggregator_metric(0, "plimsoll_buckets_unprotected") > 0.0
    });
    drop((buckets, in_runtime));

    // Both are shown for a minute after the fault.
    for name in of_controller {
        until_shown(&fleet.controller, name, 0.0);
    }
}
