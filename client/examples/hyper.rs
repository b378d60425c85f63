//! A hyper server without a framework, behind the layer. Run it with `cargo run -p plimsoll-client --example hyper`.
//!
//! It reads `PLIMSOLL_AGGREGATOR`, `PLIMSOLL_ZONE` and `PLIMSOLL_CERTS`. Without an aggregator it admits everything.

use std::convert::Infallible;
use std::error::Error;
use std::future::Future;
use std::pin::pin;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use plimsoll_client::Limiter;
use plimsoll_client::middleware::{PlimsollLayer, Rule, Rules, Tenant};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tower::ServiceBuilder;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // The feed logs what keeps it from its aggregator, and what is wired wrongly.
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let (limiter, feed) = Limiter::from_env("shop").build()?;

    let rules = [Rule::bucket("orders").path("/orders/{id}"), Rule::otherwise("rest")];
    let rules = Rules::new(&limiter, Tenant::header("x-tenant")?, rules)?;
    // Any service of tower takes the place of the function.
    let service = ServiceBuilder::new().layer(PlimsollLayer::new(rules)).service_fn(order);

    let address = std::env::var("SHOP_LISTEN").unwrap_or("127.0.0.1:8080".to_owned());
    let listener = TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    let (server, connections) = (auto::Builder::new(TokioExecutor::new()), GracefulShutdown::new());
    let mut shutdown = pin!(shutdown_signal()?);
    loop {
        let (stream, _) = tokio::select! {
            accepted = listener.accept() => accepted?,
            () = &mut shutdown => break,
        };
        let service = TowerToHyperService::new(service.clone());
        let connection = server.serve_connection(TokioIo::new(stream), service).into_owned();
        tokio::spawn(connections.watch(connection));
    }
    connections.shutdown().await;

    // All requests are counted by now: the feed sends its last report and closes its streams.
    let flushed = feed.shutdown().await;
    println!("stopped, {} decisions unreported", flushed.unreported);
    Ok(())
}

async fn order(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::from(format!("the order at {}\n", request.uri().path()))))
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
