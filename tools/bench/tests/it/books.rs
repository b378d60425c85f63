//! Requests that clients decided against requests that controllers counted, on real processes while
//! tiers are killed. `./measure processes` uses it too.

use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use plimsoll_testing::fleet::metric;
use plimsoll_testing::process::{Process, http_get, until};
use serde_json::Value;
use tempfile::TempDir;

/// Requests/s of each client.
pub(crate) const RPS: f64 = 10.0;

pub(crate) struct Run {
    pub(crate) clients: usize,
    /// Time for clients to decide requests.
    pub(crate) lasts: Duration,
    /// Kills the aggregator after a third of the requests and the controller after two thirds. Both
    /// restart immediately.
    pub(crate) kills: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Books {
    pub(crate) decided: f64,
    /// Requests that a controller has counted, before or after its restart.
    pub(crate) counted: f64,
    /// Requests that a tier gave up, because they may or may not have been counted.
    pub(crate) unconfirmed: f64,
}

impl Books {
    /// Returns true if no request is counted twice, and each uncounted one is unconfirmed.
    pub(crate) fn balance(&self) -> bool {
        self.counted <= self.decided && self.decided <= self.counted + self.unconfirmed
    }
}

struct Tiers {
    directory: TempDir,
    controller: Process,
    aggregator: Process,
    tool: Process,
    /// Counts of killed processes.
    counted: f64,
    unconfirmed: f64,
}

pub(crate) fn run(run: &Run) -> Books {
    let all = run.clients as f64 * RPS * run.lasts.as_secs_f64();
    let mut tiers = Tiers::start(run);
    let kills: [fn(&mut Tiers); 2] = [Tiers::kill_aggregator, Tiers::kill_controller];
    for (share, kill) in [1.0 / 3.0, 2.0 / 3.0].into_iter().zip(kills) {
        tiers.until("another third of the requests", |asked| {
            asked >= all * share
        });
        if run.kills {
            kill(&mut tiers);
        }
    }
    let mut earlier = 0.0;
    let decided = tiers.until("clients to stop deciding", |asked| {
        asked >= all * 0.9 && std::mem::replace(&mut earlier, asked) == asked
    });
    tiers.settle();
    Books {
        decided,
        counted: tiers.counted(),
        unconfirmed: tiers.unconfirmed(),
    }
}

impl Tiers {
    fn start(run: &Run) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let policy = "buckets: { streams: { limit: 1000000, mode: enforce } }\n";
        fs::write(directory.path().join("policy.yaml"), policy).unwrap();
        let controller = controller(&directory, &free(), &free());
        let aggregator = aggregator(controller.address("listen"), &free());
        let target = format!("http://{}={}", aggregator.address("listen"), run.clients);
        let (rps, lasts) = (RPS.to_string(), format!("{}ms", run.lasts.as_millis()));
        let load = ["--rps", &rps, "--ask-for", &lasts, "--every", "1s"];
        let streams = ["streams", "--controller-elsewhere", "--aggregator", &target];
        let tool = Process::spawn_program("plimsoll-bench", &[&streams[..], &load].concat());
        Self {
            directory,
            controller,
            aggregator,
            tool,
            counted: 0.0,
            unconfirmed: 0.0,
        }
    }

    /// Kills the aggregator. The reports that it has not passed up stay unconfirmed.
    fn kill_aggregator(&mut self) {
        self.unconfirmed += unconfirmed(&self.aggregator);
        self.aggregator.kill_9();
        let listen = self.aggregator.address("listen").to_string();
        self.aggregator = aggregator(self.controller.address("listen"), &listen);
    }

    /// Kills the controller. Its successor counts from zero.
    fn kill_controller(&mut self) {
        let (given_up, counted) = (unconfirmed(&self.controller), counted(&self.controller));
        self.controller.kill_9();
        self.unconfirmed += given_up;
        self.counted += counted;
        let [listen, admin] =
            ["listen", "admin"].map(|name| self.controller.address(name).to_string());
        self.controller = controller(&self.directory, &listen, &admin);
    }

    fn counted(&self) -> f64 {
        self.counted + counted(&self.controller)
    }

    fn unconfirmed(&self) -> f64 {
        self.unconfirmed + unconfirmed(&self.controller) + unconfirmed(&self.aggregator)
    }

    /// Waits until all clients are connected and the number of decided requests is as `wanted`, and
    /// returns the number.
    fn until(&self, what: &str, mut wanted: impl FnMut(f64) -> bool) -> f64 {
        let mut seen = 0;
        until(what, || {
            let lines = self.tool.output_lines();
            let new = std::mem::replace(&mut seen, lines.len()) < lines.len();
            let of = &lines.last().filter(|_| new)?["aggregators"][0];
            let asked = of["asked"].as_f64().unwrap();
            (of["connected"] == of["streams"] && wanted(asked)).then_some(asked)
        })
    }

    /// Waits until no count is on its way: no figure changes from one line of the tool to the next,
    /// which is longer than any report waits.
    fn settle(&self) {
        let mut earlier = (f64::NAN, f64::NAN);
        until("all counts to arrive", || {
            self.until("the next line", |_| true);
            let now = (self.counted(), self.unconfirmed());
            (std::mem::replace(&mut earlier, now) == now && now.0 > 0.0).then_some(())
        });
    }
}

fn counted(controller: &Process) -> f64 {
    let (_, status) = http_get(controller.address("admin"), "/status");
    let status: Value = serde_json::from_str(&status).unwrap();
    status["buckets"]["streams"]["offered"]
        .as_f64()
        .unwrap_or_default()
}

fn unconfirmed(tier: &Process) -> f64 {
    let (_, page) = http_get(tier.address("admin"), "/metrics");
    metric(&page, "plimsoll_counts_unconfirmed_total", "")
}

fn free() -> String {
    "127.0.0.1:0".to_owned()
}

fn controller(directory: &TempDir, listen: &str, admin: &str) -> Process {
    let path = |name: &str| directory.path().join(name).display().to_string();
    let (policy, state) = (path("policy.yaml"), path("state"));
    let files = ["controller", "--policy", &policy, "--state-dir", &state];
    Process::start(&[&files[..], &["--listen", listen, "--admin", admin]].concat())
}

fn aggregator(controller: SocketAddr, listen: &str) -> Process {
    let controller = format!("http://{controller}");
    let flags = ["aggregator", "--name", "books", "--controller", &controller];
    Process::start(&[&flags[..], &["--listen", listen, "--admin", &free()]].concat())
}
