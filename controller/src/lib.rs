//! Tier 3 of Plimsoll: turns reports and policy into directives for the whole fleet.
//!
//! The thinking is in [`brain`], which is pure; this file and its neighbours give it a clock, a disk, a policy that
//! people edit, and streams to the aggregators.
#![forbid(unsafe_code)]

pub mod admin;
pub mod aggregators;
pub mod brain;
pub mod bucket;
pub mod history;
pub mod policy_file;
pub mod prometheus;
pub mod rollout;
pub mod state;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::routing::get;
use axum::{Json, Router};
use plimsoll_core::decision::coherent::CoinKey;
use plimsoll_core::law::Parameters;
use plimsoll_policy::{PolicyHash, Warning};
use plimsoll_core::report::InstanceId;
use plimsoll_core::quantity::MonoTime;
use plimsoll_proto::admin as admin_server;
use plimsoll_proto::parent::ParentService;
use plimsoll_proto::shared::Shared;
use plimsoll_proto::transport::{self, ServeError};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;

use crate::admin::kill_log::Said;
use crate::admin::metrics::Events;
use crate::admin::{history_routes, kill_routes, metrics, rollout_log, rollout_routes};
use crate::brain::{Brain, Offer};
use crate::history::learning::Learner;
use crate::policy_file::{PolicyFiles, ReadError, Reload};
use crate::prometheus::queries;
use crate::admin::status::Status;
use crate::state::store::{Store, StoreError};

/// The gRPC port aggregators connect to.
pub const PORT: u16 = 7400;
/// The admin port.
pub const ADMIN_PORT: u16 = 7401;
/// How often Prometheus servers are asked, unless somebody says otherwise.
pub const QUERY_EVERY: Duration = Duration::from_secs(30);

/// How long after a failed write the next one is tried.
const SAVE_AGAIN: Duration = Duration::from_millis(500);

/// What a controller is started with.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The policy: buckets, limits, rollout. Watched and reloaded while running
    #[arg(long, env = "PLIMSOLL_POLICY", value_name = "FILE")]
    pub policy: PathBuf,
    /// The tenants and their weights; without it all tenants are of one class
    #[arg(long, env = "PLIMSOLL_TENANTS", value_name = "FILE")]
    pub tenants: Option<PathBuf>,
    /// Where epoch, kill switch, rollout stages and what was learned outlive restarts
    #[arg(long, env = "PLIMSOLL_STATE_DIR", value_name = "DIR", default_value = "plimsoll-state")]
    pub state_dir: PathBuf,
    /// After how long without a word from a zone what is tried out in canary returns to shadow
    #[arg(long, env = "PLIMSOLL_FEED_STALE", value_name = "TIME", default_value = "60s", value_parser = humantime::parse_duration)]
    pub feed_stale: Duration,
    /// How often Prometheus servers are asked for limits, and for what gates hold against their bounds
    #[arg(long, env = "PLIMSOLL_QUERY_EVERY", value_name = "TIME", default_value = "30s", value_parser = queries::every)]
    pub query_every: Duration,
    /// Where aggregators connect
    #[arg(long, env = "PLIMSOLL_LISTEN", value_name = "ADDR", default_value_t = SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT)))]
    pub listen: SocketAddr,
    /// Metrics, health and status
    #[arg(long, env = "PLIMSOLL_ADMIN", value_name = "ADDR", default_value_t = SocketAddr::from((Ipv4Addr::LOCALHOST, ADMIN_PORT)))]
    pub admin: SocketAddr,
}

