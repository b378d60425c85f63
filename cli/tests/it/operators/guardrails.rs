//! Guardrails on real processes: changes of the policy files are held back by their effect, also
//! over a restart of the controller, and released exactly as they were reviewed.

use std::fs;

use plimsoll_testing::fleet::{restart_controller, start_controller};
use plimsoll_testing::process::{Process, outcome, until, until_true};
use plimsoll_testing::turns::{IDLE, turn};
use serde_json::Value;
use tempfile::TempDir;

struct Scene {
    directory: TempDir,
    controller: Process,
}

impl Scene {
    fn start(policy: &str, tenants: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let controller = start_controller(&directory, policy, tenants);
        Self {
            directory,
            controller,
        }
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.directory.path().join(name), text).unwrap();
    }

    fn restart(&mut self) {
        self.controller.kill_9();
        self.controller = restart_controller(&self.directory);
    }

    /// Runs a command of an operator, and returns its exit code and output.
    fn command(&self, args: &[&str]) -> (i32, String) {
        outcome(&[args, &["--controller", &self.controller.url("admin")]].concat())
    }

    fn policies(&self) -> Value {
        let (code, text) = self.command(&["diff", "--output", "json"]);
        let policies: Value = serde_json::from_str(&text).unwrap();
        let differs = !policies["held"].is_null() || !policies["refused"].is_null();
        assert_eq!(code, i32::from(differs), "{policies}");
        policies
    }

    /// Waits until a policy is held back for a reason with this text, and returns its hash.
    fn held_for(&self, why: &str) -> String {
        until("the files to be held back", || {
            let held = self.policies()["held"].clone();
            let is_due = held["reasons"][0].as_str()?.contains(why);
            is_due.then(|| held["hash"].as_str().unwrap().to_owned())
        })
    }

    fn limit(&self) -> f64 {
        let status = self.controller.status();
        status["buckets"]["b"]["limit_rps"].as_f64().unwrap()
    }
}

fn limit_of(limit: u32) -> String {
    format!(
        "buckets: {{ b: {{ limit: {limit}, mode: enforce }} }}\nrollout: {{ require_gates: false }}\n"
    )
}

const ONE_CLASS: &str = "tenants: { default: {} }\n";

#[test]
fn large_change_stays_held_over_restarts() {
    let _turn = turn(IDLE);
    let mut scene = Scene::start(&limit_of(1_000), ONE_CLASS);
    assert_eq!(scene.policies()["held"], Value::Null);

    // Alternates large changes and invalid files: the current policy never changes.
    for limit in [100, 101] {
        scene.write("policy.yaml", "buckets: { b: { limit: -1 } }");
        let refused = until("the file to be refused", || {
            Some(scene.policies()["refused"].as_str()?.to_owned())
        });
        assert!(
            refused.contains("policy.yaml:1:24: buckets.b.limit:"),
            "{refused}"
        );
        scene.write("policy.yaml", &limit_of(limit));
        scene.held_for(&format!(
            "b: limit 1000 -> {limit} is half or less; there was no traffic to judge by"
        ));
        assert_eq!(scene.limit(), 1_000.0);
        scene.write("policy.yaml", &limit_of(1_000));
        until_true("the file in force to be back", || {
            scene.policies()["held"].is_null()
        });
    }

    // The comparison survives restarts, and a file that changes meanwhile.
    scene.write("policy.yaml", &limit_of(100));
    let first = scene.held_for("1000 -> 100 ");
    for _ in 0..2 {
        scene.restart();
        assert_eq!(
            (scene.held_for("1000 -> 100 "), scene.limit()),
            (first.clone(), 1_000.0)
        );
    }

    // Only the reviewed policy is released: not another file, nor a refused one.
    let (code, text) = scene.command(&["apply", "--ack", "0123456789abcdef"]);
    assert!(code == 1 && text.contains("plimsoll diff"), "{text}");
    assert_eq!(scene.command(&["apply", "--ack", "short"]).0, 2);
    scene.write("policy.yaml", "buckets: {");
    let (code, text) = scene.command(&["apply", "--ack", &first]);
    assert!(
        code == 1 && text.contains(&format!("the files have changed since {first} was read")),
        "{text}"
    );
    until("the file to be refused", || {
        scene.policies()["refused"].as_str().map(|_| ())
    });
    let (code, text) = scene.command(&["diff"]);
    assert!(
        code == 1 && text.contains("\nrefused: the files as they are now: "),
        "{text}"
    );
    assert!(
        text.contains("\nit cannot be released, because the files have changed since\n"),
        "{text}"
    );
    scene.write("policy.yaml", &limit_of(90));
    let (code, text) = scene.command(&["apply", "--ack", &first]);
    assert!(
        code == 1 && text.contains("look at") && text.contains("`plimsoll diff`"),
        "{text}"
    );
    assert_eq!(scene.limit(), 1_000.0);
    let second = scene.held_for("1000 -> 90 ");
    let (code, text) = scene.command(&["apply", "--ack", &second]);
    assert!(
        code == 0 && text == format!("in force: {second}\nnothing is held back\n"),
        "{text}"
    );
    assert_eq!(scene.limit(), 90.0);
    scene.restart();
    assert_eq!(
        (scene.policies()["held"].clone(), scene.limit()),
        (Value::Null, 90.0)
    );

    // Without a controller the error has a hint.
    let (code, text) = outcome(&["diff", "--controller", "http://127.0.0.1:1"]);
    assert!(code == 1 && text.contains("--controller"), "{text}");
}
