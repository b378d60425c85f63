//! HTTP/2 on the connections of a port, for gRPC. Streams, windows and headers are bounded, pings
//! find dead peers, and a connection without requests ends after a while.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Incoming};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::time::{interval, timeout};
use tokio_util::sync::CancellationToken;

use super::room::Share;
use super::turn::{InTurns, Turns};
use super::{Caller, DRAIN_MAX, Port, Stream};

/// Maximum number of streams on one connection; a peer holds more back.
pub(crate) const STREAMS_PER_CONNECTION_MAX: u32 = 256;
/// Maximum number of requests of one turn that their peer cancelled before they were read; with
/// more the connection ends. Proxies cancel hundreds of requests if this process stalls, but a turn
/// has fewer complete requests.
const RESETS_PENDING_MAX: usize = 64;
const HEADER_BYTES_MAX: u32 = 16 * 1024;
/// Maximum bytes of request bodies that one connection sends ahead of being read.
const CONNECTION_WINDOW: u32 = 1024 * 1024;
/// Interval of pings on a connection without traffic.
const PING_EVERY: Duration = Duration::from_secs(20);
const PING_MAX: Duration = Duration::from_secs(10);
/// Period without a new request after which a connection ends: after 60 to 120 s. It also ends a watch of health.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// Answers the requests of a port until `shutdown` is cancelled. Requests in progress are answered
/// first.
pub(crate) async fn serve_http2<A, F, B>(port: Port, shutdown: CancellationToken, answer: A)
where
    A: Fn(Caller, Request<Incoming>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes, Error = Infallible> + Default + Send + 'static,
{
    let converse = move |stream, caller, closing| converse(stream, caller, answer.clone(), closing);
    super::serve(port, shutdown, converse).await;
}

async fn converse<A, F, B>(
    (stream, share): (Stream, Share),
    caller: Caller,
    answer: A,
    closing: CancellationToken,
) where
    A: Fn(Caller, Request<Incoming>) -> F + Send + Sync,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes, Error = Infallible> + Default + Send + 'static,
{
    let requests = AtomicU64::new(0);
    let turns = Turns::default();
    let service = service_fn(|request| {
        requests.fetch_add(1, Ordering::Relaxed);
        let running = turns.request();
        let answering = share.begin(|| answer(caller, request));
        async move {
            let answered = answering.answer().await;
            drop(running);
            Ok::<_, Infallible>(answered)
        }
    });
    let connection = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_PER_CONNECTION_MAX)
        .max_pending_accept_reset_streams(RESETS_PENDING_MAX)
        .max_header_list_size(HEADER_BYTES_MAX)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_MAX)
        .serve_connection(
            TokioIo::new(InTurns::new(stream, turns.clone(), None)),
            service,
        );
    let mut connection = pin!(connection);
    // An error means that the caller disconnected, or sent no HTTP/2.
    tokio::select! {
        _ = poll_fn(|context| turns.poll(&mut connection, context)) => return,
        () = closing.cancelled() => {}
        () = idle(&requests) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = timeout(
        DRAIN_MAX,
        poll_fn(|context| turns.poll(&mut connection, context)),
    )
    .await;
}

/// Ends after a whole period without a new request.
async fn idle(requests: &AtomicU64) {
    let mut periods = interval(IDLE_MAX);
    periods.tick().await;
    let mut before = 0;
    loop {
        periods.tick().await;
        let count = requests.load(Ordering::Relaxed);
        if count == before {
            return;
        }
        before = count;
    }
}
