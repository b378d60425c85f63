//! The way back from a kill of the fleet on a real controller, in one command, also after a restart within the kill; and
//! the judgement of a file that is not saved.

use std::fs;

use plimsoll_testing::fleet::{restart_controller, start_controller};
use plimsoll_testing::process::{Process, outcome};
use plimsoll_testing::turns::{IDLE, turn};
use serde_json::Value;

const POLICY: &str = "buckets:\n  seen: { limit: 9, mode: shadow }\n  tried: { limit: 9, mode: canary }\n  \
                      \"p/*\": { limit: 9, mode: enforce }\n  sure: { limit: 9, mode: enforce }\n\
                      rollout: { require_gates: false }\n";
const TENANTS: &str = "tenants: { default: {} }\n";

fn command(controller: &Process, args: &[&str]) -> (i32, String) {
    outcome(&[args, &["--controller", &controller.url("admin")]].concat())
}

fn stages(controller: &Process) -> Vec<(String, String)> {
    let (_, json) = command(controller, &["rollout", "status", "--output", "json"]);
    let entries: Vec<Value> = serde_json::from_str(&json).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let stage = |entry: &Value| (text(&entry["entry"]), text(&entry["stage"]));
    entries.iter().map(stage).collect()
}

#[test]
fn fleet_returns_to_its_stages_after_a_kill() {
    let _turn = turn(IDLE);
    let directory = tempfile::tempdir().unwrap();
    let mut controller = start_controller(&directory, POLICY, TENANTS);
    let before = stages(&controller);
    let alone = ["kill", "on", "--bucket", "sure", "--reason", "earlier"];
    assert_eq!(command(&controller, &alone).0, 0);
    let off = ["kill", "off", "--bucket", "sure"];
    assert_eq!(command(&controller, &off).0, 0);
    let on = ["kill", "on", "--reason", "it refuses too much"];
    assert_eq!(command(&controller, &on).0, 0);
    controller.kill_9();
    let controller = restart_controller(&directory);
    assert!(
        stages(&controller)
            .iter()
            .all(|(_, stage)| stage == "shadow")
    );

    let (code, shown) = command(&controller, &["rollout", "resume", "--all"]);
    assert!(
        code == 0 && shown.contains("nothing is changed yet") && shown.contains("canary"),
        "{shown}"
    );
    let (code, shown) = command(&controller, &["rollout", "resume", "typo"]);
    assert_eq!(
        (code, &*shown),
        (
            0,
            "nothing to resume of typo: no kill left an entry of this name in shadow\n"
        )
    );
    let (code, shown) = command(&controller, &["kill", "off", "--resume"]);
    assert!(code == 2 && shown.contains("--reason"), "{shown}");
    let resume = ["kill", "off", "--resume", "--reason", "rolled back"];
    let (code, shown) = command(&controller, &resume);
    assert!(
        code == 0 && shown.contains("resumed: tried: canary\n"),
        "{shown}"
    );
    // What an earlier kill left in shadow takes a command of its own.
    assert!(shown.contains("in shadow since a kill: sure;"), "{shown}");
    let named = [
        "rollout",
        "resume",
        "sure",
        "seen",
        "--reason",
        "it was the limit",
    ];
    let (code, shown) = command(&controller, &named);
    assert!(
        code == 1 && shown.contains("not resumed: seen: "),
        "{shown}"
    );
    assert_eq!(stages(&controller), before);
    let (_, history) = command(&controller, &["rollout", "history", "sure"]);
    assert!(
        history.contains("sure: shadow -> enforce (resume)\n    it was the limit"),
        "{history}"
    );
    let (_, log) = command(&controller, &["audit", "show"]);
    assert!(
        log.contains("resume tried") && log.contains("rolled back"),
        "{log}"
    );
    let (code, shown) = command(&controller, &["rollout", "abort", "sure", "nope", "tried"]);
    assert!(code == 2 && shown.contains("no entry `nope`"), "{shown}");
    let aborted = stages(&controller);
    let is_enforced = |(_, stage): &&(String, String)| stage == "enforce";
    assert_eq!(aborted.iter().filter(is_enforced).count(), 1, "{aborted:?}");
}

#[test]
fn file_is_judged_before_it_is_saved() {
    let _turn = turn(IDLE);
    let directory = tempfile::tempdir().unwrap();
    let controller = start_controller(&directory, POLICY, TENANTS);
    let hash = |shown: &str| shown.lines().next().map(str::to_owned);
    let (_, before) = command(&controller, &["diff"]);
    let path = directory.path().join("draft.yaml");
    let draft = path.to_str().unwrap();
    for (from, to, code, expected) in [
        (
            "limit: 9",
            "limit: -1",
            2,
            "draft.yaml:2:18: buckets.seen.limit: ",
        ),
        (
            "limit: 9",
            "limit: 10",
            0,
            "saved, it would be in force at once\n",
        ),
        (
            "limit: 9",
            "limit: 4",
            1,
            "  ! sure: limit 9 -> 4 is half or less",
        ),
        ("limit: 9", "limit: 9", 0, "the files are the same\n"),
    ] {
        fs::write(&path, POLICY.replace(from, to)).unwrap();
        let (found, shown) = command(&controller, &["diff", "--dry-run", draft]);
        assert!(found == code && shown.contains(expected), "{to}: {shown}");
    }
    fs::write(&path, "tenants: { default: {}, acme: { weight: 4 } }\n").unwrap();
    let policy = directory.path().join("policy.yaml");
    let policy = policy.to_str().unwrap();
    let (code, shown) = command(
        &controller,
        &["diff", "--dry-run", policy, "--tenants", draft],
    );
    assert!(
        code == 0 && shown.contains("  + tenants.acme.weight: 4\n"),
        "{shown}"
    );
    let (_, after) = command(&controller, &["diff"]);
    assert_eq!(
        hash(&after),
        hash(&before),
        "nothing is in force that was not saved"
    );
}
