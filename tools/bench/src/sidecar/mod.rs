//! A sidecar next to servers that do nothing, its memory and processor time, and a fleet that is
//! limited by clients and by sidecars together.

pub(crate) mod cores;
mod footprint;
mod h2load;
mod mixed;
pub(crate) mod nothing;
mod throughput;

use std::fs;

use tempfile::TempDir;

use crate::measure::report::Report;
use cores::{LOAD, SERVER, on_core};
use plimsoll_testing::process::Process;

/// Bucket that admits all requests, and bucket that refuses half.
const OPEN: &str = "open";
const HALF: &str = "half";
const NO_LIMIT: f64 = 1e9;

/// A controller and an aggregator on the core of the load, and a sidecar on another core.
struct Limited {
    _controller: Process,
    _aggregator: Process,
    sidecar: Process,
    directory: TempDir,
}

pub(crate) fn measure(report: &mut Report) {
    mixed::measure(report);
    if h2load::is_installed() {
        throughput::measure(report);
        footprint::measure(report);
    } else {
        report.skip(
            "throughput of the sidecar",
            "none",
            "h2load is not installed",
        );
    }
}

impl Limited {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).display().to_string();
        let free = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
        let (policy, state) = (path("policy.yaml"), path("state"));
        fs::write(&policy, self::policy(NO_LIMIT)).unwrap();
        let controller = on_core(LOAD, || {
            Process::start(
                &[
                    &["controller", "--policy", &policy, "--state-dir", &state],
                    &free[..],
                ]
                .concat(),
            )
        });
        let uplink = format!("http://{}", controller.address("listen"));
        let aggregator = on_core(LOAD, || {
            Process::start(&[&["aggregator", "--controller", &uplink], &free[..]].concat())
        });
        let parent = format!("http://{}", aggregator.address("listen"));
        let ports = [
            "--rls",
            "127.0.0.1:0",
            "--http",
            "127.0.0.1:0",
            "--admin",
            "127.0.0.1:0",
        ];
        let sidecar = on_core(SERVER, || {
            Process::start(&[&["sidecar", "--aggregator", &parent], &ports[..]].concat())
        });
        Self {
            _controller: controller,
            _aggregator: aggregator,
            sidecar,
            directory,
        }
    }

    fn limit_half(&self, limit: f64) {
        let swap = self.directory.path().join(".policy.yaml.swp");
        fs::write(&swap, policy(limit)).unwrap();
        fs::rename(swap, self.directory.path().join("policy.yaml")).unwrap();
    }
}

/// A policy without gates and guardrails, so that a limit takes effect immediately.
fn policy(half: f64) -> String {
    format!(
        "buckets:\n  {OPEN}: {{ limit: {NO_LIMIT:.0}, mode: enforce }}\n  {HALF}: {{ limit: {half:.0}, mode: enforce }}\n\
         rollout: {{ require_gates: false }}\nguardrails: off\n"
    )
}
