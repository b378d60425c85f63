//! Callers of a proxy: single requests, bytes of a connection, and a steady load with counted
//! answers.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use plimsoll_testing::process::{PATIENCE, until};
use tokio::runtime::Runtime;
use tokio::time::{MissedTickBehavior, interval, timeout};

const ANSWER_MAX: Duration = Duration::from_secs(30);
/// Field of an answer to a request whose refusal the sidecar withheld.
pub(super) const SEEN_SHADOW: &str = "x-seen-shadow";

/// By name and value.
pub(in crate::sidecar) type Fields<'a> = &'a [(&'a str, &'a str)];

type HttpClient = Client<HttpConnector, Full<Bytes>>;

#[derive(Debug)]
pub(in crate::sidecar) struct Answer {
    /// 0 if there was no answer.
    pub(in crate::sidecar) status: u16,
    pub(in crate::sidecar) headers: HeaderMap,
    pub(in crate::sidecar) body: String,
}

impl Answer {
    /// Returns the value of a header field, or "" without one. A repeated field is a fault.
    pub(in crate::sidecar) fn field(&self, name: &str) -> &str {
        let mut values = self.headers.get_all(name).iter();
        let value = values.next().map_or("", |value| value.to_str().unwrap());
        assert!(values.next().is_none(), "{name} occurs twice: {self:?}");
        value
    }
}

/// A caller that keeps its connections.
pub(in crate::sidecar) struct Caller {
    runtime: Runtime,
    client: HttpClient,
    address: SocketAddr,
}

impl Caller {
    pub(in crate::sidecar) fn new(address: SocketAddr) -> Self {
        Self {
            runtime: Runtime::new().unwrap(),
            client: client(),
            address,
        }
    }

    pub(in crate::sidecar) fn send(
        &self,
        method: &str,
        path: &str,
        fields: Fields<'_>,
        body: &str,
    ) -> Answer {
        let request = request(self.address, method, path, fields, body);
        self.runtime.block_on(answer(&self.client, request))
    }

    pub(in crate::sidecar) fn get(&self, path: &str, fields: Fields<'_>) -> Answer {
        self.send("GET", path, fields, "")
    }
}

fn client() -> HttpClient {
    Client::builder(TokioExecutor::new()).build_http()
}

fn request(
    address: SocketAddr,
    method: &str,
    path: &str,
    fields: Fields<'_>,
    body: &str,
) -> Request<Full<Bytes>> {
    let mut request = Request::builder()
        .method(method)
        .uri(format!("http://{address}{path}"));
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    request
        .body(Bytes::copy_from_slice(body.as_bytes()).into())
        .unwrap()
}

async fn answer(client: &HttpClient, request: Request<Full<Bytes>>) -> Answer {
    let answered = async {
        let response = client.request(request).await.map_err(|it| it.to_string())?;
        let (head, body) = response.into_parts();
        let body = body.collect().await.map(|body| body.to_bytes());
        Ok(Answer {
            status: head.status.as_u16(),
            headers: head.headers,
            body: String::from_utf8_lossy(&body.unwrap_or_default()).into_owned(),
        })
    };
    let answered = timeout(ANSWER_MAX, answered).await;
    let answered = answered.unwrap_or_else(|_| Err("no answer in time".to_owned()));
    answered.unwrap_or_else(|body| Answer {
        status: 0,
        headers: HeaderMap::new(),
        body,
    })
}

/// Sends bytes on a new connection, and reads until the answer contains `wanted`.
pub(in crate::sidecar) fn exchange(stream: &mut TcpStream, sent: &[u8], wanted: &str) -> String {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(sent).unwrap();
    let mut read = Vec::new();
    let mut part = [0; 4096];
    loop {
        let count = stream.read(&mut part).unwrap_or_else(|error| {
            let text = String::from_utf8_lossy(&read);
            panic!("{error} while waiting for {wanted:?}: {text}")
        });
        read.extend_from_slice(&part[..count]);
        let text = String::from_utf8_lossy(&read);
        if text.contains(wanted) {
            return text.into_owned();
        }
        assert!(
            count > 0,
            "the connection was closed before {wanted:?}: {text}"
        );
    }
}

/// An answer to a load.
struct Seen {
    at: Instant,
    caller: usize,
    status: u16,
    /// The sidecar would have refused it.
    is_withheld: bool,
    /// The proxy's own safety bucket refused it.
    is_cut: bool,
}

/// Number of answers by caller and status; status 0 means none.
pub(in crate::sidecar) type Counts = BTreeMap<(usize, u16), u64>;

