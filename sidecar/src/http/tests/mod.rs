//! Tests of the HTTP port, on a limiter with decisions that the test chooses.

mod callers;
mod hostile;
mod json;
mod openapi;
mod plans;
mod proxy;
mod quotas;
mod tokens;
mod wire;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use futures_util::FutureExt;
use http::HeaderMap;
use http_body_util::BodyExt;
use plimsoll_client::testing::ControlPlane;
use plimsoll_policy::Source;
use serde_json::Value;

use super::*;
use crate::rules::Rules;

const LOCAL: Caller = Caller {
    from: IpAddr::V4(Ipv4Addr::LOCALHOST),
    needs_token: false,
};

struct Port {
    plane: ControlPlane,
    service: Arc<Service>,
}

#[derive(Debug)]
struct Answer {
    status: u16,
    headers: HeaderMap,
    body: String,
}

impl Port {
    fn new() -> Self {
        Self::of(Rules::built_in(), Access::default())
    }

    fn with_rules(text: &str) -> Self {
        let read = Rules::read(Source {
            name: "rules.yaml",
            text,
        });
        Self::of(
            read.unwrap_or_else(|error| panic!("{error}")).0,
            Access::default(),
        )
    }

    fn of(rules: Rules, access: Access) -> Self {
        let plane = ControlPlane::new(7);
        let limits = Limits::new(plane.limiter(), rules).unwrap();
        Self {
            service: Arc::new(Service::new(limits, access)),
            plane,
        }
    }

    fn ask(&self, request: Request<&str>) -> Answer {
        self.ask_from(LOCAL, request)
    }

    fn ask_from(&self, caller: Caller, request: Request<&str>) -> Answer {
        let (head, body) = request.into_parts();
        let service = &self.service;
        let answered = async {
            match service.begin(caller, head) {
                Begun::Answered(response) => response,
                Begun::Asking(asking) => asking.answer(service).await,
                Begun::NeedsBody(call) => service.end(call, body.as_bytes()).await,
            }
        };
        let response = answered
            .now_or_never()
            .expect("nothing waits but the store, whose fake answers at once");
        let (head, body) = response.into_parts();
        let body = body.collect().now_or_never().unwrap().unwrap().to_bytes();
        Answer {
            status: head.status.as_u16(),
            headers: head.headers,
            body: String::from_utf8(body.to_vec()).unwrap(),
        }
    }

    fn post(&self, path: &str, body: &str) -> Answer {
        self.ask(
            Request::post(path)
                .header("content-type", "application/json")
                .body(body)
                .unwrap(),
        )
    }

    fn get(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        let request = Request::get(path);
        let request = headers.iter().fold(request, |request, (name, value)| {
            request.header(*name, *value)
        });
        self.ask(request.body("").unwrap())
    }

    fn counts(&self) -> Vec<(&'static str, &'static str, u64)> {
        let counts = self.service.counts.requests();
        counts
            .filter(|(_, requests)| *requests > 0)
            .map(|([endpoint, result], requests)| (endpoint, result, requests))
            .collect()
    }

    fn mistakes(&self) -> Vec<(&'static str, u64)> {
        let mut mistakes = self.service.counts.mistakes().to_vec();
        mistakes.retain(|(_, count)| *count > 0);
        mistakes
    }
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

/// Each request moves the future of its answer several times.
const ANSWER_BYTES_MAX: usize = 2 * 1024;

/// Serves a port on loopback, for programs, until the runtime ends.
async fn serve(port: &Port) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = port.service.clone();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let service = service.clone();
            tokio::spawn(async move {
                let answer = hyper::service::service_fn(|request| {
                    let answered = service.clone().answer(LOCAL, request);
                    assert!(size_of_val(&answered) <= ANSWER_BYTES_MAX);
                    async { Ok::<_, std::convert::Infallible>(answered.await) }
                });
                let stream = hyper_util::rt::TokioIo::new(stream);
                let _ = hyper::server::conn::http1::Builder::new()
                    .serve_connection(stream, answer)
                    .await;
            });
        }
    });
    address
}
