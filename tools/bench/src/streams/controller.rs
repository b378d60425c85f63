//! The controller that makes the timed decisions. It runs in this process, so that one clock times
//! both the decision and its application.

use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use anyhow::Context;
use plimsoll_controller::brain::Brain;
use plimsoll_controller::members::StoreArgs;
use plimsoll_controller::{Args, Controller, Listeners};
use plimsoll_host::Shared;
use plimsoll_policy::{Policy, Source};
use tempfile::TempDir;
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

pub(crate) const BUCKET: &str = "streams";
/// Requests/s that decision 0 sets; decision `n` adds `n` to it.
const LIMIT: u64 = 1_000_000;

#[derive(Debug)]
pub(crate) struct TimedController {
    brain: Shared<Brain>,
    tenants: String,
    decisions: u64,
    /// Holds the policy and the state; removed on drop.
    _directory: TempDir,
}

pub(crate) fn bucket(number: usize) -> String {
    format!("{BUCKET}-{number}")
}

pub(crate) fn tenant(number: usize) -> String {
    format!("tenant-{number}")
}

pub(crate) fn decision_of(limit: f64) -> Option<u64> {
    (limit >= LIMIT as f64).then(|| limit as u64 - LIMIT)
}

fn policy(decision: u64) -> String {
    format!(
        "buckets: {{ {BUCKET}: {{ limit: {}, mode: enforce }} }}\nrollout: {{ require_gates: false }}\n\
         guardrails: off\n",
        LIMIT + decision
    )
}

impl TimedController {
    /// Starts a controller with a number of listed tenants, and waits until it listens.
    pub(crate) async fn start(
        listen: SocketAddr,
        tenants: usize,
        shutdown: CancellationToken,
    ) -> anyhow::Result<Self> {
        let directory = tempfile::tempdir().context("cannot create a temporary directory")?;
        let lines = (0..tenants).map(|number| format!("  {}: {{ weight: 1 }}\n", tenant(number)));
        let tenants = format!(
            "tenants:\n  default: {{ weight: 1 }}\n{}",
            lines.collect::<String>()
        );
        let path = |name: &str| directory.path().join(name);
        fs::write(path("policy.yaml"), policy(0))?;
        fs::write(path("tenants.yaml"), &tenants)?;
        let args = Args {
            policy: path("policy.yaml"),
            tenants: Some(path("tenants.yaml")),
            catalogue: None,
            feed_stale: plimsoll_core::rollout::gates::STALE_AFTER,
            query_every: plimsoll_controller::QUERY_EVERY,
            pending_max: plimsoll_net::PENDING_MAX_DEFAULT,
            decisions_per_s_max: plimsoll_core::report::DECISIONS_PER_S_MAX,
            state_dir: path("state"),
            store: StoreArgs::default(),
            events: Default::default(),
            listen,
            admin: SocketAddr::new(listen.ip(), 0),
            security: Default::default(),
        };
        let (opened, brain) = oneshot::channel();
        // Its own runtime: it must not compete with the clients for threads, as it would not in
        // another process.
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let serve = move || runtime.block_on(serve(args, opened, shutdown));
        thread::Builder::new()
            .name("controller".to_owned())
            .spawn(serve)?;
        let brain = brain.await.context("the controller failed to start")??;
        Ok(Self {
            brain,
            tenants,
            decisions: 0,
            _directory: directory,
        })
    }

    /// Makes the next decision: another limit. Calls `note` with its number and time just before it
    /// takes effect.
    pub(crate) fn change_limit(&mut self, note: impl FnOnce(u64, Instant)) -> anyhow::Result<()> {
        self.decisions += 1;
        let text = policy(self.decisions);
        let (policy, _) = Policy::read(
            Source {
                name: "policy.yaml",
                text: &text,
            },
            Source {
                name: "tenants.yaml",
                text: &self.tenants,
            },
        )?;
        let policy = Arc::new(policy);
        note(self.decisions, Instant::now());
        self.brain.with(|brain, _| brain.on_policy(policy));
        self.brain.notify();
        Ok(())
    }
}

/// Runs the controller, and sends its brain as soon as it listens.
async fn serve(
    args: Args,
    opened: oneshot::Sender<anyhow::Result<Shared<Brain>>>,
    stop: CancellationToken,
) {
    let open = async {
        let controller = Controller::open(&args)?;
        let (grpc, admin) = (
            plimsoll_net::listen("--listen", args.listen).await?,
            plimsoll_net::listen("--admin", args.admin).await?,
        );
        anyhow::Ok((controller, Listeners { grpc, admin }))
    };
    match open.await {
        Err(error) => drop(opened.send(Err(error))),
        Ok((controller, listeners)) => {
            drop(opened.send(Ok(controller.brain())));
            if let Err(error) = controller.serve(listeners, stop).await {
                tracing::error!(%error, "the controller failed");
            }
        }
    }
}
