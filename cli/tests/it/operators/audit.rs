//! The audit log of a real controller: a session of several callers, a disk that is full for a
//! while, and files that were manipulated.

use std::fs;
use std::path::Path;

use plimsoll_testing::fleet::controller_on;
use plimsoll_testing::process::{Process, add_token, outcome, succeed, until, until_true};
use rustix::process::Resource;
use serde_json::Value;
use tempfile::TempDir;

/// A controller with the tokens of two operators.
struct Scene {
    folder: TempDir,
    controller: Process,
}

impl Scene {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        write_policy(folder.path(), 100);
        for (name, role) in [("ann", "operator"), ("eve", "admin")] {
            add_token(folder.path(), name, role);
        }
        let tokens = folder.path().join("tokens").display().to_string();
        let controller = controller_on(&folder, &["--tokens", &tokens]);
        Self { folder, controller }
    }

    /// Runs a command as the owner of a token, and returns its exit code and all its output.
    fn command(&self, name: &str, args: &[&str]) -> (i32, String) {
        let token = self.folder.path().join(name).display().to_string();
        let url = self.controller.url("admin");
        outcome(&[args, &["--controller", &url, "--token-file", &token]].concat())
    }

    /// Runs a command that must succeed.
    fn succeed(&self, name: &str, args: &[&str]) -> String {
        let (code, text) = self.command(name, args);
        assert_eq!(code, 0, "{args:?}: {text}");
        text
    }

    fn policies(&self) -> Value {
        let (_, text) = self.command("eve", &["diff", "-o", "json"]);
        serde_json::from_str(&text).unwrap()
    }

    /// Returns the lines of the log, from its files.
    fn lines(&self) -> Vec<Value> {
        let text = succeed(&["audit", "show", "--file", &self.state(), "-o", "json"]);
        let lines = text.lines();
        lines.map(|it| serde_json::from_str(it).unwrap()).collect()
    }

    fn verify(&self) -> (i32, String) {
        outcome(&["audit", "verify", "--file", &self.state()])
    }

    fn state(&self) -> String {
        self.folder.path().join("state").display().to_string()
    }
}

fn write_policy(folder: &Path, limit: u32) {
    let enforced = format!("search: {{ limit: {limit}, mode: enforce }}");
    let text = format!("buckets: {{ api: {{ limit: 100 }}, {enforced} }}\n");
    fs::write(folder.join("policy.yaml"), text).unwrap();
}

#[test]
fn audit_log_holds_the_whole_session() {
    let scene = Scene::start();
    let ann = |args: &[&str]| scene.succeed("ann", args);
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
    let (code, _) = scene.command("ann", &["rollout", "promote", "api"]);
    assert_eq!(
        code, 1,
        "its gate does not pass, so nothing changes and nothing is recorded"
    );
    write_policy(scene.folder.path(), 1_000);
    let hash = until("the policy to be held back", || {
        scene.policies()["held"]["hash"].as_str().map(str::to_owned)
    });
    scene.succeed("eve", &["apply", "--ack", &hash]);

    let lines = scene.lines();
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
    assert_eq!(scene.verify().0, 0);
}

#[test]
fn full_disk_blocks_only_added_refusals() {
    let scene = Scene::start();
    let failing = || {
        scene
            .controller
            .metric("admin", "plimsoll_audit_failing", "")
    };
    scene.succeed(
        "ann",
        &["kill", "on", "--bucket", "api", "--reason", "first"],
    );
    assert_eq!(failing(), 0.0);
    // Every write to a file fails from now on, as on a full disk.
    scene.controller.limit(Resource::Fsize, Some(0));
    scene.succeed(
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
        let (code, text) = scene.command("ann", args);
        assert_eq!(code, 1, "{text}");
        assert!(
            text.contains("audit log cannot be written") && text.contains("--state-dir"),
            "{text}"
        );
    }
    scene.succeed("ann", &["rollout", "abort", "search"]);
    let (code, text) = scene.command("ann", &promote);
    assert!(
        code == 1 && text.contains("audit log cannot be written"),
        "{text}"
    );
    assert_eq!(failing(), 1.0);
    write_policy(scene.folder.path(), 150);
    let policies = until("the policy to be held back", || {
        let policies = scene.policies();
        policies["held"].is_object().then_some(policies)
    });
    assert!(
        policies["held"]["reasons"]
            .to_string()
            .contains("audit log cannot be written"),
        "{policies}"
    );
    let hash = policies["held"]["hash"].as_str().unwrap().to_owned();
    let (code, text) = scene.command("eve", &["apply", "--ack", &hash]);
    assert!(
        code == 1 && text.contains("audit log cannot be written"),
        "{text}"
    );

    scene.controller.limit(Resource::Fsize, None);
    until_true("the policy to be put in force by itself", || {
        let policies = scene.policies();
        policies["held"].is_null() && policies["in_force"] == hash.as_str()
    });
    until_true("the log to be written", || failing() == 0.0);
    scene.succeed("ann", &["kill", "off", "--bucket", "api"]);
    scene.succeed("ann", &promote);
    let lines = scene.lines();
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
    let (code, text) = scene.verify();
    assert_eq!(code, 0, "{text}");
}
