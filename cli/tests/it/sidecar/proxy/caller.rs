//! Callers of a proxy: single requests, bytes of a connection, and a steady load with counted
//! answers.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use plimsoll_testing::process::{PATIENCE, until};
use tokio::runtime::Runtime;
use tokio::time::{MissedTickBehavior, interval};

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
    match client.request(request).await {
        Ok(response) => {
            let (head, body) = response.into_parts();
            let body = body
                .collect()
                .await
                .map(|body| body.to_bytes())
                .unwrap_or_default();
            let body = String::from_utf8_lossy(&body).into_owned();
            Answer {
                status: head.status.as_u16(),
                headers: head.headers,
                body,
            }
        }
        Err(error) => Answer {
            status: 0,
            headers: HeaderMap::new(),
            body: error.to_string(),
        },
    }
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

/// Number of answers by caller and status; status 0 means none.
pub(in crate::sidecar) type Counts = BTreeMap<(usize, u16), u64>;

/// A steady open-loop load, until it is dropped.
pub(in crate::sidecar) struct Load {
    counts: Arc<Mutex<[Counts; 2]>>,
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
        let counts = Arc::<Mutex<[Counts; 2]>>::default();
        let counted = Arc::clone(&counts);
        runtime.spawn(async move {
            let mut ticks = interval(Duration::from_secs(1) / rps);
            // On a busy machine it becomes a slower load, not a burst.
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            for (caller, request) in requests.iter().enumerate().cycle() {
                ticks.tick().await;
                let (client, request, counted) =
                    (client.clone(), request.clone(), Arc::clone(&counted));
                tokio::spawn(async move {
                    let status = answer(&client, request).await.status;
                    for counts in counted
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .iter_mut()
                    {
                        *counts.entry((caller, status)).or_default() += 1;
                    }
                });
            }
        });
        Self {
            counts,
            runtime: Some(runtime),
        }
    }

    /// Counts the next `count` answers.
    pub(in crate::sidecar) fn next(&self, count: u64) -> Counts {
        self.lock()[0].clear();
        until("answers", || {
            let mut counts = self.lock();
            (counts[0].values().sum::<u64>() >= count).then(|| std::mem::take(&mut counts[0]))
        })
    }

    pub(in crate::sidecar) fn all(&self) -> Counts {
        self.lock()[1].clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, [Counts; 2]> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Share of the answers with a status, of one caller or of all.
pub(in crate::sidecar) fn share(counts: &Counts, caller: Option<usize>, status: u16) -> f64 {
    let of_caller = |(by, _): &(usize, u16)| caller.is_none_or(|caller| caller == *by);
    let all: u64 = counts
        .iter()
        .filter(|(key, _)| of_caller(key))
        .map(|(_, count)| count)
        .sum();
    let with = counts
        .iter()
        .filter(|(key, _)| of_caller(key) && key.1 == status);
    with.map(|(_, count)| count).sum::<u64>() as f64 / all as f64
}
