//! A sidecar from start to end: opens files, begins the exchange with the aggregators, opens the
//! ports once it knows its policies, and reports the last counts.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use plimsoll_admin::ports::host_and_port;
use plimsoll_admin::security::Opened;
use plimsoll_admin::server;
use plimsoll_client::{Feed, FeedHandle, Flushed, Limiter};
use plimsoll_core::exchange::PeerRole;
use plimsoll_core::names::{InvalidName, Name, Zone};
use plimsoll_net::Protection;
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

use crate::admin::{self, Sources};
use crate::args::{Args, Error};
use crate::limits::Limits;
use crate::rules::{Reloads, Rules, RulesFile};
use crate::serve::{Port, Ports, UnixSockets, is_beyond_loopback, serve_http1, serve_http2};
use crate::{http, rls};

/// Maximum time that a request waits for the store of quotas: half of Envoy's default wait for the
/// sidecar.
const QUOTA_TIMEOUT: Duration = Duration::from_millis(10);

/// Sockets of a sidecar, without Unix sockets. The decision ports are bound, and opened later.
#[derive(Debug)]
pub struct Listeners {
    /// Rate limit service.
    pub rls: TcpSocket,
    /// HTTP checks.
    pub http: TcpSocket,
    /// Metrics, health checks and status.
    pub admin: TcpListener,
}

/// Sidecar that is ready to serve.
#[derive(Debug)]
pub struct Sidecar {
    limits: Limits,
    file: Option<RulesFile>,
    feed: Feed,
    security: Opened,
    sockets: Option<PathBuf>,
}

/// Runs a sidecar until `shutdown` is cancelled.
///
/// # Errors
/// When it cannot start.
pub async fn run(args: Args, shutdown: CancellationToken) -> Result<(), Error> {
    let (rls, http, admin) = (args.rls, args.http, args.admin);
    // A disk that hangs must not keep the process from ending.
    let opening = spawn_blocking(move || Sidecar::new(&args));
    let Some(opened) = shutdown.run_until_cancelled(opening).await else {
        return Ok(());
    };
    let sidecar = opened??;
    let listeners = Listeners {
        rls: plimsoll_net::bind("--rls", rls)?,
        http: plimsoll_net::bind("--http", http)?,
        admin: plimsoll_net::listen("--admin", admin).await?,
    };
    sidecar.serve(listeners, shutdown).await
}

impl Sidecar {
    /// Checks the arguments, reads their files, and builds the limiter. Blocks.
    ///
    /// # Errors
    /// When an argument or a file is invalid.
    pub fn new(args: &Args) -> Result<Self, Error> {
        let zone = named("--zone", &args.limiter.zone, Zone::new)?;
        let service = named("--service", &args.service, Name::new)?;
        let ports = [("--rls", args.rls), ("--http", args.http)];
        let role = PeerRole::Service { zone, service };
        let security = args
            .security
            .open_without_parent(role, &ports, args.admin)?;
        // Proxies would serve every request that this port refuses for its missing token.
        if is_beyond_loopback(args.http) && security.access().tokens().is_none() {
            return Err(Error::NoTokens(args.http));
        }
        let file = args.rules.as_deref().map(RulesFile::new);
        let rules = file.as_ref().map_or_else(|| Ok(Rules::built_in()), rules)?;
        let (limiter, feed) = limiter(args)?;
        let limits = Limits::new(limiter, rules)?;
        let sockets = args.sockets.clone();
        Ok(Self {
            limits,
            file,
            feed,
            security,
            sockets,
        })
    }

