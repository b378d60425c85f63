//! Names of metrics: every name that dashboards and charts use is exported by a tier, and all follow one
//! convention.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Instant;

use plimsoll_core::exchange::PeerRole;
use plimsoll_core::names::Zone;
use plimsoll_tls::testing::{Authority, Validity};
use tempfile::TempDir;

use crate::house::root;
use crate::process::{PATIENCE, POLL, Process, http_get};

/// A fleet of one zone that has every metric: traffic, a stream that is rejected, certificates and tokens.
struct Fleet {
    service: Process,
    /// The other processes, and the name of the address with their metrics.
    others: Vec<(Process, &'static str)>,
    _state: TempDir,
}

#[test]
fn metrics_of_dashboards_and_charts_are_exported() {
    let mut wanted = BTreeSet::new();
    for folder in ["dashboards", "charts"] {
        for path in files(&root().join(folder)) {
            wanted.extend(names(&fs::read_to_string(path).unwrap()));
        }
    }
    assert!(wanted.len() > 10, "dashboards use hardly any metrics: {wanted:?}");

    let fleet = Fleet::start();
    let end = Instant::now() + PATIENCE;
    loop {
        let missing: Vec<String> = wanted.difference(&fleet.exported()).cloned().collect();
        if missing.is_empty() {
            return;
        }
        assert!(Instant::now() < end, "no tier exports {missing:?}");
        sleep(POLL);
    }
}

#[test]
fn metric_names_follow_the_convention() {
    let fleet = Fleet::start();
    for page in fleet.pages() {
        for line in page.lines() {
            let Some(described) = line.strip_prefix("# TYPE ") else { continue };
            let (name, kind) = described.split_once(' ').unwrap();
            assert!(name.starts_with("plimsoll_"), "{name}");
            assert_eq!(name.ends_with("_total"), kind == "counter", "{name} is a {kind}");
            assert!(page.contains(&format!("# HELP {name} ")), "{name} has no help text");
        }
    }
}

#[test]
fn metric_names_are_found_in_expressions() {
    let found: Vec<String> =
        names(r#"time() - max by (zone) (plimsoll_a_b{zone=~"$z"}) / rate(plimsoll_c_total[1m]) plimsoll"#)
            .collect();
    assert_eq!(found, ["plimsoll_a_b", "plimsoll_c_total"]);
}

// === impl Fleet ===

impl Fleet {
    fn start() -> Self {
        let state = TempDir::new().unwrap();
        let example = fs::read_to_string(root().join("cli/src/up/example/policy.yaml")).unwrap();
        // Some metrics exist only with a candidate limit, and some only in shadow.
        let both = example.replacen("limit: 1000", "limit: 1000\n    candidate: 900", 1);
        assert_ne!(both, example);
        let shadow = both.replacen("limit: 800\n    mode: enforce", "limit: 800\n    mode: shadow", 1);
        assert_ne!(shadow, both);
        let policy = state.path().join("policy.yaml");
        fs::write(&policy, shadow).unwrap();
        let (policy, state_dir) = (policy.to_str().unwrap(), state.path().to_str().unwrap());
        let free = ["--listen", "127.0.0.1:0"];
        let free_admin = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
        let start = |command: &[&str], addresses: &[&str]| Process::start(&[command, addresses].concat());
        let url = |process: &Process| format!("http://{}", process.address("listen"));

        let controller = start(&["controller", "--policy", policy, "--state-dir", state_dir], &free_admin);
        let aggregator = start(&["aggregator", "--controller", &url(&controller)], &free_admin);
        let balances = state.path().join("balances");
        let quota = start(&["quota", "--data", balances.to_str().unwrap()], &free_admin);
        let store = format!("plimsoll://{}", quota.address("listen"));
        let service = start(&["service", "--aggregator", &url(&aggregator), "--quota-store", &store], &free);
        // A controller rejects the stream of a client.
        let rejected = start(&["service", "--aggregator", &url(&controller)], &free);
        // Certificates and tokens have metrics whether or not the parent answers.
        let (certs, tokens) = (state.path().join("certs"), state.path().join("tokens"));
        fs::write(&tokens, format!("alice viewer sha256:{}\n", "0".repeat(64))).unwrap();
        let role = PeerRole::Aggregator { zone: Zone::new("zone-a").unwrap() };
        Authority::new("test.example").write(&certs, role, Validity::default());
        let (certs, tokens) = (certs.to_str().unwrap(), tokens.to_str().unwrap());
        let secured = ["aggregator", "--zone", "zone-a", "--controller", "https://127.0.0.1:1"];
        let secured = start(&secured, &[&free_admin[..], &["--certs", certs, "--tokens", tokens]].concat());
        let sidecar =
            ["sidecar", "--zone", "z", "--no-sockets", "--rls", "127.0.0.1:0", "--http", "127.0.0.1:0"];
        let sidecar = start(&sidecar, &["--admin", "127.0.0.1:0"]);
        let others = vec![
            (sidecar, "admin"),
            (rejected, "listen"),
            (aggregator, "admin"),
            (controller, "admin"),
            (secured, "admin"),
            (quota, "admin"),
        ];
        Self { service, others, _state: state }
    }

    fn pages(&self) -> Vec<String> {
        let others = self.others.iter().map(|(process, port)| process.address(port));
        let page = |address| {
            let (status, page) = http_get(address, "/metrics");
            assert_eq!(status, 200, "{page}");
            page
        };
        others.chain([self.service.address("listen")]).map(page).collect()
    }

    /// The names of all metrics with a value, after one more request of each bucket.
    fn exported(&self) -> BTreeSet<String> {
        for bucket in ["/checkout", "/search"] {
            let (status, _) = http_get(self.service.address("listen"), bucket);
            assert!([200, 429].contains(&status), "{status}");
        }
        let pages = self.pages();
        let values = pages.iter().flat_map(|page| page.lines()).filter(|line| !line.starts_with('#'));
        values.flat_map(names).collect()
    }
}

/// The texts that look like the name of a metric.
fn names(text: &str) -> impl Iterator<Item = String> + '_ {
    let in_name = |letter: char| letter.is_ascii_lowercase() || letter == '_';
    text.match_indices("plimsoll_").map(move |(start, _)| {
        let rest = &text[start..];
        rest[..rest.find(|letter| !in_name(letter)).unwrap_or(rest.len())].to_owned()
    })
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}
