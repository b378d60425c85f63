//! A fleet of real processes under load: a controller, two zones with an aggregator and two
//! services each, and load generators. `./measure` uses it too.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::process::{FREE_PORT, Process, http, until};

/// Zones and their shares of the load. They are unequal, so that a limit enforced per zone would be
/// exceeded.
const ZONES: [(&str, f64); 2] = [("zone-a", 0.7), ("zone-b", 0.3)];
const SERVICES_PER_ZONE: usize = 2;
pub const BUCKET: &str = "checkout";

/// Load generator with the output that tests read.
pub const LOAD: [&str; 3] = ["load", "--output", "json"];

pub const TENANTS: &str = "tenants: { default: { weight: 1.0 }, acme: { weight: 1.0 } }\n";

pub struct Fleet {
    pub controller: Process,
    pub zones: Vec<Zone>,
    load: Vec<Process>,
    directory: TempDir,
}

pub struct Zone {
    pub name: &'static str,
    pub aggregator: Process,
    pub services: Vec<Process>,
}

/// Cumulative decisions of services at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    pub at: Instant,
    pub admit: f64,
    pub drop: f64,
    pub would_drop: f64,
}

/// Decisions of services between two moments, in requests/s.
#[derive(Clone, Copy, Debug)]
pub struct Rates {
    pub offered: f64,
    pub admitted: f64,
    pub dropped: f64,
    pub would_dropped: f64,
}

/// A policy for the bucket, without gates and guardrails, so that a raised mode takes effect
/// immediately.
pub fn policy(limit: u32, mode: &str, killed: bool) -> String {
    format!(
        "kill_switch: {killed}\nbuckets:\n  {BUCKET}: {{ limit: {limit}, mode: {mode} }}\n\
         rollout: {{ require_gates: false }}\nguardrails: off\n"
    )
}

impl Fleet {
    /// Starts every process and waits until it listens.
    pub fn start(policy: &str) -> Self {
        Self::start_with(policy, TENANTS, &[])
    }

    /// Starts a fleet with these tenants, and with these flags for every service.
    pub fn start_with(policy: &str, tenants: &str, service_flags: &[&str]) -> Self {
        let mut fleet = Self::without_services(policy, tenants);
        for zone in &mut fleet.zones {
            let parent = zone.aggregator.address("listen");
            zone.services = (0..SERVICES_PER_ZONE)
                .map(|_| service(zone.name, parent, service_flags))
                .collect();
        }
        fleet
    }

    /// Starts only the controller and the aggregators, and waits until they listen.
    pub fn without_services(policy: &str, tenants: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let controller = start_controller(&directory, policy, tenants);
        let parent = controller.address("listen");
        let zones = ZONES.map(|(name, _)| {
            let aggregator = start_aggregator(name, parent);
            Zone {
                name,
                aggregator,
                services: Vec::new(),
            }
        });
        Self {
            controller,
            zones: zones.into(),
            load: Vec::new(),
            directory,
        }
    }

    /// Starts a total load of `rps` requests/s.
    pub fn start_load(&mut self, rps: f64) {
        self.start_load_in_steps(&[(Duration::ZERO, rps)]);
    }

    /// Starts a total load of `rps` requests/s, with callers that wait as long as a busy machine
    /// needs.
    pub fn start_patient_load(&mut self, rps: f64) {
        self.start_load_with(&[(Duration::ZERO, rps)], &["--timeout", "60s"]);
    }

    /// Starts a load with a rate in requests/s that changes at each of these times.
    pub fn start_load_in_steps(&mut self, steps: &[(Duration, f64)]) {
        self.start_load_with(steps, &[]);
    }

    fn start_load_with(&mut self, steps: &[(Duration, f64)], more: &[&str]) {
        for (zone, (_, share)) in self.zones.iter().zip(ZONES) {
            let targets: Vec<String> = zone.services.iter().map(target).collect();
            let steps: Vec<(Duration, f64)> = steps
                .iter()
                .map(|(from, rps)| (*from, rps * share))
                .collect();
            let (targets, rps) = (targets.join(","), schedule(&steps));
            let flags = ["--target", &targets, "--rps", &rps];
            let tenants = ["--tenant", "acme,corner-shop"];
            self.load.push(Process::spawn(
                &[&LOAD[..], &flags, &tenants, more].concat(),
            ));
        }
    }

