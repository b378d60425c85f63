//! gRPC refusals, read and retried by the gRPC library of Google.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use plimsoll_tower::testing::ControlPlane;
use plimsoll_tower::{ERROR_DOMAIN, PlimsollLayer, Reason, Request, Rule, Rules, Tenant};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

use super::{BUCKET, python, refusing};

const CHECK: &str = "/grpc.health.v1.Health/Check";

/// Serves the standard health service behind a layer.
async fn serve(layer: PlimsollLayer) -> SocketAddr {
    let (_, health) = tonic_health::server::health_reporter();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = Server::builder()
        .layer(layer.either_body())
        .add_service(health);
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
    address
}

/// Calls the health service; `None` without the library.
async fn call(address: SocketAddr, tenant: &str, config: Option<Value>) -> Option<Value> {
    let input = json!({
        "address": address.to_string(), "method": CHECK, "config": config, "timeout_s": 100,
        "metadata": [["x-tenant", tenant]],
    });
    let packages = [
        "grpc",
        "grpc_status.rpc_status",
        "google.rpc.error_details_pb2",
    ];
    tokio::task::spawn_blocking(move || python::run(include_str!("call.py"), &packages, &input))
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn refusal_has_its_details_for_another_library() {
    let fleet = refusing().await;
    let rules = Rules::new(
        &fleet.limiter,
        Tenant::header("x-tenant").unwrap(),
        [Rule::otherwise(BUCKET)],
    );
    let address = serve(PlimsollLayer::new(rules.unwrap())).await;
    for (tenant, reason, facts) in [
        (
            "acme",
            "cluster_overload",
            json!({ "bucket": BUCKET, "limit": "100" }),
        ),
        (
            "burst",
            "burst_guard",
            json!({ "bucket": BUCKET, "limit": "100" }),
        ),
        ("stopped", "tenant_limit", json!({ "bucket": BUCKET })),
    ] {
        let Some(status) = call(address, tenant, None).await else {
            return;
        };
        assert_eq!(status["code"], "RESOURCE_EXHAUSTED", "{status}");
        let (details, metadata) = (&status["details"], &status["metadata"]);
        assert_eq!(
            details["info"],
            json!([reason.to_uppercase(), ERROR_DOMAIN, facts])
        );
        assert_eq!(details["violations"][0][0], format!("bucket:{BUCKET}"));
        let wait = details["retry_ms"].as_i64().unwrap();
        // The longer the overload has lasted, the longer.
        assert!((1_000..240_000).contains(&wait), "{wait} ms");
        assert_eq!(metadata["grpc-retry-pushback-ms"], wait.to_string());
        assert_eq!(metadata["x-ratelimit-reason"], reason);
    }
}

/// A policy of retries whose own wait would not end within the timeout of a call.
fn retries() -> Option<Value> {
    let policy = json!({
        "maxAttempts": 3, "initialBackoff": "1000s", "maxBackoff": "1000s", "backoffMultiplier": 1,
        "retryableStatusCodes": ["RESOURCE_EXHAUSTED"],
    });
    Some(json!({ "methodConfig": [{ "name": [{}], "retryPolicy": policy }] }))
}

/// Refuses the first `refused` requests for a reason; returns the number of requests as well.
fn refuses_first(refused: usize, reason: Reason) -> (PlimsollLayer, Arc<AtomicUsize>) {
    let plane = ControlPlane::new(7);
    plane.refuse("first", reason).unwrap();
    let limiter = plane.limiter();
    let requests = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&requests);
    let layer = PlimsollLayer::by(&limiter, move |_| {
        let bucket = if counter.fetch_add(1, Ordering::Relaxed) < refused {
            "first"
        } else {
            "others"
        };
        Some(Request::new(bucket, "acme"))
    });
    (layer, requests)
}

#[tokio::test(flavor = "multi_thread")]
async fn retrying_client_waits_as_told() {
    let (layer, requests) = refuses_first(1, Reason::ClusterOverload);
    let address = serve(layer).await;
    let Some(status) = call(address, "acme", retries()).await else {
        return;
    };
    assert_eq!(
        (&status["code"], requests.load(Ordering::Relaxed)),
        (&json!("OK"), 2),
        "{status}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn retrying_client_respects_a_used_up_quota() {
    let (layer, requests) = refuses_first(1, Reason::TenantQuotaExceeded);
    let address = serve(layer).await;
    let Some(status) = call(address, "acme", retries()).await else {
        return;
    };
    assert_eq!(
        (&status["code"], requests.load(Ordering::Relaxed)),
        (&json!("RESOURCE_EXHAUSTED"), 1),
        "{status}"
    );
    assert_eq!(status["metadata"]["grpc-retry-pushback-ms"], "-1");
    assert_eq!(status["details"].get("retry_ms"), None);
    assert_eq!(status["details"]["info"][0], "TENANT_QUOTA_EXCEEDED");
}
