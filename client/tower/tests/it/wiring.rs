//! Services that are wired wrongly: each is told what is wrong and what to do, within 100 requests or five seconds.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::body::Body;
use axum::routing::get;
use axum::{Extension, Router};
use http::Request;
use plimsoll_tower::testing::ControlPlane;
use plimsoll_tower::{Limiter, Metrics, PlimsollLayer, Rule, Rules, Tenant};
use tower::ServiceExt;

const TRIAL: usize = 100;

#[derive(Clone)]
struct Claims {
    account: String,
}

fn claims() -> Tenant {
    Tenant::extension(|claims: &Claims| Some(&claims.account))
}

fn layer(limiter: &Limiter, tenant: Tenant) -> PlimsollLayer {
    let rules = [
        Rule::unlimited().exact("/health"),
        Rule::bucket("orders").path("/orders/{id}"),
    ];
    PlimsollLayer::new(Rules::new(limiter, tenant, rules).unwrap())
}

fn shop() -> Router {
    Router::new()
        .route("/orders/{id}", get(|| async { "an order" }))
        .route("/health", get(|| async { "ok" }))
}

async fn send(app: &Router, times: usize, path: &str, headers: &[(&str, &str)]) {
    for _ in 0..times {
        let request = headers
            .iter()
            .fold(Request::get(path), |request, (name, value)| {
                request.header(*name, *value)
            });
        let request = request.body(Body::empty()).unwrap();
        assert!(
            app.clone()
                .oneshot(request)
                .await
                .unwrap()
                .status()
                .is_success()
        );
    }
}

/// Asserts that a limiter has this problem, and no other, with these words in its text.
fn assert_problem(limiter: &Limiter, kind: &str, words: &[&str]) {
    let status = limiter.status();
    let [problem] = status.problems.as_slice() else {
        panic!("{:?}", status.problems);
    };
    assert_eq!(problem.problem, kind);
    for word in words {
        assert!(problem.text.contains(word), "{word}: {}", problem.text);
    }
    let text = Metrics::new(limiter).text();
    let series = format!(
        "plimsoll_setup_problems{{problem=\"{kind}\",subject=\"{}\"}} 1",
        problem.subject
    );
    assert!(text.contains(&series), "{series} in {text}");
}

fn assert_none(limiter: &Limiter) {
    assert_eq!(limiter.setup_problems(), []);
}

#[tokio::test]
async fn inner_layer_of_claims_is_named() {
    let plane = ControlPlane::new(1);
    let limiter = plane.limiter();
    let verified = Extension(Claims {
        account: "acme".to_owned(),
    });
    let app = shop()
        .layer(verified.clone())
        .layer(layer(&limiter, claims()));
    send(&app, TRIAL - 1, "/orders/7", &[]).await;
    assert_none(&limiter);
    send(&app, 1, "/orders/7", &[]).await;
    assert_problem(
        &limiter,
        "no_tenant",
        &["Claims", "outside of PlimsollLayer"],
    );
    drop(app);
    assert_none(&limiter);
    let app = shop().layer(layer(&limiter, claims())).layer(verified);
    send(&app, 2 * TRIAL, "/orders/7", &[]).await;
    assert_none(&limiter);
    let tenants = BTreeMap::from([("found", 200), ("absent", 100), ("invalid", 0)]);
    assert_eq!(limiter.status().tenants, tenants);
}

#[tokio::test]
async fn misspelt_header_is_named_until_it_arrives() {
    let plane = ControlPlane::new(1);
    let limiter = plane.limiter();
    let app = shop().layer(layer(&limiter, Tenant::header("x-tennant").unwrap()));
    send(&app, TRIAL - 1, "/orders/7", &[("x-tenant", "acme")]).await;
    send(&app, 5, "/health", &[]).await;
    assert_none(&limiter);
    let twice = [("x-tennant", "acme"), ("x-tennant", "acme")];
    send(&app, 1, "/orders/7", &twice).await;
    assert_problem(
        &limiter,
        "no_tenant",
        &["header x-tennant", "compare the name"],
    );
    send(&app, 1, "/orders/7", &[("x-tennant", "acme")]).await;
    assert_none(&limiter);
    let text = Metrics::new(&limiter).text();
    for series in [
        "plimsoll_tenants_total{result=\"found\"} 1\n",
        "plimsoll_tenants_total{result=\"absent\"} 99\n",
        "plimsoll_tenants_total{result=\"invalid\"} 1\n",
        "plimsoll_rule_matches_total{rule=\"bucket `orders`, path `/orders/{id}`\"} 101\n",
        "plimsoll_rule_matches_total{rule=\"unlimited, exact `/health`\"} 5\n",
    ] {
        assert!(text.contains(series), "{series} in {text}");
    }
}

#[tokio::test]
async fn layer_without_matches_names_a_path() {
    let plane = ControlPlane::new(1);
    let limiter = plane.limiter();
    let app = Router::new()
        .nest("/v2", shop())
        .route("/health", get(|| async { "ok" }))
        .layer(layer(&limiter, Tenant::default()));
    // An exempt health check does not show that the rules match.
    send(&app, TRIAL, "/health", &[]).await;
    send(&app, TRIAL - 1, "/v2/orders/7?id=7", &[]).await;
    assert_none(&limiter);
    send(&app, 1, "/v2/orders/7?id=7", &[]).await;
    assert_problem(
        &limiter,
        "no_rule_matches",
        &["`/v2/orders/7`", "removed a prefix", "Rule::otherwise"],
    );
    let matches = [
        ("bucket `orders`, path `/orders/{id}`", 0),
        ("unlimited, exact `/health`", 100),
    ];
    let matches = matches.map(|(rule, count)| (rule.to_owned(), count));
    assert_eq!(limiter.status().rules, matches.into());
}

#[tokio::test(start_paused = true)]
async fn unreachable_aggregator_is_named_after_five_seconds() {
    let builder = Limiter::builder("shop").aggregator("http://127.0.0.1:1");
    let (limiter, feed) = builder.build().unwrap();
    let app = shop().layer(layer(&limiter, Tenant::default()));
    tokio::time::sleep(Duration::from_millis(4_900)).await;
    send(&app, 1, "/orders/7", &[]).await;
    assert_none(&limiter);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_problem(
        &limiter,
        "never_connected",
        &["127.0.0.1:1", "everything is admitted"],
    );
    feed.shutdown().await;
}
