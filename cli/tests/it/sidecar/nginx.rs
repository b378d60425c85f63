//! nginx with the shipped configuration.

use std::path::Path;
use std::process::Command;

use plimsoll_testing::process::Process;
use plimsoll_testing::turns::turn;

use super::proxy::{
    OFFERED, Patience, Setting, goes_through_all_stages, passes_requests_and_refusals, policy,
    refuses_without_sidecar,
};
use super::{filled, tool};

/// The parts of a distribution's file around the shipped one. As root, workers would run as another
/// user, who may not open the sidecar's socket.
const AROUND: &str = "user root;\ndaemon off;\nworker_processes 2;\nerror_log stderr error;\npid nginx.pid;\n\
    events { worker_connections 512; }\n\
    http {\n  access_log off;\n  client_body_temp_path body;\n  proxy_temp_path proxy;\n  \
    fastcgi_temp_path fastcgi;\n  uwsgi_temp_path uwsgi;\n  scgi_temp_path scgi;\n  \
    include plimsoll.conf;\n}\n";

/// Starts nginx in front of the service; the sidecar is at `asked`.
fn start(
    setting: &Setting,
    nginx: &Path,
    asked: &str,
    patience: Patience,
    bound: &[(&str, &str)],
) -> Process {
    let [address, spare, app] = [setting.address, setting.spare, setting.backend.address]
        .map(|address| address.to_string());
    let replaced = [
        (" 50ms", patience.in_place_of(" 50ms", " 5s")),
        ("server 127.0.0.1:7421 ", &*format!("server {asked} ")),
        ("127.0.0.1:7429", &spare),
        ("server 127.0.0.1:8080;", &format!("server {app};")),
        ("listen 80;", &format!("listen {address};")),
    ];
    setting.write(
        "plimsoll.conf",
        &filled("nginx.conf", &[&replaced, bound].concat()),
    );
    setting.write("nginx.conf", AROUND);
    let command = |more: &[&str]| {
        let mut command = Command::new(nginx);
        command
            .arg("-p")
            .arg(setting.directory.path())
            .args(["-e", "stderr", "-c", "nginx.conf"])
            .args(more);
        command
    };
    setting.run(command(&["-t"]), command(&[]))
}

#[test]
fn requests_and_refusals_pass_through_nginx() {
    let Some(answer) = passes_requests_and_refusals("nginx", start, "unix:", true) else {
        return;
    };
    // nginx discards the checker's body, so the shipped file has its own.
    let own = format!(
        r#"{{"type":"about:blank","title":"Too Many Requests","status":429,"reason":"{}"}}"#,
        answer.field("x-ratelimit-reason")
    );
    assert_eq!(answer.body, own);
}

#[test]
fn nginx_follows_all_stages_and_outlives_sidecar() {
    let Some(nginx) = tool("nginx", "nginx") else {
        return;
    };
    let _turn = turn(OFFERED);
    let mut setting = Setting::start(&policy(30, "shadow"));
    let sidecar = setting.sidecar().to_string();
    let _proxy = start(&setting, &nginx, &sidecar, Patience::Shipped, &[]);
    goes_through_all_stages(&mut setting);
}

#[test]
fn nginx_bounds_requests_without_the_sidecar() {
    let bounds = [("rate=2000r/s", "rate=1r/s"), ("burst=400", "burst=5")];
    refuses_without_sidecar("nginx", start, &bounds);
}
