//! A tonic service behind the middleware, called by a tonic client.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use plimsoll_client::middleware::{ERROR_DOMAIN, PlimsollLayer, Rule, Rules, Tenant};
use plimsoll_client::{DropRatio, Metrics, TraceId};
use plimsoll_core::decision::Coin;
use plimsoll_core::decision::Mode;
use plimsoll_core::decision::coherent::{Coherence, CoinKey};
use plimsoll_core::decision::coin;
use plimsoll_core::directive::{Terms, Values};
use plimsoll_core::report::Counts;
use tokio::net::TcpListener;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Code, Request, Status};
use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_types::StatusExt;
use tower::ServiceExt;
use tower::util::MapRequestLayer;

use crate::parent::{ALL, Fleet, HALF};

const CHECK: &str = "/grpc.health.v1.Health/Check";

/// The standard health service behind the middleware, and a channel to it.
struct Shop {
    fleet: Fleet,
    address: SocketAddr,
    channel: Channel,
    /// The number of calls of the service behind the middleware.
    served: Arc<AtomicU64>,
}

async fn shop() -> Shop {
    let fleet = Fleet::start(&["check", "watch"]).await;
    let rules = Rules::new(
        &fleet.limiter,
        Tenant::header("x-tenant").unwrap(),
        [Rule::bucket("check").path(CHECK), Rule::bucket("watch").prefix("/grpc.health.v1.Health")],
    );
    let (reporter, health) = tonic_health::server::health_reporter();
    reporter.set_service_status("shop", ServingStatus::NotServing).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let served = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&served);
    let count = MapRequestLayer::new(move |request: http::Request<tonic::body::Body>| {
        counter.fetch_add(1, Ordering::Relaxed);
        request
    });
    let server = Server::builder().layer(PlimsollLayer::new(rules.unwrap()).either_body()).layer(count).add_service(health);
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    Shop { fleet, address, channel: endpoint.connect().await.unwrap(), served }
}

fn request_of(tenant: &str) -> Request<HealthCheckRequest> {
    let mut request = Request::new(HealthCheckRequest { service: "shop".to_owned() });
    request.metadata_mut().insert("x-tenant", tenant.parse().unwrap());
    request
}

