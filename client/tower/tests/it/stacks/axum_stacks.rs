//! Stacks of axum routers with the layers of tower and tower-http.

use axum::Router;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use tokio::net::TcpListener;
use tower::ServiceBuilder;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;
use tower_http::cors::CorsLayer;
use tower_http::limit::RequestBodyLimitLayer;
use tower_http::request_id::{MakeRequestUuid, PropagateRequestIdLayer, SetRequestIdLayer};
use tower_http::sensitive_headers::SetSensitiveRequestHeadersLayer;
use tower_http::set_header::SetResponseHeaderLayer;
use tower_http::timeout::TimeoutLayer;
use tower_http::trace::TraceLayer;

use super::{Cors, ORIGIN, Stack, TIMEOUT, check, routes};

fn serve(listener: TcpListener, app: Router) {
    tokio::spawn(axum::serve(listener, app).into_future());
}

fn cors() -> CorsLayer {
    CorsLayer::new()
        .allow_origin(ORIGIN.parse::<HeaderValue>().unwrap())
        .allow_methods([Method::PUT])
}

fn timeout() -> TimeoutLayer {
    TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, TIMEOUT)
}

fn served_by() -> SetResponseHeaderLayer<HeaderValue> {
    SetResponseHeaderLayer::overriding(
        HeaderName::from_static("x-served-by"),
        HeaderValue::from_static("shop"),
    )
}

fn stacks() -> Vec<Stack> {
    vec![
        Stack {
            name: "CORS and trace outside, the body of axum",
            serve: |listener, shed| {
                serve(
                    listener,
                    routes()
                        .layer(shed)
                        .layer(cors())
                        .layer(TraceLayer::new_for_http()),
                );
            },
            cors: Cors::Outside,
            ..Stack::default()
        },
        Stack {
            name: "everything of a careful service: panics, limits, ids, secrets",
            serve: |listener, shed| {
                let id = HeaderName::from_static("x-request-id");
                let layers = ServiceBuilder::new()
                    .layer(SetSensitiveRequestHeadersLayer::new([
                        header::AUTHORIZATION,
                    ]))
                    .layer(SetRequestIdLayer::new(id.clone(), MakeRequestUuid))
                    .layer(TraceLayer::new_for_http())
                    .layer(PropagateRequestIdLayer::new(id))
                    .layer(served_by())
                    .layer(cors())
                    .layer(CatchPanicLayer::new())
                    .layer(shed.either_body())
                    .layer(RequestBodyLimitLayer::new(1_024))
                    .layer(timeout());
                serve(listener, routes().layer(layers));
            },
            cors: Cors::Outside,
            outside: &["x-request-id", "x-served-by"],
            late: Some(504),
            panics: Some(500),
            ..Stack::default()
        },
        Stack {
            name: "the same layers inside of the limiter",
            serve: |listener, shed| {
                let layers = ServiceBuilder::new()
                    .layer(shed.either_body())
                    .layer(TraceLayer::new_for_http())
                    .layer(CatchPanicLayer::new())
                    .layer(RequestBodyLimitLayer::new(1_024))
                    .layer(CompressionLayer::new())
                    .layer(timeout());
                serve(listener, routes().layer(layers));
            },
            late: Some(504),
            panics: Some(500),
            ..Stack::default()
        },
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn stacks_of_axum_compose_and_behave() {
    for stack in stacks() {
        check(&stack).await;
    }
}
