//! The HTTP server behind an admin port. A caller that is slow, at any step of a request, is given up after a deadline, and
//! the connections are bounded in number.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
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
use plimsoll_proto::transport::{Acceptor, Connections};
use plimsoll_tls::rustls::ServerConfig;
use plimsoll_tls::tokio_rustls::TlsAcceptor;
use plimsoll_tls::{Certificates, HandshakeFailure};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// Maximum time that a connection waits for the head of a request, between requests too.
const HEAD_MAX: Duration = Duration::from_secs(30);
const BODY_MAX: Duration = Duration::from_secs(30);
/// Maximum life of a connection; the request in progress then has [`DRAIN_MAX`] to end.
const LIFE_MAX: Duration = Duration::from_secs(300);
const DRAIN_MAX: Duration = Duration::from_secs(10);

pub(crate) async fn serve(
    listener: TcpListener,
    connections: Connections,
    certificates: Option<Certificates>,
    routes: Router,
    shutdown: impl Future<Output = ()>,
) {
    let mut acceptor = Acceptor::new(listener, connections.clone());
    let (tasks, closing) = (TaskTracker::new(), CancellationToken::new());
    let mut shutdown = pin!(shutdown);
    loop {
        let (stream, peer, place) = tokio::select! {
            () = &mut shutdown => break,
            accepted = acceptor.next() => accepted,
        };
        let (routes, closing, connections) = (routes.clone(), closing.clone(), connections.clone());
        let config = certificates.as_ref().map(Certificates::admin_server);
        tasks.spawn(async move {
            let connection = async {
                let Some(config) = config else {
                    return converse(stream, peer, routes, closing).await;
                };
                match closing.run_until_cancelled(handshake(stream, config)).await {
                    None => {}
                    Some(Ok(stream)) => converse(stream, peer, routes, closing.clone()).await,
                    Some(Err(cause)) => {
                        connections.on_handshake_failed(peer.ip(), cause.label(), &cause)
                    }
                }
            };
            place.closed().run_until_cancelled(connection).await
        });
    }
    closing.cancel();
    tasks.close();
    tasks.wait().await;
}

async fn handshake(
    stream: TcpStream,
    config: Arc<ServerConfig>,
) -> Result<impl AsyncRead + AsyncWrite + Unpin + Send, HandshakeFailure> {
    let accepted = timeout(HANDSHAKE_MAX, TlsAcceptor::from(config).accept(stream)).await;
    accepted
        .unwrap_or_else(|late| Err(late.into()))
        .map_err(|error| HandshakeFailure::of(&error))
}

async fn converse(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send,
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
