//! The Python caller of `docs/integrations/callers`: it queries a sidecar, and serves requests
//! without an answer.

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use plimsoll_client::Reason;

use super::*;

/// More attempts than a late answer needs on a busy machine: the callers wait for 50 ms.
const ATTEMPTS: usize = 20;

fn callers() -> &'static Path {
    Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../docs/integrations/callers"
    ))
}

fn run(command: &[String], port: u16, bucket: &str) -> String {
    let output = Command::new(&command[0])
        .args(&command[1..])
        .args([port.to_string().as_str(), bucket, "acme"])
        .current_dir(callers())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

async fn asks(command: &[&str]) {
    let port = Port::new();
    port.plane.refuse("none", Reason::ClusterOverload).unwrap();
    let open = serve(&port).await.port();
    // Listens and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let closed = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let command: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
    tokio::task::spawn_blocking(move || {
        assert!(
            (0..ATTEMPTS).any(|_| run(&command, open, "none") == "refused"),
            "{command:?} is never refused"
        );
        assert_eq!(run(&command, open, "some"), "allowed");
        assert_eq!(
            run(&command, open, "two words"),
            "allowed",
            "an invalid request"
        );
        assert_eq!(run(&command, closed, "none"), "allowed", "no sidecar");
        assert_eq!(
            run(&command, silent.local_addr().unwrap().port(), "none"),
            "allowed",
            "a sidecar that hangs"
        );
    })
    .await
    .unwrap();
    assert!(port.plane.tenant_counts("none", "acme").unwrap().refused > 0);
}

fn has(program: &str, version: &str) -> bool {
    Command::new(program)
        .arg(version)
        .output()
        .is_ok_and(|output| output.status.success())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_caller_serves_without_an_answer() {
    if has("python3", "--version") {
        asks(&["python3", "check.py"]).await;
    } else {
        plimsoll_testing::skipped("sidecar::callers: python3 is not installed");
    }
}
