//! HTTP/1.1 on the connections of a port. A caller that is slow to send a request is dropped after a
//! deadline.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::room::Share;
use super::turn::{InTurns, Turns};
use super::{Caller, DRAIN_MAX, Port, Stream};

/// Maximum time that a connection waits for the head of a request, between requests too.
const HEAD_MAX: Duration = Duration::from_secs(75);
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// Answers the requests of a port until `shutdown` is cancelled. Requests in progress are answered
/// first.
pub(crate) async fn serve_http1<A, F>(port: Port, shutdown: CancellationToken, answer: A)
where
    A: Fn(Caller, Request<Incoming>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<Full<Bytes>>> + Send + 'static,
{
    let converse = move |stream, caller, closing| converse(stream, caller, answer.clone(), closing);
    super::serve(port, shutdown, converse).await;
}

async fn converse<A, F>(
    (stream, share): (Stream, Share),
    caller: Caller,
    answer: A,
    closing: CancellationToken,
) where
    A: Fn(Caller, Request<Incoming>) -> F + Send + Sync,
    F: Future<Output = Response<Full<Bytes>>> + Send + 'static,
{
    let (turns, head) = (Turns::default(), Arc::new(share.open()));
    let service = service_fn(|request| {
        let answering = share.begin(|| answer(caller, request));
        async {
            let answered = answering.answer().await;
            head.clear();
            Ok::<_, Infallible>(answered)
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        // Head and body of an answer in one write. Not `pipeline_flush`: it keeps the answer to a
        // malformed head back.
        .writev(false)
        .serve_connection(
            TokioIo::new(InTurns::new(stream, turns.clone(), Some(head.clone()))),
            service,
        );
    let mut connection = pin!(connection);
    // An error means that the caller disconnected, was too slow, or sent no HTTP.
    tokio::select! {
        _ = poll_fn(|context| turns.poll(&mut connection, context)) => return,
        () = closing.cancelled() => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = timeout(
        DRAIN_MAX,
        poll_fn(|context| turns.poll(&mut connection, context)),
    )
    .await;
}
