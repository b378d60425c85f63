//! The callers in other languages, run as they are against the real middleware.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;

use plimsoll_tower::Reason;

use crate::refusals::{refuses_first, serve_http};

/// A program, its arguments, what starts it, and a package that has it.
const CALLERS: [(&str, &[&str], &str, &str); 3] = [
    ("python3", &[], "retry.py", "python3"),
    ("go", &["run"], "retry.go", "golang-go"),
    ("java", &[], "Retry.java", "default-jdk-headless"),
];

#[tokio::test(flavor = "multi_thread")]
async fn other_languages_keep_the_rules() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/integrations/callers");
    for (program, arguments, file, package) in CALLERS {
        let version = if program == "go" {
            "version"
        } else {
            "--version"
        };
        let mut found = Command::new(program);
        let found = found
            .arg(version)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if !found.status().is_ok_and(|status| status.success()) {
            note_skipped(&format!(
                "rules::{file}: no {program}; apt-get install {package}"
            ));
            continue;
        }
        for (reason, status, attempts) in [
            (Reason::ClusterOverload, "200", 2),
            (Reason::TenantQuotaExceeded, "429", 1),
        ] {
            let (layer, requests) = refuses_first(1, reason);
            let url = format!("http://{}/", serve_http(layer).await);
            let mut command = tokio::process::Command::new(program);
            let command = command.args(arguments).arg(folder.join(file)).arg(url);
            // Without a home of its own, as in a container, Go has no cache.
            let command = command.env("GOCACHE", std::env::temp_dir().join("plimsoll-go"));
            let output = command.output().await.unwrap();
            let shown = String::from_utf8_lossy(&output.stdout);
            let errors = String::from_utf8_lossy(&output.stderr);
            assert_eq!(shown.trim(), status, "{file}: {errors}");
            assert_eq!(
                requests.load(Ordering::Relaxed),
                attempts,
                "{file}, {reason:?}"
            );
        }
    }
}

/// Notes a skipped test for `./test`.
fn note_skipped(reason: &str) {
    if let Some(skipped) = std::env::var_os("PLIMSOLL_SKIPPED") {
        let file = std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(skipped);
        writeln!(file.unwrap(), "{reason}").unwrap();
    }
}
