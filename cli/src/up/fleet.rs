//! The parts of the demo: controllers, a quota server, and two zones with an aggregator and two services each.

use std::collections::BTreeSet;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, anyhow};
use plimsoll_admin::security::SecurityArgs;
use plimsoll_aggregator::Aggregator;
use plimsoll_client::BUCKETS_MAX_DEFAULT;
use plimsoll_controller::members::StoreArgs;
use plimsoll_controller::policy_file::PolicyFiles;
use plimsoll_core::names::Bucket;
use plimsoll_core::report::DECISIONS_PER_S_MAX;
use plimsoll_core::rollout::gates::STALE_AFTER;
use plimsoll_net::PENDING_MAX_DEFAULT;
use plimsoll_policy::Policy;
use plimsoll_sidecar::LimiterArgs;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::{JoinSet, spawn_blocking};
use tokio_util::sync::CancellationToken;

use super::Args;
use super::controllers::Controllers;
use crate::cmd::check::schema::SchemaOf;
use crate::cmd::service::{self, CapacityArgs, OWN_PATHS, Service, TrustArgs};

const POLICY: &str = include_str!("example/policy.yaml");
const TENANTS: &str = include_str!("example/tenants.yaml");

/// Zones and their shares of the load. They are unequal: a limit divided evenly between zones would refuse
/// more of the first one.
const ZONES: [(&str, f64); 2] = [("zone-a", 0.7), ("zone-b", 0.3)];
const SERVICES_PER_ZONE: usize = 2;

pub(super) struct Fleet {
    pub(super) controllers: Controllers,
    /// Addresses of the services and their shares of the load.
    pub(super) services: Vec<(SocketAddr, f64)>,
    pub(super) buckets: Vec<String>,
    /// Paths and addresses to print at the start.
    lines: Vec<String>,
    /// From services to controller and store, the order of stopping: the parent of each tier still
    /// receives its last report, and the store the remaining leases.
    tiers: [Tier; 4],
    /// URL of the quota server, for services.
    quota_store: String,
    /// Cancelled when a part ends by itself.
    pub(super) failed: CancellationToken,
    /// Holds the policy, the state and the balances of quotas; removed on drop.
    directory: TempDir,
}

#[derive(Default)]
struct Tier {
    shutdown: CancellationToken,
    tasks: JoinSet<anyhow::Result<()>>,
}

/// Indexes into [`Fleet::tiers`].
const SERVICES: usize = 0;
const AGGREGATORS: usize = 1;
const CONTROLLER: usize = 2;
const QUOTA: usize = 3;
/// Maximum time that a request waits for the quota server. Longer than the default: all parts and
/// their load share one machine.
const QUOTA_TIMEOUT: Duration = Duration::from_secs(1);
const QUOTA_CACHE_MIB: u64 = 16;

