//! Tier 2 of Plimsoll: merges the counts of a zone's clients, rolls them up to the controller every half
//! second, and passes directives down. The parent may be another aggregator, in chains of up to five.
//!
//! The state machine is in [`zone`] and is pure. This file gives it a clock, streams to its children and a
//! stream to its parent.
#![forbid(unsafe_code)]

mod admin;
mod args;
mod downstream;
mod fast_loop;
mod key_counts;
pub mod schedule;
mod tails;
mod uplink;
mod upstream;
mod warmup;
pub mod zone;

#[doc(hidden)]
pub use admin::described as described_metrics;
pub use admin::status;
pub use args::{ADMIN_PORT, Args, Error, PORT, TENANTS_PER_BUCKET_MAX};

use plimsoll_admin::ports::{Ports, host_and_port};
use plimsoll_admin::security::Opened;
use plimsoll_admin::{other_controllers, server};
use plimsoll_core::exchange::PeerRole;
use plimsoll_core::exchange::other_controllers::Sighting;
use plimsoll_core::kill::{KillClaim, Scope};
use plimsoll_core::law::{Parameters, parameters};
use plimsoll_core::names::{Bucket, InvalidName, Name, Zone as ZoneName};
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::report::{Identity, InstanceId, Role};
use plimsoll_host::Shared;
use plimsoll_proto::driver::child;
use plimsoll_proto::driver::parent::ParentService;
use plimsoll_proto::transport::{self, Dial, ParentList};
use tokio::net::TcpListener;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use admin::metrics::Events;
use schedule::load_meter::LoadMeter;
use zone::{Bounds, Zone};

/// The sockets of an aggregator.
#[derive(Debug)]
pub struct Listeners {
    /// For clients and child aggregators.
    pub grpc: TcpListener,
    /// For metrics, health checks, status and the kill switch.
    pub admin: TcpListener,
}

/// An aggregator that is ready to serve.
#[derive(Debug)]
pub struct Aggregator {
    zone: Shared<Zone>,
    parents: ParentList,
    events: Events,
    security: Opened,
}

/// Runs an aggregator until `shutdown` is cancelled.
///
/// # Errors
/// Fails if it cannot start, or if one of its servers fails.
pub async fn run(args: Args, shutdown: CancellationToken) -> Result<(), Error> {
    let (zone, listen, admin) = (args.zone.clone(), args.listen, args.admin);
    // A disk that hangs must not keep the process from ending.
    let opening = spawn_blocking(move || Aggregator::new(&args));
    let Some(opened) = shutdown.run_until_cancelled(opening).await else {
        return Ok(());
    };
    let aggregator = opened??;
    let listeners = Listeners {
        grpc: plimsoll_net::listen("--listen", listen).await?,
        admin: plimsoll_net::listen("--admin", admin).await?,
    };
    let (listen, admin) = (listeners.grpc.local_addr()?, listeners.admin.local_addr()?);
    tracing::info!(zone, %listen, %admin, "aggregator serves");
    aggregator.serve(listeners, shutdown).await
}

impl Aggregator {
    /// Checks the arguments, reads their files and draws an instance id. Blocks.
    ///
    /// # Errors
    /// When an argument or one of its files is invalid, or the system returns no random bytes.
    pub fn new(args: &Args) -> Result<Self, Error> {
        let mut instance = [0; 16];
        getrandom::fill(&mut instance)?;
        let name = args
            .name
            .clone()
            .unwrap_or_else(|| host_and_port(args.listen));
        let identity = Identity {
            instance: InstanceId(u128::from_be_bytes(instance)),
            name: named("--name", &name, Name::new)?,
            service: named("--name", "plimsoll-aggregator", Name::new)?,
            zone: named("--zone", &args.zone, ZoneName::new)?,
            role: Role::Aggregator,
        };
        let bounds = Bounds {
            tenants_per_bucket_max: args.tenants_per_bucket_max as usize,
            decisions_per_s_max: args.decisions_per_s_max,
            ..Bounds::default()
        };
        let role = PeerRole::Aggregator {
            zone: identity.zone.clone(),
        };
        // Plaintext beyond loopback needs the operator's consent.
        let exposed = args.controller.iter().filter(|url| Dial::is_exposed(url));
        let exposed: Vec<&str> = exposed.map(String::as_str).collect();
        let exposed_urls = Some(exposed.join(",")).filter(|urls| !urls.is_empty());
        let security =
            args.security
                .open(role, args.listen, args.admin, exposed_urls.as_deref())?;
        Ok(Self {
            zone: Shared::new(Zone::new(identity, bounds, Parameters::default())),
            parents: args.parents(&security)?,
            events: Events::new(Ports::new(args.pending_max)),
            security,
        })
    }

