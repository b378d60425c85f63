//! Stacks without axum's server: hyper alone, and a tower service of hyper behind layers.

use std::convert::Infallible;

use axum::Router;
use axum::body::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tower::{Service, ServiceBuilder, ServiceExt};
use tower_http::timeout::TimeoutLayer;
use tower_http::trace::TraceLayer;

use super::{Shop, Stack, TIMEOUT, check, routes};
use crate::parent::ALL;

/// Serves each connection with hyper, HTTP/1 or HTTP/2.
fn serve<S, B>(listener: TcpListener, service: S)
where
    S: Service<http::Request<Incoming>, Response = http::Response<B>, Error = Infallible>,
    S: Clone + Send + 'static,
    S::Future: Send + 'static,
    B: http_body::Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
{
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = TowerToHyperService::new(service.clone());
            tokio::spawn(async move {
                let server = auto::Builder::new(TokioExecutor::new());
                let _ = server.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
}

/// The routes as a service of hyper's requests.
fn hyper_routes() -> impl Service<
    http::Request<Incoming>,
    Response = axum::response::Response,
    Error = Infallible,
    Future: Send + 'static,
> + Clone
+ Send
+ 'static {
    let app: Router = routes();
    app.map_request(|request: http::Request<Incoming>| request.map(axum::body::Body::new))
}

#[tokio::test(flavor = "multi_thread")]
async fn stacks_of_hyper_compose_and_behave() {
    let stacks = [
        Stack {
            name: "hyper and the limiter",
            serve: |listener, shed| {
                serve(listener, ServiceBuilder::new().layer(shed.either_body()).service(hyper_routes()));
            },
            ..Stack::default()
        },
        Stack {
            name: "hyper: trace, limiter, timeout",
            serve: |listener, shed| {
                let timeout = TimeoutLayer::with_status_code(http::StatusCode::GATEWAY_TIMEOUT, TIMEOUT);
                let layers = ServiceBuilder::new()
                    .layer(TraceLayer::new_for_http())
                    .layer(shed.either_body())
                    .layer(timeout);
                serve(listener, layers.service(hyper_routes()));
            },
            late: Some(504),
            ..Stack::default()
        },
    ];
    for stack in stacks {
        check(&stack).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn function_with_a_plain_body_is_a_service() {
    let shop = Shop::start(|listener, shed| {
        let answer = async |request: http::Request<Incoming>| {
            Ok::<_, Infallible>(http::Response::new(Full::<Bytes>::from(request.uri().path().to_owned())))
        };
        serve(listener, ServiceBuilder::new().layer(shed.either_body()).service_fn(answer));
    })
    .await;
    shop.enforce(0).await;
    let response = shop.send(http::Method::GET, "/orders/7", &[]).await;
    assert_eq!((response.status, &response.body[..]), (http::StatusCode::OK, &b"/orders/7"[..]));
    shop.enforce(ALL).await;
    super::assert_refused("function", &shop.send(http::Method::GET, "/orders/7", &[]).await);
}
