//! A tonic service that sheds load by tenant. Run it with `cargo run -p plimsoll-tower --example tonic`.
//!
//! The standard health service takes the place of your own, so that no code needs to be generated. The example reads
//! `PLIMSOLL_AGGREGATOR`, `PLIMSOLL_ZONE` and `PLIMSOLL_CERTS`. Without an aggregator it admits everything.

use std::error::Error;
use std::future::Future;

use plimsoll_tower::{Limiter, PlimsollLayer, Rule, Rules, Tenant};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // The feed logs what keeps it from its aggregator, and what is wired wrongly.
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    let (limiter, feed) = Limiter::from_env("shop").build()?;

    // A gRPC path is `/package.Service/Method`, a header is an entry of the metadata.
    let rules = Rules::new(
        &limiter,
        Tenant::header("x-tenant")?,
        [
            Rule::bucket("health-watch").path("/grpc.health.v1.Health/Watch"),
            Rule::bucket("health").path("/grpc.health.v1.Health/{method}"),
        ],
    )?;
    let (_reporter, health) = tonic_health::server::health_reporter();
    let address = std::env::var("SHOP_LISTEN").unwrap_or("127.0.0.1:8080".to_owned());
    let listener = TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    Server::builder()
        .layer(PlimsollLayer::new(rules).either_body())
        .add_service(health)
        .serve_with_incoming_shutdown(TcpIncoming::from(listener), shutdown_signal()?)
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
