//! The gRPC server of a parent: an aggregator, or a controller that leads or stands by. [`Guarded`] closes connections without a greeting.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use futures_util::stream::unfold;
use plimsoll_core::exchange::Parent;
use plimsoll_core::exchange::admission::Admission;
use plimsoll_core::quantity::MonoTime;
use plimsoll_host::Shared;
use plimsoll_net::{Acceptor, Connections};
use plimsoll_tls::Certificates;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_stream::Stream;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tonic::transport::Server;
use tonic_health::ServingStatus;

use super::guarded::Guarded;
use super::standby::StandbyService;
use crate::driver::parent::ParentService;
use crate::wire::exchange_server::SERVICE_NAME;

/// Maximum number of streams on one connection; further ones wait. A child needs one, a health
/// check another.
const STREAMS_PER_CONNECTION_MAX: u32 = 8;

/// Maximum time that a shutdown waits for connections. Streams have had their final status by then;
/// a connection that has not sent the preface of HTTP/2 would last until its deadline.
const SHUTDOWN_MAX: Duration = Duration::from_secs(2);

/// Failure of the gRPC server.
#[derive(Debug, thiserror::Error)]
#[error("the gRPC server failed: {0}")]
pub struct ServeError(#[from] tonic::transport::Error);

fn accept(
    acceptor: Acceptor,
    certificates: Option<Certificates>,
) -> impl Stream<Item = Result<Guarded, Infallible>> {
    unfold(
        (acceptor, certificates),
        async |(mut acceptor, certificates)| {
            let accepted = acceptor.next().await;
            let connections = acceptor.connections().clone();
            let guarded = Guarded::new(accepted, certificates.as_ref(), connections);
            Some((Ok(guarded), (acceptor, certificates)))
        },
    )
}

/// Serves a parent and the standard gRPC health service on `listener` until `shutdown` completes.
///
/// # Errors
/// If the server fails.
pub async fn serve<P: Parent + Send + 'static>(
    listener: TcpListener,
    connections: Connections,
    parent: ParentService<P>,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), ServeError> {
    let acceptor = Acceptor::new(listener, connections).with_admission(parent.admission());
    let incoming = accept(acceptor, parent.certificates().cloned());
    serve_on(incoming, Routes::new(parent), shutdown).await
}

/// Serves a controller that does not lead, and the health service, on `listener` until `shutdown` completes. Every
/// stream is turned away with the URL of the leader, as far as `leader` knows one, and counted in `asked`.
///
/// # Errors
/// If the server fails.
pub async fn serve_standby(
    listener: TcpListener,
    connections: Connections,
    certificates: Option<Certificates>,
    leader: watch::Receiver<Option<String>>,
    asked: Arc<AtomicU64>,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), ServeError> {
    // No stream is admitted here: it only paces how many connections are accepted.
    let admission = Shared::new(Admission::new(MonoTime::ZERO));
    let acceptor = Acceptor::new(listener, connections).with_admission(admission);
    let standby = Routes::new(StandbyService { leader, asked });
    serve_on(accept(acceptor, certificates), standby, shutdown).await
}

async fn serve_on(
    incoming: impl Stream<Item = Result<Guarded, Infallible>>,
    exchange: Routes,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), ServeError> {
    let (health, health_service) = tonic_health::server::health_reporter();
    health
        .set_service_status(SERVICE_NAME, ServingStatus::Serving)
        .await;
    let stopping = CancellationToken::new();
    let stop = stopping.clone();
    let shutdown = async move {
        shutdown.await;
        stop.cancel();
    };
    let served = Server::builder()
        .max_concurrent_streams(Some(STREAMS_PER_CONNECTION_MAX))
        .add_routes(exchange.add_service(health_service))
        .serve_with_incoming_shutdown(incoming, shutdown);
    let overdue = async {
        stopping.cancelled().await;
        sleep(SHUTDOWN_MAX).await;
    };
    tokio::select! {
        served = served => served.map_err(ServeError::from),
        () = overdue => Ok(()),
    }
}
