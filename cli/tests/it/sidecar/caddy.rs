//! Caddy with the shipped configuration.

use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use plimsoll_testing::process::{Process, until, until_true};
use plimsoll_testing::turns::turn;

use super::proxy::{
    Caller, OFFERED, Patience, Setting, assert_body_of_sidecar, passes_requests_and_refusals,
};
use super::{filled, tool};

/// Starts Caddy in front of the service; the sidecar is at `asked`.
fn start(
    setting: &Setting,
    caddy: &Path,
    asked: &str,
    patience: Patience,
    bound: &[(&str, &str)],
) -> Process {
    let replaced = [
        (" 50ms", patience.in_place_of(" 50ms", " 5s")),
        (
            "reverse_proxy 127.0.0.1:7421 ",
            &*format!("reverse_proxy {asked} "),
        ),
        (
            "reverse_proxy 127.0.0.1:8080",
            &format!("reverse_proxy {}", setting.backend.address),
        ),
        (":80 {", &format!("http://{} {{", setting.address)),
    ];
    let text = filled("caddy.Caddyfile", &[&replaced, bound].concat());
    let file = setting.write("Caddyfile", &text);
    let command = |verb| {
        let mut command = Command::new(caddy);
        command
            .arg(verb)
            .arg("--config")
            .arg(&file)
            .args(["--adapter", "caddyfile"]);
        // Caddy keeps its own files below these.
        command
            .env("HOME", setting.directory.path())
            .env("XDG_CONFIG_HOME", setting.directory.path());
        command.env("XDG_DATA_HOME", setting.directory.path());
        command
    };
    setting.run(command("validate"), command("run"))
}

#[test]
fn requests_and_refusals_pass_through_caddy() {
    let refusal = passes_requests_and_refusals("caddy", start, "unix/", false);
    refusal.iter().for_each(assert_body_of_sidecar);
}

#[test]
fn caddy_bounds_requests_without_the_sidecar() {
    let Some(caddy) = tool("caddy", "caddy") else {
        return;
    };
    let _turn = turn(OFFERED);
    let mut setting = Setting::start("buckets: {}\n");
    let sidecar = setting.sidecar().to_string();
    let one = [("unhealthy_request_count 256", "unhealthy_request_count 1")];
    let _proxy = start(&setting, &caddy, &sidecar, Patience::Shipped, &one);
    setting.fleet.kill_sidecar();
    let caller = Caller::new(setting.address);
    let status = || caller.get("/orders", &[]).status;
    assert_eq!(status(), 200);
    // A request with an incomplete body stays at the service.
    let head = format!(
        "POST /slow HTTP/1.1\r\nhost: {}\r\ncontent-length: 6\r\n\r\na",
        setting.address
    );
    let mut posts = Vec::new();
    until("a refusal by Caddy itself", || {
        if status() == 503 {
            return Some(());
        }
        // Caddy counts a request for a moment after its answer, and refuses this one if it meets
        // that; it then waits for the whole body before it says so.
        let mut stream = TcpStream::connect(setting.address).unwrap();
        stream.write_all(head.as_bytes()).unwrap();
        posts.push(stream);
        None
    });
    drop(posts);
    until_true("an answer of the service", || status() == 200);
}
