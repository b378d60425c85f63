//! A real Prometheus server that tests start, stop and restart, with alerts or without.

mod dashboards;
pub(crate) mod extra_gates;

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use plimsoll_testing::process::{free_addresses, http};
use serde_json::Value;
use tempfile::TempDir;

/// A server with its own folder and port, that scrapes itself and one more page. Dropping it ends the
/// process.
pub(crate) struct RealPrometheus {
    child: Child,
    port: u16,
    folder: TempDir,
}

impl RealPrometheus {
    /// Starts a server; `None` if `prometheus` is not installed, and then `test` is recorded as skipped.
    pub(crate) fn start(test: &str, page: Option<SocketAddr>) -> Option<Self> {
        Self::start_with_rules(test, page, "")
    }

    /// Starts a server that evaluates these rules every half second.
    pub(crate) fn start_with_rules(
        test: &str,
        pages: impl IntoIterator<Item = SocketAddr>,
        rules: &str,
    ) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let [itself] = free_addresses();
        let port = itself.port();
        let targets: Vec<String> = [itself]
            .into_iter()
            .chain(pages)
            .map(|target| format!("'{target}'"))
            .collect();
        let scrape = format!(
            "global: {{ scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 500ms }}\n\
             rule_files: [ rules.yml ]\nscrape_configs: [ {{ job_name: tests, static_configs: [ {{ targets: [ {} ] }} ] }} ]\n",
            targets.join(", ")
        );
        fs::write(folder.path().join("prometheus.yml"), scrape).unwrap();
        fs::write(folder.path().join("rules.yml"), rules).unwrap();
        match spawn(&folder, port) {
            Ok(child) => Some(Self {
                child,
                port,
                folder,
            }),
            Err(error) => {
                plimsoll_testing::skipped(&format!("{test}: prometheus is not installed: {error}"));
                None
            }
        }
    }

    /// Its URL.
    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    fn get(&self, path: &str) -> Option<Value> {
        let address = SocketAddr::from(([127, 0, 0, 1], self.port));
        let (code, body) = http(address, "GET", path, &[]).ok()?;
        (code == 200).then(|| serde_json::from_str::<Value>(&body).unwrap()["data"].take())
    }

    /// Returns the series that answer a query now; `None` if it is not valid, or the server does not answer.
    pub(crate) fn query(&self, query: &str) -> Option<Vec<Value>> {
        let query: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let answer = self.get(&format!("/api/v1/query?query={query}"))?;
        answer["result"].as_array().cloned()
    }

    /// Returns the names of the alerts that fire.
    pub(crate) fn firing(&self) -> Option<BTreeSet<String>> {
        let answer = self.get("/api/v1/alerts")?;
        let alerts = answer["alerts"].as_array()?;
        let firing = alerts.iter().filter(|alert| alert["state"] == "firing");
        let names = firing.filter_map(|alert| alert["labels"]["alertname"].as_str());
        Some(names.map(str::to_owned).collect())
    }

    /// Returns the rules whose last evaluation failed.
    pub(crate) fn failing_rules(&self) -> Option<Vec<Value>> {
        let answer = self.get("/api/v1/rules")?;
        let rules = answer["groups"].as_array()?.iter();
        let rules = rules.flat_map(|group| group["rules"].as_array().into_iter().flatten());
        Some(
            rules
                .filter(|rule| rule["health"] != "ok")
                .cloned()
                .collect(),
        )
    }

    /// Kills the process.
    pub(crate) fn stop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts the process again on the same data.
    pub(crate) fn start_again(&mut self) {
        self.child = spawn(&self.folder, self.port).unwrap();
    }
}

impl Drop for RealPrometheus {
    fn drop(&mut self) {
        self.stop();
    }
}

fn spawn(folder: &TempDir, port: u16) -> std::io::Result<Child> {
    Command::new("prometheus")
        .arg(format!(
            "--config.file={}",
            folder.path().join("prometheus.yml").display()
        ))
        .arg(format!(
            "--storage.tsdb.path={}",
            folder.path().join("data").display()
        ))
        .arg(format!("--web.listen-address=127.0.0.1:{port}"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
}
