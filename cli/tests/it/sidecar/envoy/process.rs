//! A real Envoy with the shipped configuration, before a backend of the test.

use std::fs;
use std::net::SocketAddr;
use std::process::Command;

use plimsoll_testing::fleet::metric;
use plimsoll_testing::process::{Process, until, until_true};
use tempfile::TempDir;

use super::super::proxy::{Answer, Backend, Caller, Fields};
use super::super::{Fleet, filled, tool};

pub(super) struct Envoy {
    process: Process,
    /// Port of callers.
    pub(super) ingress: SocketAddr,
    caller: Caller,
    admin: Caller,
    _backend: Backend,
    _directory: TempDir,
}

impl Envoy {
    /// Starts Envoy and a backend with the shipped file, the ports of the test, and more changes in `replaced`.
    /// `None` if there is no Envoy.
    pub(super) fn start(test: &str, fleet: &Fleet, replaced: &[(&str, &str)]) -> Option<Self> {
        let program = tool(test, "envoy")?;
        let backend = Backend::start();
        let directory = tempfile::tempdir().unwrap();
        let port = |address: SocketAddr| format!("port_value: {}", address.port());
        let (rls, behind) = (port(fleet.sidecar.address("listen")), port(backend.address));
        let socket = fleet.path("rls.sock").display().to_string();
        let ports = [
            // Envoy chooses its own.
            ("port_value: 9901", "port_value: 0"),
            ("port_value: 10000", "port_value: 0"),
            ("port_value: 7420", rls.as_str()),
            ("port_value: 8080", behind.as_str()),
            ("port_value: 8081", behind.as_str()),
            ("/run/plimsoll/rls.sock", socket.as_str()),
        ];
        let config = directory.path().join("envoy.yaml");
        fs::write(
            &config,
            filled("envoy.yaml", &[&ports[..], replaced].concat()),
        )
        .unwrap();

        let admin = directory.path().join("admin");
        let mut command = Command::new(program);
        command
            .arg("-c")
            .arg(&config)
            .arg("--admin-address-path")
            .arg(&admin);
        command.args([
            "--disable-hot-restart",
            "--concurrency",
            "2",
            "--log-level",
            "error",
        ]);
        let process = Process::spawn_command(command);
        let admin = until("Envoy to open its admin port", || {
            fs::read_to_string(&admin).ok()?.trim().parse().ok()
        });
        let admin = Caller::new(admin);
        until_true("Envoy to be ready", || {
            admin.get("/ready", &[]).status == 200
        });
        let listeners = admin.get("/listeners", &[]).body;
        let ingress = listeners
            .lines()
            .find_map(|line| line.strip_prefix("ingress::"))
            .unwrap();
        let ingress = ingress.trim().parse().unwrap();
        Some(Self {
            process,
            ingress,
            caller: Caller::new(ingress),
            admin,
            _backend: backend,
            _directory: directory,
        })
    }

    pub(super) fn get(&self, path: &str, fields: Fields<'_>) -> Answer {
        self.caller.get(path, fields)
    }

    pub(super) fn counter(&self, name: &str) -> f64 {
        metric(&self.admin.get("/stats/prometheus", &[]).body, name, "")
    }

    /// Returns its log lines from errors on.
    pub(super) fn log(&self) -> Vec<String> {
        self.process.log()
    }
}
