//! Tier 3 of Plimsoll: turns reports and policy into directives for the whole fleet.
//!
//! The decisions are made in [`brain`], which is pure. This file and `tasks` give it a clock, a disk, the
//! policy files, and streams to the aggregators.
#![forbid(unsafe_code)]

pub mod admin;
mod aggregators;
pub mod audit;
pub mod brain;
mod bucket;
pub mod history;
pub mod members;
mod prometheus;
mod rollout;
pub mod state;
mod tasks;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_admin::ports::Ports;
use plimsoll_admin::security::{Opened, SecurityArgs, SecurityError};
use plimsoll_core::decision::coherent::CoinKey;
use plimsoll_core::exchange::PeerRole;
use plimsoll_core::law::Parameters;
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::report::{DECISIONS_PER_S_MAX, InstanceId};
use plimsoll_etcd::Client;
use plimsoll_host::Shared;
use plimsoll_net::{ListenError, PENDING_MAX_DEFAULT};
use plimsoll_proto::transport::ServeError;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::task::{JoinError, spawn_blocking};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::admin::Commands;
use crate::admin::status::StatusSource;
use crate::aggregators::leadership::Mandate;
use crate::audit::{AuditLog, SharedLines};
use crate::brain::Brain;
use crate::history::store::shared::SharedHistory;
use crate::members::{Membership, StoreArgs, StoreArgsError};
use crate::policy_file::{PolicyFiles, ReadError};
use crate::prometheus::query_task;
use crate::state::store::etcd::EtcdStore;
use crate::state::store::{Opened as OpenedState, StateStore, Store, StoreError};
use crate::tasks::counters::Counters;
use crate::tasks::events::{
    Event, EventArgs, EventArgsError, EventKind, EventLog, EventPlace, EventSaver, Receiver,
};
use crate::tasks::history::HistoryRecorder;
use crate::tasks::kill_log::KillLog;
use crate::tasks::policy::{self, PolicyTask};
use crate::tasks::save::note_kills;

pub use crate::prometheus::untrusting_http_client_builder;
pub use crate::tasks::{events, policy_file};

/// The gRPC port for aggregators.
pub const PORT: u16 = 7400;
/// The admin port.
pub const ADMIN_PORT: u16 = 7401;
/// Delay before a start that waits for the disk is logged.
const SLOW_START: Duration = Duration::from_secs(5);
/// The default interval between two sends of one query to a Prometheus server.
pub const QUERY_EVERY: Duration = Duration::from_secs(30);

/// The options of a controller.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Policy file: buckets, limits, rollout. Watched and reloaded while running
    #[arg(long, env = "PLIMSOLL_POLICY", value_name = "FILE")]
    pub policy: PathBuf,
    /// Tenants file: tenants and their weights. Without it all tenants share one class
    #[arg(long, env = "PLIMSOLL_TENANTS", value_name = "FILE")]
    pub tenants: Option<PathBuf>,
    /// Catalogue of tenants: up to 1,000,000 rows of CSV (`.csv`) or of JSON (`.ndjson`, an object a line), each with a
    /// plan, and a weight, floor or limits of its own where it has some. Watched and reloaded like the policy
    #[arg(long, env = "PLIMSOLL_CATALOGUE", value_name = "FILE")]
    pub catalogue: Option<PathBuf>,
    /// State directory: epoch, policy in force, kill switch, rollout stages and learned history survive restarts here
    #[arg(
        long,
        env = "PLIMSOLL_STATE_DIR",
        value_name = "DIR",
        default_value = "plimsoll-state"
    )]
    pub state_dir: PathBuf,
    /// Return buckets in canary to shadow after this long without a report from a zone
    #[arg(long, env = "PLIMSOLL_FEED_STALE", value_name = "TIME", default_value = "60s", value_parser = humantime::parse_duration)]
    pub feed_stale: Duration,
    /// Interval of the queries to Prometheus servers, for limits and extra gates
    #[arg(long, env = "PLIMSOLL_QUERY_EVERY", value_name = "TIME", default_value = "30s", value_parser = query_task::every)]
    pub query_every: Duration,
    /// Requests/s that one client is believed to decide. Counts of an aggregator above this for each of its clients,
    /// and above 100 times its own past, are cut and added to plimsoll_counts_cut_total
    #[arg(long, env = "PLIMSOLL_DECISIONS_PER_S_MAX", value_name = "N", default_value_t = DECISIONS_PER_S_MAX, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub decisions_per_s_max: u64,
    /// Address for aggregators (gRPC). Beyond loopback it needs --certs, or --insecure
    #[arg(long, env = "PLIMSOLL_LISTEN", value_name = "ADDR", default_value_t = SocketAddr::from((Ipv4Addr::LOCALHOST, PORT)))]
    pub listen: SocketAddr,
    /// Maximum of connections whose peer has not sent a greeting; half of them from one address
    #[arg(long, env = "PLIMSOLL_PENDING_MAX", value_name = "N", default_value_t = PENDING_MAX_DEFAULT, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1_000_000))]
    pub pending_max: usize,
    /// Address of the admin port: metrics, health, status and commands
    #[arg(long, env = "PLIMSOLL_ADMIN", value_name = "ADDR", default_value_t = SocketAddr::from((Ipv4Addr::LOCALHOST, ADMIN_PORT)))]
    pub admin: SocketAddr,
    /// Certificates, tokens and exceptions.
    #[command(flatten)]
    pub security: SecurityArgs,
    /// The store of several controllers.
    #[command(flatten)]
    pub store: StoreArgs,
    /// Other systems that are sent events.
    #[command(flatten)]
    pub events: EventArgs,
}

