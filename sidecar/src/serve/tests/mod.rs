//! The ports over real sockets: both protocols, TLS, bounds and deadlines, and the orderly end.

mod bounds;
mod flood;

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::{http1 as client1, http2 as client2};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;

use super::*;

/// Bytes of requests in progress of the tested ports: a seventh of them, so 146 requests, on one
/// connection.
const ROOM_BYTES: usize = 8 * 1024 * 1024;
const BODY_BYTES_MAX: usize = 1_000;

type Slow = StreamBody<ReceiverStream<Result<Frame<Bytes>, Infallible>>>;

struct Echo {
    http1: SocketAddr,
    http2: SocketAddr,
    connections: Connections,
    begun: Arc<AtomicUsize>,
    /// Maximum number in progress at a time.
    most: Arc<AtomicUsize>,
    shutdown: CancellationToken,
    served: JoinHandle<()>,
}

async fn echo(caller: Caller, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let response = match read_within(request.into_body(), BODY_BYTES_MAX).await {
        Ok(body) => Response::builder()
            .header("from", caller.from.to_string())
            .body(Full::new(body)),
        Err(error) => {
            let status = match error {
                BodyError::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
                BodyError::NoRoom => StatusCode::SERVICE_UNAVAILABLE,
                BodyError::TooSlow => StatusCode::REQUEST_TIMEOUT,
                BodyError::Broken(_) => StatusCode::BAD_REQUEST,
            };
            Response::builder().status(status).body(Full::default())
        }
    };
    response.unwrap()
}

impl Echo {
    async fn start(protection: Protection) -> Self {
        Self::with(protection, Connections::fair(64), None).await
    }

    async fn with(
        protection: Protection,
        connections: Connections,
        unix: Option<UnixSocket>,
    ) -> Self {
        let room = Room::of(ROOM_BYTES);
        let listen = async || TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (first, second) = (listen().await, listen().await);
        let (http1, http2) = (first.local_addr().unwrap(), second.local_addr().unwrap());
        let port = |tcp, unix| Port {
            tcp,
            unix,
            connections: connections.clone(),
            protection: protection.clone(),
            needs_token: false,
            room: room.clone(),
        };
        let (first, second) = (port(first, None), port(second, unix));
        let shutdown = CancellationToken::new();
        let stop = shutdown.clone();
        let begun = Arc::<AtomicUsize>::default();
        let (most, handlers) = (Arc::<AtomicUsize>::default(), Arc::new(()));
        let counts = (begun.clone(), most.clone());
        let answer = move |caller, request| {
            let handler = handlers.clone();
            counts.0.fetch_add(1, Ordering::Relaxed);
            counts
                .1
                .fetch_max(Arc::strong_count(&handlers), Ordering::Relaxed);
            async move {
                let _handler = handler;
                echo(caller, request).await
            }
        };
        let served = tokio::spawn(async move {
            tokio::join!(
                serve_http1(first, stop.clone(), answer.clone()),
                serve_http2(second, stop, answer)
            );
        });
        Self {
            http1,
            http2,
            connections,
            begun,
            most,
            shutdown,
            served,
        }
    }

    async fn connect1<B>(&self) -> client1::SendRequest<B>
    where
        B: hyper::body::Body<Data = Bytes, Error = Infallible> + Send + 'static,
    {
        let stream = TcpStream::connect(self.http1).await.unwrap();
        let (sender, connection) = client1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        sender
    }

    async fn connect2<B>(&self) -> client2::SendRequest<B>
    where
        B: hyper::body::Body<Data = Bytes, Error = Infallible> + Send + Unpin + 'static,
    {
        let stream = TcpStream::connect(self.http2).await.unwrap();
        let (sender, connection) = client2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
        tokio::spawn(connection);
        sender
    }
}

fn post<B>(body: B) -> Request<B> {
    Request::post("http://sidecar/").body(body).unwrap()
}

fn full(body: &'static str) -> Full<Bytes> {
    Full::new(Bytes::from_static(body.as_bytes()))
}

fn slow() -> (Slow, mpsc::Sender<Result<Frame<Bytes>, Infallible>>) {
    let (sender, receiver) = mpsc::channel(4);
    (StreamBody::new(ReceiverStream::new(receiver)), sender)
}

fn frame(text: &'static str) -> Result<Frame<Bytes>, Infallible> {
    Ok(Frame::data(Bytes::from_static(text.as_bytes())))
}

async fn text(response: Response<Incoming>) -> String {
    String::from_utf8(
        response
            .into_body()
            .collect()
            .await
            .unwrap()
            .to_bytes()
            .into(),
    )
    .unwrap()
}

#[tokio::test]
async fn both_protocols_share_a_lasting_connection() {
    let echo = Echo::start(Protection::Plain).await;
    let (mut first, mut second) = (echo.connect1().await, echo.connect2().await);
    for _ in 0..3 {
        let response = first.send_request(post(full("one"))).await.unwrap();
        assert_eq!(response.headers()["from"], "127.0.0.1");
        assert_eq!(text(response).await, "one");
        first.ready().await.unwrap();
        assert_eq!(
            text(second.send_request(post(full("two"))).await.unwrap()).await,
            "two"
        );
    }
}

#[tokio::test]
async fn unix_socket_serves_until_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rls.sock");
    let unix = UnixSocket::listen(path.clone()).unwrap();
    let echo = Echo::with(Protection::Plain, Connections::fair(64), Some(unix)).await;
    let stream = UnixStream::connect(&path).await.unwrap();
    let (mut sender, connection) = client2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    assert_eq!(
        text(sender.send_request(post(full("unix"))).await.unwrap()).await,
        "unix"
    );
    echo.shutdown.cancel();
    echo.served.await.unwrap();
    assert!(!path.exists());
}

#[tokio::test]
async fn shutdown_answers_the_request_in_progress() {
    let echo = Echo::start(Protection::Plain).await;
    let (mut first, mut second) = (echo.connect1().await, echo.connect2().await);
    let (one, one_sender) = slow();
    let (two, two_sender) = slow();
    one_sender.send(frame("begun, ")).await.unwrap();
    two_sender.send(frame("begun, ")).await.unwrap();
    let answers = [
        tokio::spawn(first.send_request(post(one))),
        tokio::spawn(second.send_request(post(two))),
    ];
    until(|| echo.begun.load(Ordering::Relaxed) == 2).await;
    echo.shutdown.cancel();
    until_closed(echo.http1).await;
    until_closed(echo.http2).await;
    for sender in [one_sender, two_sender] {
        sender.send(frame("ended")).await.unwrap();
    }
    for answer in answers {
        assert_eq!(text(answer.await.unwrap().unwrap()).await, "begun, ended");
    }
    echo.served.await.unwrap();
    assert_eq!(echo.connections.counts().pending, 0);
}

async fn until(mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn until_closed(port: SocketAddr) {
    while TcpStream::connect(port).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