impl Shop {
    async fn check(&self, tenant: &str) -> Result<i32, Status> {
        let response = HealthClient::new(self.channel.clone()).check(request_of(tenant)).await?;
        Ok(response.into_inner().status)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn refusal_has_details_and_pushback() {
    let shop = shop().await;
    shop.fleet.direct("check", Mode::Enforce, &[("default", ALL)]).await;
    for _ in 0..20 {
        let status = shop.check("acme").await.unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert!(!status.message().is_empty());
        let pushback_ms: i32 =
            status.metadata().get("grpc-retry-pushback-ms").unwrap().to_str().unwrap().parse().unwrap();
        let wait = Duration::from_millis(pushback_ms.try_into().unwrap());
        assert!(wait >= Duration::from_secs(1) && wait <= Duration::from_secs(240), "{wait:?}");

        let details = status.check_error_details().unwrap();
        assert_eq!(details.retry_info().unwrap().retry_delay, Some(wait));
        let violations = &details.quota_failure().unwrap().violations;
        assert_eq!(violations.len(), 1);
        assert_eq!(violations[0].subject, "bucket:check");
        assert!(!violations[0].description.is_empty());
        let info = details.error_info().unwrap();
        assert_eq!((info.reason.as_str(), info.domain.as_str()), ("CLUSTER_OVERLOAD", ERROR_DOMAIN));
    }
    assert_eq!(shop.served.load(Ordering::Relaxed), 0);
    shop.fleet
        .counted("check", "acme", Counts { offered: 20, dropped: 20, would_dropped: 0, ..Counts::ZERO })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refusal_is_trailers_only() {
    let shop = shop().await;
    shop.fleet.direct("check", Mode::Enforce, &[("default", ALL)]).await;
    let request = http::Request::post(format!("http://{}{CHECK}", shop.address))
        .header("content-type", "application/grpc+proto")
        .body(tonic::body::Body::empty());
    let response = shop.channel.clone().oneshot(request.unwrap()).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "application/grpc");
    assert_eq!(response.headers()["grpc-status"], "8");
    assert!(http_body::Body::is_end_stream(response.body()));
}

#[tokio::test(flavor = "multi_thread")]
async fn admitted_request_and_response_are_unchanged() {
    let shop = shop().await;
    shop.fleet.direct("check", Mode::Enforce, &[("default", ALL), ("acme", 0)]).await;
    assert_eq!(shop.check("acme").await.unwrap(), ServingStatus::NotServing as i32);
    assert_eq!(shop.check("other").await.unwrap_err().code(), Code::ResourceExhausted);
    // Errors of the service are passed on.
    let unknown = HealthCheckRequest { service: "unknown".to_owned() };
    let mut request = request_of("acme");
    *request.get_mut() = unknown;
    let status = HealthClient::new(shop.channel.clone()).check(request).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound);
    // Streaming calls work, in a bucket of their own.
    let watched = HealthClient::new(shop.channel.clone()).watch(request_of("other")).await.unwrap();
    let first = watched.into_inner().message().await.unwrap().unwrap();
    assert_eq!(first.status, ServingStatus::NotServing as i32);
    shop.fleet
        .counted("watch", "other", Counts { offered: 1, dropped: 0, would_dropped: 0, ..Counts::ZERO })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn trace_in_the_metadata_decides_a_coherent_coin() {
    let shop = shop().await;
    let coherence = Coherence { key: CoinKey::from_bytes([7; 16]), salt: 1 };
    let terms =
        Terms { mode: Mode::Enforce, coin: Coin::Coherent, coherence: Some(coherence), ..Terms::default() };
    let half = DropRatio::new(HALF).unwrap();
    let values = Values { ratio: Some(half), ..Values::default() };
    shop.fleet.direct_values("check", terms, &[("default", values)]).await;
    for id in 1..=100 {
        let mut request = request_of("acme");
        let traceparent = format!("00-{id:032x}-00f067aa0ba902b7-00");
        request.metadata_mut().insert("traceparent", traceparent.parse().unwrap());
        let admitted = HealthClient::new(shop.channel.clone()).check(request).await.is_ok();
        let draw = coherence.draw_key().draw(TraceId::new(id).unwrap());
        assert_eq!(admitted, !coin::refuses(half, draw), "{id}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn shadow_counts_and_never_refuses() {
    let shop = shop().await;
    shop.fleet.direct("check", Mode::Shadow, &[("default", ALL)]).await;
    for _ in 0..20 {
        shop.check("acme").await.unwrap();
    }
    assert_eq!(shop.served.load(Ordering::Relaxed), 20);
    shop.fleet
        .counted("check", "acme", Counts { offered: 20, dropped: 0, would_dropped: 20, ..Counts::ZERO })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn method_is_limited_however_its_path_is_written() {
    let shop = shop().await;
    shop.fleet.direct("check", Mode::Enforce, &[("default", ALL)]).await;
    let method = |path: &'static str| {
        let request = http::Request::post(format!("http://{}{path}", shop.address));
        let request = request.header("content-type", "application/grpc+proto");
        let channel = shop.channel.clone();
        async move { channel.oneshot(request.body(tonic::body::Body::empty()).unwrap()).await.unwrap() }
    };
    for path in [
        CHECK,
        "/grpc.health.v1.Health/%43heck",
        "/grpc.health.v1.Health/./Check",
        "/grpc.health.v1.Health//Check",
        "/grpc.health.v1.Health%2FCheck",
        "/grpc.health.v1.Health/Watch/../Check",
        "//grpc.health.v1.Health/Check",
        "/%67rpc.health.v1.Health/Check",
    ] {
        assert_eq!(method(path).await.headers()["grpc-status"], "8", "{path}");
    }
    assert_eq!(shop.served.load(Ordering::Relaxed), 0);
    // Counted for the rest of the service, which routes it to no method.
    shop.fleet.direct("watch", Mode::Enforce, &[("default", ALL)]).await;
    for path in
        ["/grpc.health.v1.Health/check", "/grpc.health.v1.Health/Check/", "/grpc.health.v1.Health/%2543heck"]
    {
        assert_eq!(method(path).await.headers()["grpc-status"], "8", "{path}");
    }
}

/// Waits until the responses of a bucket are counted as `expected`, by code.
async fn counted_as(shop: &Shop, bucket: &str, expected: &[(&str, u64)]) {
    let metrics = Metrics::new(&shop.fleet.limiter);
    let label = format!("plimsoll_responses_total{{bucket=\"{bucket}\",code=\"");
    let mut counted = Vec::new();
    for _ in 0..6_000 {
        let text = metrics.text();
        let series = text.lines().filter_map(|line| line.strip_prefix(&label)?.split_once("\"} "));
        counted = series.map(|(code, count)| (code.to_owned(), count.parse().unwrap())).collect();
        if counted
            .iter()
            .map(|(code, count): &(String, u64)| (code.as_str(), *count))
            .eq(expected.iter().copied())
        {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{counted:?} of {bucket}, not {expected:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn responses_count_by_their_grpc_status() {
    let shop = shop().await;
    shop.fleet.direct("check", Mode::Enforce, &[("default", ALL), ("acme", 0)]).await;
    for _ in 0..3 {
        shop.check("acme").await.unwrap();
    }
    for _ in 0..2 {
        assert_eq!(shop.check("other").await.unwrap_err().code(), Code::ResourceExhausted);
    }
    let mut unknown = request_of("acme");
    *unknown.get_mut() = HealthCheckRequest { service: "unknown".to_owned() };
    HealthClient::new(shop.channel.clone()).check(unknown).await.unwrap_err();
    counted_as(&shop, "check", &[("grpc_ok", 3), ("grpc_not_found", 1), ("grpc_resource_exhausted", 2)])
        .await;

    // A stream has an outcome at its end, and one that the caller leaves is aborted.
    let mut watched =
        HealthClient::new(shop.channel.clone()).watch(request_of("acme")).await.unwrap().into_inner();
    watched.message().await.unwrap().unwrap();
    counted_as(&shop, "watch", &[]).await;
    drop(watched);
    counted_as(&shop, "watch", &[("aborted", 1)]).await;
}