/// Why a controller cannot start, or stopped.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The policy files cannot be read, or are not valid.
    #[error("{flag}{0}", flag = if matches!(.0, ReadError::Unread(_)) { "--policy, --tenants, --catalogue: " } else { "" })]
    Policy(#[from] ReadError),
    /// The state cannot be read or written: another controller has it, or its disk or store does not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The flags of the store cannot be used.
    #[error(transparent)]
    StoreArgs(#[from] StoreArgsError),
    /// The system gave no randomness for the instance id or the fleet's key.
    #[error("the system gave no randomness: {0}")]
    Entropy(#[from] getrandom::Error),
    /// The thread that reads the files at the start panicked.
    #[error("the start of the controller failed: {0}")]
    Start(#[from] JoinError),
    /// The flags of events cannot be used.
    #[error(transparent)]
    Events(#[from] EventArgsError),
    /// The flags of trust cannot be used.
    #[error(transparent)]
    Security(#[from] SecurityError),
    /// A port cannot be listened on.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The server of the streams failed.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// A socket failed.
    #[error("a server's socket failed: {0}")]
    Socket(#[from] std::io::Error),
}

/// The sockets of a controller.
#[derive(Debug)]
pub struct Listeners {
    /// For aggregators.
    pub grpc: TcpListener,
    /// For metrics, health, status and commands.
    pub admin: TcpListener,
}

/// A controller that is ready to serve.
#[derive(Debug)]
pub struct Controller {
    commands: Commands,
    store: Arc<StateStore>,
    membership: Option<Membership>,
    recorder: HistoryRecorder,
    policy: PolicyTask,
    counters: Counters,
    event_saver: EventSaver,
    receivers: Vec<Receiver>,
    kill_log: KillLog,
    query_every: Duration,
    security: Opened,
}

/// Runs a controller until `shutdown` is cancelled.
///
/// # Errors
/// When it cannot start, or one of its servers fails.
pub async fn run(args: Args, shutdown: CancellationToken) -> Result<(), Error> {
    let client = args.store.client()?;
    // A start that fails leaves no state, which the next one would take for that of the fleet.
    let grpc = plimsoll_net::bind("--listen", args.listen)?;
    let admin = plimsoll_net::bind("--admin", args.admin)?;
    let listeners = || {
        Ok(Listeners {
            grpc: plimsoll_net::open("--listen", grpc)?,
            admin: plimsoll_net::open("--admin", admin)?,
        })
    };
    start(args, client, listeners, shutdown).await
}

/// Runs a controller on listeners that are open until `shutdown` is cancelled.
///
/// # Errors
/// As [`run`].
pub async fn run_on(
    args: Args,
    listeners: Listeners,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    let client = args.store.client()?;
    start(args, client, || Ok(listeners), shutdown).await
}

async fn start(
    args: Args,
    client: Option<Client>,
    listeners: impl FnOnce() -> Result<Listeners, Error>,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    if let Some(client) = client {
        return members::run(args, client, listeners()?, shutdown).await;
    }
    // A disk that hangs must not keep the process from ending.
    let mut opening = spawn_blocking(move || Controller::open(&args));
    let controller = tokio::select! {
        () = shutdown.cancelled() => return Ok(()),
        opened = &mut opening => opened??,
        () = sleep(SLOW_START) => {
            tracing::warn!("waiting for the disk of the policy files or of the state directory");
            tokio::select! {
                () = shutdown.cancelled() => return Ok(()),
                opened = opening => opened??,
            }
        }
    };
    let listeners = listeners()?;
    let (listen, admin) = (listeners.grpc.local_addr()?, listeners.admin.local_addr()?);
    tracing::info!(%listen, %admin, "controller serves");
    controller.serve(listeners, shutdown).await
}

impl Args {
    pub(crate) fn files(&self) -> PolicyFiles {
        PolicyFiles {
            policy: self.policy.clone(),
            tenants: self.tenants.clone(),
            catalogue: self.catalogue.clone(),
        }
    }
}

impl Controller {
    /// Reads policy and state, and tries to save the new epoch before anything can be sent in it. Blocks.
    ///
    /// # Errors
    /// When the policy is not valid, or another controller uses the state directory.
    pub fn open(args: &Args) -> Result<Self, Error> {
        let security = args
            .security
            .open(PeerRole::Controller, args.listen, args.admin, None)?;
        let open = || {
            let (store, opened) = Store::open(&args.state_dir)?;
            Ok((StateStore::Directory(store), opened))
        };
        Self::begin(args, security, open, None)
    }

    /// The controller of a member that was elected, on the state in the store. Blocks.
    ///
    /// # Errors
    /// When the store does not take the new epoch, or has no policy and the files are not valid.
    pub(crate) fn elected(
        args: &Args,
        security: Opened,
        (store, opened): (EtcdStore, OpenedState),
        membership: Membership,
    ) -> Result<Self, Error> {
        let open = || Ok((StateStore::Etcd(Arc::new(store)), opened));
        Self::begin(args, security, open, Some(membership))
    }

    fn begin(
        args: &Args,
        security: Opened,
        open: impl FnOnce() -> Result<(StateStore, OpenedState), StoreError>,
        membership: Option<Membership>,
    ) -> Result<Self, Error> {
        let files = args.files();
        let is_elected = membership.is_some();
        // A file that is not valid leaves no state, and keeps no member from leading with the policy of the store.
        let read = match files.read_version() {
            Err(error) if !is_elected => return Err(error.into()),
            read => read.map(|(policy, warnings, version)| (Arc::new(policy), warnings, version)),
        };
        if let Ok((_, warnings, _)) = &read {
            policy::log_warnings(warnings, &[]);
        }
        let receivers = args.events.receivers()?;
        let (store, opened) = open()?;
        let etcd = match &store {
            StateStore::Etcd(store) => Some(Arc::clone(store)),
            StateStore::Directory(_) => None,
        };
        let place = etcd
            .clone()
            .map_or_else(|| EventPlace::directory(&args.state_dir), EventPlace::Store);
        let (events, event_saver) = EventLog::open(place);
        let last_event = events.latest(1).pop().map(|last| last.kind);
        if let Some(loss) = &opened.loss {
            let text = format!(
                "saved state lost: every bucket begins in shadow, and guardrails have no earlier policy to compare with: {loss}"
            );
            events.add(Event::new(EventKind::StateLost, "controller", text));
        }
        let mut durable = opened.durable;
        durable.loss = opened.loss.or(durable.loss);
        if durable.coin_key.is_none() {
            // A first start, a loss, or a state of a build without keys.
            durable.coin_key = Some(CoinKey::from_bytes(random()?));
        }
        let shared = etcd.clone().zip(membership.as_ref());
        let shared = shared.map(|(store, membership)| {
            let member = membership.own.borrow().admin.clone();
            Arc::new(Handle::current().block_on(SharedLines::open(store, member)))
        });
        let audit = AuditLog::open(&args.state_dir, shared);
        let saved = policy::saved_policy(&durable, read.as_ref().ok().map(|(policy, ..)| policy));
        let (in_force, read) = match (saved, read) {
            (Some(saved), read) => (saved, read),
            (None, read) => {
                let (policy, warnings, version) = read?;
                // Only recorded changes are enforced.
                durable.lost |= policy::record_first(&policy, &files, (&audit, &events)).is_err();
                (Arc::clone(&policy), Ok((policy, warnings, version)))
            }
        };
        let mut kill_log = KillLog::new(durable.clone());
        let mut brain = Brain::new(
            MonoTime::ZERO,
            InstanceId(u128::from_be_bytes(random()?)),
            durable,
            in_force,
            Parameters {
                feed_stale: args.feed_stale,
                ..Parameters::default()
            },
        )
        .with_decisions_per_s_max(args.decisions_per_s_max);
        events.add(tasks::lead::begun(&brain, membership.as_ref(), last_event));
        // Learned limits are part of what a changed policy is judged by.
        let shared = etcd.map(SharedHistory::new);
        let recorder = HistoryRecorder::open(&args.state_dir, shared, &mut brain);
        brain.rollouts.ready = Some(Vec::new());
        if is_elected {
            brain.leadership.mandate = Mandate::Elected { confirmed: true };
        }
        let (warnings, current, unrecorded) = match read {
            // A takeover never changes the policy.
            Ok((policy, warnings, version))
                if is_elected && brain.policy().hash() != policy.hash() =>
            {
                policy::hold_at_takeover(&mut brain, &policy, &events);
                (warnings, Some(version), None)
            }
            Ok((policy, warnings, version)) => {
                let unrecorded =
                    policy::offer_at_start(&mut brain, &policy, &files, (&audit, &events));
                (warnings, Some(version), unrecorded)
            }
            Err(error) => {
                tracing::error!("policy refused, that of the store stays in force: {error}");
                let error = error.to_string();
                events.add_unlogged(policy::refused(&error));
                brain.policies.refused = Some(error);
                (Vec::new(), None, None)
            }
        };
        if let Some((number, durable)) = brain.unsaved() {
            match store.save(&durable) {
                Ok(()) => brain.on_saved(number),
                // A member that cannot save its epoch must not lead.
                Err(error) if is_elected || matches!(error, StoreError::InUse(_)) => {
                    return Err(error.into());
                }
                Err(error) => {
                    let text = format!(
                        "the state cannot be written: epoch, kills and stages are lost with a restart until it can: {error}"
                    );
                    events.add(Event::new(EventKind::StateUnsaved, "controller", text));
                    brain.on_save_failed(error.to_string());
                }
            }
        }
        // A kill by the policy files is a change too if a start reads it.
        note_kills(&mut kill_log, brain.durable(), (&audit, &events), |_| None);
        policy::log_stages(None, &brain);
        let mut counters = Counters::default();
        counters.ports = Ports::new(args.pending_max);
        let commands = Commands {
            brain: Shared::new(brain),
            audit,
            events,
        };
        counters.with(|counts| counts.policy_read_s = tasks::unix_s());
        let policy = PolicyTask {
            commands: commands.clone(),
            files,
            current,
            logged: warnings,
            counters: counters.clone(),
            unrecorded,
        };
        Ok(Self {
            commands,
            store: Arc::new(store),
            membership,
            recorder,
            policy,
            counters,
            event_saver,
            receivers,
            kill_log,
            query_every: args.query_every,
            security,
        })
    }

    /// Returns the state machine, to be read.
    pub fn brain(&self) -> Shared<Brain> {
        self.commands.brain.clone()
    }

    fn source(&self) -> StatusSource {
        StatusSource {
            commands: self.commands.clone(),
            rejected: self.counters.rejected_streams.clone(),
            security: self.security.clone(),
            membership: self.membership.clone(),
        }
    }
}

fn random() -> Result<[u8; 16], getrandom::Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)?;
    Ok(bytes)
}

/// The parsers of files and answers, for fuzzing. Not part of the API.
#[doc(hidden)]
#[allow(missing_docs)]
pub mod parsers {
    use plimsoll_core::quantity::MonoTime;
    use plimsoll_policy::Policy;
    use plimsoll_policy::learning::{Day, Minute};

    use crate::brain::Brain;
    use crate::history::csv::{self, Import};
    use crate::history::store::Restored;
    use crate::prometheus::answer;
    use crate::state::{DurableState, store};

    pub fn state(file: &[u8]) -> Option<DurableState> {
        store::decode(file).ok()
    }

    pub fn prometheus_answer(body: &[u8]) -> Option<f64> {
        answer::rate(&answer::single(body).ok()?)
            .ok()
            .map(|rate| rate.per_second())
    }

    pub fn history_import(text: &str, policy: &Policy, brain: &mut Brain, today: Day) {
        if let Ok(import) = Import::parse(text, policy, today) {
            brain.import_history(&import.days(), today, true);
        }
    }

    /// Restores a day's file, the summaries or the answers of a history.
    pub fn history_file(file: &[u8], brain: &mut Brain, now: MonoTime) {
        let restored = Restored {
            minutes: csv::read_written(file).0,
            closed: serde_json::from_slice(file).unwrap_or_default(),
            answers: serde_json::from_slice(file).unwrap_or_default(),
            losses: Vec::new(),
        };
        brain.restore_history(now, restored);
    }

    pub fn today(unix_s: i64) -> Day {
        Minute::of_unix(unix_s).day()
    }
}
