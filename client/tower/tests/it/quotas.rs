//! Exact quotas in the middleware: requests that wait for the store before they reach the service, over real HTTP and
//! gRPC, and what becomes of them.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use plimsoll_core::names::Name;
use plimsoll_tower::quota::{OnStoreError, Quota, QuotaKey, QuotaRate};
use plimsoll_tower::testing::{ControlPlane, Decisions};
use plimsoll_tower::{EitherBody, Metrics, PlimsollLayer, Request as Asked, Rule, Rules, Tenant};
use tokio::net::TcpListener;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Endpoint, Server};
use tonic::{Code, Status};
use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_types::StatusExt;
use tower::{Layer, Service, ServiceExt};

const HOUR: Duration = Duration::from_secs(3_600);

fn rules(plane: &ControlPlane, rules: impl IntoIterator<Item = Rule>) -> PlimsollLayer<EitherBody> {
    let rules = Rules::new(&plane.limiter(), Tenant::header("x-tenant").unwrap(), rules);
    PlimsollLayer::new(rules.unwrap()).either_body()
}

fn layer(plane: &ControlPlane) -> PlimsollLayer<EitherBody> {
    rules(
        plane,
        [
            Rule::bucket("api").prefix("/api"),
            Rule::bucket("batch").prefix("/batch").cost(|_| 5),
        ],
    )
}

fn to(path: &str, tenant: &str) -> Request<()> {
    Request::get(path)
        .header("x-tenant", tenant)
        .body(())
        .unwrap()
}

fn leased(max: u64, lease: u64) -> Vec<Quota> {
    let rate = QuotaRate::new(max, max, 3_600_000).unwrap();
    let name: Name = "calls".parse().unwrap();
    vec![Quota::new(name, rate, QuotaKey::Tenant, OnStoreError::Deny, lease).unwrap()]
}

/// A service that answers only if the instance that is called was polled ready, once for each call.
#[derive(Default)]
struct Strict {
    is_ready: bool,
    served: Arc<AtomicU64>,
}

/// Like that of a concurrency limit, a clone is not ready.
impl Clone for Strict {
    fn clone(&self) -> Self {
        Self {
            is_ready: false,
            served: Arc::clone(&self.served),
        }
    }
}

impl Service<Request<()>> for Strict {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.is_ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        assert!(
            std::mem::take(&mut self.is_ready),
            "called without being polled ready"
        );
        self.served.fetch_add(1, Ordering::Relaxed);
        ready(Ok(Response::new(Full::default())))
    }
}

#[tokio::test]
async fn request_waits_then_reaches_the_ready_instance() {
    let plane = ControlPlane::new(7);
    plane.quota("api", 2, HOUR).unwrap();
    let inner = Strict::default();
    let served = Arc::clone(&inner.served);
    let mut service = layer(&plane).layer(inner);
    plane.hold_quota_store(true);
    let mut waiting = Vec::new();
    for _ in 0..3 {
        waiting.push(Box::pin(
            service.ready().await.unwrap().call(to("/api/7", "acme")),
        ));
    }
    for task in &mut waiting {
        assert!(poll(task).is_pending());
    }
    assert_eq!(
        served.load(Ordering::Relaxed),
        0,
        "nothing reaches the service before the store has answered"
    );
    plane.hold_quota_store(false);
    let mut statuses = Vec::new();
    for task in waiting {
        statuses.push(task.await.unwrap().status());
    }
    assert_eq!(
        statuses,
        [
            StatusCode::OK,
            StatusCode::OK,
            StatusCode::TOO_MANY_REQUESTS
        ]
    );
    assert_eq!(served.load(Ordering::Relaxed), 2);
    let due = Decisions {
        offered: 3,
        admitted: 2,
        refused: 1,
        would_refuse: 0,
    };
    assert_eq!(plane.counts("api").unwrap(), due);
    // Refused from memory: without the store, immediately.
    plane.hold_quota_store(true);
    let refused = service
        .ready()
        .await
        .unwrap()
        .call(to("/api/7", "acme"))
        .await
        .unwrap();
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(
        (plane.quota_requests(), plane.counts("api").unwrap()),
        (3, due)
    );
}

fn poll<F: Future>(task: &mut Pin<Box<F>>) -> Poll<F::Output> {
    task.as_mut()
        .poll(&mut Context::from_waker(std::task::Waker::noop()))
}

