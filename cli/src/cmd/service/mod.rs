//! `plimsoll service`: the demo service, an example of a team's own service behind the middleware.

mod capacity;
mod trust;

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use axum::Router;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use plimsoll_client::{Feed, Flushed, Limiter, Metrics};
use plimsoll_sidecar::LimiterArgs;
use plimsoll_tower::{PlimsollLayer, Rule, Rules, Tenant};
use prometheus::{Registry, TextEncoder};
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::unusable;
use capacity::Capacity;
pub(crate) use capacity::CapacityArgs;
pub(crate) use trust::TrustArgs;

/// Paths of the service itself, which no bucket can have.
pub(crate) const OWN_PATHS: [&str; 3] = ["metrics", "status", "healthz"];

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Address that serves HTTP; /metrics, /status and /healthz are on it too and never limited
    #[arg(long, env = "PLIMSOLL_LISTEN", value_name = "ADDR", default_value_t = SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)))]
    pub(crate) listen: SocketAddr,
    /// Limiter
    #[command(flatten)]
    pub(crate) limiter: LimiterArgs,
    /// Protection of the streams to aggregators
    #[command(flatten)]
    pub(crate) trust: TrustArgs,
    /// Buckets: requests for /NAME count against the bucket NAME. The header x-tenant names the tenant,
    /// and x-plan its plan
    #[arg(
        long,
        env = "PLIMSOLL_BUCKETS",
        value_name = "NAME",
        value_delimiter = ',',
        default_value = "checkout,search,api/users"
    )]
    pub(crate) buckets: Vec<String>,
    /// Capacity
    #[command(flatten)]
    pub(crate) capacity: CapacityArgs,
}

pub(crate) struct Service {
    router: Router,
    feed: Feed,
}

pub(crate) async fn run(mut args: Args, shutdown: CancellationToken) -> anyhow::Result<()> {
    let listener = TcpListener::bind(args.listen)
        .await
        .with_context(|| format!("--listen: cannot listen on {}", args.listen))?;
    // The default name includes the port that the system chose.
    args.listen = listener.local_addr()?;
    let service = Service::new(&args)?;
    tracing::info!(zone = args.limiter.zone, listen = %args.listen, buckets = ?args.buckets, "demo service listening");
    service.serve(listener, shutdown).await
}

impl Service {
    /// # Errors
    /// A bucket has one of [`OWN_PATHS`], or the limiter or its rules are invalid.
    pub(crate) fn new(args: &Args) -> anyhow::Result<Self> {
        let mut buckets = args.buckets.iter();
        if let Some(name) = buckets.find(|it| OWN_PATHS.contains(&it.as_str())) {
            return Err(unusable(format_args!(
                "--buckets: /{name} is a path of the service itself and is never limited: leave this bucket out"
            )));
        }
        let builder = args.limiter.builder("demo", &args.listen.to_string())?;
        let (limiter, feed) = args.trust.build(builder)?;
        let rules = args
            .buckets
            .iter()
            .map(|bucket| Rule::bucket(bucket).exact(&format!("/{bucket}")));
        let tenant = Tenant::header("x-tenant")?.plan(|head| head.header("x-plan"));
        let rules = Rules::new(&limiter, tenant, rules)?;
        let buckets: BTreeSet<String> = args.buckets.iter().cloned().collect();
        let capacity = args
            .capacity
            .capacity()
            .map(|capacity| Arc::new(Mutex::new(capacity)));
        let respond = async move |Path(path): Path<String>| {
            if !buckets.contains(&path) {
                (StatusCode::NOT_FOUND, "no such bucket\n")
            } else if work(capacity.as_deref()).await {
                (StatusCode::OK, "served\n")
            } else {
                (
                    StatusCode::SERVICE_UNAVAILABLE,
                    "all workers are busy and the queue is full\n",
                )
            }
        };
        let router = Router::new()
            .route("/{*bucket}", get(respond))
            .layer(PlimsollLayer::new(rules));
        let registry = Registry::new();
        registry.register(Box::new(Metrics::new(&limiter)))?;
        let metrics = async move || {
            TextEncoder::new()
                .encode_to_string(&registry.gather())
                .unwrap_or_else(|error| format!("# cannot encode the metrics: {error}\n"))
        };
        let status = async move || ([(CONTENT_TYPE, "application/json")], status(&limiter));
        let router = router
            .route("/metrics", get(metrics))
            .route("/status", get(status));
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
        axum::serve(listener, self.router)
            .with_graceful_shutdown(shutdown.cancelled_owned())
            .await?;
        let Flushed { unreported, .. } = feed.shutdown().await;
        if unreported > 0 {
            tracing::warn!(
                unreported,
                "decisions not acknowledged by an aggregator at the end"
            );
        }
        Ok(())
    }
}

fn status(limiter: &Limiter) -> String {
    serde_json::to_string(&limiter.status())
        .unwrap_or_else(|error| format!("{{\"error\":\"cannot encode the status: {error}\"}}"))
}

/// Does the work of one request; returns false if there was no room for it. `None` is unlimited.
async fn work(capacity: Option<&Mutex<Capacity>>) -> bool {
    let Some(capacity) = capacity else {
        return true;
    };
    let done = capacity
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take(Instant::now());
    let Some(done) = done else { return false };
    sleep_until(done).await;
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn bucket_on_an_own_path_is_refused() {
        let with = |bucket: &str| {
            Service::new(&Args {
                listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
                limiter: LimiterArgs {
                    aggregator: vec!["http://127.0.0.1:1".to_owned()],
                    zone: "zone".to_owned(),
                    ..LimiterArgs::default()
                },
                trust: TrustArgs::default(),
                buckets: vec!["checkout".to_owned(), bucket.to_owned()],
                capacity: CapacityArgs::default(),
            })
        };
        assert!(with("search").is_ok());
        for path in OWN_PATHS {
            let error = with(path).err().unwrap().to_string();
            assert!(
                error.contains(&format!("/{path} is a path of the service")),
                "{error}"
            );
        }
    }
}
