//! Rules and routers inside of routers: a layer at any place compares the path that it sees and the whole one.

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use axum::routing::get;
use plimsoll_tower::internals::KeyHandle;
use plimsoll_tower::{Limiter, PlimsollLayer, Rule, Rules, Tenant};
use tower::ServiceExt;

type Layer = PlimsollLayer;

type Place = fn(Layer) -> Router;

const INSIDE: Place = |layer| Router::new().nest("/api", orders().layer(layer));
const ON_ROUTES: Place = |layer| Router::new().nest("/api", orders().route_layer(layer));
const IN_SERVICE: Place = |layer| Router::new().nest_service("/api", orders().layer(layer));
const AROUND_SERVICE: Place = |layer| {
    Router::new().nest_service(
        "/api",
        tower::Layer::layer(&layer, orders().with_state::<()>(())),
    )
};
const OUTSIDE: Place = |layer| {
    Router::new()
        .nest("/api", orders())
        .fallback(get(async || "nothing"))
        .layer(layer)
};
const AROUND: Place = |layer| {
    let router = Router::new()
        .nest("/api", orders())
        .fallback(get(async || "nothing"));
    Router::new().fallback_service(tower::Layer::layer(&layer, router.with_state::<()>(())))
};

const PLACES: [(&str, Place); 6] = [
    ("inside", INSIDE),
    ("on routes", ON_ROUTES),
    ("in a service", IN_SERVICE),
    ("around a service", AROUND_SERVICE),
    ("outside", OUTSIDE),
    ("around", AROUND),
];

fn orders() -> Router {
    let router = Router::new().route("/orders/{id}", get(async || "orders"));
    router
        .route("/healthz", get(async || "healthz"))
        .route("/{*rest}", get(async || "any"))
}

struct App {
    router: Router,
    keys: [(&'static str, KeyHandle); 2],
}

impl App {
    fn new(place: Place, rule: Rule) -> Self {
        let (limiter, _feed) = Limiter::builder("shop").build_detached().unwrap();
        let rules =
            Rules::new(&limiter, Tenant::default(), [rule, Rule::otherwise("rest")]).unwrap();
        let keys =
            ["orders", "rest"].map(|name| (name, limiter.bucket(name).unwrap().key("default")));
        Self {
            router: place(PlimsollLayer::new(rules)),
            keys,
        }
    }

    async fn get(&self, uri: &str) -> Option<&'static str> {
        let offered = || self.keys.each_ref().map(|(_, key)| key.counts().offered);
        let before = offered();
        let request = Request::get(uri).body(Body::empty()).unwrap();
        let response = self.router.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), 200, "{uri}");
        let counted: Vec<_> = offered()
            .iter()
            .zip(before)
            .map(|(after, before)| after - before)
            .collect();
        assert!(counted.iter().sum::<u64>() <= 1, "{uri}: {counted:?}");
        self.keys
            .iter()
            .zip(counted)
            .find(|(_, counted)| *counted == 1)
            .map(|((bucket, _), _)| *bucket)
    }
}

#[tokio::test]
async fn rule_matches_stripped_and_whole_paths() {
    for (name, place) in PLACES {
        let is_stripped = !["outside", "around"].contains(&name);
        let rule = |path| Rule::bucket("orders").path(path);
        for (rule, is_known) in [
            (rule("/orders/{id}"), is_stripped),
            (Rule::bucket("orders").prefix("/orders"), is_stripped),
            (rule("/api/orders/{id}"), true),
            (Rule::bucket("orders").prefix("/api/orders"), true),
        ] {
            let case = format!("{rule:?} {name}");
            let app = App::new(place, rule);
            let expected = Some(if is_known { "orders" } else { "rest" });
            for uri in [
                "/api/orders/7",
                "/api/%6frders/7",
                "/api/x/../orders/7",
                "/api//orders/7",
                "/api/orders%2f7",
            ] {
                assert_eq!(app.get(uri).await, expected, "{uri} {case}");
            }
            for uri in ["/api/ordersx/7", "/api/other"] {
                assert_eq!(app.get(uri).await, Some("rest"), "{uri} {case}");
            }
        }
    }
}

#[tokio::test]
async fn exemption_covers_only_the_visible_path() {
    for (name, place) in PLACES {
        let app = App::new(place, Rule::unlimited().path("/healthz"));
        let is_stripped = !["outside", "around"].contains(&name);
        let expected = if is_stripped { None } else { Some("rest") };
        assert_eq!(app.get("/api/healthz").await, expected, "{name}");
        for uri in [
            "/api/%68ealthz",
            "/api/x/../healthz",
            "/api/healthz/../orders/7",
        ] {
            assert_eq!(app.get(uri).await, Some("rest"), "{uri} {name}");
        }
    }
    let outside = App::new(OUTSIDE, Rule::unlimited().path("/api/healthz"));
    assert_eq!(outside.get("/api/healthz").await, None);
    assert_eq!(outside.get("/nothing").await, Some("rest"));
}