    /// Serves until `shutdown` is cancelled, then sends a farewell to the parent.
    ///
    /// # Errors
    /// When one of its servers fails.
    pub async fn serve(
        self,
        listeners: Listeners,
        shutdown: CancellationToken,
    ) -> Result<(), Error> {
        // The part that ends first stops all others.
        let stop = shutdown.child_token();
        let stop_on_return = stop.clone().drop_guard();
        let uplink = uplink::Log::new(self.events.clone());
        let uplink = tokio::spawn(child::run(
            self.zone.clone(),
            self.parents,
            stop.clone(),
            uplink,
        ));
        tokio::spawn(
            stop.clone()
                .run_until_cancelled_owned(self.security.clone().follow()),
        );
        tokio::spawn(tick(self.zone.clone(), stop));
        // The farewell carries the number of children, so their streams close only after it was sent.
        let closing = CancellationToken::new();
        let close = closing.clone();
        let farewell = tokio::spawn(async move {
            let result = uplink.await;
            close.cancel();
            result
        });
        let rejected_streams = self.events.rejected_streams.clone();
        let own = self.zone.with(|zone, _| zone.identity.zone.clone());
        let service =
            ParentService::new(self.zone.clone(), closing.clone(), rejected_streams).of_zone(&own);
        let service = match self.security.certificates() {
            Some(certificates) => service.secured(certificates.clone()),
            None => service,
        };
        let ports = self.events.ports.clone();
        let grpc = transport::serve(
            listeners.grpc,
            ports.grpc,
            service,
            closing.clone().cancelled_owned(),
        );
        let access = self.security.access().clone();
        let routes = admin::routes(self.zone, self.events, self.security);
        let admin = server::serve(listeners.admin, ports.admin, access, routes, closing);
        tokio::select! {
            served = grpc => served?,
            () = admin => {}
        }
        drop(stop_on_return);
        if let Err(error) | Ok(Err(error)) = farewell.await {
            tracing::error!(%error, "the task of the stream to the parent panicked");
        }
        Ok(())
    }
}

fn named<N>(
    flag: &'static str,
    name: &str,
    new: impl FnOnce(&str) -> Result<N, InvalidName>,
) -> Result<N, Error> {
    new(name).map_err(|source| Error::Name {
        flag,
        name: name.to_owned(),
        source,
    })
}

/// Advances the zone once every period of the fast loop, and feeds it the load of the process.
async fn tick(zone: Shared<Zone>, stop: CancellationToken) {
    let mut ticks = interval(parameters::FAST_PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut meter = LoadMeter::start();
    loop {
        let due = tokio::select! {
            () = stop.cancelled() => return,
            due = ticks.tick() => due,
        };
        let load = meter.on_tick(due);
        let (has_news, unlogged) = zone.with(|zone, now| {
            load.into_iter()
                .for_each(|load| zone.schedule.on_load(load));
            (zone.on_tick(now), Unlogged::take(zone, now))
        });
        unlogged.log();
        if has_news {
            zone.notify();
        }
    }
}

/// What the zone has noticed and not logged yet.
struct Unlogged {
    /// Buckets without room.
    unprotected: Vec<Bucket>,
    claims: Vec<(Scope, KillClaim)>,
    other_controllers: Vec<(String, Sighting)>,
    /// Children that reported more requests than they can have decided, with the requests that were cut.
    cut: Vec<(Identity, u64)>,
    /// Services that name another zone.
    foreign: Vec<(Name, ZoneName)>,
}

impl Unlogged {
    fn take(zone: &mut Zone, now: MonoTime) -> Self {
        Self {
            unprotected: zone.room.refused.take_unlogged(),
            claims: zone.kills.claims_mut().take_unlogged(now),
            other_controllers: zone.upstream.leaders.others.take_unlogged(now),
            cut: zone.downstream.sessions.take_cut(),
            foreign: zone.downstream.foreign.take_unlogged(),
        }
    }

    fn log(self) {
        for bucket in self.unprotected {
            tracing::warn!(%bucket, "bucket without room: it is unprotected, whatever the policy says");
        }
        for (scope, claim) in self.claims {
            tracing::warn!(
                %scope, claimed = claim.generation.0, zone = %claim.zone, service = %claim.service, name = %claim.name,
                "child holds a kill generation without an order: it counts only until a controller speaks, and the child \
                 stays in shadow until `plimsoll kill off` for the scope at the controller"
            );
        }
        other_controllers::log(self.other_controllers);
        for (child, requests) in self.cut {
            tracing::warn!(
                child = %child.name, service = %child.service, zone = %child.zone, requests,
                "counts cut: the child reported more requests than it can have decided; see --decisions-per-s-max"
            );
        }
        for (service, zone) in self.foreign {
            tracing::error!(
                %service, %zone,
                "service names another zone than this aggregator, and shares the limits of this zone: set the zone of its \
                 limiter, or connect it to an aggregator of its zone"
            );
        }
    }
}
