//! The HTTP server of an admin port, with the routes that every tier has: metrics, health and readiness.

use axum::http::{Method, StatusCode, header};
use axum::response::IntoResponse;
use plimsoll_core::stats::metrics::{Family, text};
use plimsoll_net::{Acceptor, Connections, Protection};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::access::{Access, Needs, Routes};
use crate::http;

/// Routes of every admin port. `metrics` reads the metrics; `ready` returns true if the process can do
/// its work.
///
/// Neither may depend on a tier above: aggregators must stay in service while the controller is down.
pub fn routes(
    metrics: impl Fn() -> Vec<Family> + Clone + Send + Sync + 'static,
    ready: impl Fn() -> bool + Clone + Send + Sync + 'static,
) -> Routes {
    let page = move || async move {
        (
            [(
                header::CONTENT_TYPE,
                "text/plain; version=0.0.4; charset=utf-8",
            )],
            text(&metrics()),
        )
            .into_response()
    };
    let readiness = move || async move {
        if ready() {
            (StatusCode::OK, "ready\n")
        } else {
            (StatusCode::SERVICE_UNAVAILABLE, "not ready\n")
        }
    };
    Routes::new()
        .with(Method::GET, "/metrics", Needs::Metrics, page)
        .open(Method::GET, "/healthz", async || "alive\n")
        .open(Method::GET, "/readyz", readiness)
}

/// Serves `routes` on `listener` until `shutdown` is cancelled, to the callers that `access` accepts. Requests in
/// progress are answered first.
pub async fn serve(
    listener: TcpListener,
    connections: Connections,
    access: Access,
    routes: Routes,
    shutdown: CancellationToken,
) {
    let acceptor = Acceptor::new(listener, connections);
    let certificates = access.certificates().cloned();
    let protection = certificates.map_or(Protection::Plain, Protection::Tls);
    let routes = routes.into_router(&access);
    plimsoll_net::serve(
        acceptor,
        protection,
        shutdown,
        move |stream, peer, closing| http::converse(stream, peer, routes.clone(), closing),
    )
    .await;
}
