//! An axum service behind the middleware, called by a real HTTP client.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use axum::routing::any;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use plimsoll_client::middleware::{PlimsollLayer, Rule, Rules, Tenant};
use plimsoll_core::decision::Mode;
use plimsoll_core::report::Counts;
use tokio::net::TcpListener;

use crate::parent::{ALL, Fleet};

/// A service that echoes, and a client for it.
struct Shop {
    fleet: Fleet,
    address: SocketAddr,
    client: Client<HttpConnector, Full<Bytes>>,
    /// The number of calls of the service behind the middleware.
    served: Arc<AtomicU64>,
}

struct Received {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

async fn shop() -> Shop {
    shop_with(|routes, layer| routes.layer(layer)).await
}

async fn shop_with(app: impl FnOnce(Router, PlimsollLayer) -> Router) -> Shop {
    let fleet = Fleet::start(&["read", "write"]).await;
    let rules = Rules::new(
        &fleet.limiter,
        Tenant::header("x-tenant").unwrap(),
        [
            Rule::bucket("read").prefix("/orders").methods([Method::GET, Method::HEAD]),
            Rule::bucket("write").prefix("/orders"),
        ],
    );
    let served = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&served);
    let echo = any(move |request: Request<Body>| {
        counter.fetch_add(1, Ordering::Relaxed);
        async move { ([("x-echo", request.headers()["x-text"].clone())], request.into_body()) }
    });
    let routes = Router::new().route("/orders/{id}", echo.clone()).route("/healthz", echo);
    let app = app(routes, PlimsollLayer::new(rules.unwrap()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(axum::serve(listener, app).into_future());
    let client = Client::builder(TokioExecutor::new()).build_http();
    Shop { fleet, address, client, served }
}

impl Shop {
    async fn send(&self, method: Method, path: &str, tenants: &[&[u8]]) -> Received {
        let mut request = Request::builder().method(method).uri(format!("http://{}{path}", self.address));
        for tenant in tenants {
            request = request.header("x-tenant", HeaderValue::from_bytes(tenant).unwrap());
        }
        let request = request.header("x-text", "hello").body(Full::from("a body")).unwrap();
        let (parts, body) = self.client.request(request).await.unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Received { status: parts.status, headers: parts.headers, body }
    }

    async fn status(&self, method: Method, path: &str, tenants: &[&[u8]]) -> u16 {
        self.send(method, path, tenants).await.status.as_u16()
    }

    fn served(&self) -> u64 {
        self.served.load(Ordering::Relaxed)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn refusal_has_reason_and_retry_after_and_never_reaches_the_service() {
    let shop = shop().await;
    shop.fleet.direct("write", Mode::Enforce, &[("default", ALL)]).await;
    for _ in 0..20 {
        let response = shop.send(Method::PUT, "/orders/7?force=1", &[b"acme"]).await;
        assert_eq!(response.status, 429);
        assert_eq!(response.headers["content-type"], "application/problem+json");
        assert_eq!(response.headers["x-ratelimit-reason"], "cluster_overload");
        let retry_after: u64 = response.headers["retry-after"].to_str().unwrap().parse().unwrap();
        assert!((1..=240).contains(&retry_after), "{retry_after}");
        let problem: serde_json::Value = serde_json::from_slice(&response.body).unwrap();
        assert_eq!(problem["violated-policies"], serde_json::json!(["write"]));
        assert_eq!(problem["status"], 429);
        assert_eq!(problem["instance"], "/orders/7");
        assert_eq!(problem["reason"], "cluster_overload");
        for text in ["title", "detail"] {
            assert!(problem[text].as_str().is_some_and(|text| !text.is_empty()), "{text} of {problem}");
        }
    }
    assert_eq!(shop.served(), 0);
    shop.fleet
        .counted("write", "acme", Counts { offered: 20, dropped: 20, would_dropped: 0, ..Counts::ZERO })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn problem_type_is_configurable() {
    let problem_type = "https://shop.example/busy";
    let shop = shop_with(|routes, layer| routes.layer(layer.problem_type(problem_type))).await;
    shop.fleet.direct("read", Mode::Enforce, &[("default", ALL)]).await;
    let response = shop.send(Method::GET, "/orders/7", &[]).await;
    let problem: serde_json::Value = serde_json::from_slice(&response.body).unwrap();
    assert_eq!(problem["type"], problem_type);
}

#[tokio::test(flavor = "multi_thread")]
async fn admitted_request_and_response_are_unchanged() {
    let shop = shop().await;
    shop.fleet.direct("write", Mode::Enforce, &[("default", 0)]).await;
    let response = shop.send(Method::PUT, "/orders/7", &[b"acme"]).await;
    assert_eq!(response.status, 200);
    assert_eq!(response.headers["x-echo"], "hello");
    assert!(!response.headers.contains_key("retry-after"));
    assert_eq!(response.body, "a body");
    assert_eq!(shop.served(), 1);
    shop.fleet
        .counted("write", "acme", Counts { offered: 1, dropped: 0, would_dropped: 0, ..Counts::ZERO })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn shadow_counts_and_never_refuses() {
    let shop = shop().await;
    shop.fleet.direct("read", Mode::Shadow, &[("default", ALL)]).await;
    for _ in 0..20 {
        assert_eq!(shop.status(Method::GET, "/orders/7", &[b"acme"]).await, 200);
    }
    assert_eq!(shop.served(), 20);
    shop.fleet
        .counted("read", "acme", Counts { offered: 20, dropped: 0, would_dropped: 20, ..Counts::ZERO })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_and_writes_are_separate_buckets() {
    let shop = shop().await;
    shop.fleet.direct("write", Mode::Enforce, &[("default", ALL)]).await;
    shop.fleet.direct("read", Mode::Enforce, &[("default", 0)]).await;
    for (method, status) in
        [(Method::GET, 200), (Method::HEAD, 200), (Method::PUT, 429), (Method::DELETE, 429)]
    {
        assert_eq!(shop.status(method.clone(), "/orders/7", &[]).await, status, "{method}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unusable_tenant_header_counts_as_default() {
    let shop = shop().await;
    shop.fleet.direct("read", Mode::Enforce, &[("default", ALL), ("acme", 0)]).await;
    assert_eq!(shop.status(Method::GET, "/orders/7", &[b"acme"]).await, 200);
    let unusable: &[&[&[u8]]] = &[&[], &[b""], &[b"acme", b"acme"], &[b"\xff"]];
    for tenants in unusable {
        assert_eq!(shop.status(Method::GET, "/orders/7", tenants).await, 429, "{tenants:?}");
    }
    assert_eq!(shop.status(Method::GET, "/orders/7", &["caf\u{e9}".as_bytes()]).await, 429);
    let refused = Counts { offered: 1, dropped: 1, ..Counts::ZERO };
    shop.fleet.counted("read", "caf%C3%A9", refused).await;
    let dropped = unusable.len() as u64;
    shop.fleet
        .counted("read", "default", Counts { offered: dropped, dropped, would_dropped: 0, ..Counts::ZERO })
        .await;
    shop.fleet
        .counted("read", "acme", Counts { offered: 1, dropped: 0, would_dropped: 0, ..Counts::ZERO })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unmatched_request_is_neither_limited_nor_counted() {
    let shop = shop().await;
    for bucket in ["read", "write"] {
        shop.fleet.direct(bucket, Mode::Enforce, &[("default", ALL)]).await;
    }
    for _ in 0..20 {
        assert_eq!(shop.status(Method::GET, "/healthz", &[b"acme"]).await, 200);
    }
    assert_eq!(shop.status(Method::GET, "/orders/7", &[b"acme"]).await, 429);
    shop.fleet
        .counted("read", "acme", Counts { offered: 1, dropped: 1, would_dropped: 0, ..Counts::ZERO })
        .await;
    assert_eq!(shop.fleet.offered(), 1);
}
