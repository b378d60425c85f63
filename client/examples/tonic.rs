//! A service on tonic that drops load by tenant. Run it with `cargo run -p plimsoll-client --example tonic`.
//!
//! The standard health service stands in for your own, so that there is nothing to generate.

use std::error::Error;
use std::future::Future;

use plimsoll_client::Limiter;
use plimsoll_client::middleware::{LoadShedLayer, Rule, Rules, Tenant};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let aggregator = std::env::var("PLIMSOLL_AGGREGATOR").unwrap_or("http://127.0.0.1:7410".to_owned());
    let (limiter, feed) = Limiter::builder("shop")?.zone("eu-1a")?.aggregator(&aggregator)?.build()?;
    let done = CancellationToken::new();
    let feed = feed.spawn(done.clone());

    // A gRPC path is `/package.Service/Method`, a header is an entry of the metadata.
    let rules = Rules::new(
        &limiter,
        Tenant::header("x-tenant")?,
        [
            Rule::bucket("health-watch").path("/grpc.health.v1.Health/Watch"),
            Rule::bucket("health").path("/grpc.health.v1.Health/*"),
        ],
    )?;
    let (_reporter, health) = tonic_health::server::health_reporter();
    Server::builder()
        .layer(LoadShedLayer::new(rules))
        .add_service(health)
        .serve_with_shutdown("127.0.0.1:8080".parse()?, asked_to_stop()?)
        .await?;

    // Only now is everything counted that there will be: the feed reports it and says farewell.
    done.cancel();
    feed.await?;
    Ok(())
}

/// Ends when a person presses Ctrl-C, or whatever runs the service asks it to stop.
fn asked_to_stop() -> std::io::Result<impl Future<Output = ()>> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}