/// Why a controller cannot start, or stopped.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The policy is not valid, and there is no earlier one to keep to.
    #[error(transparent)]
    Policy(#[from] ReadError),
    /// The state directory cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The system gave no randomness for the instance id or the fleet's key.
    #[error("the system gave no randomness: {0}")]
    Entropy(#[from] getrandom::Error),
    /// A port cannot be served.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// A socket failed.
    #[error("a server's socket failed: {0}")]
    Socket(#[from] std::io::Error),
}

/// The sockets of a controller.
#[derive(Debug)]
pub struct Listeners {
    /// Where aggregators connect.
    pub grpc: TcpListener,
    /// Metrics, health and status.
    pub admin: TcpListener,
}

/// A controller that is ready to serve.
#[derive(Debug)]
pub struct Controller {
    brain: Shared<Brain>,
    store: Arc<Store>,
    learner: Learner,
    files: PolicyFiles,
    policy: PolicyHash,
    /// What was warned of at the start, and need not be said again.
    warnings: Vec<Warning>,
    events: Events,
    said: Said,
    query_every: Duration,
}

/// Runs a controller until `shutdown` is cancelled.
///
/// # Errors
/// When it cannot start, or one of its servers fails.
pub async fn run(args: Args, shutdown: CancellationToken) -> Result<(), Error> {
    let controller = Controller::open(&args)?;
    let listeners = Listeners {
        grpc: transport::listen(args.listen).await?,
        admin: transport::listen(args.admin).await?,
    };
    let (listen, admin) = (listeners.grpc.local_addr()?, listeners.admin.local_addr()?);
    tracing::info!(%listen, %admin, "the controller serves");
    controller.serve(listeners, shutdown).await
}

impl Controller {
    /// Reads policy and state, and writes down the new epoch before anything can be sent in it.
    ///
    /// # Errors
    /// When the policy is not valid, or the state directory cannot be used.
    pub fn open(args: &Args) -> Result<Self, Error> {
        let files = PolicyFiles { policy: args.policy.clone(), tenants: args.tenants.clone() };
        let (policy, warnings) = files.read()?;
        log_warnings(&warnings, &[]);
        let (store, opened) = Store::open(&args.state_dir)?;
        if let Some(loss) = &opened.loss {
            tracing::error!(%loss, "earlier state is lost: every bucket begins in shadow");
        }
        let mut durable = opened.durable;
        if durable.coin_key.is_none() {
            // A first start, a loss, or a state from before there were keys.
            durable.coin_key = Some(CoinKey::from_bytes(random()?));
        }
        let hash = policy.hash();
        let mut brain = Brain::new(
            MonoTime::ZERO,
            InstanceId(u128::from_be_bytes(random()?)),
            durable,
            Arc::new(policy),
            Parameters { feed_stale: args.feed_stale, ..Parameters::default() },
        );
        if let Some((number, durable)) = brain.unsaved() {
            store.save(&durable)?;
            brain.on_saved(number);
        }
        let learner = Learner::open(&args.state_dir, &mut brain);
        tracing::info!(epoch = brain.durable().epoch.0, policy = %hash, "the controller begins its epoch");
        let mut said = Said::default();
        said.on(brain.durable());
        rollout_log::stages(None, &brain);
        Ok(Self {
            brain: Shared::new(brain),
            store: Arc::new(store),
            learner,
            files,
            policy: hash,
            warnings,
            events: Events::default(),
            said,
            query_every: args.query_every,
        })
    }

    /// The state machine, to look at.
    #[must_use]
    pub fn brain(&self) -> Shared<Brain> {
        self.brain.clone()
    }

    /// Serves until `shutdown` is cancelled.
    ///
    /// # Errors
    /// When one of its servers fails.
    pub async fn serve(self, listeners: Listeners, shutdown: CancellationToken) -> Result<(), Error> {
        // Whatever ends first, the other parts end with it.
        let stop = shutdown.child_token();
        let _ends_with_this = stop.clone().drop_guard();
        tokio::spawn(tick(self.brain.clone(), stop.clone()));
        tokio::spawn(rollout_log::follow(self.brain.clone(), stop.clone()));
        tokio::spawn(keep_saved(self.brain.clone(), Arc::clone(&self.store), self.said, stop.clone()));
        tokio::spawn(self.learner.clone().run(self.brain.clone(), stop.clone()));
        let asker = queries::Asker {
            brain: self.brain.clone(),
            learner: self.learner.clone(),
            events: self.events.clone(),
            every: self.query_every,
        };
        tokio::spawn(asker.run(stop.clone()));
        tokio::spawn(follow_policy(
            self.brain.clone(),
            self.files,
            self.policy,
            self.warnings,
            self.events.clone(),
            stop.clone(),
        ));
        let parent = ParentService::new(self.brain.clone(), stop.clone(), self.events.refusals.clone());
        let grpc = transport::serve(listeners.grpc, parent, stop.clone().cancelled_owned());
        let history = history_routes::routes(self.brain.clone(), self.learner);
        let routes = routes(self.brain, self.events).merge(history);
        let admin = admin_server::serve(listeners.admin, routes, stop.clone().cancelled_owned());
        tokio::select! {
            served = grpc => served?,
            served = admin => served?,
        }
        Ok(())
    }
}

/// Bytes from the system's own source of randomness.
fn random() -> Result<[u8; 16], getrandom::Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)?;
    Ok(bytes)
}

