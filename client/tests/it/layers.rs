//! Layers inside of layers, in axum routers: a request counts once for each bucket, and sub-requests count.

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::{Request, StatusCode};
use plimsoll_client::Metrics;
use plimsoll_client::middleware::{PlimsollLayer, Rule, Rules, Tenant};
use plimsoll_client::testing::ControlPlane;
use tower::{Layer, ServiceExt};

const REQUESTS: u64 = 20;

/// Layers of one limiter, and one of another.
struct Layers {
    /// Two layers with rules of their own for one bucket.
    orders: [PlimsollLayer; 2],
    /// For another bucket.
    stock: PlimsollLayer,
    /// For the bucket `orders` of another limiter.
    other: PlimsollLayer,
}

fn layer(plane: &ControlPlane, bucket: &str) -> PlimsollLayer {
    let rules = Rules::new(&plane.limiter(), Tenant::default(), [Rule::otherwise(bucket)]).unwrap();
    PlimsollLayer::new(rules)
}

fn order() -> Router {
    Router::new().route("/order", get(|| async { "an order" }))
}

fn nested(inner: Router) -> Router {
    Router::new().nest("/shop", inner).route("/shop2", get(|| async { "other" }))
}

/// A handler that sends two requests of its own through a layer, in this process.
fn batch(layer: PlimsollLayer) -> Router {
    let inner = layer.layer(Router::<()>::new().route("/part", get(|| async { "a part" })).with_state(()));
    let handler = move || async move {
        for _ in 0..2 {
            let part = Request::get("/part").body(Body::empty()).unwrap();
            assert_eq!(inner.clone().oneshot(part).await.unwrap().status(), StatusCode::OK);
        }
        "all parts"
    };
    Router::new().route("/order", get(handler))
}

#[tokio::test]
async fn request_counts_once_for_each_bucket_and_sub_requests_count() {
    type App = fn(Layers) -> Router;
    /// The requests counted for `orders` and `stock`, those of the other limiter, and the bucket that is counted by two
    /// layers.
    type Counted = (u64, u64, u64, Option<&'static str>);
    const N: u64 = REQUESTS;
    let cases: [(&str, App, Counted); 9] = [
        ("one layer", |of| nested(order()).layer(of.orders[0].clone()), (N, 0, 0, None)),
        (
            "one layer on a router and on the router nested in it",
            |of| nested(order().layer(of.orders[0].clone())).layer(of.orders[0].clone()),
            (N, 0, 0, Some("orders")),
        ),
        (
            "a layer twice on one router",
            |of| nested(order()).layer(of.orders[0].clone()).layer(of.orders[0].clone()),
            (N, 0, 0, Some("orders")),
        ),
        (
            "a layer on the route and three on routers",
            |of| {
                let inner = order().route_layer(of.orders[0].clone()).layer(of.orders[1].clone());
                nested(inner.layer(of.orders[0].clone())).layer(of.orders[1].clone())
            },
            (N, 0, 0, Some("orders")),
        ),
        (
            "two layers for one bucket",
            |of| nested(order().layer(of.orders[1].clone())).layer(of.orders[0].clone()),
            (N, 0, 0, Some("orders")),
        ),
        (
            "two layers for different buckets",
            |of| nested(order().layer(of.stock)).layer(of.orders[0].clone()),
            (N, N, 0, None),
        ),
        (
            "layers of two limiters",
            |of| nested(order().layer(of.other)).layer(of.orders[0].clone()),
            (N, 0, N, None),
        ),
        (
            "sub-requests through the layer",
            |of| nested(batch(of.orders[0].clone())).layer(of.orders[0].clone()),
            (3 * N, 0, 0, None),
        ),
        (
            "sub-requests through a layer for another bucket",
            |of| nested(batch(of.stock)).layer(of.orders[0].clone()),
            (N, 2 * N, 0, None),
        ),
    ];
    for (case, app, (orders, stock, other, twice)) in cases {
        let (plane, other_plane) = (ControlPlane::new(1), ControlPlane::new(2));
        let layers = Layers {
            orders: [layer(&plane, "orders"), layer(&plane, "orders")],
            stock: layer(&plane, "stock"),
            other: layer(&other_plane, "orders"),
        };
        let app = app(layers);
        for _ in 0..REQUESTS {
            let request = Request::get("/shop/order").body(Body::empty()).unwrap();
            assert_eq!(app.clone().oneshot(request).await.unwrap().status(), StatusCode::OK, "{case}");
        }
        let offered = |plane: &ControlPlane, bucket| plane.counts(bucket).unwrap().offered;
        let counted = (offered(&plane, "orders"), offered(&plane, "stock"), offered(&other_plane, "orders"));
        assert_eq!(counted, (orders, stock, other), "{case}");
        let problems = plane.limiter().setup_problems();
        let mut stacked = problems.iter().filter(|problem| problem.kind() == "layer_twice");
        assert_eq!(stacked.next().map(|problem| problem.subject()), twice, "{case}");
        assert_eq!(stacked.count(), 0, "{case}");
        let text = Metrics::new(&plane.limiter()).text();
        let problem = "plimsoll_setup_problems{problem=\"layer_twice\",subject=\"orders\"} 1";
        assert_eq!(text.contains(problem), twice.is_some(), "{case}: {text}");
        let none = text.contains("plimsoll_requests_passed_total{reason=\"counted_before\"} 0\n");
        assert_eq!(none, twice.is_none(), "{case}: {text}");
    }
}
