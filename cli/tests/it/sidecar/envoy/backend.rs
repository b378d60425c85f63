//! A service behind a proxy, and callers in front of it that count their answers.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt, Empty, Full};
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use plimsoll_testing::process::until;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::time::{MissedTickBehavior, interval, timeout};

const ANSWER_MAX: Duration = Duration::from_secs(30);

/// A service that shows the head of each request that reaches it, and answers calls of gRPC with an
/// empty message.
pub(super) struct Backend {
    pub(super) address: SocketAddr,
    runtime: Runtime,
}

pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) body: String,
}

/// A caller that sends requests at a rate, whether or not earlier ones are answered.
pub(super) struct Load {
    counts: Arc<Counts>,
    stopped: Arc<AtomicBool>,
}

#[derive(Default)]
struct Counts {
    served: AtomicU64,
    would: AtomicU64,
    refused: AtomicU64,
    cut: AtomicU64,
    failed: AtomicU64,
}

/// Answers so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tally {
    pub(super) at: Instant,
    /// Answers of the backend.
    pub(super) served: f64,
    /// Served requests that the sidecar would have refused.
    pub(super) would: f64,
    /// Refusals of the sidecar.
    pub(super) refused: f64,
    /// Refusals of the proxy's own safety bucket.
    pub(super) cut: f64,
    /// All other answers, and missing answers.
    pub(super) failed: f64,
}

impl Backend {
    pub(super) fn start() -> Self {
        let runtime = Runtime::new().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let server = auto::Builder::new(TokioExecutor::new());
                    // An error is the end of the proxy's connection.
                    let _ = server
                        .serve_connection(TokioIo::new(stream), service_fn(show))
                        .await;
                });
            }
        });
        Self { address, runtime }
    }

    pub(super) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    pub(super) fn get(&self, proxy: SocketAddr, path: &str, headers: &[(&str, &str)]) -> Answer {
        let request = request(proxy, path, headers);
        self.runtime.block_on(async {
            let response = timeout(ANSWER_MAX, client().request(request))
                .await
                .unwrap()
                .unwrap();
            let (head, body) = response.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            let body = String::from_utf8(body.to_vec()).unwrap();
            Answer {
                status: head.status.as_u16(),
                headers: head.headers,
                body,
            }
        })
    }

    /// Sends `rps` GETs per second to a proxy.
    pub(super) fn load(
        &self,
        proxy: SocketAddr,
        path: &str,
        headers: &[(&str, &str)],
        rps: u32,
    ) -> Load {
        let (counts, stopped) = (Arc::<Counts>::default(), Arc::<AtomicBool>::default());
        let load = Load {
            counts: Arc::clone(&counts),
            stopped: Arc::clone(&stopped),
        };
        let (client, request) = (client(), request(proxy, path, headers));
        self.runtime.spawn(async move {
            let mut due = interval(Duration::from_secs(1) / rps);
            // A late caller catches up, as independent callers would.
            due.set_missed_tick_behavior(MissedTickBehavior::Burst);
            while !stopped.load(Ordering::Relaxed) {
                due.tick().await;
                let (sent, counts) = (client.request(request.clone()), Arc::clone(&counts));
                tokio::spawn(
                    async move { counts.count(timeout(ANSWER_MAX, sent).await.ok()).await },
                );
            }
        });
        load
    }
}

fn client() -> Client<HttpConnector, Empty<Bytes>> {
    Client::builder(TokioExecutor::new()).build_http()
}

fn request(proxy: SocketAddr, path: &str, headers: &[(&str, &str)]) -> Request<Empty<Bytes>> {
    let request = Request::get(format!("http://{proxy}{path}"));
    let request = headers.iter().fold(request, |request, (name, value)| {
        request.header(*name, *value)
    });
    request.body(Empty::new()).unwrap()
}

