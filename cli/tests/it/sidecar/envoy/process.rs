//! A real Envoy with the shipped configuration, before a backend of the test.

use std::fs;
use std::net::SocketAddr;
use std::process::Command;

use plimsoll_testing::fleet::metric;
use plimsoll_testing::process::{Process, until};
use tempfile::TempDir;

use super::super::{Fleet, filled, tool};
use super::backend::Backend;

pub(super) struct Envoy {
    process: Process,
    /// Port of callers.
    pub(super) ingress: SocketAddr,
    admin: SocketAddr,
    _directory: TempDir,
}

impl Envoy {
    /// Starts Envoy with the shipped file, the ports of the test, and more changes in `replaced`.
    /// `None` if there is no Envoy.
    pub(super) fn start(
        test: &str,
        fleet: &Fleet,
        backend: &Backend,
        replaced: &[(&str, &str)],
    ) -> Option<Self> {
        let program = tool(test, "envoy")?;
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
        let admin: SocketAddr = until("Envoy to open its admin port", || {
            fs::read_to_string(&admin).ok()?.trim().parse().ok()
        });
        until("Envoy to be ready", || {
            (backend.get(admin, "/ready", &[]).status == 200).then_some(())
        });
        let listeners = backend.get(admin, "/listeners", &[]).body;
        let ingress = listeners
            .lines()
            .find_map(|line| line.strip_prefix("ingress::"))
            .unwrap();
        let ingress = ingress.trim().parse().unwrap();
        Some(Self {
            process,
            ingress,
            admin,
            _directory: directory,
        })
    }

    pub(super) fn counter(&self, backend: &Backend, name: &str) -> f64 {
        metric(
            &backend.get(self.admin, "/stats/prometheus", &[]).body,
            name,
            "",
        )
    }

    /// Returns its log lines from errors on.
    pub(super) fn log(&self) -> Vec<String> {
        self.process.log()
    }
}
