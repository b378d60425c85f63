//! Stacks of axum routers with the layers of tower and tower-http.

use axum::error_handling::HandleErrorLayer;
use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use axum::{Extension, Router, ServiceExt, middleware};
use plimsoll_client::middleware::{PlimsollLayer, Rule, Rules, Tenant};
use plimsoll_core::decision::Mode;
use plimsoll_core::report::Counts;
use tokio::net::TcpListener;
use tower::timeout::TimeoutLayer as TowerTimeoutLayer;
use tower::{BoxError, Layer, ServiceBuilder};
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;
use tower_http::cors::CorsLayer;
use tower_http::limit::RequestBodyLimitLayer;
use tower_http::normalize_path::NormalizePathLayer;
use tower_http::request_id::{MakeRequestUuid, PropagateRequestIdLayer, SetRequestIdLayer};
use tower_http::sensitive_headers::SetSensitiveRequestHeadersLayer;
use tower_http::set_header::SetResponseHeaderLayer;
use tower_http::timeout::TimeoutLayer;
use tower_http::trace::TraceLayer;

use super::{Cors, ORIGIN, Shop, Stack, TIMEOUT, check, routes};
use crate::parent::{ALL, Fleet};

fn serve(listener: TcpListener, app: Router) {
    tokio::spawn(axum::serve(listener, app).into_future());
}

fn cors() -> CorsLayer {
    CorsLayer::new().allow_origin(ORIGIN.parse::<HeaderValue>().unwrap()).allow_methods([Method::PUT])
}

fn timeout() -> TimeoutLayer {
    TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, TIMEOUT)
}

fn served_by() -> SetResponseHeaderLayer<HeaderValue> {
    SetResponseHeaderLayer::overriding(
        HeaderName::from_static("x-served-by"),
        HeaderValue::from_static("shop"),
    )
}

/// Answers without a token with 401, and lends the account of the token to the layers inside.
async fn authenticate(mut request: Request, next: middleware::Next) -> Response {
    let token = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let Some(account) = token.and_then(|token| token.strip_prefix("Bearer ")).map(ToOwned::to_owned) else {
        return StatusCode::UNAUTHORIZED.into_response();
    };
    request.extensions_mut().insert(Account(account));
    next.run(request).await
}

#[derive(Clone)]
struct Account(String);

