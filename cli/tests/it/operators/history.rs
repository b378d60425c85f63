//! The history of a real controller: export and import by command, over restarts, and with invalid files.

use std::fs;
use std::process::Output;
use std::time::{SystemTime, UNIX_EPOCH};

use plimsoll_policy::UnixSeconds;
use plimsoll_testing::fleet::restart_controller;
use plimsoll_testing::process::{Process, http, outcome, run, succeed};
use serde_json::Value;
use tempfile::TempDir;

const POLICY: &str = "buckets:\n  \"api/*\": { limit: { learned: { until_history: 800 } } }\n";

fn controller(folder: &TempDir, policy: &str) -> Process {
    fs::write(folder.path().join("policy.yaml"), policy).unwrap();
    restart_controller(folder)
}

fn history(controller: &Process, args: &[&str]) -> Output {
    let admin = controller.url("admin");
    run(&[&["history"], args, &["--controller", &admin]].concat())
}

/// The minutes of whole days before today, with a different rate each day.
fn week(days: i64) -> String {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs() as i64;
    let today = now - now % 86_400;
    let mut text = "time_utc,bucket,offered_rps,clean\n".to_owned();
    for back in (1..=days).rev() {
        for minute in 0..90 {
            let time = UnixSeconds::from_secs(today - back * 86_400 + minute * 60);
            text += &format!("{time},api/a,{}.000,true\n", 100 + 10 * back);
        }
    }
    text
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn imported_history_survives_restarts() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("week.csv");
    let (csv, name) = (week(4), file.to_str().unwrap().to_owned());
    fs::write(&file, &csv).unwrap();
    let mut first = controller(&folder, POLICY);

    let imported = history(&first, &["import", &name]);
    let output = text(&imported.stdout);
    assert!(imported.status.success(), "{}", text(&imported.stderr));
    assert!(
        output.ends_with("360 minutes read, 4 of 4 days count\n"),
        "{output}"
    );
    let again: Value =
        serde_json::from_slice(&history(&first, &["import", &name, "--output", "json"]).stdout)
            .unwrap();
    assert!(
        again["days"]
            .as_array()
            .unwrap()
            .iter()
            .all(|day| day["result"] == "kept"),
        "{again}"
    );
    let replaced = history(&first, &["import", &name, "--replace"]);
    assert!(
        text(&replaced.stdout).contains("replaced"),
        "{}",
        text(&replaced.stdout)
    );

    assert_eq!(text(&history(&first, &["export"]).stdout), csv);
    let from = csv.lines().nth(360).unwrap().split(',').next().unwrap();
    let some = text(&history(&first, &["export", "--from", from, "--buckets", "api/a"]).stdout);
    let row = some.lines().nth(1).unwrap();
    assert!(
        some.lines().count() == 2 && row.ends_with(",api/a,110.000,true"),
        "{some}"
    );
    assert!(
        text(&history(&first, &["export", "--buckets", "other"]).stdout)
            .lines()
            .count()
            == 1
    );

    // A pattern's bucket has a limit only after its first request, so the policy names the bucket
    // here.
    first.kill_9();
    let exact = "buckets: { api/a: { limit: { learned: { until_history: 800 } } } }\n";
    let second = controller(&folder, exact);
    let bucket = second.status()["buckets"]["api/a"].clone();
    let limit = bucket["limit_rps"].as_f64().unwrap();
    assert!((limit - 1.2 * 138.5).abs() < 1e-6, "{bucket}");
    assert_eq!(
        (
            bucket["learned"]["days"].as_u64(),
            bucket["learned"]["limit_rps"].as_f64()
        ),
        (Some(4), Some(limit))
    );
    let learned = second.metric("admin", "plimsoll_bucket_learned_days", "bucket=\"api/a\"");
    assert_eq!(learned, 4.0);
    assert_eq!(text(&history(&second, &["export"]).stdout), csv);

    // The exported file is traffic for a simulation.
    let scenario = folder.path().join("scenario.yaml");
    fs::write(
        &scenario,
        "name: own\nduration_s: 20\nzones: 1\nclients: 2\npolicy: { buckets: { api/a: { limit: 1000 } } }\n\
         traffic: [ { bucket: api/a, load: { trace: { csv: week.csv, speed: 600 } } } ]\n",
    )
    .unwrap();
    let scenario = scenario.to_str().unwrap();
    let simulated = succeed(&["simulate", scenario, "--seeds", "1", "--output", "json"]);
    let outcome: Value = serde_json::from_str(&simulated).unwrap();
    let offered = outcome["buckets"]["api/a"]["offered_rps"].as_f64().unwrap();
    assert!((100.0..200.0).contains(&offered), "{offered}");
}

#[test]
fn invalid_import_changes_nothing() {
    let folder = TempDir::new().unwrap();
    let controller = controller(&folder, POLICY);
    let file = folder.path().join("wrong.csv");
    let name = file.to_str().unwrap();
    fs::write(&file, week(3) + "2020-01-01T00:00:00Z,api/a,many,true\n").unwrap();
    let refused = history(&controller, &["import", name]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        text(&refused.stderr).starts_with(&format!("{name}:272: offered_rps")),
        "{}",
        text(&refused.stderr)
    );
    let refused = history(&controller, &["import", name, "--output", "json"]);
    let output: Value = serde_json::from_slice(&refused.stdout).unwrap();
    assert_eq!(
        (refused.status.code(), output["line"].as_u64()),
        (Some(2), Some(272))
    );
    fs::write(&file, vec![b'\n'; 33 << 20]).unwrap();
    let refused = history(&controller, &["import", name]);
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused.stderr));
    assert!(
        text(&refused.stderr).contains("32 MiB"),
        "{}",
        text(&refused.stderr)
    );
    assert_eq!(
        history(&controller, &["import", "/nowhere.csv"])
            .status
            .code(),
        Some(2)
    );
    assert_eq!(
        text(&history(&controller, &["export"]).stdout)
            .lines()
            .count(),
        1
    );
    let (code, text) = outcome(&["history", "export", "--controller", "http://127.0.0.1:1"]);
    assert!(
        code == 1 && text.contains("nothing answers at http://127.0.0.1:1"),
        "{text}"
    );
    // A page in a browser cannot send an import.
    let (code, _) = http(
        controller.address("admin"),
        "POST",
        "/history",
        &[("content-length", "0")],
    )
    .unwrap();
    assert_eq!(code, 415);
}
