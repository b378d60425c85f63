//! The HTTP server of an admin port, with the routes that every tier has: metrics, health and readiness.

use std::future::Future;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use plimsoll_proto::transport::Connections;
use tokio::net::TcpListener;

use crate::http;
use crate::local_caller::is_loopback;
use crate::loopback::local_only;

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
/// At a loopback address, every route is for callers on this machine, so that no web page reads them by DNS rebinding
/// and no proxy passes them on. At any other address the operator has opened the routes, and only commands are
/// restricted; see [`loopback_only`](crate::loopback::loopback_only).
///
/// # Errors
/// When the address of the listener cannot be read.
pub async fn serve(
    listener: TcpListener,
    connections: Connections,
    routes: Router,
    shutdown: impl Future<Output = ()>,
) -> std::io::Result<()> {
    let routes = if is_loopback(listener.local_addr()?.ip()) { local_only(routes) } else { routes };
    http::serve(listener, connections, routes, shutdown).await;
    Ok(())
}