fn stacks() -> Vec<Stack> {
    vec![
        Stack {
            name: "CORS and trace outside, the body of axum",
            serve: |listener, shed| {
                serve(listener, routes().layer(shed).layer(cors()).layer(TraceLayer::new_for_http()));
            },
            cors: Cors::Outside,
            ..Stack::default()
        },
        Stack {
            name: "the whole router behind the limiter, with trimmed slashes",
            serve: |listener, shed| {
                let app = NormalizePathLayer::trim_trailing_slash().layer(shed.layer(routes()));
                let app = ServiceExt::<Request>::into_make_service(app);
                tokio::spawn(axum::serve(listener, app).into_future());
            },
            ..Stack::default()
        },
        Stack {
            name: "everything of a careful service: panics, limits, ids, secrets",
            serve: |listener, shed| {
                let id = HeaderName::from_static("x-request-id");
                let layers = ServiceBuilder::new()
                    .layer(SetSensitiveRequestHeadersLayer::new([header::AUTHORIZATION]))
                    .layer(SetRequestIdLayer::new(id.clone(), MakeRequestUuid))
                    .layer(TraceLayer::new_for_http())
                    .layer(PropagateRequestIdLayer::new(id))
                    .layer(served_by())
                    .layer(cors())
                    .layer(CatchPanicLayer::new())
                    .layer(shed.either_body())
                    .layer(RequestBodyLimitLayer::new(1_024))
                    .layer(timeout());
                serve(listener, routes().layer(layers));
            },
            cors: Cors::Outside,
            outside: &["x-request-id", "x-served-by"],
            late: Some(504),
            panics: Some(500),
            ..Stack::default()
        },
        Stack {
            name: "the same layers inside of the limiter",
            serve: |listener, shed| {
                let layers = ServiceBuilder::new()
                    .layer(shed.either_body())
                    .layer(TraceLayer::new_for_http())
                    .layer(CatchPanicLayer::new())
                    .layer(RequestBodyLimitLayer::new(1_024))
                    .layer(CompressionLayer::new())
                    .layer(timeout());
                serve(listener, routes().layer(layers));
            },
            late: Some(504),
            panics: Some(500),
            ..Stack::default()
        },
        Stack {
            name: "errors of tower: handled outside, timeout of tower inside",
            serve: |listener, shed| {
                let handled = HandleErrorLayer::new(async |_: BoxError| StatusCode::GATEWAY_TIMEOUT);
                let layers = ServiceBuilder::new()
                    .layer(handled)
                    .layer(shed.either_body())
                    .layer(TowerTimeoutLayer::new(TIMEOUT));
                serve(listener, routes().layer(layers));
            },
            late: Some(504),
            ..Stack::default()
        },
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn stacks_of_axum_compose_and_behave() {
    for stack in stacks() {
        check(&stack).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn compressed_responses_are_whole_on_both_sides_of_the_limiter() {
    let inside = |listener: TcpListener, shed: PlimsollLayer| {
        serve(listener, routes().layer(CompressionLayer::new()).layer(shed.either_body()));
    };
    let outside = |listener: TcpListener, shed: PlimsollLayer| {
        serve(listener, routes().layer(shed.either_body()).layer(CompressionLayer::new()));
    };
    for (name, side, refusal_encoding) in [
        ("inside", inside as fn(TcpListener, PlimsollLayer), None),
        ("outside", outside as fn(TcpListener, PlimsollLayer), Some("gzip")),
    ] {
        let shop = Shop::start(side).await;
        shop.enforce(ALL).await;
        let response = shop.send(axum::http::Method::GET, "/orders/7", &[("accept-encoding", "gzip")]).await;
        assert_eq!(response.status, 429, "{name}");
        let encoding = response.headers.get("content-encoding").map(|value| value.to_str().unwrap());
        assert_eq!(encoding, refusal_encoding, "{name}");
        let is_gzip = response.body.starts_with(&[0x1f, 0x8b]);
        assert_eq!(is_gzip, refusal_encoding.is_some(), "{name}: {:?}", response.body);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn trimmed_slashes_count_for_the_trimmed_path() {
    let shop = Shop::start(|listener, shed| {
        let app = NormalizePathLayer::trim_trailing_slash().layer(shed.layer(routes()));
        let app = ServiceExt::<Request>::into_make_service(app);
        tokio::spawn(axum::serve(listener, app).into_future());
    })
    .await;
    shop.enforce(ALL).await;
    let response = shop.send(Method::PUT, "/orders/7/", &[("x-tenant", "acme")]).await;
    assert_eq!(response.status, 429);
    shop.fleet.counted("orders", "acme", Counts { offered: 1, dropped: 1, ..Counts::ZERO }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nested_routers_have_layers_of_their_own_behind_authentication() {
    let fleet = Fleet::start(&["orders", "reports"]).await;
    let shed = |bucket, path| {
        let tenant = Tenant::extension(|account: &Account| Some(&account.0));
        PlimsollLayer::new(Rules::new(&fleet.limiter, tenant, [Rule::bucket(bucket).path(path)]).unwrap())
    };
    let account = any(async |Extension(account): Extension<Account>| account.0);
    // A rule names the whole path, or the part that the nested router sees.
    let orders = Router::new().route("/{id}", account.clone()).layer(shed("orders", "/orders/{id}"));
    let reports = Router::new().route("/daily", account).layer(shed("reports", "/daily"));
    let app = Router::new()
        .nest("/orders", orders)
        .nest("/reports", reports)
        .route("/healthz", get(async || "ok"))
        .layer(middleware::from_fn(authenticate));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    serve(listener, app);
    let client =
        hyper_util::client::legacy::Client::builder(hyper_util::rt::TokioExecutor::new()).build_http();
    let shop = Shop { fleet, address, client };
    shop.fleet.direct("orders", Mode::Enforce, &[("default", ALL), ("acme", 0)]).await;
    shop.fleet.direct("reports", Mode::Enforce, &[("default", ALL), ("globex", 0)]).await;

    for (path, token, status) in [
        ("/orders/7", Some("Bearer acme"), 200),
        ("/orders/7", Some("Bearer globex"), 429),
        ("/reports/daily", Some("Bearer acme"), 429),
        ("/reports/daily", Some("Bearer globex"), 200),
        ("/orders/7", None, 401),
        ("/healthz", Some("Bearer acme"), 200),
    ] {
        let headers: Vec<_> = token.map(|token| ("authorization", token)).into_iter().collect();
        let response = shop.send(Method::GET, path, &headers).await;
        assert_eq!(response.status, status, "{path} {token:?}");
    }
    let one = |dropped| Counts { offered: 1, dropped, ..Counts::ZERO };
    for (bucket, tenant, dropped) in
        [("orders", "acme", 0), ("orders", "globex", 1), ("reports", "acme", 1), ("reports", "globex", 0)]
    {
        shop.fleet.counted(bucket, tenant, one(dropped)).await;
    }
    assert_eq!(shop.fleet.offered(), 4, "requests without a token are not counted");
}
