//! An hour of everything that should leave no memory behind: names that never return, services that
//! restart, certificates that rotate and policies that change, on a fleet of real processes over
//! mutual TLS.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::thread::sleep;
use std::time::Instant;

use plimsoll_testing::fleet::{BUCKET, LOAD, TENANTS, metric, policy};
use plimsoll_testing::process::{Process, http_get, run};
use tempfile::TempDir;

use crate::measure::report::Report;
use crate::streams::process::resident_bytes;

/// Parts of the time, with a reading of memory after each: 10 s of an hour.
const TICKS: u32 = 360;
/// Ticks between two restarts of a service and changes of the policy: a minute of an hour.
const CHURN: u32 = 6;
/// Ticks between two rotations of certificates: ten minutes of an hour.
const ROTATION: u32 = 60;
/// Ticks before the memory to compare with. The established names of an aggregator may become more for 20 minutes: they
/// are kept for ten.
const WARM: u32 = TICKS / 2;
/// Maximum memory afterwards, as a multiple of that.
const GROWTH_MAX: f64 = 1.1;
const MIB: f64 = 1_048_576.0;
/// Alternating limits of the policy, and requests/s of names that never return and of two known
/// tenants.
const LIMITS: [u32; 2] = [300, 310];
const NEW_NAMES: &str = "200";
const KNOWN: &str = "300";
/// So many names that none is drawn twice.
const NAMES: &str = "1000000000000000000";
const ZONES: [&str; 2] = ["zone-a", "zone-b"];
const FREE: &str = "127.0.0.1:0";

const CERTIFICATES: [(&str, &[&str]); 5] = [
    ("controller", &["controller"]),
    ("zone-a", &["aggregator", "--zone", "zone-a"]),
    ("zone-b", &["aggregator", "--zone", "zone-b"]),
    (
        "zone-a-service",
        &["service", "--zone", "zone-a", "--service", "demo"],
    ),
    (
        "zone-b-service",
        &["service", "--zone", "zone-b", "--service", "demo"],
    ),
];

struct Soaked {
    /// Processes that run to the end, by name, with their resident bytes at each tick.
    lasting: Vec<(String, Process, Vec<f64>)>,
    /// Service that restarts, its aggregator and its address.
    restarting: Process,
    parent: String,
    listen: SocketAddr,
    loads: [Process; 2],
    directory: TempDir,
}

pub(crate) fn measure(report: &mut Report) {
    let length = report.args.soak_for;
    let mut fleet = Soaked::start();
    let begun = Instant::now();
    let (mut churned, mut rotated) = (0, 0);
    for tick in 0..=TICKS {
        sleep((length * tick / TICKS).saturating_sub(begun.elapsed()));
        for (_, process, resident) in &mut fleet.lasting {
            resident.push(resident_bytes(process.id()).unwrap() as f64);
        }
        if tick > 0 && tick < TICKS && tick % CHURN == 0 {
            churned += 1;
            fleet.restart_service();
            fleet.save_policy(LIMITS[churned % LIMITS.len()]);
        }
        if tick > 0 && tick < TICKS && tick % ROTATION == 0 {
            rotated += 1;
            issue(fleet.directory.path());
        }
    }
    let [every, warm] =
        [ROTATION, WARM].map(|ticks| humantime::format_duration(length * ticks / TICKS));
    for (name, _, resident) in &fleet.lasting {
        let (most, growth) = growth(resident, WARM as usize);
        let shape = resident.iter().step_by(ROTATION as usize);
        let shape: Vec<String> = shape.map(|bytes| format!("{:.1}", bytes / MIB)).collect();
        let figure = format!(
            "{}; at most {:.1} ({growth:.2} x)",
            shape.join(", "),
            most / MIB
        );
        let title = format!("{name}: resident MiB first, and every {every}; the most after {warm}");
        let bar = format!("at most {GROWTH_MAX} x that after {warm}");
        report.row(&title, &bar, figure, growth <= GROWTH_MAX);
    }
    fleet.work(churned, rotated, report);
    report.note(
        "time and restarts",
        format!("{}, {churned}", humantime::format_duration(length)),
    );
}

