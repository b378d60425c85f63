//! Requests that count for several buckets: all of them admit a request, or none is charged.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::{Request, StatusCode};
use plimsoll_tower::testing::ControlPlane;
use plimsoll_tower::{Metrics, PlimsollLayer, Reason, Refused, Rule, Rules, Tenant};
use tower::ServiceExt;

fn shop(plane: &ControlPlane) -> Router {
    let by_user = Rule::bucket("by-user").tenant(Tenant::header("x-user").unwrap());
    let rules = [
        Rule::bucket("orders").path("/orders/{id}").also(by_user),
        Rule::bucket("orders").path("/orders"),
    ];
    let tenant = Tenant::header("x-tenant").unwrap();
    let layer = PlimsollLayer::new(Rules::new(&plane.limiter(), tenant, rules).unwrap());
    let named = layer.refuse_with(|refused: &Refused<'_>| {
        let bucket = refused.bucket().unwrap_or_default();
        refused.response().map(|_| Body::from(bucket.to_owned()))
    });
    Router::new()
        .route("/orders/{id}", get(|| async { "an order" }))
        .route("/orders", get(|| async { "all orders" }))
        .layer(named)
}

async fn answer(app: &Router, path: &str) -> (StatusCode, String) {
    let request = Request::get(path)
        .header("x-tenant", "acme")
        .header("x-user", "jo");
    let request = request.body(Body::empty()).unwrap();
    let response = app.clone().oneshot(request).await.unwrap();
    let status = response.status();
    let body = axum::body::to_bytes(response.into_body(), 1_000).await;
    (status, String::from_utf8(body.unwrap().to_vec()).unwrap())
}

async fn admitted(app: &Router, path: &str, times: usize) -> usize {
    let mut admitted = 0;
    for _ in 0..times {
        admitted += usize::from(answer(app, path).await.0 == StatusCode::OK);
    }
    admitted
}

#[tokio::test]
async fn all_buckets_are_charged_or_none() {
    let plane = ControlPlane::new(1);
    let app = shop(&plane);
    plane.limit("orders", 10.0).unwrap();
    plane.limit("by-user", 4.0).unwrap();
    assert_eq!(admitted(&app, "/orders/7", 10).await, 4);
    // The six refused ones have taken no token of `orders`.
    assert_eq!(admitted(&app, "/orders", 10).await, 6);
    let counts = |bucket, tenant| plane.tenant_counts(bucket, tenant).unwrap().offered;
    assert_eq!(
        (counts("orders", "acme"), counts("by-user", "jo")),
        (20, 10)
    );
    let text = Metrics::new(&plane.limiter()).text();
    let series = "plimsoll_rule_matches_total{rule=\"bucket `orders`, path `/orders/{id}`, also bucket `by-user`\"} 10";
    assert!(text.contains(series), "{text}");
    // A quota is debited only if the others admit.
    let plane = ControlPlane::new(1);
    let app = shop(&plane);
    plane.limit("orders", 2.0).unwrap();
    plane
        .quota("by-user", 5, Duration::from_secs(3_600))
        .unwrap();
    assert_eq!(admitted(&app, "/orders/7", 4).await, 2);
    plane.admit("orders").unwrap();
    assert_eq!(admitted(&app, "/orders/7", 10).await, 3);
    assert_eq!(answer(&app, "/orders/7").await.1, "by-user");
}

#[tokio::test]
async fn refusal_names_the_strictest_bucket() {
    for (strict, share) in [("by-user", 0.4), ("orders", 0.8)] {
        let plane = ControlPlane::new(7);
        let app = shop(&plane);
        plane.drop_share("orders", share).unwrap();
        plane.drop_share("by-user", 1.2 - share).unwrap();
        let mut refused = 0;
        for _ in 0..200 {
            let (status, bucket) = answer(&app, "/orders/7").await;
            if status == StatusCode::TOO_MANY_REQUESTS {
                assert_eq!(bucket, strict);
                refused += 1;
            }
        }
        assert!((130..=185).contains(&refused), "by one draw: {refused}");
        plane.admit(strict).unwrap();
        plane.refuse("by-user", Reason::ClusterOverload).unwrap();
        assert_eq!(answer(&app, "/orders/7").await.1, "by-user");
        assert_eq!(answer(&app, "/orders").await.0, StatusCode::OK);
    }
}
