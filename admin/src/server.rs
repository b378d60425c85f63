//! The HTTP server of an admin port, with the routes that every tier has: metrics, health and readiness.

use std::future::Future;
use std::net::SocketAddr;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::net::TcpListener;

/// Routes of every admin port. `metrics` renders the metrics page; `ready` returns true if the process can do
/// its work.
///
/// Neither may depend on a tier above: an orchestrator must not restart aggregators because the controller is
/// down.
pub fn routes(
    metrics: impl Fn() -> String + Clone + Send + Sync + 'static,
    ready: impl Fn() -> bool + Clone + Send + Sync + 'static,
) -> Router {
    let page = move || async move {
        ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], metrics()).into_response()
    };
    let readiness = move || async move {
        if ready() { (StatusCode::OK, "ready\n") } else { (StatusCode::SERVICE_UNAVAILABLE, "not ready\n") }
    };
    Router::new()
        .route("/metrics", get(page))
        .route("/healthz", get(async || "alive\n"))
        .route("/readyz", get(readiness))
}

/// Serves `routes` on `listener` until `shutdown` completes. Requests in progress are answered first.
///
/// # Errors
/// When the server fails.
pub async fn serve(
    listener: TcpListener,
    routes: Router,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let routes = routes.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, routes).with_graceful_shutdown(shutdown).await
}
