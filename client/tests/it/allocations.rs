//! A decision allocates nothing, in every way to decide and with every outcome.
//!
//! The allocator of `allocation-counter` counts by thread, which excludes the feed's work.

use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::hint::black_box;
use std::task::{Context, Poll, Waker};

use allocation_counter::measure;
use axum::body::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use plimsoll_client::middleware::Head;
use plimsoll_client::{Limiter, Request as Asked, TraceId, Verdict};
use plimsoll_core::decision::Coin;
use plimsoll_core::decision::Mode;
use plimsoll_core::decision::coherent::{Coherence, CoinKey};
use plimsoll_core::directive::{Terms, Values};
use plimsoll_core::quantity::DropRatio;
use plimsoll_core::quantity::Rate;
use tower::{Layer, Service};

use crate::parent::{ALL, Fleet, HALF};

const DECISIONS: usize = 1_000;

/// Returns the allocations of this thread, and the refusals among [`DECISIONS`] decisions.
fn count(mut decide: impl FnMut(usize) -> Verdict) -> (u64, usize) {
    let mut refused = 0;
    let info = measure(|| {
        refused = (0..DECISIONS)
            .filter(|i| !black_box(decide(*i)).is_admit())
            .count()
    });
    (info.count_total, refused)
}

fn names(prefix: &str) -> Vec<String> {
    (0..DECISIONS).map(|i| format!("{prefix}-{i}")).collect()
}

/// Checks the refusals among [`DECISIONS`] against the ratio. At one half the bounds are 8 standard
/// deviations away.
fn check_refused(ratio: u32, refused: usize, how: &str) {
    let expected = match ratio {
        0 => 0..=0,
        ALL => DECISIONS..=DECISIONS,
        _ => DECISIONS * 3 / 8..=DECISIONS * 5 / 8,
    };
    assert!(
        expected.contains(&refused),
        "{refused} of {DECISIONS} refused at {ratio} {how}"
    );
}

/// Decides in every way with new names, on a new thread, including its first decision.
fn every_way(limiter: Limiter, case: &'static str, check: impl Fn(usize, &str) + Send + 'static) {
    let decide = move || {
        let bucket = limiter.bucket("b").unwrap();
        let key = bucket.key("acme");
        let case_name = case.replace(' ', "-");
        let (new, newer) = (
            names(&format!("by-handle-{case_name}")),
            names(&format!("by-name-{case_name}")),
        );
        let trace = |i: usize| TraceId::new(i as u128 + 1);
        let ask = |asked: Asked<'_>| limiter.check(&asked);
        let named = || Asked::new("b", "acme");
        let ways: [(&str, &dyn Fn(usize) -> Verdict); 10] = [
            ("by key", &|_| ask(key.request())),
            ("by bucket and known tenant", &|_| {
                ask(Asked::new(&bucket, "acme"))
            }),
            ("by bucket and new tenants", &|i| {
                ask(Asked::new(&bucket, &new[i]))
            }),
            ("by bucket and invalid tenant", &|_| {
                ask(Asked::new(&bucket, "no name"))
            }),
            ("by names", &|_| ask(named())),
            ("by names, new ones", &|i| ask(Asked::new("b", &newer[i]))),
            ("by key and trace", &|i| ask(key.request().trace(trace(i)))),
            ("by names and trace", &|i| ask(named().trace(trace(i)))),
            ("by several keys and trace", &|i| {
                limiter.check(&Asked::all(&[named(), named().cost(0)]).trace(trace(i)))
            }),
            ("without a cost", &|i| ask(named().cost(0).trace(trace(i)))),
        ];
        for (how, decide) in ways {
            let (allocations, refused) = count(decide);
            assert_eq!(allocations, 0, "{how}, {case}");
            check(refused, how);
        }
    };
    std::thread::spawn(decide).join().unwrap();
}

#[test]
fn allocation_counter_counts() {
    assert_eq!(measure(|| drop(black_box(Box::new(1)))).count_total, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn decision_allocates_nothing() {
    let fleet = Fleet::start(&["b"]).await;
    for (coin, ratio, case) in [
        (Coin::Dithered, 0, "nothing to refuse"),
        (Coin::Dithered, HALF, "dithered"),
        (Coin::Coherent, HALF, "coherent"),
        (Coin::Dithered, ALL, "all refused"),
    ] {
        let coherence = Some(Coherence {
            key: CoinKey::from_bytes([7; 16]),
            salt: 1,
        });
        let terms = Terms {
            mode: Mode::Enforce,
            coin,
            coherence,
            ..Terms::default()
        };
        let values = Values {
            ratio: Some(DropRatio::new(ratio).unwrap()),
            ..Values::default()
        };
        fleet
            .direct_values("b", terms, &[("default", values)])
            .await;
        every_way(fleet.limiter.clone(), case, move |refused, how| {
            check_refused(ratio, refused, how)
        });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn decision_with_a_guard_allocates_nothing() {
    let fleet = Fleet::start(&["b"]).await;
    for (per_second, case) in [
        (0.001, "a guard that refuses"),
        (1e9, "a guard that does not"),
    ] {
        let guard = Some(Rate::new(per_second).unwrap());
        let ratio = Some(DropRatio::NONE);
        let terms = Terms {
            mode: Mode::Enforce,
            clients: Some(1),
            ..Terms::default()
        };
        fleet
            .direct_values(
                "b",
                terms,
                &[(
                    "default",
                    Values {
                        guard,
                        ratio,
                        ..Values::default()
                    },
                )],
            )
            .await;
        every_way(fleet.limiter.clone(), case, move |refused, how| {
            // The guard's burst is 3 requests for all ways together.
            let expected = if per_second < 1.0 {
                DECISIONS - 4..=DECISIONS
            } else {
                0..=0
            };
            assert!(
                expected.contains(&refused),
                "{refused} of {DECISIONS} refused {how}, {case}"
            );
        });
    }
}

#[test]
fn decision_for_an_undeclared_bucket_allocates_nothing() {
    let (limiter, _feed) = plimsoll_client::Limiter::builder("shop")
        .build_detached()
        .unwrap();
    let buckets = names("bucket");
    let (allocations, refused) = count(|i| limiter.check(&Asked::new(&*buckets[i], "acme")));
    assert_eq!((allocations, refused), (0, 0));
}

#[test]
fn middleware_admits_a_request_without_allocation() {
    use http::Method;
    use plimsoll_client::middleware::{PlimsollLayer, Rule, Rules, Tenant};

    let (limiter, _feed) = plimsoll_client::Limiter::builder("shop")
        .build_detached()
        .unwrap();
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
            Tenant::forwarded_address("x-tenant", 1)
                .unwrap()
                .or(Tenant::peer_address()),
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
