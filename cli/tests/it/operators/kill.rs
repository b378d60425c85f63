//! The kill switch on real processes: by command, by file, through an aggregator and at one client;
//! over restarts, on a full disk, and with an invalid policy.

use std::fs;
use std::net::{IpAddr, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use plimsoll_testing::fleet::{
    BUCKET, Fleet, Rates, TENANTS, policy, restart_controller, start_aggregator, start_controller,
};
use plimsoll_testing::process::{
    FREE_PORT, command, http_get, outcome, outcome_of, run, succeed, until, until_true,
};
use plimsoll_testing::turns::{IDLE, turn};
use serde_json::Value;
use tempfile::TempDir;

use plimsoll_testing::skipped;

const LIMIT: u32 = 300;
const OFFERED: u32 = 1_200;
const SPAN: Duration = Duration::from_secs(3);
/// Span without refusals after a kill.
const QUIET: Duration = Duration::from_secs(2);

fn refusing_fleet(policy: &str, flags: &[&str]) -> Fleet {
    let mut fleet = Fleet::start_with(policy, TENANTS, flags);
    fleet.start_patient_load(OFFERED.into());
    fleet.until_rates("refusals", SPAN, refuses);
    fleet
}

fn refuses(rates: &Rates) -> bool {
    rates.dropped > f64::from(LIMIT) / 10.0
}

fn refuses_nothing(rates: &Rates) -> bool {
    rates.dropped == 0.0 && rates.would_dropped > 0.0
}

/// Runs `plimsoll kill`, which must succeed, and returns its output.
pub(crate) fn kill(args: &[&str]) -> String {
    succeed(&[&["kill"], args].concat())
}

/// Runs `plimsoll kill`, which must succeed, and returns its JSON output.
pub(crate) fn kill_json(args: &[&str]) -> Value {
    serde_json::from_str(&kill(&[args, &["--output", "json"]].concat())).unwrap()
}

#[test]
fn commanded_kill_ends_in_shadow() {
    let _turn = turn(OFFERED);
    let mut fleet = refusing_fleet(&policy(LIMIT, "enforce", false), &[]);
    // An invalid policy file does not prevent a kill.
    fleet.save_policy("bukets: {}\n");
    until_true("the policy file to be rejected", || {
        fleet.controller_metric("plimsoll_policy_refused", "") == 1.0
    });
    let controller = fleet.controller.url("admin");
    let why = ["--reason", "it refuses paying callers"];
    let output = kill(&[&["on", "--controller", &controller], &why[..]].concat());
    assert!(
        output.contains("killed: the whole fleet, generation 1"),
        "{output}"
    );
    fleet.until_rates("no refusals", QUIET, refuses_nothing);
    let output = kill(&["status", "--controller", &controller]);
    assert!(
        output.contains("killed") && output.contains("\"it refuses paying callers\""),
        "{output}"
    );

    fleet.save_policy(&policy(LIMIT, "enforce", false));
    fleet.controller.kill_9();
    fleet.restart_controller();
    let status = kill_json(&["status", "--controller", &controller]);
    assert_eq!(status["fleet"]["generation"], 1, "{status}");
    assert_eq!(
        status["fleet"]["command"]["reason"], "it refuses paying callers",
        "{status}"
    );
    fleet.until_rates("no refusals", QUIET, refuses_nothing);

    let output = kill(&["off", "--controller", &controller]);
    assert!(
        output.contains("no longer killed") && output.contains("stays in shadow"),
        "{output}"
    );
    fleet.controller.kill_9();
    fleet.restart_controller();
    until("the controller to lead", || {
        (fleet.status()?["leading"] == true).then_some(())
    });
    fleet.until_rates("no refusals", QUIET, refuses_nothing);
    assert_eq!(fleet.status().unwrap()["buckets"][BUCKET]["mode"], "shadow");

    fleet.save_policy(&policy(LIMIT, "shadow", false));
    until("shadow in the file to be loaded", || {
        (fleet.status()?["buckets"][BUCKET]["file_mode"] == "shadow").then_some(())
    });
    fleet.save_policy(&policy(LIMIT, "enforce", false));
    fleet.until_rates("refusals after the mode was raised", SPAN, refuses);
}

#[test]
fn controller_learns_of_aggregator_kills() {
    let _turn = turn(OFFERED);
    let mut fleet = refusing_fleet(&policy(LIMIT, "enforce", false), &[]);
    let controller = fleet.controller.url("admin");
    let aggregator = fleet.zones[0].aggregator.url("admin");
    fleet.controller.kill_9();
    let (code, output) = outcome(&["kill", "on", "--reason", "x", "--controller", &controller]);
    assert_eq!(code, 1, "{output}");
    assert!(
        output.contains(&controller)
            && output.contains("--aggregator")
            && output.contains("--kill-file"),
        "{output}"
    );

    // With an aggregator in the arguments, only that is contacted.
    let tiers = ["--controller", &controller, "--aggregator", &aggregator];
    let output = kill(&[&["on", "--reason", "no controller"], &tiers[..]].concat());
    assert!(
        output.contains("killed: the whole fleet, generation 1"),
        "{output}"
    );
    let zone_refuses = |fleet: &Fleet, zone: usize| {
        let from = fleet.sample_zone(zone);
        std::thread::sleep(Duration::from_secs(1));
        from.rates_until(&fleet.sample_zone(zone)).dropped > 0.0
    };
    until_true("its zone to refuse nothing", || !zone_refuses(&fleet, 0));
    until_true("the other zone to refuse still", || zone_refuses(&fleet, 1));
    // After a restart the aggregator has lost its state, and takes the claims of its clients.
    fleet.zones[0].aggregator.kill_9();
    fleet.restart_aggregator(0);
    let aggregator = fleet.zones[0].aggregator.url("admin");
    until_true("the clients to reconnect", || {
        fleet.aggregator_metric(0, "plimsoll_kill_generation") == 1.0
    });
    assert!(!zone_refuses(&fleet, 0));

    // The controller has its state, and no process remembers the order: it names the claim, and the
    // clients that hold it stay in shadow.
    fleet.restart_controller();
    let claim = until("the controller to name the claim", || {
        let status = kill_json(&["status", "--controller", &controller]);
        status["claims"].get(0).cloned()
    });
    assert_eq!(
        (&claim["bucket"], &claim["generation"]),
        (&Value::Null, &1.into()),
        "{claim}"
    );
    let (_, shown) = outcome(&["status", "--controller", &controller]);
    assert!(
        shown.contains("holds kill generation 1 of the whole fleet, without an order"),
        "{shown}"
    );
    assert!(!zone_refuses(&fleet, 0));
    assert!(zone_refuses(&fleet, 1));

    // An order counts, and the controller learns of it.
    let output = kill(&["on", "--reason", "again", "--aggregator", &aggregator]);
    assert!(
        output.contains("killed: the whole fleet, generation 1"),
        "{output}"
    );
    fleet.until_rates("no refusals anywhere", QUIET, refuses_nothing);
    let status = kill_json(&["status", "--controller", &controller]);
    assert_eq!(
        (
            &status["fleet"]["killed"],
            &status["fleet"]["command"]["reason"]
        ),
        (&true.into(), &Value::Null)
    );
    assert_eq!(
        status["claims"],
        serde_json::json!([]),
        "the generation has reached it"
    );

    fleet.controller.kill_9();
    let status = kill_json(&["off", "--aggregator", &aggregator]);
    assert_eq!(
        (&status["tier"], &status["fleet"]["generation"]),
        (&"aggregator".into(), &2.into()),
        "{status}"
    );
    std::thread::sleep(QUIET);
    assert!(!zone_refuses(&fleet, 0), "its buckets stay in shadow");
    fleet.restart_controller();
    until_true("the controller to learn of the end of the kill", || {
        let status = kill_json(&["status", "--controller", &controller]);
        status["fleet"]["generation"] == 2
    });
    fleet.until_rates("no refusals anywhere", QUIET, refuses_nothing);
}

#[test]
fn kill_file_kills_one_process() {
    let _turn = turn(OFFERED);
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("kill");
    let flag = file.display().to_string();
    let mut fleet = refusing_fleet(&policy(LIMIT, "enforce", false), &["--kill-file", &flag]);
    // The kill file works without any other tier.
    fleet.controller.kill_9();
    fs::write(&file, "").unwrap();
    fleet.until_rates("no refusals", QUIET, refuses_nothing);
    fs::remove_file(&file).unwrap();
    fleet.until_rates("refusals again", SPAN, |rates| rates.dropped > 0.0);

    let aggregator = ["--aggregator", "http://127.0.0.1:9"];
    let service = [&["service", "--listen", FREE_PORT], &aggregator[..]].concat();
    let (code, refused) = outcome_of(command("plimsoll", &service).env("PLIMSOLL_KILL", "1"));
    assert!(
        code != 0 && refused.contains("create the kill file"),
        "{refused}"
    );
}

#[test]
fn drill_times_every_client_and_enforcement_continues() {
    let _turn = turn(OFFERED);
    let fleet = refusing_fleet(&policy(LIMIT, "enforce", false), &[]);
    let controller = fleet.controller.url("admin");
    let before = fleet.sample();
    for _ in 0..3 {
        let drilled = kill_json(&["drill", "--timeout", "60s", "--controller", &controller]);
        assert_eq!(
            (&drilled["complete"], &drilled["all"]["clients"]),
            (&true.into(), &4.into()),
            "{drilled}"
        );
        for zone in ["zone-a", "zone-b"] {
            let reached = &drilled["zones"][zone];
            assert_eq!(
                (&reached["clients"], &reached["missing"]),
                (&2.into(), &0.into()),
                "{drilled}"
            );
            assert!(reached["p50_ms"].as_f64() > Some(0.0), "{drilled}");
            assert!(
                reached["p50_ms"].as_f64() <= reached["last_ms"].as_f64(),
                "{drilled}"
            );
        }
    }
    let rates = before.rates_until(&fleet.sample());
    assert!(refuses(&rates) && rates.would_dropped == 0.0, "{rates:?}");
    assert_eq!(
        fleet.status().unwrap()["kill_generation"],
        0,
        "a drill kills nothing"
    );

    let aggregator = fleet.zones[1].aggregator.url("admin");
    let output = kill(&["drill", "--aggregator", &aggregator]);
    assert!(
        output.contains("zone-b") && !output.contains("zone-a") && output.contains(" ms"),
        "{output}"
    );

    // A client that does not answer is reported as missing. On a busy machine its stream may end
    // before the drill begins, or another client may be late as well: then the drill is repeated
    // with all of them.
    until("the stopped client alone to be missing", || {
        let drilled = kill_json(&["drill", "--timeout", "60s", "--controller", &controller]);
        if drilled["all"]["clients"] != 4 {
            return None;
        }
        fleet.zones[0].services[0].signal("STOP");
        let short = [
            "kill",
            "drill",
            "--timeout",
            "1s",
            "--controller",
            &controller,
        ];
        let (code, output) = outcome(&short);
        fleet.zones[0].services[0].signal("CONT");
        assert_eq!(code == 1, output.contains("incomplete: "), "{output}");
        output.contains("1 clients are missing").then_some(())
    });
}

/// A small file system in memory.
struct SmallDisk(TempDir);

impl SmallDisk {
    /// Mounts one, or returns `None` without the permission to mount.
    fn mount() -> Option<Self> {
        let directory = TempDir::new().unwrap();
        let mount = ["-t", "tmpfs", "-o", "size=4m", "tmpfs"];
        let mounted = Command::new("mount")
            .args(mount)
            .arg(directory.path())
            .output()
            .ok()?;
        mounted.status.success().then_some(Self(directory))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.path()).output();
    }
}

