//! HAProxy with the shipped configuration and script.

use std::path::Path;
use std::process::Command;

use plimsoll_testing::process::Process;
use plimsoll_testing::turns::turn;

use super::proxy::{
    OFFERED, Patience, Setting, assert_body_of_sidecar, passes_requests_and_refusals,
    until_refused_without_sidecar,
};
use super::{filled, tool};

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
    let Some(haproxy) = tool(
        "haproxy::requests_and_refusals_pass_through_haproxy",
        "haproxy",
    ) else {
        return;
    };
    let _turn = turn(OFFERED);
    let setting = Setting::start("buckets: {}\n");
    let _proxy = start(
        &setting,
        &haproxy,
        &format!("unix@{}", setting.socket()),
        Patience::Long,
        &[],
    );
    assert_body_of_sidecar(&passes_requests_and_refusals(&setting, true));
}

#[test]
fn haproxy_bounds_requests_without_the_sidecar() {
    let Some(haproxy) = tool(
        "haproxy::haproxy_bounds_requests_without_the_sidecar",
        "haproxy",
    ) else {
        return;
    };
    let _turn = turn(OFFERED);
    let mut setting = Setting::start("buckets: {}\n");
    let bound = &[("gt 2000", "gt 5")];
    let _proxy = start(
        &setting,
        &haproxy,
        &setting.sidecar().to_string(),
        Patience::Shipped,
        bound,
    );
    until_refused_without_sidecar(&mut setting);
}
