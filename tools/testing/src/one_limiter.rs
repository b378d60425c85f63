//! One limiter, the middleware of a service or a sidecar, under requests that each have another
//! tenant. `./measure` uses it too.

use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::fleet::{BUCKET, LOAD, policy, service, start_aggregator, start_controller};
use crate::process::{FREE_SIDECAR, Process, http, until};

/// Requests/s.
pub const LIMIT: u32 = 100;
const ZONE: &str = "zone-a";
/// So many names that hardly any is drawn twice.
const NAMES: &str = "1000000000";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limiter {
    Middleware,
    Sidecar,
}

pub struct OneLimiter {
    _processes: [Process; 3],
    _directory: TempDir,
    target: String,
}

impl OneLimiter {
    /// Starts the tiers and the limiter, and waits until it answers.
    pub fn start(kind: Limiter) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let tenants = "tenants: { default: { weight: 1 } }\n";
        let controller = start_controller(&directory, &policy(LIMIT, "enforce", false), tenants);
        let aggregator = start_aggregator(ZONE, controller.address("listen"));
        let parent = aggregator.address("listen");
        let limiter = match kind {
            Limiter::Middleware => service(ZONE, parent, &[]),
            Limiter::Sidecar => sidecar(&directory, parent),
        };
        let (address, path) = match kind {
            Limiter::Middleware => (limiter.address("listen"), format!("/{BUCKET}")),
            Limiter::Sidecar => (limiter.address("http"), "/check".to_owned()),
        };
        until("the limiter to answer", || {
            let (status, _) = http(address, "GET", &path, &[]).ok()?;
            (status == 200).then_some(())
        });
        let target = format!("http://{address}{path}");
        Self {
            _processes: [controller, aggregator, limiter],
            _directory: directory,
            target,
        }
    }

    /// Offers `rps` requests/s for this long. Returns the requests served in each second, and the
    /// number of failed requests.
    pub fn offer(&self, rps: f64, duration: Duration) -> (Vec<f64>, f64) {
        let (rps, duration) = (rps.to_string(), format!("{}s", duration.as_secs()));
        let flags = ["--target", &self.target, "--rps", &rps];
        let tenants = ["--tenant", "user", "--names", NAMES];
        let timing = ["--duration", &duration, "--every", "1s", "--timeout", "60s"];
        let mut load = Process::spawn(&[&LOAD[..], &flags, &tenants, &timing].concat());
        assert!(load.ended().success(), "{:?}", load.log());
        let lines = load.output_lines();
        let at = |line: &Value, name: &str| line[name].as_f64().unwrap();
        // A line on a busy machine may cover more than its second.
        let second = |pair: &[Value]| {
            (at(&pair[1], "served") - at(&pair[0], "served"))
                / (at(&pair[1], "at_s") - at(&pair[0], "at_s"))
        };
        let ended = lines.last().expect("the load prints its results");
        (
            lines[..lines.len() - 1].windows(2).map(second).collect(),
            at(ended, "failed"),
        )
    }
}

/// Starts a sidecar that maps every request of the HTTP port to the bucket, by the same header as a
/// service.
fn sidecar(directory: &TempDir, parent: SocketAddr) -> Process {
    let rules = directory.path().join("rules.yaml");
    let text =
        format!("http: {{ tenant: {{ header: x-tenant }}, rules: [ {{ bucket: {BUCKET} }} ] }}\n");
    fs::write(&rules, text).unwrap();
    let (rules, parent) = (rules.display().to_string(), format!("http://{parent}"));
    let flags = ["--zone", ZONE, "--aggregator", &parent, "--rules", &rules];
    Process::start(&[&["sidecar"], &flags[..], &FREE_SIDECAR].concat())
}

/// Returns the minimum and the maximum of the means of all windows of ten seconds from one on.
pub fn means_10s(seconds: &[f64], from: usize) -> (f64, f64) {
    let means = seconds[from..]
        .windows(10)
        .map(|window| window.iter().sum::<f64>() / 10.0);
    means.fold((f64::INFINITY, 0.0), |(least, most), mean| {
        (mean.min(least), mean.max(most))
    })
}
