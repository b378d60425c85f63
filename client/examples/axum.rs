//! An axum service that sheds load by tenant. Run it with `cargo run -p plimsoll-client --example axum`, then
//! try `curl -i -H 'x-tenant: acme' http://127.0.0.1:8080/orders/7`.

use std::error::Error;
use std::future::Future;
use std::process::ExitCode;

use axum::Router;
use axum::http::Method;
use axum::routing::get;
use plimsoll_client::Limiter;
use plimsoll_client::middleware::{LoadShedLayer, Rule, Rules, Tenant};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

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

    let rules = Rules::new(
        &limiter,
        // Any caller can send any header: behind a layer that verifies tokens, use `Tenant::extension`.
        Tenant::header("x-tenant")?,
        [
            Rule::bucket("orders-read").prefix("/orders").methods([Method::GET, Method::HEAD]),
            Rule::bucket("orders-write").prefix("/orders"),
            Rule::unlimited().path("/healthz"),
            Rule::otherwise("rest"),
        ],
    )?;
    let app = Router::new()
        .route("/orders/{id}", get(|| async { "an order\n" }).put(|| async { "changed\n" }))
        .route("/healthz", get(|| async { "ok\n" }))
        .layer(LoadShedLayer::new(rules).same_body());

    let listener = TcpListener::bind("127.0.0.1:8080").await?;
    axum::serve(listener, app).with_graceful_shutdown(shutdown_signal()?).await?;

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
