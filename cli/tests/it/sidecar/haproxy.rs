//! HAProxy with the shipped configuration and script.

use std::path::Path;
use std::process::Command;

use plimsoll_testing::process::Process;

use super::filled;
use super::proxy::{
    Patience, Setting, assert_body_of_sidecar, passes_requests_and_refusals,
    refuses_without_sidecar,
};

/// Starts HAProxy in front of the service; the sidecar is at `asked`.
fn start(
    setting: &Setting,
    haproxy: &Path,
    asked: &str,
    patience: Patience,
    bound: &[(&str, &str)],
) -> Process {
    let [address, spare, app] = [setting.address, setting.spare, setting.backend.address]
        .map(|address| address.to_string());
    let timeout = "local TIMEOUT = 150";
    let script = [
        ("127.0.0.1:7429", &*spare),
        (
            timeout,
            patience.in_place_of(timeout, "local TIMEOUT = 15000"),
        ),
    ];
    let script = setting.write("haproxy.lua", &filled("haproxy.lua", &script));
    let replaced = [
        (" 50ms", patience.in_place_of(" 50ms", " 5s")),
        ("/etc/haproxy/haproxy.lua", &*script.display().to_string()),
        ("bind :80\n", &format!("bind {address}\n")),
        ("server app 127.0.0.1:8080", &format!("server app {app}")),
        ("127.0.0.1:7429", &spare),
        (
            "server sidecar 127.0.0.1:7421 ",
            &format!("server sidecar {asked} "),
        ),
    ];
    let file = setting.write(
        "haproxy.cfg",
        &filled("haproxy.cfg", &[&replaced, bound].concat()),
    );
    let command = |flags: &[&str]| {
        let mut command = Command::new(haproxy);
        command.args(flags).arg("-f").arg(&file);
        command
    };
    setting.run(command(&["-c"]), command(&["-db"]))
}

#[test]
fn requests_and_refusals_pass_through_haproxy() {
    let refusal = passes_requests_and_refusals("haproxy", start, "unix@", true);
    refusal.iter().for_each(assert_body_of_sidecar);
}

#[test]
fn haproxy_bounds_requests_without_the_sidecar() {
    refuses_without_sidecar("haproxy", start, &[("gt 2000", "gt 5")]);
}
