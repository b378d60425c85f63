//! Every tier in one process: a controller, two zones with an aggregator each, and two services in each zone.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use anyhow::{Context, anyhow};
use plimsoll_aggregator::Aggregator;
use plimsoll_controller::Controller;
use plimsoll_controller::brain::Brain;
use plimsoll_controller::status::Status;
use plimsoll_core::policy::Policy;
use plimsoll_core::rollout::gates::STALE_AFTER;
use plimsoll_proto::shared::Shared;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::Args;
use crate::capacity::CapacityArgs;
use crate::service::{self, Service};

const POLICY: &str = include_str!("../../../charts/plimsoll/files/policy.yaml");
const TENANTS: &str = include_str!("../../../charts/plimsoll/files/tenants.yaml");

/// The zones, and the share of the load that comes through each: a limit that every zone took for its own would be
/// exceeded here.
pub(super) const ZONES: [(&str, f64); 2] = [("zone-a", 0.7), ("zone-b", 0.3)];
const SERVICES_PER_ZONE: usize = 2;

/// The running tiers.
pub(super) struct Fleet {
    brain: Shared<Brain>,
    services: Vec<(SocketAddr, f64)>,
    buckets: Vec<String>,
    lines: Vec<String>,
    /// From the edge up: each tier stops while those above still listen, so that its farewell is heard.
    tiers: [Tier; 3],
    broken: CancellationToken,
    /// Removed when the fleet has stopped.
    _directory: TempDir,
}

/// The parts of one tier.
#[derive(Default)]
struct Tier {
    shutdown: CancellationToken,
    tasks: JoinSet<anyhow::Result<()>>,
}

const SERVICES: usize = 0;
const AGGREGATORS: usize = 1;
const CONTROLLER: usize = 2;

impl Fleet {
    /// Starts every part; each listens before the next one is told of it.
    pub(super) async fn start(args: &Args) -> anyhow::Result<Self> {
        let directory =
            tempfile::Builder::new().prefix("plimsoll-").tempdir().context("cannot make a directory")?;
        let (policy, tenants) = policy_files(args, &directory)?;
        let mut lines = vec![format!("policy      {} (edit it while this runs)", policy.display())];
        if let Some(tenants) = &tenants {
            lines.push(format!("tenants     {}", tenants.display()));
        }
        let grpc = bind(plimsoll_controller::PORT).await?;
        let admin = bind(plimsoll_controller::ADMIN_PORT).await?;
        let (listen, admin_address) = (grpc.local_addr()?, admin.local_addr()?);
        lines.push(format!("controller  grpc {listen}  admin http://{admin_address}/status"));
        let controller = Controller::open(&plimsoll_controller::Args {
            policy,
            tenants,
            state_dir: directory.path().join("state"),
            feed_stale: STALE_AFTER,
            query_every: plimsoll_controller::QUERY_EVERY,
            listen,
            admin: admin_address,
        })?;
        let brain = controller.brain();
        let mut fleet = Self {
            buckets: brain.with(|brain, _| demo_buckets(brain.policy())),
            brain,
            services: Vec::new(),
            lines,
            tiers: Default::default(),
            broken: CancellationToken::new(),
            _directory: directory,
        };
        let listeners = plimsoll_controller::Listeners { grpc, admin };
        fleet.spawn(CONTROLLER, "the controller", |shutdown| controller.serve(listeners, shutdown));
        for (zone, share) in ZONES {
            let aggregator = fleet.aggregator(zone, listen).await?;
            for number in 0..if args.no_demo { 0 } else { SERVICES_PER_ZONE } {
                fleet.service(zone, number, aggregator, share / SERVICES_PER_ZONE as f64).await?;
            }
        }
        Ok(fleet)
    }

    async fn aggregator(&mut self, zone: &str, controller: SocketAddr) -> anyhow::Result<SocketAddr> {
        let (grpc, admin) = (bind(0).await?, bind(0).await?);
        let (listen, admin_address) = (grpc.local_addr()?, admin.local_addr()?);
        self.lines.push(format!("{zone}      grpc {listen}  admin http://{admin_address}/status"));
        let aggregator = Aggregator::new(&plimsoll_aggregator::Args {
            tenants_per_bucket_max: plimsoll_aggregator::TENANTS_PER_BUCKET_MAX,
            zone: zone.to_owned(),
            name: Some(format!("{zone}-aggregator")),
            controller: format!("http://{controller}"),
            listen,
            admin: admin_address,
        })?;
        let listeners = plimsoll_aggregator::Listeners { grpc, admin };
        self.spawn(AGGREGATORS, "an aggregator", |shutdown| aggregator.serve(listeners, shutdown));
        Ok(listen)
    }