#[test]
fn full_disk_stops_no_kill() {
    let _turn = turn(IDLE);
    let Some(disk) = SmallDisk::mount() else {
        skipped("full_disk_stops_no_kill: no permission to mount a file system");
        return;
    };
    let policy = policy(LIMIT, "enforce", false);
    let mut controller = start_controller(&disk.0, &policy, TENANTS);
    let aggregator = start_aggregator("zone-a", controller.address("listen"));
    let generation = || {
        let (_, page) = http_get(aggregator.address("admin"), "/kill");
        let kill: Value = serde_json::from_str(&page).unwrap();
        kill["fleet"]["generation"].as_u64().unwrap()
    };
    let filler = disk.path().join("filler");
    // Fills the disk to the last byte.
    let _ = fs::write(&filler, vec![0; 8 << 20]);
    let admin = controller.url("admin");
    let status = kill_json(&["on", "--reason", "the disk is full", "--controller", &admin]);
    assert_eq!(
        (&status["fleet"]["killed"], &status["saved"]),
        (&true.into(), &false.into()),
        "{status}"
    );
    until_true("the kill to reach the aggregator", || generation() == 1);

    // The controller saves the kill as soon as there is room.
    fs::remove_file(&filler).unwrap();
    until_true("the kill to be saved", || {
        kill_json(&["status", "--controller", &admin])["saved"] == true
    });
    controller.kill_9();
    drop(aggregator);
    let controller = restart_controller(&disk.0);
    let status = kill_json(&["status", "--controller", &controller.url("admin")]);
    assert_eq!(
        status["fleet"]["command"]["reason"], "the disk is full",
        "{status}"
    );
}

