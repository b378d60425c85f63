//! Sidecars as real processes, called by real proxies and by callers without an embedded limiter.

mod caddy;
mod envoy;
mod haproxy;
mod http_port;
mod late;
mod mixed;
mod nginx;
mod proxy;
mod rls_callers;
mod traefik;

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};

use plimsoll_testing::fleet::{metric, save, start_aggregator, start_controller};
use plimsoll_testing::process::{FREE_PORT, Process, http, message, succeed, until, until_true};
use serde_json::Value;
use tempfile::TempDir;

pub(crate) struct Fleet {
    pub(crate) controller: Process,
    _aggregator: Process,
    pub(crate) sidecar: Process,
    /// Flags of the sidecar, without its listeners.
    flags: Vec<String>,
    directory: TempDir,
}

impl Fleet {
    /// Starts all three with these files, and waits until the sidecar has an aggregator. The
    /// sidecar gets more flags.
    pub(crate) fn start(policy: &str, tenants: &str, rules: Option<&str>, flags: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).display().to_string();
        let controller = start_controller(&directory, policy, tenants);
        let aggregator = start_aggregator("zone-a", controller.address("listen"));
        let parent = aggregator.url("listen");
        let sockets = directory.path().display().to_string();
        let common = [
            "--zone",
            "zone-a",
            "--aggregator",
            &parent,
            "--sockets",
            &sockets,
        ];
        let flags = common.iter().chain(flags);
        let mut flags: Vec<String> = flags.map(ToString::to_string).collect();
        if let Some(rules) = rules {
            fs::write(path("rules.yaml"), rules).unwrap();
            flags.extend(["--rules".to_owned(), path("rules.yaml")]);
        }
        let sidecar = start_sidecar(&flags, [FREE_PORT; 3]);
        Self {
            controller,
            _aggregator: aggregator,
            sidecar,
            flags,
            directory,
        }
    }

    /// Kills the sidecar without a chance to clean up.
    pub(crate) fn kill_sidecar(&mut self) {
        self.sidecar.kill_9();
    }

    /// Starts the sidecar again on its addresses, and waits until it has an aggregator.
    pub(crate) fn restart_sidecar(&mut self) {
        let addresses =
            ["listen", "http", "admin"].map(|name| self.sidecar.address(name).to_string());
        for address in &addresses {
            // A proxy that retries to connect to a port above 32768 may be given this port for its
            // own end, and so connect to itself.
            until("the port to be free", || TcpListener::bind(address).ok());
        }
        self.sidecar = start_sidecar(&self.flags, addresses.each_ref().map(String::as_str));
    }

    /// Path of a file of the fleet: `policy.yaml`, `rules.yaml`, `rls.sock`, `http.sock`.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Saves a file as an editor does: writes another file and renames it over the old one.
    pub(crate) fn save(&self, name: &str, text: &str) {
        save(self.directory.path(), name, text);
    }

    pub(crate) fn status(&self) -> Value {
        self.controller.status()
    }

    pub(crate) fn until_mode(&self, bucket: &str, mode: &str) {
        until_true(&format!("{bucket} in {mode}"), || {
            self.status()["buckets"][bucket]["mode"] == mode
        });
    }

    /// Ends shadow or canary of a bucket, or moves it back, by an operator's command.
    pub(crate) fn promote(&self, bucket: &str, stage: &str) {
        let controller = self.controller.url("admin");
        let why = ["--force", "--reason", "a test", "--controller", &controller];
        succeed(&[&["rollout", "promote", bucket, "--to", stage], &why[..]].concat());
        self.until_mode(bucket, stage);
    }

    /// Returns a metric of the sidecar, summed over the series with `label` in their labels; 0
    /// while it is down.
    pub(crate) fn sidecar_metric(&self, name: &str, label: &str) -> f64 {
        let page = http(self.sidecar.address("admin"), "GET", "/metrics", &[]);
        page.map_or(0.0, |(_, page)| metric(&page, name, label))
    }
}

fn start_sidecar(flags: &[String], [rls, http, admin]: [&str; 3]) -> Process {
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let ports = ["--rls", rls, "--http", http, "--admin", admin];
    let sidecar = Process::start(&[&["sidecar"], &flags[..], &ports].concat());
    sidecar.wait_for(|line| message(line) == Some("aggregator connected"));
    sidecar
}

/// Path of a shipped file below `docs/integrations`.
pub(crate) fn integration(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../docs/integrations")
        .join(name)
}

/// Returns a shipped file with other ports and paths. Every replaced text must occur, or the test
/// would run another file than the shipped one.
pub(crate) fn filled(name: &str, replaced: &[(&str, &str)]) -> String {
    let mut text = fs::read_to_string(integration(name)).unwrap();
    for (from, to) in replaced {
        assert!(text.contains(from), "{name} contains no {from:?}");
        text = text.replace(from, to);
    }
    text
}

/// Path of a program: in the search path, or in the folder where `./test` puts tools. `None`, and a
/// note of the skipped test, if it is missing.
pub(crate) fn tool(test: &str, program: &str) -> Option<PathBuf> {
    let running = std::env::current_exe().unwrap();
    let ours = running.ancestors().map(|folder| folder.join("tools"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Debian installs servers where only root looks.
    let servers = ["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from);
    let mut all = std::env::split_paths(&path)
        .chain(servers)
        .chain(ours)
        .map(|folder| folder.join(program));
    let found = all.find(|path| path.is_file());
    if found.is_none() {
        plimsoll_testing::skipped(&format!("sidecar::{test}: {program} is not installed"));
    }
    found
}
