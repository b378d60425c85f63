//! A quota server from start to end: opens the store and sockets, serves the ports, and saves the
//! balances.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_admin::security::Opened;
use plimsoll_admin::server;
use plimsoll_core::exchange::{PeerRole, is_loopback};
use plimsoll_net::Protection;
use tokio::net::TcpListener;
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

use crate::admin::{self, Ports, Sources};
use crate::args::{Args, Error};
use crate::engine::{Engine, Settings};
use crate::leases::Leases;
use crate::resp::{self, Counters, Port};

/// Sockets of a quota server.
#[derive(Debug)]
pub struct Listeners {
    /// Redis protocol.
    pub resp: TcpListener,
    /// Metrics, health checks and the commands of operators.
    pub admin: TcpListener,
}

/// Quota server that is ready to serve.
#[derive(Debug)]
pub struct Server {
    engine: Engine,
    security: Opened,
    at_ahead_max: Duration,
}

/// Runs a quota server until `shutdown` is cancelled.
///
/// # Errors
/// When it cannot start, or the balances cannot be saved at the end.
pub async fn run(args: Args, shutdown: CancellationToken) -> Result<(), Error> {
    let (resp, admin) = (args.listen, args.admin);
    // A disk that hangs must not keep the process from ending.
    let opening = spawn_blocking(move || Server::new(&args));
    let Some(opened) = shutdown.run_until_cancelled(opening).await else {
        return Ok(());
    };
    let server = opened??;
    let listeners = Listeners {
        resp: plimsoll_net::listen("--listen", resp).await?,
        admin: plimsoll_net::listen("--admin", admin).await?,
    };
    server.serve(listeners, shutdown).await
}

impl Server {
    /// Checks the arguments and opens the store. Blocks.
    ///
    /// # Errors
    /// When an argument is invalid, or the store cannot be opened.
    pub fn new(args: &Args) -> Result<Self, Error> {
        let ports = [("--listen", args.listen)];
        let security = args
            .security
            .open_without_parent(PeerRole::Quota, &ports, args.admin)?;
        if !is_loopback(args.listen.ip()) && security.access().tokens().is_none() {
            return Err(Error::NoTokens(args.listen));
        }
        if args.security.tokens.is_none() && !args.security.admin_open_on_loopback {
            tracing::warn!(
                "the admin port shows and resets no bucket: give --tokens FILE, or --admin-open-on-loopback to accept \
                 programs on this machine"
            );
        }
        let settings = Settings {
            data: args.data.clone(),
            durability: args.durability,
            cache_bytes: args.cache_mib << 20,
        };
        let engine = Engine::open(&settings)?;
        Ok(Self {
            engine,
            security,
            at_ahead_max: args.at_ahead_max,
        })
    }

    /// Serves until `shutdown` is cancelled, then answers what was read and saves all balances.
    ///
    /// # Errors
    /// When the address of a socket cannot be read, or the balances cannot be saved.
    pub async fn serve(
        self,
        listeners: Listeners,
        shutdown: CancellationToken,
    ) -> Result<(), Error> {
        let Self {
            engine,
            security,
            at_ahead_max,
        } = self;
        let (listen, admin) = (listeners.resp.local_addr()?, listeners.admin.local_addr()?);
        let following = security.clone().follow();
        tokio::spawn(shutdown.clone().run_until_cancelled_owned(following));
        let (ports, counters) = (Ports::new(), Arc::<Counters>::default());
        let access = security.access().clone();
        let port = Port {
            engine: engine.clone(),
            counters: counters.clone(),
            access: access.clone(),
            leases: Leases::default(),
            at_ahead_max_ms: u64::try_from(at_ahead_max.as_millis()).unwrap_or(u64::MAX),
            protection: security.protection(listen, Protection::Tls),
            needs_token: !is_loopback(listen.ip()),
            connections: ports.resp.clone(),
        };
        let connections = ports.admin.clone();
        let sources = Sources {
            engine: engine.clone(),
            ports,
            resp: counters,
            security,
        };
        let routes = admin::routes(sources);
        let durability = engine.durability();
        tracing::info!(%listen, %admin, %durability, "quota server serves");

        // The admin port ends last: it shows how the other ends.
        let closing = CancellationToken::new();
        let admin = server::serve(
            listeners.admin,
            connections,
            access,
            routes,
            closing.clone(),
        );
        let operations = async {
            resp::serve(listeners.resp, port, shutdown).await;
            let saved = engine.close().await;
            closing.cancel();
            saved
        };
        let (saved, ()) = tokio::join!(operations, admin);
        Ok(saved?)
    }
}