/// Answers with the head of a request, one header field per line, and shows a withheld refusal of
/// the sidecar.
async fn show<B>(
    request: Request<B>,
) -> Result<Response<http_body_util::Either<Grpc, Full<Bytes>>>, Infallible> {
    let headers = request.headers();
    let would = headers.get("x-plimsoll-shadow").cloned();
    let is_grpc = headers
        .get("content-type")
        .is_some_and(|kind| kind == "application/grpc");
    let body = if is_grpc {
        let trailers = HeaderMap::from_iter([(
            "grpc-status".parse().unwrap(),
            HeaderValue::from_static("0"),
        )]);
        // An empty message: no compression, no bytes.
        let message = Full::new(Bytes::from_static(&[0; 5]));
        let end: Trailers = std::future::ready(Some(Ok(trailers)));
        http_body_util::Either::Left(message.with_trailers(end))
    } else {
        let mut lines = format!("{} {}\n", request.method(), request.uri());
        for (name, value) in headers {
            lines.push_str(&format!("{name}: {}\n", value.to_str().unwrap_or_default()));
        }
        http_body_util::Either::Right(Full::new(Bytes::from(lines)))
    };
    let mut response = Response::new(body);
    if is_grpc {
        response
            .headers_mut()
            .insert("content-type", HeaderValue::from_static("application/grpc"));
    }
    if let Some(would) = would {
        response.headers_mut().insert("x-seen-shadow", would);
    }
    Ok(response)
}

type Trailers = std::future::Ready<Option<Result<HeaderMap, Infallible>>>;
type Grpc = http_body_util::combinators::WithTrailers<Full<Bytes>, Trailers>;

impl Load {
    pub(super) fn tally(&self) -> Tally {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed) as f64;
        let counts = &self.counts;
        let [served, would, refused] = [&counts.served, &counts.would, &counts.refused].map(of);
        let [cut, failed] = [&counts.cut, &counts.failed].map(of);
        Tally {
            at: Instant::now(),
            served,
            would,
            refused,
            cut,
            failed,
        }
    }

    /// Waits until the rates over `span` are as wanted, and returns them.
    pub(super) fn until_rates(
        &self,
        what: &str,
        span: Duration,
        wanted: impl Fn(&Tally) -> bool,
    ) -> Tally {
        let mut tallies = vec![self.tally()];
        until(&format!("{what}, per second over {span:?}"), || {
            tallies.push(self.tally());
            let now = tallies.last()?;
            let from = tallies
                .iter()
                .rev()
                .find(|tally| now.at - tally.at >= span)?;
            Some(from.per_second_until(now)).filter(&wanted)
        })
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
    }
}

impl Tally {
    fn per_second_until(&self, later: &Self) -> Self {
        let seconds = (later.at - self.at).as_secs_f64();
        Self {
            at: later.at,
            served: (later.served - self.served) / seconds,
            would: (later.would - self.would) / seconds,
            refused: (later.refused - self.refused) / seconds,
            cut: (later.cut - self.cut) / seconds,
            failed: (later.failed - self.failed) / seconds,
        }
    }
}

impl Counts {
    async fn count<E>(&self, answer: Option<Result<Response<hyper::body::Incoming>, E>>) {
        let response = match answer {
            Some(Ok(response)) => response,
            Some(Err(_)) | None => return self.add(&self.failed),
        };
        let status = response.status().as_u16();
        let is_safety = response
            .headers()
            .get("x-ratelimit-reason")
            .is_some_and(|reason| reason == "envoy_safety");
        let would = response.headers().contains_key("x-seen-shadow");
        if response.into_body().collect().await.is_err() {
            return self.add(&self.failed);
        }
        match status {
            200 => {
                self.add(&self.served);
                if would {
                    self.add(&self.would);
                }
            }
            429 if is_safety => self.add(&self.cut),
            429 => self.add(&self.refused),
            _ => self.add(&self.failed),
        }
    }

    fn add(&self, count: &AtomicU64) {
        count.fetch_add(1, Ordering::Relaxed);
    }
}