    /// Waits for the policies of its buckets for a bounded time, and serves until `shutdown` is cancelled. Then it
    /// answers the requests in progress and reports the last counts.
    ///
    /// # Errors
    /// When a socket cannot be listened on, or the exchange with the aggregators cannot begin.
    pub async fn serve(
        self,
        listeners: Listeners,
        shutdown: CancellationToken,
    ) -> Result<(), Error> {
        // A failed start ends the limiter before its feed, which was never run.
        let Self {
            feed,
            limits,
            file,
            security,
            sockets,
        } = self;
        let addresses = (
            listeners.rls.local_addr()?,
            listeners.http.local_addr()?,
            listeners.admin.local_addr()?,
        );
        let feed = feed.spawn()?;
        tracing::info!(admin = %addresses.2, "sidecar starts: its ports open once it knows the policies of its buckets");

        let (ports, reloads) = (Ports::new(), Arc::<Reloads>::default());
        spawn_until(&shutdown, security.clone().follow());
        spawn_until(&shutdown, ports.lag.clone().watch());
        if let Some(file) = file {
            spawn_until(&shutdown, file.follow(limits.clone(), reloads.clone()));
        }
        let access = security.access().clone();
        let rls_service = rls::Service::new(limits.clone(), shutdown.clone());
        let http_service = Arc::new(http::Service::new(limits.clone(), access.clone()));
        let is_open = Arc::new(AtomicBool::new(false));
        let routes = admin::routes(Sources {
            limits: limits.clone(),
            reloads,
            ports: ports.clone(),
            security: security.clone(),
            rls: rls_service.counters(),
            http: http_service.clone(),
            is_open: Arc::clone(&is_open),
        });
        // The admin port ends last: it shows how the others end.
        let closing = CancellationToken::new();
        let admin = server::serve(
            listeners.admin,
            ports.admin.clone(),
            access,
            routes,
            closing.clone(),
        );
        let serving = async {
            let known = shutdown.run_until_cancelled(limits.limiter().ready()).await;
            let Some(is_known) = known else { return Ok(()) };
            if !is_known {
                tracing::warn!(
                    "a bucket has no policy yet: --before-policy decides until it arrives"
                );
            }
            let unix = sockets
                .as_deref()
                .map(UnixSockets::listen)
                .transpose()?
                .unwrap_or_default();
            let rls = Port {
                tcp: plimsoll_net::open("--rls", listeners.rls)?,
                unix: unix.rls,
                connections: ports.rls.clone(),
                protection: security.protection(addresses.0, Protection::Mutual),
                needs_token: false,
                room: ports.room.clone(),
            };
            let http = Port {
                tcp: plimsoll_net::open("--http", listeners.http)?,
                unix: unix.http,
                connections: ports.http.clone(),
                protection: security.protection(addresses.1, Protection::Tls),
                needs_token: is_beyond_loopback(addresses.1),
                room: ports.room.clone(),
            };
            log_start(addresses, [&rls, &http]);
            is_open.store(true, Ordering::Release);
            tokio::join!(
                serve_http2(rls, shutdown.clone(), move |_, request| {
                    rls_service.clone().answer(request)
                }),
                serve_http1(http, shutdown.clone(), move |caller, request| {
                    Arc::clone(&http_service).answer(caller, request)
                })
            );
            is_open.store(false, Ordering::Release);
            Ok(())
        };
        let decisions = async {
            let served = serving.await;
            flush(feed).await;
            closing.cancel();
            served
        };
        tokio::join!(decisions, admin).0
    }
}

fn spawn_until(shutdown: &CancellationToken, task: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(shutdown.clone().run_until_cancelled_owned(task));
}

/// Reports the last counts. No decision follows.
async fn flush(feed: FeedHandle) {
    let Flushed { unreported, .. } = feed.shutdown().await;
    if unreported > 0 {
        tracing::warn!(
            unreported,
            "decisions not acknowledged by an aggregator at the end"
        );
    }
}

fn log_start((listen, http, admin): (SocketAddr, SocketAddr, SocketAddr), ports: [&Port; 2]) {
    let sockets = ports
        .into_iter()
        .filter_map(|port| port.unix.as_ref())
        .map(|socket| socket.path().display().to_string());
    let sockets = sockets.collect::<Vec<_>>().join(", ");
    tracing::info!(%listen, %http, %admin, sockets, "sidecar serves");
}

fn rules(file: &RulesFile) -> Result<Rules, Error> {
    let (rules, warnings) = file.read()?;
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    Ok(rules)
}

fn limiter(args: &Args) -> Result<(Limiter, Feed), Error> {
    let default_name = host_and_port(args.rls);
    if let Some(name) = &args.limiter.name {
        named("--name", name, Name::new)?;
    }
    let mut limiter = args.limiter.clone();
    limiter.quota_timeout.get_or_insert(QUOTA_TIMEOUT);
    let mut builder = limiter
        .builder(&args.service, &default_name)?
        .canary_by(args.canary_by)
        // The responses pass through the proxy, if at all.
        .responses_elsewhere()
        .ready_within(args.ready_within)
        .keys_max(args.keys_max)
        .buckets_max(args.buckets_max);
    if let Some(directory) = &args.security.certs {
        builder = builder.certificates(directory);
    }
    if args.security.insecure {
        builder = builder.insecure();
    }
    Ok(builder.build_detached()?)
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