impl Fleet {
    /// Starts every part after its parent listens.
    ///
    /// # Errors
    /// A part cannot start.
    pub(super) async fn start(args: &Args) -> anyhow::Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix("plimsoll-")
            .tempdir()
            .context("cannot create a temporary directory")?;
        let (policy, tenants) = policy_files(args, &directory)?;
        let mut lines = vec![format!(
            "policy      {} (edit it while this runs)",
            policy.display()
        )];
        if let Some(tenants) = &tenants {
            lines.push(format!("tenants     {}", tenants.display()));
        }
        let files = PolicyFiles {
            policy,
            tenants,
            catalogue: args.catalogue.clone(),
        };
        let (policy, _) = files.read()?;
        let common = plimsoll_controller::Args {
            policy: files.policy,
            tenants: files.tenants,
            catalogue: files.catalogue,
            state_dir: PathBuf::new(),
            store: StoreArgs::default(),
            events: Default::default(),
            feed_stale: STALE_AFTER,
            query_every: plimsoll_controller::QUERY_EVERY,
            decisions_per_s_max: DECISIONS_PER_S_MAX,
            pending_max: PENDING_MAX_DEFAULT,
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            admin: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            security: open_on_loopback(),
        };
        let count = usize::from(args.controllers);
        let (controllers, admin) = Controllers::prepare(count, directory.path(), common).await?;
        let mut fleet = Self {
            buckets: demo_buckets(&policy),
            controllers: admin,
            services: Vec::new(),
            lines,
            tiers: Default::default(),
            quota_store: String::new(),
            failed: CancellationToken::new(),
            directory,
        };
        let parents: Vec<String> = controllers
            .iter()
            .map(|(args, _)| format!("http://{}", args.listen))
            .collect();
        for (args, listeners) in controllers {
            let (listen, admin) = (args.listen, args.admin);
            fleet.lines.push(format!(
                "controller  grpc {listen}  admin http://{admin}/status"
            ));
            fleet.lines.push(format!("console     http://{admin}/"));
            fleet.spawn(CONTROLLER, "a controller", |shutdown| {
                plimsoll_controller::run_on(args, listeners, shutdown)
            });
        }
        tokio::select! {
            started = fleet.controllers.started() => started?,
            () = fleet.failed.cancelled() => return Err(fleet.stop().await.err().context("a controller ended")?),
        }
        fleet.quota_server().await?;
        for (zone, share) in ZONES {
            let aggregator = fleet.aggregator(zone, &parents).await?;
            let services = match args.no_demo || fleet.buckets.is_empty() {
                true => 0,
                false => SERVICES_PER_ZONE,
            };
            for number in 0..services {
                fleet
                    .service(zone, number, aggregator, share / SERVICES_PER_ZONE as f64)
                    .await?;
            }
        }
        Ok(fleet)
    }

    async fn quota_server(&mut self) -> anyhow::Result<()> {
        let (resp, admin) = (
            bind(plimsoll_quota::RESP_PORT).await?,
            bind(plimsoll_quota::ADMIN_PORT).await?,
        );
        let (listen, admin_address) = (resp.local_addr()?, admin.local_addr()?);
        self.lines.push(format!(
            "quotas      resp {listen}  admin http://{admin_address}/status"
        ));
        self.quota_store = format!("plimsoll://{listen}");
        let args = plimsoll_quota::Args {
            listen,
            admin: admin_address,
            data: self.directory.path().join("quota"),
            durability: plimsoll_quota::Durability::default(),
            cache_mib: QUOTA_CACHE_MIB,
            at_ahead_max: plimsoll_quota::AT_AHEAD_MAX,
            security: open_on_loopback(),
        };
        let server = spawn_blocking(move || plimsoll_quota::Server::new(&args)).await??;
        let listeners = plimsoll_quota::Listeners { resp, admin };
        self.spawn(QUOTA, "the quota server", |shutdown| {
            server.serve(listeners, shutdown)
        });
        Ok(())
    }

    async fn aggregator(
        &mut self,
        zone: &str,
        controllers: &[String],
    ) -> anyhow::Result<SocketAddr> {
        let (grpc, admin) = (bind(0).await?, bind(0).await?);
        let (listen, admin_address) = (grpc.local_addr()?, admin.local_addr()?);
        self.lines.push(format!(
            "{zone}      grpc {listen}  admin http://{admin_address}/status"
        ));
        let aggregator = Aggregator::new(&plimsoll_aggregator::Args {
            tenants_per_bucket_max: plimsoll_aggregator::TENANTS_PER_BUCKET_MAX,
            decisions_per_s_max: DECISIONS_PER_S_MAX,
            pending_max: PENDING_MAX_DEFAULT,
            zone: zone.to_owned(),
            name: Some(format!("{zone}-aggregator")),
            controller: controllers.to_vec(),
            listen,
            admin: admin_address,
            security: open_on_loopback(),
        })?;
        let listeners = plimsoll_aggregator::Listeners { grpc, admin };
        self.spawn(AGGREGATORS, "an aggregator", |shutdown| {
            aggregator.serve(listeners, shutdown)
        });
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
        // That of the embedded policy with the most traffic, or any other.
        let bucket = self
            .buckets
            .iter()
            .find(|bucket| *bucket == "checkout")
            .or(self.buckets.first());
        self.lines.push(format!(
            "{name}  http://{listen}/{}",
            bucket.map_or("", String::as_str)
        ));
        let service = Service::new(&service::Args {
            listen,
            limiter: LimiterArgs {
                aggregator: vec![format!("http://{aggregator}")],
                zone: zone.to_owned(),
                name: Some(name),
                quota_store: Some(self.quota_store.clone()),
                quota_timeout: Some(QUOTA_TIMEOUT),
                ..LimiterArgs::default()
            },
            trust: TrustArgs::default(),
            buckets: self.buckets.clone(),
            capacity: CapacityArgs::default(),
        })?;
        self.services.push((listen, share));
        self.spawn(SERVICES, "a service", |shutdown| {
            service.serve(listener, shutdown)
        });
        Ok(())
    }

    /// Runs a part. Cancels `failed` if it ends before its tier is stopped.
    fn spawn<F, E>(
        &mut self,
        tier: usize,
        what: &'static str,
        serve: impl FnOnce(CancellationToken) -> F,
    ) where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<anyhow::Error> + Send + 'static,
    {
        let tier = &mut self.tiers[tier];
        let (shutdown, failed) = (tier.shutdown.clone(), self.failed.clone());
        let part = serve(shutdown.clone());
        tier.tasks.spawn(async move {
            let ended = part
                .await
                .map_err(|error| error.into().context(format!("{what} failed")));
            if shutdown.is_cancelled() {
                return ended;
            }
            failed.cancel();
            ended.and_then(|()| Err(anyhow!("{what} ended unexpectedly")))
        });
    }

    /// Lists the addresses of the parts, one on a line.
    pub(super) fn describe(&self) -> String {
        self.lines.iter().map(|line| format!("{line}\n")).collect()
    }

    /// Stops every part, the services first.
    ///
    /// # Errors
    /// A part failed.
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

