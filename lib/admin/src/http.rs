//! HTTP on the connections of an admin port. A caller that is slow, at any step of a request, is given up
//! after a deadline.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, HttpBody};
use axum::extract::ConnectInfo;
use axum::http::{Request, Response};
use futures_util::StreamExt;
use futures_util::stream::unfold;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use plimsoll_net::Stream;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

/// Maximum time that a connection waits for the head of a request, between requests too.
const HEAD_MAX: Duration = Duration::from_secs(30);
/// Maximum time for the whole body of a request.
const BODY_MAX: Duration = Duration::from_secs(30);
/// Maximum life of a connection; the request in progress then has [`DRAIN_MAX`] to end.
const LIFE_MAX: Duration = Duration::from_secs(300);
const DRAIN_MAX: Duration = Duration::from_secs(10);

/// Answers the requests of a connection until its end, [`LIFE_MAX`], or until `closing` is cancelled. A
/// request in progress is answered first.
pub(crate) async fn converse(
    stream: Stream,
    peer: SocketAddr,
    routes: Router,
    closing: CancellationToken,
) {
    let answer = |request| answer(routes.clone(), peer, request);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_MAX)
        .serve_connection(TokioIo::new(stream), service_fn(answer));
    let mut connection = pin!(connection);
    // An error is the caller's: it has left, was too slow, or sent no HTTP.
    tokio::select! {
        _ = connection.as_mut() => return,
        () = closing.cancelled() => {}
        () = tokio::time::sleep(LIFE_MAX) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = timeout(DRAIN_MAX, connection).await;
}

async fn answer(
    routes: Router,
    peer: SocketAddr,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    let mut request = request.map(within_deadline);
    request.extensions_mut().insert(ConnectInfo(peer));
    routes.oneshot(request).await
}

fn within_deadline(body: Incoming) -> Body {
    let is_empty = body.is_end_stream();
    let body = Body::new(body);
    if is_empty {
        return body;
    }
    let deadline = Instant::now() + BODY_MAX;
    let frames = unfold(
        (body.into_data_stream(), deadline),
        async |(mut frames, deadline)| {
            let late = |_| {
                Some(Err(axum::Error::new(io::Error::from(
                    io::ErrorKind::TimedOut,
                ))))
            };
            let frame = timeout_at(deadline, frames.next())
                .await
                .unwrap_or_else(late);
            frame.map(|frame| (frame, (frames, deadline)))
        },
    );
    Body::from_stream(frames)
}