    /// Starts one load generator that spreads its requests evenly over all services, with these
    /// flags of `load`.
    pub fn start_load_evenly(&mut self, flags: &[&str]) {
        let targets: Vec<String> = self.services().map(target).collect();
        self.load.push(Process::spawn(
            &[&LOAD[..], &["--target", &targets.join(",")], flags].concat(),
        ));
    }

    /// Returns the lines of the first load generator so far, each counted from its start.
    pub fn load_lines(&self) -> Vec<Value> {
        self.load[0].output_lines()
    }

    /// Stops the load generators, and returns the summary of each.
    pub fn stop_load(&mut self) -> Vec<Value> {
        let summaries = self.load.drain(..).map(|mut load| {
            assert!(load.terminate().success());
            load.output_lines().pop().unwrap()
        });
        summaries.collect()
    }

    pub fn policy_path(&self) -> PathBuf {
        self.directory.path().join("policy.yaml")
    }

    /// Saves the policy as an editor does.
    pub fn save_policy(&self, text: &str) {
        save(self.directory.path(), "policy.yaml", text);
    }

    pub fn services(&self) -> impl Iterator<Item = &Process> {
        self.zones.iter().flat_map(|zone| &zone.services)
    }

    pub fn sample(&self) -> Sample {
        sample(self.services())
    }

    pub fn sample_zone(&self, zone: usize) -> Sample {
        sample(&self.zones[zone].services)
    }

    /// Waits until the rates over `span` are as `wanted`, and returns them.
    pub fn until_rates(
        &self,
        what: &str,
        span: Duration,
        wanted: impl Fn(&Rates) -> bool,
    ) -> Rates {
        let mut samples = vec![self.sample()];
        until(what, || {
            samples.push(self.sample());
            latest_rates(&samples, span).filter(&wanted)
        })
    }

    /// `None` while it is down.
    pub fn status(&self) -> Option<Value> {
        let (code, body) = http(self.controller.address("admin"), "GET", "/status", &[]).ok()?;
        (code == 200).then(|| serde_json::from_str(&body).unwrap())
    }

    pub fn controller_metric(&self, name: &str, label: &str) -> f64 {
        self.controller.metric("admin", name, label)
    }

    /// 0 while it is down.
    pub fn aggregator_metric(&self, zone: usize, name: &str) -> f64 {
        let page = http(
            self.zones[zone].aggregator.address("admin"),
            "GET",
            "/metrics",
            &[],
        );
        page.map_or(0.0, |(_, page)| metric(&page, name, ""))
    }

    /// Starts the controller again on its addresses and its saved state.
    pub fn restart_controller(&mut self) {
        let [listen, admin] =
            ["listen", "admin"].map(|name| self.controller.address(name).to_string());
        self.controller = controller_in(self.directory.path(), &listen, &admin, &[]);
    }

    /// Starts a zone's aggregator again on its addresses.
    pub fn restart_aggregator(&mut self, zone: usize) {
        let parent = self.controller.address("listen");
        let zone = &mut self.zones[zone];
        let [listen, admin] =
            ["listen", "admin"].map(|name| zone.aggregator.address(name).to_string());
        zone.aggregator = aggregator(zone.name, &format!("http://{parent}"), &listen, &admin);
    }

    pub fn service_logs(&self) -> Vec<String> {
        self.services().flat_map(Process::log).collect()
    }
}

impl Sample {
    pub fn rates_until(&self, later: &Self) -> Rates {
        let seconds = (later.at - self.at).as_secs_f64();
        let [admit, dropped, would_dropped] = [
            later.admit - self.admit,
            later.drop - self.drop,
            later.would_drop - self.would_drop,
        ]
        .map(|count| count / seconds);
        Rates {
            offered: admit + dropped + would_dropped,
            admitted: admit + would_dropped,
            dropped,
            would_dropped,
        }
    }
}

/// Saves a file as an editor does: writes another file and renames it over the old one.
pub fn save(folder: &Path, name: &str, text: &str) {
    let swap = folder.join(format!(".{name}.swp"));
    fs::write(&swap, text).unwrap();
    fs::rename(swap, folder.join(name)).unwrap();
}

