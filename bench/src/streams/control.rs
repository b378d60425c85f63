//! The controller whose decisions are timed: a real one, in this process, so that one clock sees a decision made and
//! heard.

use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use anyhow::Context;
use plimsoll_controller::brain::Brain;
use plimsoll_controller::{Args, Controller, Listeners};
use plimsoll_policy::{Policy, Source};
use plimsoll_proto::shared::Shared;
use plimsoll_proto::transport;
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// The one bucket.
pub(crate) const BUCKET: &str = "streams";
/// Decision `n` is a limit of so much plus `n` requests/s.
const LIMIT: u64 = 1_000_000;

/// A controller on threads of its own.
#[derive(Debug)]
pub(crate) struct Control {
    brain: Shared<Brain>,
    tenants: String,
    decisions: u64,
    /// Holds the policy and the state while this lives.
    _directory: TempDir,
}

/// The name of a tenant.
pub(crate) fn tenant(number: usize) -> String {
    format!("tenant-{number}")
}

/// Which decision a limit stands for.
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

impl Control {
    /// Starts a controller with so many listed tenants and waits until it listens.
    pub(crate) async fn start(
        listen: SocketAddr,
        tenants: usize,
        shutdown: CancellationToken,
    ) -> anyhow::Result<Self> {
        let directory = tempfile::tempdir().context("no place for the policy")?;
        let lines = (0..tenants).map(|number| format!("  {}: {{ weight: 1 }}\n", tenant(number)));
        let tenants = format!("tenants:\n  default: {{ weight: 1 }}\n{}", lines.collect::<String>());
        let path = |name: &str| directory.path().join(name);
        fs::write(path("policy.yaml"), policy(0))?;
        fs::write(path("tenants.yaml"), &tenants)?;
        let args = Args {
            policy: path("policy.yaml"),
            tenants: Some(path("tenants.yaml")),
            feed_stale: plimsoll_core::rollout::gates::STALE_AFTER,
            query_every: plimsoll_controller::QUERY_EVERY,
            state_dir: path("state"),
            listen,
            admin: SocketAddr::new(listen.ip(), 0),
        };
        let (opened, brain) = oneshot::channel();
        // A runtime of its own: it must not wait for the clients, as it would not if they were elsewhere.
        thread::Builder::new().name("controller".to_owned()).spawn(move || run(&args, opened, shutdown))?;
        let brain = brain.await.context("the controller could not start")??;
        Ok(Self { brain, tenants, decisions: 0, _directory: directory })
    }

    /// Makes the next decision: another limit. Returns its number; `note` hears of it just before it takes effect.
    pub(crate) fn decide(&mut self, note: impl FnOnce(u64, Instant)) -> anyhow::Result<()> {
        self.decisions += 1;
        let text = policy(self.decisions);
        let (policy, _) = Policy::read(
            Source { name: "policy.yaml", text: &text },
            Source { name: "tenants.yaml", text: &self.tenants },
        )?;
        let policy = Arc::new(policy);
        note(self.decisions, Instant::now());
        self.brain.with(|brain, _| brain.on_policy(policy));
        self.brain.notify();
        Ok(())
    }
}

fn run(args: &Args, opened: oneshot::Sender<anyhow::Result<Shared<Brain>>>, shutdown: CancellationToken) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let open = async || -> anyhow::Result<(Controller, Listeners)> {
        let controller = Controller::open(args)?;
        let (grpc, admin) = (transport::listen(args.listen).await?, transport::listen(args.admin).await?);
        Ok((controller, Listeners { grpc, admin }))
    };
    match runtime {
        Err(error) => drop(opened.send(Err(error.into()))),
        Ok(runtime) => runtime.block_on(async {
            match open().await {
                Err(error) => drop(opened.send(Err(error))),
                Ok((controller, listeners)) => {
                    drop(opened.send(Ok(controller.brain())));
                    if let Err(error) = controller.serve(listeners, shutdown).await {
                        tracing::error!(%error, "the controller died");
                    }
                }
            }
        }),
    }
}