/// Answers per second.
#[derive(Clone, Copy, Debug)]
pub(in crate::sidecar) struct Rates {
    /// Answers of the service.
    pub(in crate::sidecar) served: f64,
    /// Served requests that the sidecar would have refused.
    pub(in crate::sidecar) would: f64,
    /// Refusals of the sidecar.
    pub(in crate::sidecar) refused: f64,
    /// Refusals of the proxy's own safety bucket.
    pub(in crate::sidecar) cut: f64,
}

/// A steady open-loop load, until it is dropped.
pub(in crate::sidecar) struct Load {
    seen: Arc<Mutex<Vec<Seen>>>,
    runtime: Option<Runtime>,
}

impl Load {
    /// Sends `rps` requests/s for a path, by callers with these fields in turn.
    pub(in crate::sidecar) fn start(
        address: SocketAddr,
        path: &str,
        callers: &[Fields<'_>],
        rps: u32,
    ) -> Self {
        let runtime = Runtime::new().unwrap();
        let client = client();
        let requests: Vec<_> = callers
            .iter()
            .map(|fields| request(address, "GET", path, fields, ""))
            .collect();
        let seen = Arc::<Mutex<Vec<Seen>>>::default();
        let shared = Arc::clone(&seen);
        runtime.spawn(async move {
            let mut ticks = interval(Duration::from_secs(1) / rps);
            // On a busy machine it becomes a slower load, not a burst.
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            for (caller, request) in requests.iter().enumerate().cycle() {
                ticks.tick().await;
                let (client, request, all) = (client.clone(), request.clone(), Arc::clone(&shared));
                tokio::spawn(async move {
                    let answer = answer(&client, request).await;
                    all.lock().unwrap().push(Seen {
                        at: Instant::now(),
                        caller,
                        status: answer.status,
                        is_withheld: answer.headers.contains_key(SEEN_SHADOW),
                        is_cut: answer.field("x-ratelimit-reason") == "envoy_safety",
                    });
                });
            }
        });
        Self {
            seen,
            runtime: Some(runtime),
        }
    }

    /// Counts the next `count` answers.
    pub(in crate::sidecar) fn next(&self, count: usize) -> Counts {
        let from = self.seen.lock().unwrap().len();
        until("answers", || {
            let seen = self.seen.lock().unwrap();
            (seen.len() >= from + count).then(|| counts(&seen[from..]))
        })
    }

    pub(in crate::sidecar) fn all(&self) -> Counts {
        counts(&self.seen.lock().unwrap())
    }

    /// Waits until the rates over `span` are as wanted, and returns them.
    pub(in crate::sidecar) fn until_rates(
        &self,
        what: &str,
        span: Duration,
        wanted: impl Fn(&Rates) -> bool,
    ) -> Rates {
        let began = Instant::now();
        until(&format!("{what}, per second over {span:?}"), || {
            (began.elapsed() >= span)
                .then(|| self.rates(span))
                .filter(&wanted)
        })
    }

    fn rates(&self, span: Duration) -> Rates {
        let now = Instant::now();
        let seen = self.seen.lock().unwrap();
        let rate = |wanted: fn(&Seen) -> bool| {
            let recent = seen.iter().filter(|seen| now - seen.at <= span);
            recent.filter(|seen| wanted(seen)).count() as f64 / span.as_secs_f64()
        };
        Rates {
            served: rate(|seen| seen.status == 200),
            would: rate(|seen| seen.status == 200 && seen.is_withheld),
            refused: rate(|seen| seen.status == 429 && !seen.is_cut),
            cut: rate(|seen| seen.status == 429 && seen.is_cut),
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn counts(seen: &[Seen]) -> Counts {
    let mut counts = Counts::new();
    for seen in seen {
        *counts.entry((seen.caller, seen.status)).or_default() += 1;
    }
    counts
}

/// Share of the answers with a status, of one caller or of all.
pub(in crate::sidecar) fn share(counts: &Counts, caller: Option<usize>, status: u16) -> f64 {
    let of_caller = |((by, _), _): &(&(usize, u16), &u64)| caller.is_none_or(|it| it == *by);
    let sum = |wanted: &dyn Fn(u16) -> bool| -> u64 {
        let with = counts.iter().filter(of_caller);
        with.map(|((_, status), count)| if wanted(*status) { *count } else { 0 })
            .sum()
    };
    sum(&|it| it == status) as f64 / sum(&|_| true) as f64
}
