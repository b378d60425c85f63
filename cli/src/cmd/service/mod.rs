//! `plimsoll service`: the demo service, an example of a team's own service behind the middleware.

mod capacity;
mod trust;

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use clap::ValueHint;
use clap::builder::ArgPredicate;
use plimsoll_client::middleware::{LoadShedLayer, Rule, Rules, Tenant};
use plimsoll_client::{Feed, Flushed, Limiter, Metrics};
use prometheus::{Registry, TextEncoder};
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use capacity::Capacity;
pub(crate) use capacity::CapacityArgs;
pub(crate) use trust::{TrustArgs, TrustError};

/// The arguments of the demo service.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Address that serves HTTP; /metrics, /status and /healthz are on it too and never limited
    #[arg(long, env = "PLIMSOLL_LISTEN", value_name = "ADDR", default_value_t = SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)))]
    pub(crate) listen: SocketAddr,
    /// Aggregators of its zone: https://HOST:PORT each, http://HOST:PORT each for plaintext, or dns://HOST:PORT for
    /// all addresses of a name. Buckets are assigned by hashing HOST:PORT, so give every service of a zone the same.
    /// With --certs the default is https://127.0.0.1:7410
    #[arg(
        long,
        env = "PLIMSOLL_AGGREGATOR",
        value_name = "URL",
        value_delimiter = ',',
        default_value = "http://127.0.0.1:7410",
        default_value_if("certs", ArgPredicate::IsPresent, "https://127.0.0.1:7410")
    )]
    pub(crate) aggregator: Vec<String>,
    /// Protection of the streams to aggregators
    #[command(flatten)]
    pub(crate) trust: TrustArgs,
    /// Time that one of several aggregators may be unreachable before its buckets move to the others
    #[arg(long, env = "PLIMSOLL_GRACE", value_name = "TIME", default_value = "20s", value_parser = humantime::parse_duration)]
    pub(crate) grace: Duration,
    /// Zone of the service
    #[arg(long, env = "PLIMSOLL_ZONE", value_name = "NAME", default_value = "default")]
    pub(crate) zone: String,
    /// Name of this instance, stable over restarts; the listen address by default
    #[arg(long, env = "PLIMSOLL_NAME", value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Buckets: requests for /NAME count against the bucket NAME. The header x-tenant names the tenant
    #[arg(
        long,
        env = "PLIMSOLL_BUCKETS",
        value_name = "NAME",
        value_delimiter = ',',
        default_value = "checkout,search,api/users"
    )]
    pub(crate) buckets: Vec<String>,
    /// File that caches directives, so that the next start begins with them
    #[arg(long, env = "PLIMSOLL_DIRECTIVES", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) directives: Option<PathBuf>,
    /// Kill file of this process: while it exists, the process refuses nothing
    #[arg(long, env = "PLIMSOLL_KILL_FILE", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) kill_file: Option<PathBuf>,
    /// Limit of a bucket in requests/s until its first directive arrives; unlimited by default
    #[arg(long, env = "PLIMSOLL_COLD_RPS", value_name = "NAME=RATE", value_delimiter = ',', value_parser = parse_cold_rps)]
    pub(crate) cold_rps: Vec<(String, f64)>,
    /// Capacity
    #[command(flatten)]
    pub(crate) capacity: CapacityArgs,
}

fn parse_cold_rps(text: &str) -> Result<(String, f64), String> {
    let (name, rps) = text.split_once('=').ok_or("write it as NAME=RATE, such as checkout=100")?;
    let rps = rps.parse().map_err(|_| format!("`{rps}` is not a number of requests/s"))?;
    Ok((name.to_owned(), rps))
}

/// A service with its limiter and routes, ready to serve.
pub(crate) struct Service {
    router: Router,
    feed: Feed,
}

