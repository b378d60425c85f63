//! `plimsoll doctor`, `top` and `context` on real processes: what is well, what is not, and the fleet that a name stands for.

use std::path::Path;

use plimsoll_testing::fleet::{Fleet, TENANTS, policy};
use plimsoll_testing::process::{command, outcome_of, until};
use serde_json::Value;

/// Runs a command with a folder of configuration, and returns its exit code with both outputs.
fn run(configuration: &Path, args: &[&str]) -> (i32, String) {
    outcome_of(command("plimsoll", args).env("XDG_CONFIG_HOME", configuration))
}

#[test]
fn doctor_names_what_is_wrong() {
    let mut fleet = Fleet::without_services(&policy(1_000, "shadow", false), TENANTS);
    let url = fleet.controller.url("admin");
    let admin = fleet.zones.iter().map(|zone| zone.aggregator.url("admin"));
    let admin = admin.collect::<Vec<_>>().join(",");
    let args = ["doctor", "--controller", &url, "--admin", &admin];
    let home = tempfile::tempdir().unwrap();
    let well = until("all is well", || {
        let (code, text) = run(home.path(), &args);
        (code == 0 && text.contains("all are connected")).then_some(text)
    });
    for part in [
        "answers, leads, epoch 1; your role is admin",
        "ok    clock of controller http",
        "ok    policy: none is held back",
        "of zone-a: answers, and reaches its controller",
        &format!(
            "ok    version of controller {url}: {}",
            env!("CARGO_PKG_VERSION")
        ),
        "open files of http",
    ] {
        assert!(well.contains(part), "no {part:?} in {well}");
    }
    assert!(
        !well.contains("fail") && !well.contains("unknown"),
        "{well}"
    );

    fleet.zones[1].aggregator.kill_9();
    let (code, ill) = until("the loss is known", || {
        let (code, text) = run(home.path(), &[&args[..], &["-o", "json"]].concat());
        text.contains("zone-b/").then_some((code, text))
    });
    let report: Value = serde_json::from_str(&ill).unwrap();
    let checks = report["checks"].as_array().unwrap();
    let failed: Vec<&Value> = checks.iter().filter(|it| it["result"] == "fail").collect();
    assert_eq!(
        (code, failed.len()),
        (1, 2),
        "its controller, and its own port: {failed:#?}"
    );
    assert!(
        failed
            .iter()
            .all(|it| !it["remedy"].as_str().unwrap().is_empty()),
        "{failed:#?}"
    );

    fleet.controller.kill_9();
    let (code, silent) = run(home.path(), &args);
    assert_eq!(code, 1, "{silent}");
    assert!(
        silent.contains("fail  leader: no controller leads; remedy:"),
        "{silent}"
    );
}

#[test]
fn context_names_a_fleet() {
    let fleet = Fleet::without_services(&policy(1_000, "shadow", false), TENANTS);
    let home = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| run(home.path(), args);
    let (code, text) = run(&["context", "list"]);
    assert!(
        code == 2 && text.contains("contexts.yaml") && text.contains("token_file:"),
        "{text}"
    );
    let file = home.path().join("plimsoll/contexts.yaml");
    std::fs::create_dir(file.parent().unwrap()).unwrap();
    let address = fleet.controller.address("admin");
    let contexts = format!(
        "contexts:\n  down: {{ controller: [\"http://127.0.0.1:1\"] }}\n  up: {{ controller: [\"http://{address}\"] }}\n"
    );
    std::fs::write(&file, &contexts).unwrap();

    assert_eq!(run(&["rollout", "status", "--context", "up"]).0, 0);
    let (code, text) = run(&["rollout", "status", "--context", "upp"]);
    assert!(
        code == 2 && text.contains("contexts.yaml, only down, up"),
        "{text}"
    );
    assert_eq!(
        run(&["context", "use", "down"]),
        (0, "commands ask down now\n".to_owned())
    );
    let (code, text) = run(&["rollout", "status"]);
    assert!(code == 1 && text.contains("127.0.0.1:1"), "{text}");
    let url = format!("http://{address}");
    assert_eq!(
        run(&["rollout", "status", "--controller", &url]).0,
        0,
        "a flag wins"
    );
    let (_, shown) = run(&["context", "show"]);
    assert!(
        shown.contains("*  down") && !shown.contains("up"),
        "{shown}"
    );

    std::fs::write(&file, contexts.replace("controller", "controler")).unwrap();
    let (code, text) = run(&["rollout", "status"]);
    assert!(
        code == 2 && text.contains("contexts.yaml:2:11: contexts.down.controler"),
        "{text}"
    );
}

#[test]
fn top_needs_a_terminal() {
    let home = tempfile::tempdir().unwrap();
    let (code, text) = run(home.path(), &["top"]);
    assert!(
        code == 2 && text.contains("`plimsoll status --watch`"),
        "{text}"
    );
}
