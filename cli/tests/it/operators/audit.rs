//! The audit log of a real controller: a session of several callers, a disk that is full for a
//! while, and files that were manipulated.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use plimsoll_admin::access::TokenHash;
use plimsoll_testing::fleet::metric;
use plimsoll_testing::process::{Process, http_get, run, until};
use rustix::process::Resource;
use serde_json::Value;
use tempfile::TempDir;

/// Makes a directory with a policy of this limit, and a tokens file.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    write_policy(folder.path(), 100);
    let mut tokens = String::new();
    for (number, (name, role)) in [("ann", "operator"), ("eve", "admin")]
        .into_iter()
        .enumerate()
    {
        let token = format!("plimsoll_{number:043}");
        let file = folder.path().join(name);
        fs::write(&file, &token).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        tokens += &format!("{name} {role} {}\n", TokenHash::of(&token));
    }
    fs::write(folder.path().join("tokens"), tokens).unwrap();
    folder
}

fn write_policy(folder: &Path, limit: u32) {
    let enforced = format!("search: {{ limit: {limit}, mode: enforce }}");
    fs::write(
        folder.join("policy.yaml"),
        format!("buckets: {{ api: {{ limit: 100 }}, {enforced} }}\n"),
    )
    .unwrap();
}

fn state(folder: &TempDir) -> PathBuf {
    folder.path().join("state")
}

fn start(folder: &TempDir) -> Process {
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (policy, tokens, state) = (path("policy.yaml"), path("tokens"), path("state"));
    let free = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    let args = [
        "controller",
        "--policy",
        &policy,
        "--tokens",
        &tokens,
        "--state-dir",
        &state,
    ];
    Process::start(&[&args[..], &free].concat())
}

/// Runs a command as the owner of a token, and returns its exit code and all its output.
fn command(
    folder: &TempDir,
    controller: &Process,
    name: &str,
    args: &[&str],
) -> (Option<i32>, String) {
    let token = folder.path().join(name).display().to_string();
    let url = format!("http://{}", controller.address("admin"));
    let ended = run(&[args, &["--controller", &url, "--token-file", &token]].concat());
    let text = [ended.stdout, ended.stderr].concat();
    (ended.status.code(), String::from_utf8(text).unwrap())
}

/// Runs a command that must succeed.
fn succeed(folder: &TempDir, controller: &Process, name: &str, args: &[&str]) -> String {
    let (code, text) = command(folder, controller, name, args);
    assert_eq!(code, Some(0), "{args:?}: {text}");
    text
}