fn routes(brain: Shared<Brain>, events: Events) -> Router {
    let (for_status, for_metrics) = (brain.clone(), brain.clone());
    let metrics = move || {
        for_metrics.with(|brain, now| metrics::page(brain, &Status::of(brain, now), &events, now)).text()
    };
    let status = move || async move { Json(for_status.with(|brain, now| Status::of(brain, now))) };
    let (rollout, kill) = (rollout_routes::routes(&brain), kill_routes::routes(&brain));
    admin_server::routes(metrics, || true).route("/status", get(status)).merge(rollout).merge(kill)
}

/// Applies the law every half second.
async fn tick(brain: Shared<Brain>, stop: CancellationToken) {
    let mut ticks = interval(Parameters::default().tick);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = ticks.tick() => {
                let unix_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
                brain.with(|brain, now| brain.on_tick(now, i64::try_from(unix_s).unwrap_or(i64::MAX)));
            }
        }
        brain.ring();
    }
}

/// Writes the durable state whenever it changed; what depends on it is sent only afterwards.
async fn keep_saved(brain: Shared<Brain>, store: Arc<Store>, mut said: Said, stop: CancellationToken) {
    let mut bell = brain.bell();
    let mut failing = false;
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            rung = bell.changed() => if rung.is_err() { return },
        }
        let Some((number, durable)) = brain.with(|brain, _| brain.unsaved()) else { continue };
        said.on(&durable);
        let store = Arc::clone(&store);
        let saved = tokio::task::spawn_blocking(move || store.save(&durable)).await;
        let failed = match saved {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(error) => Some(format!("the write of the durable state died: {error}")),
        };
        brain.with(|brain, _| match failed {
            None => brain.on_saved(number),
            Some(_) => brain.on_save_failed(),
        });
        brain.ring();
        if let Some(error) = failed {
            if !std::mem::replace(&mut failing, true) {
                tracing::error!(error, "directives go out unsaved until this works again");
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = sleep(SAVE_AGAIN) => {}
            }
        } else if std::mem::replace(&mut failing, false) {
            tracing::info!("the durable state is written again");
        }
    }
}

/// Puts every valid change of the policy files in force, and says of every other one what is wrong with it.
async fn follow_policy(
    brain: Shared<Brain>,
    files: PolicyFiles,
    current: PolicyHash,
    mut said: Vec<Warning>,
    events: Events,
    stop: CancellationToken,
) {
    let (sender, mut reloads) = mpsc::channel(1);
    let watch = tokio::spawn(files.watch(Some(current), sender));
    loop {
        let reload = tokio::select! {
            () = stop.cancelled() => return,
            reload = reloads.recv() => reload,
        };
        match reload {
            None => break,
            Some(Reload::Refused(error)) => {
                events.on_reload(false);
                tracing::error!("the policy was refused and the last good one stays: {error}");
            }
            Some(Reload::Accepted { policy, warnings }) => {
                events.on_reload(true);
                log_warnings(&warnings, &said);
                said = warnings;
                let hash = policy.hash();
                brain.with(|brain, _| {
                    let before = brain.durable().clone();
                    match brain.offer(policy) {
                        Offer::Taken => tracing::info!(policy = %hash, "a new policy is in force"),
                        Offer::Held => rollout_log::held(brain),
                    }
                    rollout_log::stages(Some(&before), brain);
                });
                brain.ring();
            }
        }
    }
    if let Ok(Err(error)) = watch.await {
        tracing::error!(%error, "the policy files are no longer watched; restart to read them again");
    }
}

/// Logs what was not `said` before: a policy that is edited in a hurry should not be drowned in what is known.
fn log_warnings(warnings: &[Warning], said: &[Warning]) {
    let known = |warning: &&Warning| {
        said.iter().any(|said| said.path == warning.path && said.message == warning.message)
    };
    for warning in warnings.iter().filter(|warning| !known(warning)) {
        tracing::warn!("{warning}");
    }
}

#[cfg(test)]
mod tests;