/// Runs the demo service until `shutdown` is cancelled.
pub(crate) async fn run(mut args: Args, shutdown: CancellationToken) -> anyhow::Result<()> {
    let listener =
        TcpListener::bind(args.listen).await.with_context(|| format!("cannot listen on {}", args.listen))?;
    // The default name includes the port that the system chose.
    args.listen = listener.local_addr()?;
    let service = Service::new(&args)?;
    tracing::info!(zone = args.zone, listen = %args.listen, buckets = ?args.buckets, "demo service listening");
    service.serve(listener, shutdown).await
}

impl Service {
    /// Sets up the limiter and the routes.
    pub(crate) fn new(args: &Args) -> anyhow::Result<Self> {
        let name = args.name.clone().unwrap_or_else(|| args.listen.to_string());
        let builder = Limiter::builder("demo")?.name(&name)?.zone(&args.zone)?;
        let mut builder = builder.aggregators(&args.aggregator)?.failover_delay(args.grace);
        if let Some(directives) = &args.directives {
            builder = builder.directive_cache(directives);
        }
        if let Some(kill_file) = &args.kill_file {
            builder = builder.kill_file(kill_file);
        }
        for (bucket, rps) in &args.cold_rps {
            builder = builder.cold_rps(bucket, *rps)?;
        }
        let (limiter, feed) = args.trust.build(builder)?;
        let rules = args.buckets.iter().map(|bucket| Rule::bucket(bucket).exact(&format!("/{bucket}")));
        let rules = Rules::new(&limiter, Tenant::header("x-tenant")?, rules)?;
        let buckets: BTreeSet<String> = args.buckets.iter().cloned().collect();
        let capacity = args.capacity.capacity().map(|capacity| Arc::new(Mutex::new(capacity)));
        let respond = async move |Path(path): Path<String>| {
            if !buckets.contains(&path) {
                (StatusCode::NOT_FOUND, "no such bucket\n")
            } else if work(capacity.as_deref()).await {
                (StatusCode::OK, "served\n")
            } else {
                (StatusCode::SERVICE_UNAVAILABLE, "all workers are busy and the queue is full\n")
            }
        };
        let router =
            Router::new().route("/{*bucket}", get(respond)).layer(LoadShedLayer::new(rules).same_body());
        let registry = Registry::new();
        registry.register(Box::new(Metrics::new(&limiter)))?;
        let metrics = async move || {
            TextEncoder::new()
                .encode_to_string(&registry.gather())
                .unwrap_or_else(|error| format!("# cannot encode the metrics: {error}\n"))
        };
        let status = async move || ([(CONTENT_TYPE, "application/json")], status(&limiter));
        let router = router.route("/metrics", get(metrics)).route("/status", get(status));
        let router = router.route("/healthz", get(async || "alive\n"));
        Ok(Self { router, feed })
    }

    /// Serves until `shutdown` is cancelled, then waits for the feed to report the last counts.
    pub(crate) async fn serve(
        self,
        listener: TcpListener,
        shutdown: CancellationToken,
    ) -> anyhow::Result<()> {
        let feed = self.feed.spawn()?;
        axum::serve(listener, self.router).with_graceful_shutdown(shutdown.cancelled_owned()).await?;
        let Flushed { unreported, .. } = feed.shutdown().await;
        if unreported > 0 {
            tracing::warn!(unreported, "decisions not acknowledged by an aggregator at the end");
        }
        Ok(())
    }
}

/// Returns the state of the limiter as JSON.
fn status(limiter: &Limiter) -> String {
    serde_json::to_string(&limiter.status())
        .unwrap_or_else(|error| format!("{{\"error\":\"cannot encode the status: {error}\"}}"))
}

/// Does the work of one request; returns false if there was no room for it.
async fn work(capacity: Option<&Mutex<Capacity>>) -> bool {
    let Some(capacity) = capacity else { return true };
    let done = capacity.lock().unwrap_or_else(PoisonError::into_inner).take(Instant::now());
    let Some(done) = done else { return false };
    sleep_until(done).await;
    true
}
