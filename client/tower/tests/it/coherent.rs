//! Two chained services, each behind its own middleware with a coherent coin.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::{Request, Response};
use plimsoll_core::decision::Coin;
use plimsoll_core::decision::Mode;
use plimsoll_core::decision::coherent::{Coherence, CoinKey};
use plimsoll_core::decision::coin;
use plimsoll_core::directive::{BucketDirective, Directives, Epoch, KeyDirective, Terms, Values};
use plimsoll_core::exchange::Child;
use plimsoll_core::names::{Bucket, Name, Tenant as TenantName};
use plimsoll_core::quantity::DropRatio;
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::quantity::{Limit, Rate};
use plimsoll_core::report::{Identity, InstanceId};
use plimsoll_tower::{Limiter, PlimsollLayer, Request as Asked, Rule, Rules, Tenant, TraceId};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::parent::identity;

const REQUESTS: usize = 20_000;
const KEY: CoinKey = CoinKey::from_bytes(*b"16 random bytes.");
const COHERENCE: Coherence = Coherence { key: KEY, salt: 7 };

fn ratio(tenths: u32) -> DropRatio {
    DropRatio::new((u64::from(DropRatio::ONE) * u64::from(tenths) / 10) as u32).unwrap()
}

fn terms() -> Terms {
    let limit = Limit::PerSecond(Rate::new(1000.0).unwrap());
    Terms {
        limit,
        mode: Mode::Enforce,
        coin: Coin::Coherent,
        coherence: Some(COHERENCE),
        ..Terms::default()
    }
}

fn limiter(service: &str, refuses: DropRatio) -> Limiter {
    let identity = Identity {
        name: Name::new(service).unwrap(),
        service: Name::new(service).unwrap(),
        ..identity()
    };
    let (limiter, mut subscription) = Limiter::without_transport(identity, 10, 4, 7);
    limiter.bucket(service).unwrap();
    subscription.on_open(MonoTime::ZERO);
    subscription.report(MonoTime::ZERO);
    let values = Values {
        ratio: Some(refuses),
        ..Values::default()
    };
    let directives = Directives {
        lead: Epoch(7).into(),
        seq: 1,
        parent: Some(InstanceId(2)),
        buckets: vec![BucketDirective {
            bucket: Bucket::new(service).unwrap(),
            whole: true,
            terms: terms(),
            keys: vec![KeyDirective {
                tenant: TenantName::default_class(),
                values,
            }],
        }],
        ..Directives::default()
    };
    subscription
        .on_directives(MonoTime::ZERO, directives)
        .unwrap();
    limiter
}

fn by_rule(service: &str, refuses: DropRatio) -> PlimsollLayer {
    let limiter = limiter(service, refuses);
    PlimsollLayer::new(Rules::new(&limiter, Tenant::default(), [Rule::bucket(service)]).unwrap())
}

fn by_closure(service: &str, refuses: DropRatio) -> PlimsollLayer {
    let name: &'static str = service.to_owned().leak();
    PlimsollLayer::by(&limiter(service, refuses), move |_| {
        Some(Asked::new(name, "default"))
    })
}

async fn pass_both(requests: impl Iterator<Item = Request<()>>) -> usize {
    let served = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&served);
    let work = service_fn(
        move |_: Request<()>| -> Ready<Result<Response<String>, Infallible>> {
            counter.fetch_add(1, Ordering::Relaxed);
            ready(Ok(Response::new(String::new())))
        },
    );
    let inner = by_closure("stock", ratio(5)).either_body().layer(work);
    let mut outer = by_rule("shop", ratio(3)).either_body().layer(inner);
    let mut admitted = 0;
    for request in requests {
        let response = outer.ready().await.unwrap().call(request).await.unwrap();
        admitted += usize::from(response.status() == 200);
    }
    assert_eq!(
        served.load(Ordering::Relaxed),
        admitted as u64,
        "a refused request is not served"
    );
    admitted
}

#[tokio::test]
async fn two_hops_admit_like_the_strictest() {
    let mut draws = SmallRng::seed_from_u64(5);
    let traces: Vec<u128> = (0..REQUESTS)
        .map(|_| u128::from(draws.next_u64()) << 64 | u128::from(draws.next_u64()))
        .collect();
    let traced = |trace: &u128| {
        let traceparent = format!("00-{trace:032x}-00f067aa0ba902b7-01");
        Request::get("/orders/7")
            .header("TraceParent", traceparent)
            .body(())
            .unwrap()
    };
    let admitted = pass_both(traces.iter().map(traced)).await;
    let key = COHERENCE.draw_key();
    let passes = |trace: &&u128| !coin::refuses(ratio(5), key.draw(TraceId::new(**trace).unwrap()));
    assert_eq!(
        admitted,
        traces.iter().filter(passes).count(),
        "exactly those that 0.5 admits"
    );
    // And those are half of them: 8 standard deviations of 70.7.
    assert!((9_434..=10_566).contains(&admitted), "{admitted}");
}
