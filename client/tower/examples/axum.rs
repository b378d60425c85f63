//! An axum service that sheds load by tenant. Run it with `cargo run -p plimsoll-tower --example axum`, then
//! try `curl -i -H 'x-tenant: acme' http://127.0.0.1:8080/orders/7`.
//!
//! It reads `PLIMSOLL_AGGREGATOR`, `PLIMSOLL_ZONE` and `PLIMSOLL_CERTS`. Without an aggregator it admits everything.

use std::error::Error;
use std::future::Future;

use axum::Router;
use axum::http::Method;
use axum::routing::get;
use plimsoll_tower::{Limiter, Metrics, PlimsollLayer, Rule, Rules, Tenant};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // The feed logs what keeps it from its aggregator, and what is wired wrongly.
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    let (limiter, feed) = Limiter::from_env("shop").build()?;

    let rules = Rules::new(
        &limiter,
        // Any caller can send any header: behind a layer that verifies tokens, use `Tenant::extension`.
        Tenant::header("x-tenant")?,
        [
            Rule::bucket("orders-read")
                .path("/orders/{id}")
                .methods([Method::GET, Method::HEAD]),
            Rule::bucket("orders-write").path("/orders/{id}"),
            Rule::unlimited().path("/healthz"),
            Rule::unlimited().path("/metrics"),
            Rule::otherwise("rest"),
        ],
    )?;
    let metrics = Metrics::new(&limiter);
    let app = Router::new()
        .route(
            "/orders/{id}",
            get(async || "an order\n").put(async || "changed\n"),
        )
        .route("/healthz", get(async || "ok\n"))
        .route(
            "/metrics",
            get(async move || ([("content-type", Metrics::TEXT_TYPE)], metrics.text())),
        )
        .layer(PlimsollLayer::new(rules));

    let address = std::env::var("SHOP_LISTEN").unwrap_or("127.0.0.1:8080".to_owned());
    let listener = TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    axum::serve(listener, app)
        .with_graceful_shutdown(shutdown_signal()?)
        .await?;

    // All requests are counted by now: the feed sends its last report and closes its streams.
    let flushed = feed.shutdown().await;
    println!("stopped, {} decisions unreported", flushed.unreported);
    Ok(())
}

/// Completes on SIGINT, which Ctrl-C sends, or SIGTERM.
fn shutdown_signal() -> std::io::Result<impl Future<Output = ()>> {
    let (mut interrupt, mut terminate) = (
        signal(SignalKind::interrupt())?,
        signal(SignalKind::terminate())?,
    );
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}