#[tokio::test]
async fn leased_request_is_decided_without_waiting() {
    let plane = ControlPlane::new(7);
    plane.quotas("api", leased(10, 5)).unwrap();
    plane.hold_quota_store(true);
    let mut service = layer(&plane).layer(Strict::default());
    let mut response = Box::pin(service.ready().await.unwrap().call(to("/api/7", "acme")));
    assert!(poll(&mut response).is_ready());
}

#[tokio::test]
async fn dropped_request_is_spent_unserved() {
    let plane = ControlPlane::new(7);
    plane.quota("api", 1, HOUR).unwrap();
    let inner = Strict::default();
    let served = Arc::clone(&inner.served);
    let mut service = layer(&plane).layer(inner);
    plane.hold_quota_store(true);
    let mut dropped = Box::pin(service.ready().await.unwrap().call(to("/api/7", "acme")));
    assert!(poll(&mut dropped).is_pending());
    drop(dropped);
    plane.hold_quota_store(false);
    let next = service
        .ready()
        .await
        .unwrap()
        .call(to("/api/7", "acme"))
        .await
        .unwrap();
    assert_eq!(
        (next.status(), served.load(Ordering::Relaxed)),
        (StatusCode::TOO_MANY_REQUESTS, 0)
    );
    let metrics = Metrics::new(&plane.limiter()).text();
    assert!(
        !metrics.contains("code=\"aborted\"} 1"),
        "the service was not called: {metrics}"
    );
}

#[tokio::test]
async fn rule_costs_are_taken_from_the_quota() {
    let plane = ControlPlane::new(7);
    plane.quota("batch", 14, HOUR).unwrap();
    let mut service = layer(&plane).layer(Strict::default());
    let mut statuses = Vec::new();
    for _ in 0..3 {
        statuses.push(
            service
                .ready()
                .await
                .unwrap()
                .call(to("/batch", "acme"))
                .await
                .unwrap()
                .status()
                .as_u16(),
        );
    }
    assert_eq!(statuses, [200, 200, 429]);
    let due = Decisions {
        offered: 15,
        admitted: 10,
        refused: 5,
        would_refuse: 0,
    };
    assert_eq!(plane.counts("batch").unwrap(), due);
}

#[tokio::test]
async fn closures_and_constant_tenants_have_quotas() {
    let plane = ControlPlane::new(7);
    plane.quota("api", 1, HOUR).unwrap();
    let limiter = plane.limiter();
    let by_closure = PlimsollLayer::by(&limiter, |head| {
        Some(Asked::new("api", head.header("x-tenant")?))
    })
    .either_body();
    let constant = Rules::new(
        &limiter,
        Tenant::constant("shop").unwrap(),
        [Rule::bucket("api").prefix("/api")],
    );
    for (layer, how) in [
        (by_closure, "closure"),
        (
            PlimsollLayer::new(constant.unwrap()).either_body(),
            "constant",
        ),
    ] {
        let mut service = layer.layer(Strict::default());
        let mut statuses = Vec::new();
        for _ in 0..3 {
            let response = service
                .ready()
                .await
                .unwrap()
                .call(to("/api/7", "acme"))
                .await
                .unwrap();
            statuses.push(response.status().as_u16());
        }
        assert_eq!(statuses, [200, 429, 429], "{how}");
    }
}

#[tokio::test]
async fn tonic_callers_are_told_not_to_retry() {
    let plane = ControlPlane::new(7);
    plane.quota("check", 1, HOUR).unwrap();
    let layer = rules(
        &plane,
        [Rule::bucket("check").prefix("/grpc.health.v1.Health")],
    );
    let (reporter, health) = tonic_health::server::health_reporter();
    reporter
        .set_service_status("shop", ServingStatus::Serving)
        .await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = Server::builder().layer(layer).add_service(health);
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
    let channel = Endpoint::from_shared(format!("http://{address}"))
        .unwrap()
        .connect()
        .await
        .unwrap();
    let check = async || {
        let request = HealthCheckRequest {
            service: "shop".to_owned(),
        };
        HealthClient::new(channel.clone()).check(request).await
    };
    assert!(check().await.is_ok());
    for _ in 0..2 {
        let status: Status = check().await.unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert!(status.get_details_retry_info().is_none());
        assert_eq!(
            status.metadata().get("grpc-retry-pushback-ms").unwrap(),
            "-1"
        );
        assert_eq!(
            status.get_details_error_info().unwrap().reason,
            "TENANT_QUOTA_EXCEEDED"
        );
    }
}
