//! The service behind a proxy under test: it answers with the request as it arrived.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, SEC_WEBSOCKET_ACCEPT, UPGRADE};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Version};
use http_body_util::combinators::WithTrailers;
use http_body_util::{BodyExt, Either, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use super::caller::SEEN_SHADOW;

/// Field of a request that the sidecar would have refused if it enforced its decision.
const WITHHELD: &str = "x-plimsoll-shadow";
/// Answer to the key of the example in RFC 6455.
const ACCEPTED: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");

type Trailers = Ready<Option<Result<HeaderMap, Infallible>>>;
type Body = Either<WithTrailers<Full<Bytes>, Trailers>, Full<Bytes>>;

/// A running service, until it is dropped.
pub(in crate::sidecar) struct Backend {
    pub(in crate::sidecar) address: SocketAddr,
    withheld: Arc<AtomicU64>,
    runtime: Option<Runtime>,
}

impl Backend {
    pub(in crate::sidecar) fn start() -> Self {
        let runtime = Runtime::new().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let withheld = Arc::<AtomicU64>::default();
        let counted = Arc::clone(&withheld);
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let counted = Arc::clone(&counted);
                tokio::spawn(async move {
                    let service = service_fn(move |request| answer(request, Arc::clone(&counted)));
                    let server = auto::Builder::new(TokioExecutor::new());
                    // The proxy sees an error, and reports it.
                    let _ = server
                        .serve_connection_with_upgrades(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        Self {
            address,
            withheld,
            runtime: Some(runtime),
        }
    }

    /// Returns the number of requests so far that arrived with a withheld refusal.
    pub(in crate::sidecar) fn withheld(&self) -> u64 {
        self.withheld.load(Ordering::Relaxed)
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        // Connections that are kept alive would delay the end of the test.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Answers a request, and shows a withheld refusal of the sidecar.
async fn answer(
    request: Request<Incoming>,
    withheld: Arc<AtomicU64>,
) -> Result<Response<Body>, Infallible> {
    let shadow = request.headers().get(WITHHELD).cloned();
    let mut response = if request.headers().contains_key(UPGRADE) {
        echo(request)
    } else if request.version() == Version::HTTP_2
        && request.headers().get(CONTENT_TYPE) == Some(&GRPC)
    {
        empty_message()
    } else {
        show(request).await
    };
    if let Some(shadow) = shadow {
        withheld.fetch_add(1, Ordering::Relaxed);
        response.headers_mut().insert(SEEN_SHADOW, shadow);
    }
    Ok(response)
}

/// Echoes the bytes after a request for a WebSocket.
fn echo(mut request: Request<Incoming>) -> Response<Body> {
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let mut stream = TokioIo::new(upgrade.await.unwrap());
        let (mut read, mut write) = tokio::io::split(&mut stream);
        let _ = tokio::io::copy(&mut read, &mut write).await;
    });
    let switching = Response::builder().status(StatusCode::SWITCHING_PROTOCOLS);
    let response = switching
        .header(CONNECTION, "upgrade")
        .header(UPGRADE, "websocket")
        .header(SEC_WEBSOCKET_ACCEPT, ACCEPTED);
    response.body(Either::Right(Full::default())).unwrap()
}

/// Answers a call of gRPC with an empty message.
fn empty_message() -> Response<Body> {
    let status = (
        "grpc-status".parse().unwrap(),
        HeaderValue::from_static("0"),
    );
    let trailers: Trailers = ready(Some(Ok(HeaderMap::from_iter([status]))));
    // No compression, no bytes.
    let message = Full::new(Bytes::from_static(&[0; 5]));
    let response = Response::builder().header(CONTENT_TYPE, GRPC);
    let body = message.with_trailers(trailers);
    response.body(Either::Left(body)).unwrap()
}

/// Answers with the head of the request, one header field per line, and its body; with the status in
/// a path such as `/status/502`.
async fn show(request: Request<Incoming>) -> Response<Body> {
    let status = request.uri().path().strip_prefix("/status/");
    let status = status.and_then(|status| status.parse().ok());
    let mut text = format!("{} {}\n", request.method(), request.uri());
    for (name, value) in request.headers() {
        text += &format!("{name}: {}\n", value.to_str().unwrap_or("?"));
    }
    let body = request.into_body().collect().await;
    let body = body.map(|body| body.to_bytes()).unwrap_or_default();
    text += &format!("\n{}", String::from_utf8_lossy(&body));
    Response::builder()
        .status(status.unwrap_or(200))
        .body(Either::Right(text.into()))
        .unwrap()
}
