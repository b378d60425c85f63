//! A tonic service that sheds load by tenant. Run it with `cargo run -p plimsoll-client --example tonic`.
//!
//! The standard health service takes the place of your own, so that no code needs to be generated.

use std::error::Error;
use std::future::Future;
use std::process::ExitCode;

use plimsoll_client::Limiter;
use plimsoll_client::middleware::{LoadShedLayer, Rule, Rules, Tenant};
use tokio::signal::unix::{SignalKind, signal};
use tonic::transport::Server;

#[tokio::main]
async fn main() -> ExitCode {
    // The feed logs what keeps it from its aggregator.
    tracing_subscriber::fmt().init();
    if let Err(error) = serve().await {
        eprintln!("error: {error}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

async fn serve() -> Result<(), Box<dyn Error>> {
    let aggregator = std::env::var("PLIMSOLL_AGGREGATOR").unwrap_or("http://127.0.0.1:7410".to_owned());
    let mut builder = Limiter::builder("shop")?.zone("eu-1a")?.aggregator(&aggregator)?;
    // An aggregator at https:// asks for the certificate of this service.
    if let Some(directory) = std::env::var_os("PLIMSOLL_CERTS") {
        builder = builder.certificates(directory);
    }
    let (limiter, feed) = builder.build()?;
    let feed = feed.spawn()?;

    // A gRPC path is `/package.Service/Method`, a header is an entry of the metadata.
    let rules = Rules::new(
        &limiter,
        Tenant::header("x-tenant")?,
        [
            Rule::bucket("health-watch").path("/grpc.health.v1.Health/Watch"),
            Rule::bucket("health").prefix("/grpc.health.v1.Health"),
        ],
    )?;
    let (_reporter, health) = tonic_health::server::health_reporter();
    Server::builder()
        .layer(LoadShedLayer::new(rules))
        .add_service(health)
        .serve_with_shutdown("127.0.0.1:8080".parse()?, shutdown_signal()?)
        .await?;

    // All requests are counted by now: the feed sends its last report and closes the stream.
    feed.shutdown().await;
    Ok(())
}

/// Completes on SIGINT, which Ctrl-C sends, or SIGTERM.
fn shutdown_signal() -> std::io::Result<impl Future<Output = ()>> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}
