//! Files and disks that fail while a controller runs: something else than a file at the path of the policy, a
//! state directory that cannot be written, and a disk that is full for a while.

use std::fs;
use std::path::Path;
use std::process::Command;

use rustix::process::Resource;
use serde_json::Value;

use crate::fleet::{BUCKET, Fleet, TENANTS, metric, policy};
use crate::process::{Process, http_get, message, run, until};
use crate::turns::{IDLE, turn};

const FREE: [&str; 4] = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];

/// Puts a FIFO that no process writes in the place of a file, as a rename does.
fn replace_by_fifo(path: &Path) {
    let fifo = path.with_extension("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    fs::rename(fifo, path).unwrap();
}

fn limit_of(fleet: &Fleet) -> Option<f64> {
    fleet.status()?["buckets"][BUCKET]["limit_rps"].as_f64()
}

fn text_of(args: &[&str]) -> (Option<i32>, String) {
    let output = run(args);
    (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
}

#[test]
fn fifo_at_the_path_of_the_policy_stops_neither_reloads_nor_the_controller() {
    let _turn = turn(IDLE);
    let mut fleet = Fleet::without_services(&policy(300, "enforce", false), TENANTS);
    for (limit, path) in [(200, "policy.yaml"), (100, "tenants.yaml")] {
        let path = fleet.policy_path().with_file_name(path);
        let good = fs::read_to_string(&path).unwrap();
        let read_at = fleet.controller_metric("plimsoll_policy_last_read_timestamp_seconds", "");
        replace_by_fifo(&path);
        let refused = fleet.controller.wait_for(|line| {
            message(line).is_some_and(|text| {
                text.starts_with("policy refused") && text.contains(path.to_str().unwrap())
            })
        });
        assert!(message(&refused).unwrap().contains("a FIFO, not a regular file"), "{refused}");
        assert_eq!(fleet.controller_metric("plimsoll_policy_refused", ""), 1.0);
        fs::remove_file(&path).unwrap();
        fs::write(&path, good).unwrap();
        fleet.save_policy(&policy(limit, "enforce", false));
        until("the policy to be read again", || (limit_of(&fleet)? == f64::from(limit)).then_some(()));
        until("a later time of the last read", || {
            let now = fleet.controller_metric("plimsoll_policy_last_read_timestamp_seconds", "");
            (now > read_at && read_at > 1.7e9).then_some(())
        });
    }
    let refused = fleet.controller_metric("plimsoll_policy_reloads_total", "refused");
    replace_by_fifo(&fleet.policy_path());
    until("the FIFO to be found", || {
        (fleet.controller_metric("plimsoll_policy_reloads_total", "refused") > refused).then_some(())
    });
    assert!(fleet.controller.terminate().success());
}

#[test]
fn paths_that_lead_to_no_regular_file_are_refused_by_every_command_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let (fifo, link) = (path("fifo.yaml"), path("loop.yaml"));
    replace_by_fifo(Path::new(&fifo));
    std::os::unix::fs::symlink("loop.yaml", &link).unwrap();
    fs::write(path("good.yaml"), policy(1, "enforce", false)).unwrap();
    let good = path("good.yaml");
    let state = path("state");
    for bad in [fifo.as_str(), "/dev/zero", directory.path().to_str().unwrap(), &link] {
        let commands: [&[&str]; 6] = [
            &["check", bad],
            &["check", &good, bad],
            &["simulate", bad],
            &["history", "import", bad],
            &["controller", "--policy", bad, "--state-dir", &state],
            &["controller", "--policy", &good, "--tenants", bad, "--state-dir", &state],
        ];
        for command in commands {
            let mut process = Process::spawn(command);
            assert_eq!(process.ended().code(), Some(2), "{command:?}");
            let log = process.log().join("\n");
            let wanted = if bad == link { "symbolic link" } else { "not a regular file" };
            assert!(log.contains(bad) && log.contains(wanted), "{command:?}: {log}");
        }
    }
}

#[test]
fn controller_without_a_writable_state_directory_serves_takes_kills_and_reports_it() {
    let _turn = turn(IDLE);
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let (policy_path, file) = (path("policy.yaml"), path("file"));
    fs::write(&policy_path, policy(300, "enforce", false)).unwrap();
    fs::write(&file, "").unwrap();
    // Nothing can be created below a file, not even by root.
    let state = format!("{file}/state");
    let args = ["controller", "--policy", &policy_path, "--state-dir", &state];
    let mut controller = Process::start(&[&args[..], &FREE].concat());
    let lost =
        controller.wait_for(|line| message(line).is_some_and(|text| text.contains("cannot be written")));
    assert!(lost.to_string().contains(&state), "{lost}");
    let admin = format!("http://{}", controller.address("admin"));
    let page = || http_get(controller.address("admin"), "/metrics").1;
    assert_eq!(metric(&page(), "plimsoll_state_unsaved", ""), 1.0);
    let (code, text) = text_of(&["kill", "on", "--reason", "a test", "--controller", &admin]);
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(metric(&page(), "plimsoll_killed", ""), 1.0);
    let (_, text) = text_of(&["status", "--controller", &admin]);
    assert!(text.contains("state not saved: ") && text.contains(&state), "{text}");
    assert!(text.contains("epoch, kills and stages"), "{text}");

    // A state directory that can be created later is used from then on.
    fs::remove_file(&file).unwrap();
    until("the state to be saved", || (metric(&page(), "plimsoll_state_unsaved", "") == 0.0).then_some(()));
    controller.kill_9();
    let controller = Process::start(&[&args[..], &FREE].concat());
    let page = http_get(controller.address("admin"), "/metrics").1;
    assert_eq!(metric(&page, "plimsoll_killed", ""), 1.0, "the kill was saved");
}

#[test]
fn disk_that_is_full_for_a_while_delays_no_kill_and_loses_none() {
    let _turn = turn(IDLE);
    let mut fleet = Fleet::start(&policy(300, "enforce", false));
    until("the controller to lead", || fleet.status().filter(|status| status["leading"] == true));
    let admin = format!("http://{}", fleet.controller.address("admin"));
    let unsaved = || fleet.controller_metric("plimsoll_state_unsaved", "");
    assert_eq!(unsaved(), 0.0);
    // Every write to a file fails from now on, as on a full disk.
    fleet.controller.limit(Resource::Fsize, Some(0));
    let (code, text) = text_of(&["kill", "on", "--reason", "a test", "--controller", &admin]);
    assert_eq!(code, Some(0), "{text}");
    until("all clients to be killed", || {
        let status: Value =
            serde_json::from_str(&http_get(fleet.zones[0].aggregator.address("admin"), "/status").1).unwrap();
        (status["kill_generation"] == 1).then_some(())
    });
    until("the failure to be shown", || (unsaved() == 1.0).then_some(()));
    let (_, text) = text_of(&["status", "--controller", &admin]);
    assert!(text.contains("state not saved: "), "{text}");
    fleet.controller.limit(Resource::Fsize, None);
    until("the state to be saved", || (unsaved() == 0.0).then_some(()));
    let (_, text) = text_of(&["status", "--controller", &admin]);
    assert!(!text.contains("state not saved"), "{text}");
    fleet.controller.kill_9();
    fleet.restart_controller();
    assert_eq!(fleet.controller_metric("plimsoll_killed", ""), 1.0, "the kill was saved");
}
