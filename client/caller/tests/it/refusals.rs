//! Refusals of the real middleware, and what the layer makes of them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::any;
use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use plimsoll_caller::CallerLayer;
use plimsoll_tower::testing::ControlPlane;
use plimsoll_tower::{PlimsollLayer, RateLimitHeaders, Reason};
use tokio::net::TcpListener;
use tonic::Code;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Endpoint, Server};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tower::{Layer, service_fn};

/// Makes middleware that refuses the first requests for a reason, and a count of requests.
pub(crate) fn refuses_first(refused: usize, reason: Reason) -> (PlimsollLayer, Arc<AtomicUsize>) {
    let plane = ControlPlane::new(7);
    plane.refuse("first", reason).unwrap();
    let limiter = plane.limiter();
    let requests = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&requests);
    let layer = PlimsollLayer::by(&limiter, move |_| {
        let is_first = counter.fetch_add(1, Ordering::Relaxed) < refused;
        let bucket = if is_first { "first" } else { "others" };
        Some(plimsoll_tower::Request::new(bucket, "acme"))
    });
    (layer, requests)
}

pub(crate) async fn serve_http(layer: PlimsollLayer) -> SocketAddr {
    let app = Router::new().fallback(any(async || "served")).layer(layer);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(axum::serve(listener, app).into_future());
    address
}

pub(crate) async fn serve_grpc(layer: PlimsollLayer) -> SocketAddr {
    let (_, health) = tonic_health::server::health_reporter();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut server = Server::builder().layer(layer.either_body());
    let server = server.add_service(health);
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
    address
}

/// Returns the status of a call of reqwest and of hyper each to services that refuse the first request, and the
/// requests that they received.
async fn call_both(reason: Reason, method: &str) -> [(StatusCode, usize); 2] {
    let [one, other] = [(); 2].map(|()| refuses_first(1, reason));
    let method: http::Method = method.parse().unwrap();
    let url = format!("http://{}/", serve_http(one.0).await);
    // Built with the whole workspace, reqwest has TLS without a provider.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let caller = CallerLayer::default().layer(reqwest::Client::new());
    let request = reqwest::Request::new(method.clone(), url.parse().unwrap());
    let by_reqwest = caller.send(request).await.unwrap().status();

    let url = format!("http://{}/", serve_http(other.0).await);
    let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let request = Request::builder().method(method).uri(url);
    let request = request.body(Full::from("an order")).unwrap();
    let by_hyper = CallerLayer::default().layer(client).send(request).await;
    let received = |requests: Arc<AtomicUsize>| requests.load(Ordering::Relaxed);
    [
        (by_reqwest, received(one.1)),
        (by_hyper.unwrap().status(), received(other.1)),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn http_callers_wait_as_refusals_ask() {
    let begun = Instant::now();
    let calls = call_both(Reason::ClusterOverload, "PUT").await;
    assert_eq!(calls, [(StatusCode::OK, 2); 2]);
    assert!(begun.elapsed() >= Duration::from_secs(2), "a second each");
}

#[tokio::test(flavor = "multi_thread")]
async fn harmful_retries_are_not_sent() {
    let refused = [(StatusCode::TOO_MANY_REQUESTS, 1); 2];
    let post = call_both(Reason::ClusterOverload, "POST").await;
    assert_eq!(post, refused, "not idempotent");
    let quota = call_both(Reason::TenantQuotaExceeded, "GET").await;
    assert_eq!(quota, refused, "used up");
}

#[tokio::test(flavor = "multi_thread")]
async fn grpc_callers_wait_as_refusals_ask() {
    for (reason, is_idempotent, expected, attempts) in [
        (Reason::ClusterOverload, true, Code::Ok, 2),
        (Reason::ClusterOverload, false, Code::ResourceExhausted, 1),
        (
            Reason::TenantQuotaExceeded,
            true,
            Code::ResourceExhausted,
            1,
        ),
    ] {
        let (layer, requests) = refuses_first(1, reason);
        let channel = Endpoint::from_shared(format!("http://{}", serve_grpc(layer).await));
        let caller = CallerLayer::default().idempotent(move |_, _| is_idempotent);
        let mut client = HealthClient::new(caller.layer(channel.unwrap().connect_lazy()));
        let answer = client.check(HealthCheckRequest::default()).await;
        let code = answer.map_or_else(|status| status.code(), |_| Code::Ok);
        let found = (code, requests.load(Ordering::Relaxed));
        assert_eq!(found, (expected, attempts), "{reason:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_quota_refusal_is_retried() {
    const CALLS: usize = 100_000;
    let families = [
        RateLimitHeaders::Both,
        RateLimitHeaders::XRateLimit,
        RateLimitHeaders::Ietf,
        RateLimitHeaders::None,
    ];
    for headers in families {
        let (layer, requests) = refuses_first(usize::MAX, Reason::TenantQuotaExceeded);
        let layer = layer.headers(headers);
        let service = layer.layer(service_fn(async |_: Request<Full<Bytes>>| {
            Ok::<_, std::convert::Infallible>(http::Response::new(Full::<Bytes>::default()))
        }));
        // A budget that would pay for all.
        let caller = CallerLayer::default().budget(1.0, u16::MAX).layer(service);
        for _ in 0..CALLS / families.len() {
            let response = caller.send(Request::new(Full::default())).await.unwrap();
            assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        }
        assert_eq!(requests.load(Ordering::Relaxed), CALLS / families.len());
    }
}
