//! The history of a real controller: export and import by command, over restarts, and with invalid files.

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::path::Path;
use std::process::Output;
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use plimsoll_policy::UnixSeconds;
use serde_json::Value;
use tempfile::TempDir;

use crate::process::{Process, http, http_get, message, run, until};

const POLICY: &str = "buckets:\n  \"api/*\": { limit: { learned: { until_history: 800 } } }\n";

fn controller(folder: &Path, policy: &str, admin: &str) -> Process {
    let file = folder.join("policy.yaml");
    fs::write(&file, policy).unwrap();
    let state = folder.join("state");
    Process::start(&[
        "controller",
        "--policy",
        file.to_str().unwrap(),
        "--state-dir",
        state.to_str().unwrap(),
        "--listen",
        "127.0.0.1:0",
        "--insecure",
        "--admin",
        admin,
    ])
}

fn history(controller: &Process, args: &[&str]) -> Output {
    let admin = format!("http://{}", controller.address("admin"));
    run(&[&["history"], args, &["--controller", &admin]].concat())
}

fn status(controller: &Process) -> Value {
    serde_json::from_str(&http_get(controller.address("admin"), "/status").1).unwrap()
}

fn metric(controller: &Process, name: &str) -> Option<f64> {
    let page = http_get(controller.address("admin"), "/metrics").1;
    page.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

/// The minutes of whole days before today, with a different rate each day.
fn week(days: i64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
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
fn imported_history_sets_the_limit_is_exported_and_survives_a_restart() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("week.csv");
    let (csv, name) = (week(4), file.to_str().unwrap().to_owned());
    fs::write(&file, &csv).unwrap();
    let mut first = controller(folder.path(), POLICY, "127.0.0.1:0");

    let imported = history(&first, &["import", &name]);
    let output = text(&imported.stdout);
    assert!(imported.status.success(), "{}", text(&imported.stderr));
    assert!(output.ends_with("360 minutes read, 4 of 4 days count\n"), "{output}");
    let again: Value =
        serde_json::from_slice(&history(&first, &["import", &name, "--output", "json"]).stdout).unwrap();
    assert!(again["days"].as_array().unwrap().iter().all(|day| day["result"] == "kept"), "{again}");
    let replaced = history(&first, &["import", &name, "--replace"]);
    assert!(text(&replaced.stdout).contains("replaced"), "{}", text(&replaced.stdout));

    assert_eq!(text(&history(&first, &["export"]).stdout), csv);
    let from = csv.lines().nth(360).unwrap().split(',').next().unwrap();
    let some = history(&first, &["export", "--from", from, "--buckets", "api/a", "--output", "json"]);
    let row: Value = serde_json::from_slice(&some.stdout).unwrap();
    assert_eq!((row["offered_rps"].as_f64(), row["clean"].as_bool()), (Some(110.0), Some(true)));
    assert!(text(&history(&first, &["export", "--buckets", "other"]).stdout).lines().count() == 1);

    // A pattern's bucket has a limit only after its first request, so the policy names the bucket here.
    first.kill_9();
    let exact = "buckets: { api/a: { limit: { learned: { until_history: 800 } } } }\n";
    let second = controller(folder.path(), exact, "127.0.0.1:0");
    let bucket = status(&second)["buckets"]["api/a"].clone();
    let limit = bucket["limit_rps"].as_f64().unwrap();
    assert!((limit - 1.2 * 138.5).abs() < 1e-6, "{bucket}");
    assert_eq!(
        (bucket["learned"]["days"].as_u64(), bucket["learned"]["limit_rps"].as_f64()),
        (Some(4), Some(limit))
    );
    assert_eq!(metric(&second, "plimsoll_bucket_learned_days{bucket=\"api/a\"}"), Some(4.0));
    assert_eq!(text(&history(&second, &["export"]).stdout), csv);

    // The exported file is traffic for a simulation.
    let scenario = folder.path().join("scenario.yaml");
    fs::write(
        &scenario,
        "name: own\nduration_s: 20\nzones: 1\nclients: 2\npolicy: { buckets: { api/a: { limit: 1000 } } }\n\
         traffic: [ { bucket: api/a, load: { trace: { csv: week.csv, speed: 600 } } } ]\n",
    )
    .unwrap();
    let simulated = run(&["simulate", scenario.to_str().unwrap(), "--seeds", "1", "--output", "json"]);
    let outcome: Value = serde_json::from_slice(&simulated.stdout).unwrap();
    let offered = outcome["buckets"]["api/a"]["offered_rps"].as_f64().unwrap();
    assert!((100.0..200.0).contains(&offered), "{offered}");
}

#[test]
fn invalid_import_fails_with_its_line_and_changes_nothing() {
    let folder = TempDir::new().unwrap();
    let controller = controller(folder.path(), POLICY, "127.0.0.1:0");
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
    assert_eq!((refused.status.code(), output["line"].as_u64()), (Some(2), Some(272)));
    fs::write(&file, vec![b'\n'; 33 << 20]).unwrap();
    let refused = history(&controller, &["import", name]);
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused.stderr));
    assert!(text(&refused.stderr).contains("32 MiB"), "{}", text(&refused.stderr));
    assert_eq!(history(&controller, &["import", "/nowhere.csv"]).status.code(), Some(2));
    assert_eq!(text(&history(&controller, &["export"]).stdout).lines().count(), 1);
    let unreachable = run(&["history", "export", "--controller", "http://127.0.0.1:1"]);
    assert_eq!(unreachable.status.code(), Some(1));
    assert!(
        text(&unreachable.stderr).contains("nothing answers at http://127.0.0.1:1"),
        "{}",
        text(&unreachable.stderr)
    );
    // A page in a browser cannot send an import.
    let (code, _) =
        http(controller.address("admin"), "POST", "/history", &[("content-length", "0")]).unwrap();
    assert_eq!(code, 415);
}

