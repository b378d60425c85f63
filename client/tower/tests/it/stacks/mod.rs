//! The stacks of common services: the layer composes with the layers around it, in any usual order,
//! and leaves requests, responses and counts as they are.

mod axum_stacks;

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Method, Request, StatusCode};
use axum::routing::{any, get};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use plimsoll_core::decision::Mode;
use plimsoll_core::report::Counts;
use plimsoll_tower::{PlimsollLayer, Rule, Rules, Tenant};
use tokio::net::TcpListener;

use crate::parent::{ALL, Fleet};

const ORIGIN: &str = "https://shop.example";
/// The deadline of every stack with a timeout, far above the time of a request that answers.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Requests of each kind, so that a request counted twice or not at all shows.
const REQUESTS: u64 = 7;

struct Stack {
    name: &'static str,
    serve: fn(TcpListener, PlimsollLayer),
    cors: Cors,
    preflight: u16,
    /// Headers that layers outside of the limiter add to every response.
    outside: &'static [&'static str],
    late: Option<u16>,
    panics: Option<u16>,
}

/// The place of the layer for CORS. Outside of the limiter a web page can read refusals, too.
#[derive(Clone, Copy, PartialEq)]
enum Cors {
    None,
    Outside,
}

impl Default for Stack {
    fn default() -> Self {
        Self {
            name: "",
            serve: |_, _| (),
            cors: Cors::None,
            preflight: 200,
            outside: &[],
            late: None,
            panics: None,
        }
    }
}

struct Received {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

struct Shop {
    fleet: Fleet,
    address: SocketAddr,
    client: Client<HttpConnector, Full<Bytes>>,
}

fn layer(fleet: &Fleet) -> PlimsollLayer {
    let rules = Rules::new(
        &fleet.limiter,
        Tenant::header("x-tenant").unwrap(),
        [
            Rule::bucket("orders").path("/orders/{id}"),
            Rule::unlimited().path("/healthz"),
            Rule::otherwise("rest"),
        ],
    );
    PlimsollLayer::new(rules.unwrap())
}

fn routes() -> Router {
    let echo = any(async |request: Request<Body>| {
        let (parts, body) = request.into_parts();
        (
            [(
                "x-echo",
                parts
                    .headers
                    .get("x-text")
                    .cloned()
                    .unwrap_or("none".parse().unwrap()),
            )],
            body,
        )
    });
    Router::new()
        .route("/orders/{id}", echo)
        .route("/healthz", get(async || "ok"))
        .route("/late", get(std::future::pending::<StatusCode>))
        .route(
            "/panics",
            get(async || -> StatusCode { panic!("the handler panics on purpose") }),
        )
        .fallback(async || (StatusCode::NOT_FOUND, "no such page"))
}

impl Shop {
    async fn start(serve: fn(TcpListener, PlimsollLayer)) -> Self {
        let fleet = Fleet::start(&["orders", "rest"]).await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        serve(listener, layer(&fleet));
        Self {
            fleet,
            address,
            client: Client::builder(TokioExecutor::new()).build_http(),
        }
    }

    async fn send(&self, method: Method, path: &str, headers: &[(&'static str, &str)]) -> Received {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", self.address));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request
            .header("x-text", "hello")
            .body(Full::from("a body"))
            .unwrap();
        let (parts, body) = self.client.request(request).await.unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Received {
            status: parts.status,
            headers: parts.headers,
            body,
        }
    }

    async fn enforce(&self, ratio: u32) {
        for bucket in ["orders", "rest"] {
            self.fleet
                .direct(bucket, Mode::Enforce, &[("default", ratio)])
                .await;
        }
    }
}

fn assert_refused(stack: &str, response: &Received) {
    assert_eq!(response.status, 429, "{stack}");
    assert_eq!(
        response.headers["content-type"], "application/problem+json",
        "{stack}"
    );
    assert_eq!(
        response.headers["x-ratelimit-reason"], "cluster_overload",
        "{stack}"
    );
    let wait: u64 = response.headers["retry-after"]
        .to_str()
        .unwrap()
        .parse()
        .unwrap();
    assert!(wait >= 1, "{stack}");
    assert_eq!(response.headers["x-ratelimit-limit"], "100", "{stack}");
    assert!(response.headers.contains_key("ratelimit-policy"), "{stack}");
    assert!(
        !response.headers.contains_key("x-echo"),
        "{stack}: a refused request reached the service"
    );
}

async fn check(stack: &Stack) {
    let name = stack.name;
    let shop = Shop::start(stack.serve).await;
    let caller = [("x-tenant", "acme"), ("origin", ORIGIN)];

    shop.enforce(0).await;
    for _ in 0..REQUESTS {
        let response = shop.send(Method::PUT, "/orders/7", &caller).await;
        assert_eq!(
            (response.status, &response.body[..]),
            (StatusCode::OK, &b"a body"[..]),
            "{name}"
        );
        assert_eq!(response.headers["x-echo"], "hello", "{name}");
        assert!(!response.headers.contains_key("retry-after"), "{name}");
        assert_outside(stack, &response);
    }
    // The fallback of the router counts as the rest, and answers as it would without the limiter.
    let absent = shop.send(Method::GET, "/absent", &caller).await;
    assert_eq!(
        (absent.status, &absent.body[..]),
        (StatusCode::NOT_FOUND, &b"no such page"[..]),
        "{name}"
    );
    let mut rest = 1;
    for (path, status) in [("/late", stack.late), ("/panics", stack.panics)] {
        if let Some(status) = status {
            let response = shop.send(Method::GET, path, &caller).await;
            assert_eq!(response.status, status, "{name}: {path}");
            assert_outside(stack, &response);
            rest += 1;
        }
    }

    shop.enforce(ALL).await;
    for _ in 0..REQUESTS {
        let response = shop.send(Method::PUT, "/orders/7", &caller).await;
        assert_refused(name, &response);
        assert_outside(stack, &response);
        let healthz = shop.send(Method::GET, "/healthz", &caller).await;
        assert_eq!(
            (healthz.status, &healthz.body[..]),
            (StatusCode::OK, &b"ok"[..]),
            "{name}"
        );
    }
    let preflight = [
        ("origin", ORIGIN),
        ("access-control-request-method", "PUT"),
        ("x-tenant", "acme"),
    ];
    let response = shop.send(Method::OPTIONS, "/orders/7", &preflight).await;
    assert_eq!(response.status, stack.preflight, "{name}: preflight");

    let dropped = REQUESTS;
    shop.fleet
        .counted(
            "orders",
            "acme",
            Counts {
                offered: 2 * REQUESTS,
                dropped,
                ..Counts::ZERO
            },
        )
        .await;
    shop.fleet
        .counted(
            "rest",
            "acme",
            Counts {
                offered: rest,
                ..Counts::ZERO
            },
        )
        .await;
    assert_eq!(
        shop.fleet.offered(),
        2 * REQUESTS + rest,
        "{name}: all that was counted"
    );
}

fn assert_outside(stack: &Stack, response: &Received) {
    for header in stack.outside {
        assert!(
            response.headers.contains_key(*header),
            "{}: {header} of {}",
            stack.name,
            response.status
        );
    }
    let allowed = response
        .headers
        .get("access-control-allow-origin")
        .map(|origin| origin.to_str().unwrap());
    let is_allowed = match stack.cors {
        Cors::None => false,
        Cors::Outside => true,
    };
    assert_eq!(
        allowed,
        is_allowed.then_some(ORIGIN),
        "{}: {}",
        stack.name,
        response.status
    );
}