impl Soaked {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).display().to_string();
        succeed(&["certs", "init", "--dir", &path("ca")]);
        issue(directory.path());
        for (name, text) in [
            ("policy.yaml", policy(LIMITS[0], "enforce", false)),
            ("tenants.yaml", TENANTS.to_owned()),
            (
                "rules.yaml",
                format!(
                    "http: {{ tenant: {{ header: x-tenant }}, rules: [ {{ bucket: {BUCKET} }} ] }}\n"
                ),
            ),
        ] {
            fs::write(path(name), text).unwrap();
        }
        let [policy, tenants, state, rules] =
            ["policy.yaml", "tenants.yaml", "state", "rules.yaml"].map(path);
        let files = [
            "controller",
            "--policy",
            &policy,
            "--tenants",
            &tenants,
            "--state-dir",
            &state,
        ];
        let ports = ["--listen", FREE, "--admin", FREE, "--certs"];
        let controller = Process::start(&[&files[..], &ports, &[&path("controller")]].concat());
        let parent = url(&controller);
        let aggregators = ZONES.map(|zone| {
            let flags = [
                "aggregator",
                "--zone",
                zone,
                "--name",
                zone,
                "--controller",
                &parent,
            ];
            Process::start(&[&flags[..], &ports, &[&path(zone)]].concat())
        });
        let [of_a, of_b] = aggregators.each_ref().map(url);
        let services = [(0, &of_a), (0, &of_a), (1, &of_b), (1, &of_b)]
            .map(|(zone, parent)| service(directory.path(), ZONES[zone], parent, FREE));
        let flags = [
            "sidecar",
            "--zone",
            ZONES[0],
            "--service",
            "demo",
            "--aggregator",
            &of_a,
            "--rules",
            &rules,
        ];
        let ports = ["--rls", FREE, "--http", FREE, "--admin", FREE, "--certs"];
        let sidecar = Process::start(&[&flags[..], &ports, &[&path("zone-a-service")]].concat());

        let targets = services
            .each_ref()
            .map(|service| format!("http://{}/{BUCKET}", service.address("listen")));
        let targets = format!(
            "{},http://{}/check",
            targets.join(","),
            sidecar.address("http")
        );
        let load =
            |flags: &[&str]| Process::spawn(&[&LOAD[..], &["--target", &targets], flags].concat());
        let loads = [
            load(&["--rps", NEW_NAMES, "--tenant", "user", "--names", NAMES]),
            load(&["--rps", KNOWN, "--tenant", "acme,corner-shop"]),
        ];
        let [first, second, third, restarting] = services;
        let [of_zone_a, of_zone_b] = aggregators;
        let lasting = [
            ("controller", controller),
            ("aggregator of zone-a", of_zone_a),
            ("aggregator of zone-b", of_zone_b),
            ("service 1 of zone-a", first),
            ("service 2 of zone-a", second),
            ("service of zone-b", third),
            ("sidecar of zone-a", sidecar),
        ]
        .map(|(name, process)| (name.to_owned(), process, Vec::new()));
        let listen = restarting.address("listen");
        Self {
            lasting: lasting.into(),
            restarting,
            parent: of_b,
            listen,
            loads,
            directory,
        }
    }

    fn restart_service(&mut self) {
        assert!(self.restarting.terminate().success());
        self.restarting = service(
            self.directory.path(),
            ZONES[1],
            &self.parent,
            &self.listen.to_string(),
        );
    }

    fn save_policy(&self, limit: u32) {
        let path = |name: &str| self.directory.path().join(name);
        fs::write(path(".swap"), policy(limit, "enforce", false)).unwrap();
        fs::rename(path(".swap"), path("policy.yaml")).unwrap();
    }

    /// Reports the completed work that should leave no memory behind.
    fn work(&mut self, churned: usize, rotated: usize, report: &mut Report) {
        let renewed = |process: &Process| {
            process
                .log()
                .iter()
                .filter(|line| line.contains("\"certificates renewed\""))
                .count()
        };
        let least = self
            .lasting
            .iter()
            .map(|(_, process, _)| renewed(process))
            .min()
            .unwrap_or_default();
        let bar = format!(">= {rotated}");
        report.row(
            "certificates renewed by each process",
            &bar,
            least.to_string(),
            least >= rotated,
        );
        let page = http_get(self.lasting[0].1.address("admin"), "/metrics").1;
        let taken = metric(&page, "plimsoll_policy_reloads_total", "accepted");
        report.row(
            "changed policies in force",
            &format!(">= {churned}"),
            taken.to_string(),
            taken >= churned as f64,
        );
        for (load, of) in self
            .loads
            .iter_mut()
            .zip(["names that never return", "two known tenants"])
        {
            assert!(load.terminate().success());
            let ended = load.output_lines().pop().unwrap();
            let count = |name: &str| ended[name].as_f64().unwrap_or(f64::NAN);
            let [sent, refused, failed] = ["sent", "refused", "failed"].map(count);
            let figure = format!("{sent}, {refused}, {failed}");
            report.note(&format!("requests of {of}: sent, refused, failed"), figure);
        }
    }
}

/// Maximum from `warm` on, and its ratio to the figure at `warm`.
fn growth(resident: &[f64], warm: usize) -> (f64, f64) {
    let most = resident[warm..].iter().copied().fold(0.0, f64::max);
    (most, most / resident[warm])
}

fn issue(directory: &Path) {
    for (name, subject) in CERTIFICATES {
        let [ca, out] = ["ca", name].map(|name| directory.join(name).display().to_string());
        succeed(&[&["certs", "issue"], subject, &["--ca", &ca, "--out", &out]].concat());
    }
}

/// Runs `plimsoll` to its end, which must be a success.
pub(crate) fn succeed(args: &[&str]) {
    let ended = run(args);
    assert!(
        ended.status.success(),
        "{args:?}: {}",
        String::from_utf8_lossy(&ended.stderr)
    );
}

fn service(directory: &Path, zone: &str, parent: &str, listen: &str) -> Process {
    let certs = directory
        .join(format!("{zone}-service"))
        .display()
        .to_string();
    let flags = [
        "service",
        "--zone",
        zone,
        "--aggregator",
        parent,
        "--listen",
        listen,
        "--buckets",
        BUCKET,
    ];
    Process::start(&[&flags[..], &["--certs", &certs]].concat())
}

fn url(parent: &Process) -> String {
    format!("https://{}", parent.address("listen"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_begins_at_the_warm_memory() {
        assert_eq!(growth(&[90.0, 50.0, 20.0, 25.0, 22.0], 2), (25.0, 1.25));
    }
}
