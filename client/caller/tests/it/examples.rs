//! The examples, run as their users run them, against services that refuse their first request.

use plimsoll_tower::Reason;

use crate::refusals::{refuses_first, serve_grpc, serve_http};

/// Returns what an example prints. Cargo has built it with the tests, unless only those were asked for.
async fn printed(example: &str, server: String) -> String {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = tokio::process::Command::new(cargo);
    command.args([
        "run",
        "--offline",
        "--quiet",
        "--package",
        "plimsoll-caller",
    ]);
    command.args(["--example", example, "--", &server]);
    let output = command.output().await.unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{example}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn examples_wait_and_are_served() {
    let refuses = || refuses_first(1, Reason::ClusterOverload).0;
    let http = format!("http://{}/", serve_http(refuses()).await);
    let grpc = format!("http://{}", serve_grpc(refuses()).await);
    assert_eq!(printed("reqwest_client", http).await, "200 OK: served\n");
    assert_eq!(printed("tonic_client", grpc).await, "Serving\n");
}
