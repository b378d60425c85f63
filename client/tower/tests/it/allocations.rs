//! An admitted request allocates nothing in the layer, but for the marks of few requests.
//!
//! The allocator of `allocation-counter` counts by thread, which excludes the feed's work.

use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::task::{Context, Poll, Waker};

use allocation_counter::measure;
use axum::body::Bytes;
use http::{Method, Request, Response};
use http_body_util::Full;
use plimsoll_tower::{Head, Limiter, PlimsollLayer, Request as Asked, Rule, Rules, Tenant};
use tower::{Layer, Service};

#[test]
fn middleware_admits_a_request_without_allocation() {
    let (limiter, _feed) = Limiter::builder("shop").build_detached().unwrap();
    let names = std::collections::HashMap::from([("acme", std::sync::Arc::<str>::from("acme"))]);
    for (source, of) in [
        (Tenant::header("x-tenant").unwrap(), "a header"),
        (
            Tenant::from_fn(|request| request.headers.get("x-tenant")?.to_str().ok()),
            "a function",
        ),
        (Tenant::constant("acme").unwrap(), "a constant"),
        (Tenant::default(), "the default class"),
        (
            Tenant::by(move |request: Head<'_>| names.get(request.header("x-tenant")?).cloned()),
            "an own name",
        ),
        (
            Tenant::forwarded_address("x-forwarded-for", 1)
                .unwrap()
                .or(Tenant::peer_address())
                // One that is never found is a setup problem, whose text is allocated once.
                .or(Tenant::header("x-tenant").unwrap()),
            "an address",
        ),
        (
            Tenant::header("x-other")
                .unwrap()
                .or(Tenant::header("x-tenant").unwrap()),
            "the second source",
        ),
    ] {
        let rules = [
            Rule::unlimited().path("/{*rest}").methods([Method::TRACE]),
            Rule::bucket("read")
                .prefix("/orders")
                .methods([Method::GET])
                .cost(|_| 2),
            Rule::bucket("write"),
        ];
        let layer = PlimsollLayer::new(Rules::new(&limiter, source, rules).unwrap());
        admits_without_allocation(layer.clone().either_body(), of);
        admits_without_allocation(layer, of);
    }
    let layer = PlimsollLayer::by(&limiter, |_| Some(Asked::new("read", "acme")));
    admits_without_allocation(layer, "a function");
}

/// Passes requests to a service behind a layer, from the first one of a thread on. Each thread marks its first 1,000
/// requests and then one of 256, to notice layers inside of layers; no other request allocates.
fn admits_without_allocation<L>(layer: L, of: &'static str)
where
    L: Layer<Echo, Service: Service<Request<()>> + Send> + 'static,
{
    const MARKED: usize = 1_000;
    let mut service = layer.layer(Echo);
    let cases = [
        ("acme", "/orders/7"),
        ("acme", "/%6frders/%37"),
        ("new-one", "/orders/../orders//7"),
        ("no name", "/orders/7"),
    ];
    let calls = move || {
        let mut allocates = |(tenant, path): (&str, &str)| {
            let request = Request::get(path).header("x-tenant", tenant);
            let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
            let request = request.header("x-forwarded-for", "10.0.0.7");
            let request = request.header("traceparent", trace).body(()).unwrap();
            let mut context = Context::from_waker(Waker::noop());
            let mut answered = false;
            // Deallocations, as of the request, are not counted.
            let info = measure(|| {
                let response = std::pin::pin!(service.call(request)).poll(&mut context);
                answered = matches!(response, Poll::Ready(Ok(_)));
            });
            assert!(answered);
            info.count_total
        };
        let marking = (0..MARKED).map(|n| allocates(cases[n % cases.len()]));
        assert_eq!(
            marking.max(),
            Some(MARK_ALLOCATIONS),
            "a mark, for the tenant of {of}"
        );
        for case in cases {
            let requests: Vec<u64> = (0..512).map(|_| allocates(case)).collect();
            let marked = requests
                .iter()
                .filter(|allocations| **allocations > 0)
                .count();
            assert_eq!(marked, 2, "of 512 for {case:?} and the tenant of {of}");
            assert!(
                requests
                    .iter()
                    .all(|allocations| [0, MARK_ALLOCATIONS].contains(allocations))
            );
        }
    };
    std::thread::scope(|scope| scope.spawn(calls).join()).unwrap();
}

/// The allocations of a mark: itself, and the map of extensions with its table and its entry.
const MARK_ALLOCATIONS: u64 = 4;

#[derive(Clone)]
struct Echo;

impl Service<Request<()>> for Echo {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        ready(Ok(Response::new(Full::default())))
    }
}
