//! Tier 2 of Plimsoll: merges the counts of a zone's clients, rolls them up to the controller every half second, and
//! passes directives down. The parent may be another aggregator: up to five may stand one above the other.
//!
//! The thinking is in [`zone`], which is pure; this file gives it a clock, streams to its clients and one to its
//! parent.
#![forbid(unsafe_code)]

pub mod admin;
mod downstream;
mod fast_loop;
mod key_counts;
mod rollups;
pub mod schedule;
mod uplink;
mod upstream;
mod warmup;
pub mod zone;

use std::net::{Ipv4Addr, SocketAddr};

use axum::routing::get;
use axum::{Json, Router};
use plimsoll_core::names::{InvalidName, Name, Zone as ZoneName};
use plimsoll_core::law::Parameters;
use plimsoll_core::report::{Identity, InstanceId, Role};
use plimsoll_proto::admin;
use plimsoll_proto::child;
use plimsoll_proto::parent::ParentService;
use plimsoll_proto::shared::Shared;
use plimsoll_proto::transport::{self, InvalidEndpoint, ServeError};
use tokio::net::TcpListener;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tonic::transport::Endpoint;

use crate::admin::metrics::Events;
use crate::schedule::load_meter::LoadMeter;
use crate::zone::{Bounds, Zone};

/// The gRPC port clients connect to.
pub const PORT: u16 = 7410;
/// Tenants told apart in one bucket unless set otherwise.
pub const TENANTS_PER_BUCKET_MAX: u32 = 10_000;
/// The admin port.
pub const ADMIN_PORT: u16 = 7411;

/// What an aggregator is started with.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The failure domain it serves, such as eu-west-1a
    #[arg(long, env = "PLIMSOLL_ZONE", value_name = "NAME", default_value = "default")]
    pub zone: String,
    /// A name that outlives restarts; unless given, host and port
    #[arg(long, env = "PLIMSOLL_NAME", value_name = "NAME")]
    pub name: Option<String>,
    /// The controller, or an aggregator that leads to one
    #[arg(long, env = "PLIMSOLL_CONTROLLER", value_name = "URL", default_value = "http://127.0.0.1:7400")]
    pub controller: String,
    /// Where clients connect
    #[arg(long, env = "PLIMSOLL_LISTEN", value_name = "ADDR", default_value_t = SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT)))]
    pub listen: SocketAddr,
    /// Tenants told apart in one bucket; those with the least traffic beyond it count as `default`
    #[arg(long, env = "PLIMSOLL_TENANTS_PER_BUCKET_MAX", value_name = "N", default_value_t = TENANTS_PER_BUCKET_MAX)]
    pub tenants_per_bucket_max: u32,
    /// Metrics, health and status
    #[arg(long, env = "PLIMSOLL_ADMIN", value_name = "ADDR", default_value_t = SocketAddr::from((Ipv4Addr::LOCALHOST, ADMIN_PORT)))]
    pub admin: SocketAddr,
}