#[test]
fn history_answers_only_callers_on_the_same_machine() {
    let outside = UdpSocket::bind("0.0.0.0:0").unwrap();
    // The socket sends nothing: the system only chooses the local address.
    let address = outside.connect("192.0.2.1:9").and_then(|()| outside.local_addr());
    let Some(IpAddr::V4(own)) = address.ok().map(|address| address.ip()).filter(|ip| !ip.is_loopback())
    else {
        if let Some(skipped) = std::env::var_os("PLIMSOLL_SKIPPED") {
            let mut file = fs::File::options().append(true).open(skipped).unwrap();
            writeln!(
                file,
                "history_answers_only_callers_on_the_same_machine: this machine has only loopback addresses"
            )
            .unwrap();
        }
        return;
    };
    let folder = TempDir::new().unwrap();
    let controller = controller(folder.path(), POLICY, "0.0.0.0:0");
    let port = controller.address("admin").port();
    for (host, expected) in [(IpAddr::V4(own), 401), (IpAddr::from([127, 0, 0, 1]), 200)] {
        assert_eq!(http_get(SocketAddr::new(host, port), "/history").0, expected, "{host}");
        assert_eq!(http_get(SocketAddr::new(host, port), "/status").0, expected, "{host}");
        assert_eq!(http_get(SocketAddr::new(host, port), "/metrics").0, 200);
    }
}

#[test]
fn controller_starts_although_its_history_is_unusable() {
    // A file in place of the folder: the controller learns nothing and logs it.
    let folder = TempDir::new().unwrap();
    let state = folder.path().join("state");
    fs::create_dir(&state).unwrap();
    fs::write(state.join("history"), "no directory").unwrap();
    let blocked = controller(folder.path(), POLICY, "127.0.0.1:0");
    blocked.wait_for(|line| message(line).is_some_and(|text| text.starts_with("history save failed")));
    assert_eq!(metric(&blocked, "plimsoll_history_failing"), Some(1.0));
    assert_eq!(history(&blocked, &["export"]).status.code(), Some(1));
    drop(blocked);

    // The database of an earlier version is named, and stays where it is.
    fs::remove_file(state.join("history")).unwrap();
    fs::create_dir_all(state.join("history/keyspaces")).unwrap();
    let fresh = controller(folder.path(), POLICY, "127.0.0.1:0");
    fresh.wait_for(|line| {
        message(line) == Some("history lost in part") && line.to_string().contains("import")
    });
    assert_eq!(metric(&fresh, "plimsoll_history_failing"), Some(0.0));
}

#[test]
fn queried_limit_survives_the_server_and_a_restart() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", server.local_addr().unwrap());
    thread::spawn(move || {
        let (mut stream, _) = server.accept().unwrap();
        let _ = stream.read(&mut [0; 4_096]);
        let body = r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"9000"]}]}}"#;
        let head = format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
        stream.write_all((head + body).as_bytes()).unwrap();
    });
    let folder = TempDir::new().unwrap();
    let policy = format!(
        "buckets:\n  api: {{ limit: {{ prometheus: {{ url: '{url}', query: capacity, min: 200, max: 5000 }} }} }}\n"
    );
    let limit = |controller: &Process| status(controller)["buckets"]["api"]["limit_rps"].as_f64();
    let mut first = controller(folder.path(), &policy, "127.0.0.1:0");
    until("the answer", || limit(&first));
    assert_eq!(limit(&first), Some(5000.0));
    assert_eq!(status(&first)["buckets"]["api"]["queried"]["answer_rps"].as_f64(), Some(9000.0));
    // An answer is saved within a second.
    let saved = folder.path().join("state/history/answers.json");
    until("the save", || fs::read_to_string(&saved).is_ok_and(|text| text.contains("9000")).then_some(()));
    first.kill_9();
    let first = controller(folder.path(), &policy, "127.0.0.1:0");
    assert_eq!(limit(&first), Some(5000.0), "the limit without the server");
    first.wait_for(|line| message(line).is_some_and(|text| text.starts_with("limit query failed")));
    assert_eq!(limit(&first), Some(5000.0));
    assert!(metric(&first, "plimsoll_limit_queries_total{result=\"failed\"}").unwrap() >= 1.0);
}
