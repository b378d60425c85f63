//! Stacks of tonic: its own server, and routes that are merged into an axum router.

use std::net::SocketAddr;

use axum::Router;
use axum::routing::get;
use plimsoll_client::middleware::{PlimsollLayer, Rule, Rules, Tenant};
use plimsoll_core::decision::Mode;
use plimsoll_core::report::Counts;
use tokio::net::TcpListener;
use tonic::service::Routes;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Endpoint, Server};
use tonic::{Code, Request};
use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::{HealthReporter, HealthService};
use tower::ServiceBuilder;
use tower_http::timeout::TimeoutLayer;
use tower_http::trace::TraceLayer;

use super::{REQUESTS, TIMEOUT};
use crate::parent::{ALL, Fleet};

const CHECK: &str = "/grpc.health.v1.Health/Check";

/// A stack of tonic, perhaps with plain HTTP at `/page` beside it.
struct Stack {
    name: &'static str,
    serve: fn(TcpListener, PlimsollLayer, HealthServer<HealthService>),
    has_page: bool,
}

fn stacks() -> Vec<Stack> {
    vec![
        Stack {
            name: "server of tonic: trace and timeout around the limiter",
            serve: |listener, shed, health| {
                let layers =
                    ServiceBuilder::new().layer(TraceLayer::new_for_grpc()).layer(shed.either_body());
                let server = Server::builder().timeout(TIMEOUT).layer(layers).add_service(health);
                tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
            },
            has_page: false,
        },
        Stack {
            name: "routes of tonic in a router of axum: trace, limiter, timeout",
            serve: |listener, shed, health| {
                let timeout = TimeoutLayer::with_status_code(http::StatusCode::GATEWAY_TIMEOUT, TIMEOUT);
                let layers = ServiceBuilder::new()
                    .layer(TraceLayer::new_for_grpc())
                    .layer(shed.either_body())
                    .layer(timeout);
                let app = Routes::new(health).into_axum_router().merge(page()).layer(layers);
                tokio::spawn(axum::serve(listener, app).into_future());
            },
            has_page: true,
        },
    ]
}

fn page() -> Router {
    Router::new().route("/page", get(async || "a page"))
}

async fn answers_plain_http(address: SocketAddr) -> bool {
    let connector = hyper_util::client::legacy::Client::builder(hyper_util::rt::TokioExecutor::new());
    let client = connector.build_http::<http_body_util::Empty<axum::body::Bytes>>();
    let response = client.get(format!("http://{address}/page").parse().unwrap()).await.unwrap();
    response.status() == 200
}

#[tokio::test(flavor = "multi_thread")]
async fn stacks_of_tonic_compose_and_behave() {
    for Stack { name, serve, has_page } in stacks() {
        let fleet = Fleet::start(&["check"]).await;
        let rules = [Rule::bucket("check").path(CHECK), Rule::unlimited().path("/page")];
        let rules = Rules::new(&fleet.limiter, Tenant::header("x-tenant").unwrap(), rules).unwrap();
        let reporter = HealthReporter::new();
        reporter.set_service_status("shop", ServingStatus::NotServing).await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let health = HealthServer::new(HealthService::from_health_reporter(reporter));
        serve(listener, PlimsollLayer::new(rules), health);
        let channel = Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
        let check = async |service: &str| {
            let mut request = Request::new(HealthCheckRequest { service: service.to_owned() });
            request.metadata_mut().insert("x-tenant", "acme".parse().unwrap());
            HealthClient::new(channel.clone()).check(request).await
        };

        fleet.direct("check", Mode::Enforce, &[("default", 0)]).await;
        for _ in 0..REQUESTS {
            let response = check("shop").await.unwrap();
            assert_eq!(response.into_inner().status, ServingStatus::NotServing as i32, "{name}");
        }
        // An error of the service is passed on as it is.
        assert_eq!(check("unknown").await.unwrap_err().code(), Code::NotFound, "{name}");
        fleet.direct("check", Mode::Enforce, &[("default", ALL)]).await;
        for _ in 0..REQUESTS {
            let status = check("shop").await.unwrap_err();
            assert_eq!(status.code(), Code::ResourceExhausted, "{name}");
            assert!(status.metadata().contains_key("grpc-retry-pushback-ms"), "{name}");
        }
        if has_page {
            assert!(answers_plain_http(address).await, "{name}");
        }
        let counts = Counts { offered: 2 * REQUESTS + 1, dropped: REQUESTS, ..Counts::ZERO };
        fleet.counted("check", "acme", counts).await;
        assert_eq!(fleet.offered(), counts.offered, "{name}");
    }
}
