//! The figures of a decision and of a request, their bars, and the file that carries them from
//! `cargo bench --bench decision` to docs/benchmarks.md.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Workloads of a decision: threads, and keys.
pub(crate) const DECISIONS: [&str; 5] = [
    "1 thread, hot",
    "1 thread, 10k",
    "1 thread, 10k cold",
    "2 threads, hot",
    "2 threads, 10k",
];
const HOT: usize = 0;
const WARM: usize = 1;
const COLD: usize = 2;
const HOT_ON_TWO: usize = 3;
pub(crate) const REQUESTS: [&str; 3] = ["1 thread, hot", "1 thread, 10k", "2 threads, hot"];

/// Services: without a layer, with ours and with the peer's, by the layer's place.
pub(crate) const NO_LAYER: &str = "no layer";
pub(crate) const OURS: [&str; 2] = [
    "PlimsollLayer, on the routes",
    "PlimsollLayer, around the router",
];
pub(crate) const PEER: [&str; 2] = [
    "tower_governor 0.8, on the routes",
    "tower_governor 0.8, around the router",
];

#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Figures {
    /// By limiter: nanoseconds of a decision, by workload.
    pub(crate) decisions: Vec<(String, [f64; DECISIONS.len()])>,
    /// By service: nanoseconds of a request without a socket, by workload.
    pub(crate) requests: Vec<(String, [f64; REQUESTS.len()])>,
    /// By service: requests/s over sockets.
    pub(crate) http: Vec<(String, f64)>,
}

#[derive(Debug)]
pub(crate) struct Bar {
    pub(crate) what: String,
    pub(crate) bar: String,
    pub(crate) figure: String,
    pub(crate) is_met: bool,
}

impl Bar {
    fn at_least(what: &str, least: f64, ratio: f64) -> Self {
        let (bar, figure) = (format!(">= {least}"), format!("{ratio:.2}"));
        Self {
            what: what.to_owned(),
            bar,
            figure,
            is_met: ratio >= least,
        }
    }

    fn at_most(what: &str, most: f64, ratio: f64) -> Self {
        let (bar, figure) = (format!("<= {most}"), format!("{ratio:.2}"));
        Self {
            what: what.to_owned(),
            bar,
            figure,
            is_met: ratio <= most,
        }
    }
}

impl Figures {
    fn path() -> PathBuf {
        let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
        std::env::var_os("CARGO_TARGET_DIR")
            .map_or_else(default, PathBuf::from)
            .join("decision.json")
    }

    /// Reads the figures of the last run; without one, there are none.
    #[allow(dead_code)] // the benchmark writes, and the measuring program reads
    pub(crate) fn read() -> Self {
        let json = fs::read_to_string(Self::path()).unwrap_or_default();
        serde_json::from_str(&json).unwrap_or_default()
    }

    #[allow(dead_code)] // the benchmark writes, and the measuring program reads
    pub(crate) fn write(&self) -> std::io::Result<()> {
        fs::write(Self::path(), serde_json::to_string(self)?)
    }

    /// Returns ratios of figures of this run, so that they hold for machines of any speed.
    pub(crate) fn bars(&self) -> Vec<Bar> {
        let (tenants, handles) = (
            "by bucket and tenant, independent coin",
            "by handle, independent coin",
        );
        let (tenant, handle) = (self.decision(tenants), self.decision(handles));
        let governor = self.decision("governor 0.10, keyed");
        let times = |what: &str, least, ours: [f64; DECISIONS.len()], case: usize| {
            let what = format!(
                "{what}, {}: times as fast as governor, keyed",
                DECISIONS[case]
            );
            Bar::at_least(&what, least, governor[case] / ours[case])
        };
        let layer = |ours: &str, peer: &str| {
            let what = format!(
                "{ours}, {}: its cost to that of tower_governor",
                REQUESTS[0]
            );
            Bar::at_most(
                &what,
                0.5,
                self.layer_cost(ours)[0] / self.layer_cost(peer)[0],
            )
        };
        vec![
            times(tenants, 4.0, tenant, HOT),
            times(tenants, 12.0, tenant, HOT_ON_TWO),
            times(tenants, 2.5, tenant, WARM),
            times(tenants, 2.5, tenant, COLD),
            times(handles, 8.0, handle, HOT),
            Bar::at_least(
                &format!("{handles}, hot: throughput of 2 threads over that of 1"),
                1.9,
                2.0 * handle[HOT] / handle[HOT_ON_TWO],
            ),
            layer(OURS[0], PEER[0]),
            layer(OURS[1], PEER[1]),
        ]
    }

    /// Returns the nanoseconds that a layer adds to a request, by workload.
    fn layer_cost(&self, service: &str) -> [f64; REQUESTS.len()] {
        let (with, without) = (self.request(service), self.request(NO_LAYER));
        std::array::from_fn(|case| with[case] - without[case])
    }

    pub(crate) fn request(&self, service: &str) -> [f64; REQUESTS.len()] {
        let found = self.requests.iter().find(|(name, _)| name == service);
        found.map_or([f64::NAN; REQUESTS.len()], |(_, figures)| *figures)
    }

    fn decision(&self, name: &str) -> [f64; DECISIONS.len()] {
        let found = self.decisions.iter().find(|(limiter, _)| limiter == name);
        found.map_or([f64::NAN; DECISIONS.len()], |(_, figures)| *figures)
    }
}

pub(crate) fn cpu() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    format!(
        "{}, {cores} cores",
        name.map_or("unknown CPU", |(_, name)| name)
    )
}
