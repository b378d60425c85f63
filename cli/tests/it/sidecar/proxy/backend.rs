//! The service behind a proxy under test: it answers with the request as it arrived.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http::header::{CONNECTION, SEC_WEBSOCKET_ACCEPT, UPGRADE};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

/// Field of a request that the sidecar would have refused if it enforced its decision.
const WITHHELD: &str = "x-plimsoll-shadow";

/// Answer to the key of the example in RFC 6455.
const ACCEPTED: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

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
                let service = service_fn(move |request| answer(request, Arc::clone(&counted)));
                let connection =
                    http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                // The proxy sees an error, and reports it.
                tokio::spawn(connection.with_upgrades());
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

/// Answers with the head and the body of the request, with the status in a path such as
/// `/status/502`, and echoes the bytes after a request for a WebSocket.
async fn answer(
    mut request: Request<Incoming>,
    withheld: Arc<AtomicU64>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    if request.headers().contains_key(WITHHELD) {
        withheld.fetch_add(1, Ordering::Relaxed);
    }
    if request.headers().contains_key(UPGRADE) {
        let upgrade = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let mut stream = TokioIo::new(upgrade.await.unwrap());
            let (mut read, mut write) = tokio::io::split(&mut stream);
            let _ = tokio::io::copy(&mut read, &mut write).await;
        });
        let switching = Response::builder().status(StatusCode::SWITCHING_PROTOCOLS);
        let response = switching
            .header(CONNECTION, "upgrade")
            .header(UPGRADE, "websocket");
        let response = response.header(SEC_WEBSOCKET_ACCEPT, ACCEPTED);
        return Ok(response.body(Full::default()).unwrap());
    }
    let status = request
        .uri()
        .path()
        .strip_prefix("/status/")
        .and_then(|status| status.parse().ok());
    let mut text = format!(
        "{} {}\n{}\n",
        request.method(),
        request.uri(),
        fields(request.headers())
    );
    let body = request
        .into_body()
        .collect()
        .await
        .map(|body| body.to_bytes())
        .unwrap_or_default();
    text.push_str(&String::from_utf8_lossy(&body));
    Ok(Response::builder()
        .status(status.unwrap_or(200))
        .body(text.into())
        .unwrap())
}

/// One line `name: value` for each field.
fn fields(headers: &HeaderMap) -> String {
    headers
        .iter()
        .map(|(name, value)| format!("{name}: {}\n", value.to_str().unwrap_or("?")))
        .collect()
}