/// Why an aggregator cannot start, or stopped.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A name breaks the rule of names.
    #[error("{flag} `{name}`: {source}")]
    Name {
        /// The flag it was given by.
        flag: &'static str,
        /// What was given.
        name: String,
        /// What is wrong with it.
        source: InvalidName,
    },
    /// The controller's address cannot be used.
    #[error("--controller: {0}")]
    Controller(#[from] InvalidEndpoint),
    /// The system gave no randomness for the instance id.
    #[error("the system gave no randomness: {0}")]
    Entropy(#[from] getrandom::Error),
    /// A port cannot be served.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// A socket failed.
    #[error("a server's socket failed: {0}")]
    Socket(#[from] std::io::Error),
}

impl Error {
    /// Whether it was asked for something that cannot be, so that asking again will not do.
    #[must_use]
    pub const fn is_usage(&self) -> bool {
        matches!(self, Self::Name { .. } | Self::Controller(_))
    }
}

/// The sockets of an aggregator.
#[derive(Debug)]
pub struct Listeners {
    /// Where clients connect.
    pub grpc: TcpListener,
    /// Metrics, health and status.
    pub admin: TcpListener,
}

/// An aggregator that is ready to serve.
#[derive(Debug)]
pub struct Aggregator {
    zone: Shared<Zone>,
    controller: Endpoint,
    events: Events,
}

/// Runs an aggregator until `shutdown` is cancelled.
///
/// # Errors
/// When it cannot start, or one of its servers fails.
pub async fn run(args: Args, shutdown: CancellationToken) -> Result<(), Error> {
    let aggregator = Aggregator::new(&args)?;
    let listeners = Listeners {
        grpc: transport::listen(args.listen).await?,
        admin: transport::listen(args.admin).await?,
    };
    let (listen, admin) = (listeners.grpc.local_addr()?, listeners.admin.local_addr()?);
    tracing::info!(zone = args.zone, %listen, %admin, "the aggregator serves");
    aggregator.serve(listeners, shutdown).await
}

impl Aggregator {
    /// Checks the arguments and draws an instance id.
    ///
    /// # Errors
    /// When an argument cannot be used.
    pub fn new(args: &Args) -> Result<Self, Error> {
        let mut instance = [0; 16];
        getrandom::fill(&mut instance)?;
        let name = args.name.clone().unwrap_or_else(|| host_and_port(args.listen));
        let identity = Identity {
            instance: InstanceId(u128::from_be_bytes(instance)),
            name: named("--name", &name, Name::new)?,
            service: named("--name", "plimsoll-aggregator", Name::new)?,
            zone: named("--zone", &args.zone, ZoneName::new)?,
            role: Role::Aggregator,
        };
        let tenants_per_bucket_max = args.tenants_per_bucket_max as usize;
        let bounds = Bounds { tenants_per_bucket_max, ..Bounds::default() };
        Ok(Self {
            zone: Shared::new(Zone::new(identity, bounds, Parameters::default())),
            controller: transport::endpoint(&args.controller)?,
            events: Events::default(),
        })
    }

    /// Serves until `shutdown` is cancelled, then says farewell to the controller.
    ///
    /// # Errors
    /// When one of its servers fails.
    pub async fn serve(self, listeners: Listeners, shutdown: CancellationToken) -> Result<(), Error> {
        // Whatever ends first, the other parts end with it.
        let stop = shutdown.child_token();
        let ends_with_this = stop.clone().drop_guard();
        let uplink = uplink::Log::new(self.events.clone());
        let uplink = tokio::spawn(child::run(self.zone.clone(), self.controller, stop.clone(), uplink));
        tokio::spawn(tick(self.zone.clone(), stop));
        // The farewell says how many clients there are, so their streams close only after it has left.
        let closing = CancellationToken::new();
        let close = closing.clone();
        let farewell = tokio::spawn(async move {
            let said = uplink.await;
            close.cancel();
            said
        });
        let parent = ParentService::new(self.zone.clone(), closing.clone(), self.events.refusals.clone());
        let grpc = transport::serve(listeners.grpc, parent, closing.clone().cancelled_owned());
        let admin = admin::serve(listeners.admin, routes(self.zone, self.events), closing.cancelled_owned());
        tokio::select! {
            served = grpc => served?,
            served = admin => served?,
        }
        drop(ends_with_this);
        if let Err(error) | Ok(Err(error)) = farewell.await {
            tracing::error!(%error, "the uplink died");
        }
        Ok(())
    }
}

fn routes(zone: Shared<Zone>, events: Events) -> Router {
    let (for_status, kill) = (zone.clone(), kill_routes::routes(&zone));
    let metrics = move || zone.with(|zone, now| metrics::page(zone, now, &events)).text();
    let status = move || async move { Json(for_status.with(|zone, now| Status::of(zone, now))) };
    admin::routes(metrics, || true).route("/status", get(status)).merge(kill)
}

fn named<N>(
    flag: &'static str,
    name: &str,
    new: impl FnOnce(&str) -> Result<N, InvalidName>,
) -> Result<N, Error> {
    new(name).map_err(|source| Error::Name { flag, name: name.to_owned(), source })
}

fn host_and_port(listen: SocketAddr) -> String {
    let host = std::env::var("HOSTNAME").or_else(|_| std::fs::read_to_string("/proc/sys/kernel/hostname"));
    let host = host.map(|host| host.trim().to_owned()).ok().filter(|host| Name::new(host).is_ok());
    format!("{}:{}", host.as_deref().unwrap_or("localhost"), listen.port())
}

/// Lets time pass in the zone.
async fn tick(zone: Shared<Zone>, stop: CancellationToken) {
    let mut ticks = interval(Parameters::default().fast_period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut meter = LoadMeter::start();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            due = ticks.tick() => {
                let load = meter.on_tick(due);
                let news = zone.with(|zone, now| {
                    load.into_iter().for_each(|load| zone.on_load(load));
                    zone.on_tick(now)
                });
                if news {
                    zone.ring();
                }
            }
        }
    }
}