/// Returns the lines of the log, from its files.
fn lines(state: &Path) -> Vec<Value> {
    let ended = run(&[
        "audit",
        "show",
        "--file",
        &state.display().to_string(),
        "-o",
        "json",
    ]);
    let text = String::from_utf8(ended.stdout).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn verify(state: &Path) -> (Option<i32>, String) {
    let ended = run(&["audit", "verify", "--file", &state.display().to_string()]);
    (
        ended.status.code(),
        String::from_utf8([ended.stdout, ended.stderr].concat()).unwrap(),
    )
}

fn held(folder: &TempDir, controller: &Process) -> Value {
    let (_, text) = command(folder, controller, "eve", &["diff", "-o", "json"]);
    serde_json::from_str::<Value>(&text).unwrap()
}

#[test]
fn audit_log_holds_the_whole_session() {
    let folder = folder();
    let controller = start(&folder);
    let ann = |args: &[&str]| succeed(&folder, &controller, "ann", args);
    ann(&[
        "rollout",
        "promote",
        "api",
        "--force",
        "--reason",
        "we know it",
    ]);
    ann(&["rollout", "abort", "api", "--reason", "we do not"]);
    ann(&[
        "kill",
        "on",
        "--reason",
        "too many refusals",
        "--bucket",
        "api",
    ]);
    ann(&["kill", "off", "--bucket", "api", "--reason", "mended"]);
    let (code, _) = command(&folder, &controller, "ann", &["rollout", "promote", "api"]);
    assert_eq!(
        code,
        Some(1),
        "its gate does not pass, so nothing changes and nothing is recorded"
    );
    write_policy(folder.path(), 1_000);
    let hash = until("the policy to be held back", || {
        held(&folder, &controller)["held"]["hash"]
            .as_str()
            .map(str::to_owned)
    });
    succeed(&folder, &controller, "eve", &["apply", "--ack", &hash]);

    let lines = lines(&state(&folder));
    let field = |line: &Value, name: &str| line[name].as_str().unwrap_or_default().to_owned();
    let found: Vec<String> = lines
        .iter()
        .map(|line| {
            let fields = ["who", "role", "from", "what", "before", "after", "why"];
            fields.map(|name| field(line, name)).join("|")
        })
        .collect();
    let starts = [
        "file|controller|",
        "ann|operator|127.0.0.1|promote api|shadow|canary|we know it",
        "ann|operator|127.0.0.1|abort api|canary|shadow|we do not",
        "ann|operator|127.0.0.1|kill on api|off, generation 0|on, generation 1|too many refusals",
        "ann|operator|127.0.0.1|kill off api|on, generation 1|off|mended",
        "file|controller|",
        "file|controller|",
        "eve|admin|127.0.0.1|apply|",
    ];
    assert_eq!(found.len(), starts.len(), "{found:#?}");
    for (line, start) in found.iter().zip(starts) {
        assert!(line.starts_with(start), "{line} instead of {start}");
    }
    assert!(
        found[6].contains("|held back|") && lines[6]["of"] == lines[5]["seq"],
        "{found:#?}"
    );
    assert!(
        found[7].ends_with(&format!("|{hash}|buckets.search.limit 100 -> 1000")),
        "{}",
        found[7]
    );

    let shown = ann(&["audit", "show", "--last", "3"]);
    assert!(
        shown.contains("WHO") && shown.contains("eve") && !shown.contains("kill on api"),
        "{shown}"
    );
    let remote = ann(&["audit", "verify"]);
    assert!(
        remote.contains("whole: 8 lines, 1 to 8") && remote.contains(&field(&lines[7], "hash")),
        "{remote}"
    );
    assert_eq!(verify(&state(&folder)).0, Some(0));
}

#[test]
fn full_disk_blocks_only_added_refusals() {
    let folder = folder();
    let controller = start(&folder);
    let failing = || {
        metric(
            &http_get(controller.address("admin"), "/metrics").1,
            "plimsoll_audit_failing",
            "",
        )
    };
    succeed(
        &folder,
        &controller,
        "ann",
        &["kill", "on", "--bucket", "api", "--reason", "first"],
    );
    assert_eq!(failing(), 0.0);
    // Every write to a file fails from now on, as on a full disk.
    controller.limit(Resource::Fsize, Some(0));
    succeed(
        &folder,
        &controller,
        "ann",
        &["kill", "on", "--bucket", "api", "--reason", "disk full"],
    );
    let promote = [
        "rollout", "promote", "search", "--to", "enforce", "--force", "--reason", "a test",
    ];
    for args in [
        &["kill", "off", "--bucket", "search"][..],
        &["kill", "off", "--bucket", "api"],
    ] {
        let (code, text) = command(&folder, &controller, "ann", args);
        assert_eq!(code, Some(1), "{text}");
        assert!(
            text.contains("audit log cannot be written") && text.contains("--state-dir"),
            "{text}"
        );
    }
    succeed(&folder, &controller, "ann", &["rollout", "abort", "search"]);
    let (code, text) = command(&folder, &controller, "ann", &promote);
    assert!(
        code == Some(1) && text.contains("audit log cannot be written"),
        "{text}"
    );
    assert_eq!(failing(), 1.0);
    write_policy(folder.path(), 150);
    let policies = until("the policy to be held back", || {
        let policies = held(&folder, &controller);
        policies["held"].is_object().then_some(policies)
    });
    assert!(
        policies["held"]["reasons"]
            .to_string()
            .contains("audit log cannot be written"),
        "{policies}"
    );
    let hash = policies["held"]["hash"].as_str().unwrap().to_owned();
    let (code, text) = command(&folder, &controller, "eve", &["apply", "--ack", &hash]);
    assert!(
        code == Some(1) && text.contains("audit log cannot be written"),
        "{text}"
    );

    controller.limit(Resource::Fsize, None);
    until("the policy to be put in force by itself", || {
        let policies = held(&folder, &controller);
        (policies["held"].is_null() && policies["in_force"] == hash.as_str()).then_some(())
    });
    until("the log to be written", || (failing() == 0.0).then_some(()));
    succeed(
        &folder,
        &controller,
        "ann",
        &["kill", "off", "--bucket", "api"],
    );
    succeed(&folder, &controller, "ann", &promote);
    let lines = lines(&state(&folder));
    let resumed = lines
        .iter()
        .find(|line| line["what"] == "audit log resumed")
        .unwrap();
    assert!(
        resumed["after"]
            .as_str()
            .unwrap()
            .ends_with("entries were not written"),
        "{resumed}"
    );
    let late = lines
        .iter()
        .filter(|line| line["late"] == true)
        .map(|line| &line["what"]);
    assert_eq!(
        late.collect::<Vec<_>>(),
        ["kill on api", "abort search"],
        "{lines:#?}"
    );
    let refused = lines
        .iter()
        .filter(|line| line["what"] == "kill off api")
        .count();
    assert_eq!(
        refused, 1,
        "a refused command has no line of its own: {lines:#?}"
    );
    let (code, text) = verify(&state(&folder));
    assert_eq!(code, Some(0), "{text}");
}