/// Returns the policy and tenant files. Without arguments, the built-in examples are copied to the
/// directory for editing.
fn policy_files(args: &Args, directory: &TempDir) -> anyhow::Result<(PathBuf, Option<PathBuf>)> {
    let write = |name: &str, text: &str| {
        let path = directory.path().join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        Ok::<_, anyhow::Error>(path)
    };
    let policy = args.policy.clone().map_or_else(
        || {
            write("policy.schema.json", &SchemaOf::Policy.text()?)?;
            write("policy.yaml", POLICY)
        },
        Ok,
    )?;
    let tenants = match (&args.tenants, &args.policy) {
        (None, None) => {
            write("tenants.schema.json", &SchemaOf::Tenants.text()?)?;
            Some(write("tenants.yaml", TENANTS)?)
        }
        (tenants, _) => tenants.clone(),
    };
    Ok((policy, tenants))
}

/// Returns the buckets of the policy that a demo service can have, and one bucket for each pattern.
fn demo_buckets(policy: &Policy) -> Vec<String> {
    let buckets = policy
        .entries()
        .map(|(entry, _)| entry.replace('*', "users"))
        .filter(|bucket| !OWN_PATHS.contains(&bucket.as_str()) && Bucket::new(bucket).is_ok());
    let buckets = buckets.collect::<BTreeSet<_>>().into_iter();
    buckets.take(BUCKETS_MAX_DEFAULT).collect()
}

/// Only this machine uses the demo, so its admin ports need no token.
fn open_on_loopback() -> SecurityArgs {
    SecurityArgs {
        admin_open_on_loopback: true,
        ..SecurityArgs::default()
    }
}

/// Listens on loopback, on `port` or, if it is taken, on any free port.
pub(super) async fn bind(port: u16) -> anyhow::Result<TcpListener> {
    let preferred = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await;
    match preferred {
        Ok(listener) => Ok(listener),
        Err(_) => TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .context("cannot listen on loopback"),
    }
}