    async fn service(
        &mut self,
        zone: &str,
        number: usize,
        aggregator: SocketAddr,
        share: f64,
    ) -> anyhow::Result<()> {
        let listener = bind(0).await?;
        let listen = listener.local_addr()?;
        let name = format!("{zone}-service-{number}");
        self.lines.push(format!("{name}  http://{listen}/checkout"));
        let service = Service::new(&service::Args {
            listen,
            aggregator: vec![format!("http://{aggregator}")],
            grace: plimsoll_client::GRACE,
            directives: None,
            kill_file: None,
            cold_rps: Vec::new(),
            zone: zone.to_owned(),
            name: Some(name),
            buckets: self.buckets.clone(),
            capacity: CapacityArgs::default(),
        })?;
        self.services.push((listen, share));
        self.spawn(SERVICES, "a service", |shutdown| service.serve(listener, shutdown));
        Ok(())
    }

    fn spawn<F, E>(&mut self, tier: usize, what: &'static str, serve: impl FnOnce(CancellationToken) -> F)
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<anyhow::Error> + Send + 'static,
    {
        let Some(tier) = self.tiers.get_mut(tier) else { return };
        let (shutdown, broken) = (tier.shutdown.clone(), self.broken.clone());
        let part = serve(shutdown.clone());
        tier.tasks.spawn(async move {
            let ended = part.await.map_err(|error| error.into().context(format!("{what} failed")));
            if shutdown.is_cancelled() {
                return ended;
            }
            broken.cancel();
            ended.and_then(|()| Err(anyhow!("{what} ended by itself")))
        });
    }

    /// Where the parts are, for people.
    pub(super) fn describe(&self) -> String {
        self.lines.iter().map(|line| format!("{line}\n")).collect()
    }

    /// Where to send load, and which share of it.
    pub(super) fn services(&self) -> &[(SocketAddr, f64)] {
        &self.services
    }

    /// What the services protect.
    pub(super) fn buckets(&self) -> &[String] {
        &self.buckets
    }

    /// What the controller knows now.
    pub(super) fn status(&self) -> Status {
        self.brain.with(|brain, now| Status::of(brain, now))
    }

    /// Completes when a part has ended by itself.
    pub(super) async fn broken(&self) {
        self.broken.cancelled().await;
    }

    /// Stops every part in good order.
    pub(super) async fn stop(self) -> anyhow::Result<()> {
        let mut first_failure = Ok(());
        for mut tier in self.tiers {
            tier.shutdown.cancel();
            while let Some(ended) = tier.tasks.join_next().await {
                let ended = ended.map_err(anyhow::Error::from).and_then(|ended| ended);
                first_failure = first_failure.and(ended);
            }
        }
        first_failure
    }
}

/// The files to go by. Without any, the built-in examples are put where people can edit them.
fn policy_files(args: &Args, directory: &TempDir) -> anyhow::Result<(PathBuf, Option<PathBuf>)> {
    let write = |name: &str, text: &str| {
        let path = directory.path().join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        Ok::<_, anyhow::Error>(path)
    };
    let tenants = match (&args.tenants, &args.policy) {
        (Some(tenants), _) => Some(tenants.clone()),
        (None, Some(_)) => None,
        (None, None) => Some(write("tenants.yaml", TENANTS)?),
    };
    let policy = match &args.policy {
        Some(policy) => policy.clone(),
        None => write("policy.yaml", POLICY)?,
    };
    Ok((policy, tenants))
}

/// Every bucket the policy names, and one for each of its patterns.
fn demo_buckets(policy: &Policy) -> Vec<String> {
    let exact = policy.exact_buckets().map(|(bucket, _)| bucket.to_string());
    let patterns = policy.patterns().map(|(pattern, _)| pattern.replace('*', "users"));
    let mut buckets: Vec<String> = exact.chain(patterns).collect();
    buckets.sort_unstable();
    buckets.dedup();
    buckets
}

/// Listens on loopback, on `port` if it is free and else on one that is.
async fn bind(port: u16) -> anyhow::Result<TcpListener> {
    let preferred = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await;
    match preferred {
        Ok(listener) => Ok(listener),
        Err(_) => TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("cannot listen on loopback"),
    }
}
