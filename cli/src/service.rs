//! The demo service: what a team's own service looks like behind the middleware.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::routing::get;
use clap::ValueHint;
use plimsoll_client::middleware::{LoadDropLayer, Rule, Rules, Tenant};
use plimsoll_client::{Feed, Limiter, Metrics, Settings};
use prometheus::{Registry, TextEncoder};
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::capacity::{Capacity, CapacityArgs};

/// What the demo service is started with.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Where it serves HTTP; /metrics and /healthz are here too and never limited
    #[arg(long, env = "PLIMSOLL_LISTEN", value_name = "ADDR", default_value_t = SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)))]
    pub(crate) listen: SocketAddr,
    /// The aggregators of its zone: http://HOST:PORT each, or dns://HOST:PORT for all addresses of a name. Buckets are
    /// spread over them by these very words, so every service of a zone writes them alike
    #[arg(
        long,
        env = "PLIMSOLL_AGGREGATOR",
        value_name = "URL",
        value_delimiter = ',',
        default_value = "http://127.0.0.1:7410"
    )]
    pub(crate) aggregator: Vec<String>,
    /// How long one of several aggregators may be away before its buckets go to the others
    #[arg(long, env = "PLIMSOLL_GRACE", value_name = "TIME", default_value = "20s", value_parser = humantime::parse_duration)]
    pub(crate) grace: Duration,
    /// The zone it runs in
    #[arg(long, env = "PLIMSOLL_ZONE", value_name = "NAME", default_value = "default")]
    pub(crate) zone: String,
    /// A name that outlives restarts; unless given, the address it listens on
    #[arg(long, env = "PLIMSOLL_NAME", value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// What it protects: requests for /NAME ask the bucket NAME. The tenant is read from the header x-tenant
    #[arg(
        long,
        env = "PLIMSOLL_BUCKETS",
        value_name = "NAME",
        value_delimiter = ',',
        default_value = "checkout,search,api/users"
    )]
    pub(crate) buckets: Vec<String>,
    /// A file in which directives are kept for the next start, which then begins with them
    #[arg(long, env = "PLIMSOLL_DIRECTIVES", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) directives: Option<PathBuf>,
    /// A file that kills this process alone: while it exists, nothing is refused here
    #[arg(long, env = "PLIMSOLL_KILL_FILE", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) kill_file: Option<PathBuf>,
    /// What may pass of a bucket while nothing was directed for it, in requests/s; everything unless given
    #[arg(long, env = "PLIMSOLL_COLD_RPS", value_name = "NAME=RATE", value_delimiter = ',', value_parser = cold_rps)]
    pub(crate) cold_rps: Vec<(String, f64)>,
    /// How much it can serve
    #[command(flatten)]
    pub(crate) capacity: CapacityArgs,
}

fn cold_rps(text: &str) -> Result<(String, f64), String> {
    let (name, rps) = text.split_once('=').ok_or("NAME=RATE is due, as in checkout=100")?;
    let rps = rps.parse().map_err(|_| format!("`{rps}` is no number of requests/s"))?;
    Ok((name.to_owned(), rps))
}

/// A service that is ready to serve.
pub(crate) struct Service {
    router: Router,
    feed: Feed,
}

/// Runs the demo service until `shutdown` is cancelled.
pub(crate) async fn run(mut args: Args, shutdown: CancellationToken) -> anyhow::Result<()> {
    let listener =
        TcpListener::bind(args.listen).await.with_context(|| format!("cannot listen on {}", args.listen))?;
    // A port that the system chose belongs to the name.
    args.listen = listener.local_addr()?;
    let service = Service::new(&args)?;
    tracing::info!(zone = args.zone, listen = %args.listen, buckets = ?args.buckets, "the demo service serves");
    service.serve(listener, shutdown).await
}

impl Service {
    /// Sets the limiter and the routes up.
    pub(crate) fn new(args: &Args) -> anyhow::Result<Self> {
        let name = args.name.clone().unwrap_or_else(|| args.listen.to_string());
        let settings = Settings::new("demo")?.name(&name)?.zone(&args.zone)?;
        let mut settings = settings.aggregators(&args.aggregator)?.grace(args.grace);
        if let Some(directives) = &args.directives {
            settings = settings.directives(directives);
        }
        if let Some(kill_file) = &args.kill_file {
            settings = settings.kill_file(kill_file);
        }
        for (bucket, rps) in &args.cold_rps {
            settings = settings.cold_rps(bucket, *rps)?;
        }
        let (limiter, feed) = settings.build()?;
        let rules = args.buckets.iter().map(|bucket| Rule::bucket(bucket).path(&format!("/{bucket}")));
        let rules = Rules::new(&limiter, Tenant::header("x-tenant")?, rules)?;
        let buckets: BTreeSet<String> = args.buckets.iter().cloned().collect();
        let capacity = args.capacity.capacity().map(|capacity| Arc::new(Mutex::new(capacity)));
        let answer = async move |Path(path): Path<String>| {
            if !buckets.contains(&path) {
                (StatusCode::NOT_FOUND, "no such bucket\n")
            } else if work(capacity.as_deref()).await {
                (StatusCode::OK, "served\n")
            } else {
                (StatusCode::SERVICE_UNAVAILABLE, "all workers are busy and the queue is full\n")
            }
        };
        let router = Router::new().route("/{*bucket}", get(answer)).layer(LoadDropLayer::new(rules));
        let registry = registry(&limiter, &feed)?;
        let metrics = async move || {
            TextEncoder::new()
                .encode_to_string(&registry.gather())
                .unwrap_or_else(|error| format!("# the metrics cannot be written: {error}\n"))
        };
        let router = router.route("/metrics", get(metrics)).route("/healthz", get(async || "alive\n"));
        Ok(Self { router, feed })
    }

    /// Serves until `shutdown` is cancelled, then lets the feed report what was counted last.
    pub(crate) async fn serve(
        self,
        listener: TcpListener,
        shutdown: CancellationToken,
    ) -> anyhow::Result<()> {
        let done = CancellationToken::new();
        let _ends_with_this = done.clone().drop_guard();
        let feed = self.feed.spawn(done.clone());
        axum::serve(listener, self.router).with_graceful_shutdown(shutdown.cancelled_owned()).await?;
        done.cancel();
        feed.await.context("the feed died")
    }
}

/// Does the work of one request, and says whether there was room for it.
async fn work(capacity: Option<&Mutex<Capacity>>) -> bool {
    let Some(capacity) = capacity else { return true };
    let done = capacity.lock().unwrap_or_else(PoisonError::into_inner).take(Instant::now());
    let Some(done) = done else { return false };
    sleep_until(done).await;
    true
}

fn registry(limiter: &Limiter, feed: &Feed) -> anyhow::Result<Registry> {
    let registry = Registry::new();
    registry.register(Box::new(Metrics::new(limiter, feed)?))?;
    Ok(registry)
}