/// Returns the rates over the last `span` of these samples, or `None` if they cover less.
pub fn latest_rates(samples: &[Sample], span: Duration) -> Option<Rates> {
    let last = samples.last()?;
    // The latest sample that is old enough: the window moves with time.
    let from = samples
        .iter()
        .rev()
        .find(|sample| last.at - sample.at >= span)?;
    Some(from.rates_until(last))
}

pub fn sample<'a>(services: impl IntoIterator<Item = &'a Process>) -> Sample {
    let mut sample = Sample {
        at: Instant::now(),
        admit: 0.0,
        drop: 0.0,
        would_drop: 0.0,
    };
    for service in services {
        let page = service.metrics("listen");
        sample.admit += metric(&page, "plimsoll_decisions_total", "result=\"admit\"");
        sample.drop += metric(&page, "plimsoll_decisions_total", "result=\"drop\"");
        sample.would_drop += metric(&page, "plimsoll_decisions_total", "result=\"would_drop\"");
    }
    sample
}

/// Returns the sum of a metric over all its series with `label` in their labels.
pub fn metric(page: &str, name: &str, label: &str) -> f64 {
    let series = page.lines().filter(|line| {
        line.strip_prefix(name)
            .is_some_and(|rest| rest.starts_with(['{', ' ']))
            && line.contains(label)
    });
    series
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum()
}

/// Formats rates that change at these times, in the syntax of `load --rps`.
pub fn schedule(steps: &[(Duration, f64)]) -> String {
    let step = |(from, rps): &(Duration, f64)| {
        if from.is_zero() {
            rps.to_string()
        } else {
            format!("{rps}@{}ms", from.as_millis())
        }
    };
    steps.iter().map(step).collect::<Vec<_>>().join(",")
}

fn target(service: &Process) -> String {
    format!("{}/{BUCKET}", service.url("listen"))
}

/// Starts a controller with these files in the directory, and waits until it listens.
pub fn start_controller(directory: &TempDir, policy: &str, tenants: &str) -> Process {
    fs::write(directory.path().join("policy.yaml"), policy).unwrap();
    fs::write(directory.path().join("tenants.yaml"), tenants).unwrap();
    restart_controller(directory)
}

/// Starts a controller with the files and the state that the directory has.
pub fn restart_controller(directory: &TempDir) -> Process {
    controller_on(directory, &[])
}

/// As [`restart_controller`], with further flags.
pub fn controller_on(directory: &TempDir, more: &[&str]) -> Process {
    controller_in(directory.path(), FREE_PORT, FREE_PORT, more)
}

/// Starts a controller on the files in a folder, of which `tenants.yaml` may be missing.
pub fn controller_in(folder: &Path, listen: &str, admin: &str, more: &[&str]) -> Process {
    let path = |name: &str| folder.join(name).display().to_string();
    let (policy, tenants, state) = (path("policy.yaml"), path("tenants.yaml"), path("state"));
    let files = ["controller", "--policy", &policy, "--state-dir", &state];
    let tenants = ["--tenants", &tenants];
    let tenants = if Path::new(tenants[1]).exists() {
        &tenants[..]
    } else {
        &[]
    };
    let ports = ["--listen", listen, "--admin", admin];
    Process::start(&[&files[..], tenants, &ports, more].concat())
}

pub fn start_aggregator(zone: &str, controller: SocketAddr) -> Process {
    aggregator(zone, &format!("http://{controller}"), FREE_PORT, FREE_PORT)
}

/// Starts an aggregator below these URLs of controllers, separated by commas.
pub(crate) fn aggregator(zone: &str, parents: &str, listen: &str, admin: &str) -> Process {
    let name = format!("{zone}-aggregator");
    let flags = ["--zone", zone, "--name", &name, "--controller", parents];
    let ports = ["--listen", listen, "--admin", admin];
    Process::start(&[&["aggregator"], &flags[..], &ports].concat())
}

pub fn service(zone: &str, parent: SocketAddr, flags: &[&str]) -> Process {
    let parent = format!("http://{parent}");
    let common = ["service", "--zone", zone, "--aggregator", &parent];
    let serves = ["--listen", FREE_PORT, "--buckets", BUCKET];
    Process::start(&[&common[..], &serves, flags].concat())
}