#[test]
fn invalid_kill_commands_fail_with_a_hint() {
    let reason = ["--reason", "x"];
    let unreachable = ["--controller", "http://127.0.0.1:9"];
    let long = "x".repeat(300);
    for (args, code, hints) in [
        (vec!["on"], 2, vec!["--reason"]),
        (vec!["on", "--reason", ""], 2, vec!["empty"]),
        (vec!["on", "--reason", "a\nb"], 2, vec!["control character"]),
        (
            vec!["on", "--reason", &long],
            2,
            vec!["300 bytes exceed the maximum of 256"],
        ),
        (
            [&["on", "--bucket", "no good"], &reason[..]].concat(),
            2,
            vec!["--bucket"],
        ),
        (
            [&["on", "--ttl", "0s"], &reason[..]].concat(),
            2,
            vec!["1s", "kill off"],
        ),
        (
            [&["on", "--ttl", "soon"], &reason[..]].concat(),
            2,
            vec!["10m"],
        ),
        (
            [&["on", "--controller", "127.0.0.1:7401"], &reason[..]].concat(),
            2,
            vec!["http://127.0.0.1:7401"],
        ),
        (vec!["of"], 2, vec!["off"]),
        (
            [&["on"], &reason[..], &unreachable].concat(),
            1,
            vec!["127.0.0.1:9", "--aggregator", "--kill-file"],
        ),
        (
            [
                &["status", "--aggregator", "http://127.0.0.1:19"],
                &unreachable[..],
            ]
            .concat(),
            1,
            vec!["nothing answers at http://127.0.0.1:19", "--kill-file"],
        ),
    ] {
        let ended = run(&[&["kill"], args.as_slice()].concat());
        let output = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(code), "{args:?}: {output}");
        assert!(ended.stdout.is_empty(), "{args:?}: {output}");
        for hint in hints {
            assert!(
                output.contains(hint),
                "{args:?}: {hint} is missing: {output}"
            );
        }
    }
}

/// Returns an address of this machine other than loopback. Without one notes the skipped test.
pub(crate) fn own_address(test: &str) -> Option<IpAddr> {
    let own = || {
        // The socket sends nothing.
        let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
        socket.connect("192.0.2.1:9").ok()?;
        Some(socket.local_addr().ok()?.ip()).filter(|ip| !ip.is_loopback() && !ip.is_unspecified())
    };
    let found = own();
    if found.is_none() {
        skipped(&format!(
            "{test}: the machine has no address besides loopback"
        ));
    }
    found
}
