//! Rules against the routes of real routers: a request that reaches a limited handler is limited, however its path is
//! written.

use axum::Router;
use axum::body::Body;
use axum::extract::Path;
use axum::extract::rejection::PathRejection;
use axum::http::{Method, Request, StatusCode, Uri};
use axum::response::IntoResponse;
use axum::routing::{any, get};
use plimsoll_tower::internals::KeyHandle;
use plimsoll_tower::{Limiter, PlimsollLayer, Rule, Rules, Tenant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tower::ServiceExt;

const BUCKETS: [&str; 6] = ["checkout", "orders", "files", "cart", "root", "rest"];

/// Targets, and a path without escapes that a server which decodes all escapes and normalizes treats in the same way.
const TARGETS: [(&str, &str); 62] = [
    ("/checkout", "/checkout"),
    ("/checkout?x=/orders/7", "/checkout"),
    ("http://shop.example/checkout", "/checkout"),
    ("http://shop.example:80/checkout?x", "/checkout"),
    ("http://shop.example", "/"),
    ("/", "/"),
    ("/%63heckout", "/checkout"),
    ("/%63%68%65%63%6b%6f%75%74", "/checkout"),
    ("/%63%68%65%63%6B%6F%75%74", "/checkout"),
    ("http://shop.example/%63heckout", "/checkout"),
    ("/%2563heckout", "/checkout"),
    ("/%252563heckout", "/checkout"),
    ("/%2fcheckout", "/checkout"),
    ("/%2Fcheckout", "/checkout"),
    ("/checkout%2f", "/checkout/"),
    ("/checkout%20", "/unknown"),
    ("/checkout%00", "/checkout"),
    ("/checkout%3f", "/unknown"),
    ("/checkout%", "/unknown"),
    ("/checkout%6", "/unknown"),
    ("/checkout%zz", "/unknown"),
    ("/%c3%a9", "/unknown"),
    ("/%c0%afcheckout", "/unknown"),
    ("/%e0%80%afcheckout", "/unknown"),
    ("/%c1%a3heckout", "/unknown"),
    ("/./checkout", "/checkout"),
    ("/../checkout", "/checkout"),
    ("/a/../checkout", "/checkout"),
    ("/a/b/../../checkout", "/checkout"),
    ("/%2e/checkout", "/checkout"),
    ("/%2e%2E/checkout", "/checkout"),
    ("/.%2e/checkout", "/checkout"),
    ("/a/%2e%2e/checkout", "/checkout"),
    ("/a%2f..%2fcheckout", "/checkout"),
    ("/checkout/.", "/checkout/"),
    ("/checkout/..", "/"),
    ("/checkout/../orders/7", "/orders/7"),
    ("/orders/../checkout", "/checkout"),
    ("/orders/..%2fcheckout", "/checkout"),
    ("/orders/%2e%2e/checkout", "/checkout"),
    ("/files/../checkout", "/checkout"),
    ("/files/a/../../checkout", "/checkout"),
    ("/files/a/../b", "/files/b"),
    ("/files/a%2Fb", "/files/a/b"),
    ("/files/a//b", "/files/a/b"),
    ("/files/", "/files/"),
    ("/files", "/files"),
    ("//checkout", "/checkout"),
    ("///checkout", "/checkout"),
    ("/orders//7", "/orders/7"),
    ("/orders/7", "/orders/7"),
    ("/orders/7%2f8", "/orders/7/8"),
    ("/orders/%37", "/orders/7"),
    ("/orders/", "/orders/"),
    ("/orders/7/", "/orders/7/"),
    ("/orders", "/orders"),
    ("/Checkout", "/Checkout"),
    ("/CHECKOUT", "/CHECKOUT"),
    ("/checkout/", "/checkout/"),
    ("/api/cart", "/api/cart"),
    ("/api/%63art", "/api/cart"),
    ("/api/../api/cart", "/api/cart"),
];

struct Shop {
    router: Router,
    keys: Vec<(&'static str, KeyHandle)>,
}

impl Shop {
    fn new(routes: Router, rules: impl IntoIterator<Item = Rule>) -> Self {
        let (limiter, _feed) = Limiter::builder("shop").build_detached().unwrap();
        let rules = Rules::new(&limiter, Tenant::default(), rules).unwrap();
        let keys = BUCKETS
            .map(|name| (name, limiter.bucket(name).unwrap().key("default")))
            .into();
        Self {
            router: routes.layer(PlimsollLayer::new(rules)),
            keys,
        }
    }

    async fn get(&self, uri: &str) -> (Option<String>, Option<&'static str>) {
        let before = self.offered();
        let request = Request::get(uri.parse::<Uri>().unwrap())
            .body(Body::empty())
            .unwrap();
        let response = self.router.clone().oneshot(request).await.unwrap();
        let is_found = response.status() == StatusCode::OK;
        let body = axum::body::to_bytes(response.into_body(), 1_000)
            .await
            .unwrap();
        let reached = is_found.then(|| String::from_utf8(body.to_vec()).unwrap());
        (reached, self.counted_since(&before))
    }

    fn offered(&self) -> Vec<u64> {
        self.keys
            .iter()
            .map(|(_, key)| key.counts().offered)
            .collect()
    }

    fn counted_since(&self, before: &[u64]) -> Option<&'static str> {
        let after = self.offered();
        let mut counted = self
            .keys
            .iter()
            .zip(before.iter().zip(after))
            .filter(|(_, (was, is))| *was != is);
        let ((bucket, _), (was, is)) = counted.next()?;
        assert_eq!((is - was, counted.count()), (1, 0), "counted once");
        Some(bucket)
    }
}

fn routes() -> Router {
    Router::new()
        .route("/", get(async || "root"))
        .route("/checkout", get(async || "checkout"))
        .route("/orders/{id}", get(async || "orders"))
        .route("/files/{*rest}", get(async || "files"))
        .nest("/api", Router::new().route("/cart", get(async || "cart")))
        .route("/healthz", get(async || "unlimited"))
}

fn path_rules() -> [Rule; 7] {
    [
        Rule::otherwise("rest"),
        Rule::unlimited().path("/healthz"),
        Rule::bucket("root").path("/"),
        Rule::bucket("checkout").path("/checkout"),
        Rule::bucket("orders").prefix("/orders"),
        Rule::bucket("files").prefix("/files"),
        Rule::bucket("cart").path("/api/cart"),
    ]
}

#[tokio::test]
async fn path_rule_limits_its_route_handler() {
    let shop = Shop::new(routes(), path_rules());
    for (target, plain) in TARGETS {
        let (reached, counted) = shop.get(target).await;
        let (reached_plain, counted_plain) = shop.get(plain).await;
        let counted = counted.unwrap_or_else(|| panic!("{target} is uncounted"));
        if target.split('?').next() == Some(plain) {
            if let Some(reached) = &reached {
                assert_eq!(counted, reached, "{target}");
            }
        } else if let Some(reached) = reached {
            assert!(
                counted == reached || Some(counted) == counted_plain,
                "{target}: {counted}, {reached}"
            );
        } else {
            // Another server may take it for the plain path.
            assert_eq!(Some(counted), counted_plain, "{target}");
        }
        if let Some(reached_plain) = reached_plain {
            assert_eq!(counted_plain, Some(&*reached_plain), "{plain}");
        }
    }
    for healthz in ["/healthz", "/healthz?x", "/%68ealthz"] {
        assert_eq!(
            shop.get(healthz).await.1,
            (healthz == "/%68ealthz").then_some("rest"),
            "{healthz}"
        );
    }
}

/// One handler for every path, which acts on the capture that axum has decoded.
fn dispatcher() -> Router {
    let dispatch = async |page: Result<Path<String>, PathRejection>| {
        // Not UTF-8.
        let Ok(Path(page)) = page else {
            return StatusCode::BAD_REQUEST.into_response();
        };
        match page.split('/').next() {
            Some("checkout") if page == "checkout" => "checkout".into_response(),
            Some("orders") if page.len() > "orders/".len() => "orders".into_response(),
            Some("files") if page.len() > "files/".len() => "files".into_response(),
            _ => StatusCode::NOT_FOUND.into_response(),
        }
    };
    Router::new().route("/{*page}", any(dispatch))
}

#[tokio::test]
async fn path_rule_limits_what_a_handler_decodes() {
    let shop = Shop::new(dispatcher(), path_rules());
    for (target, plain) in TARGETS {
        let (reached, counted) = shop.get(target).await;
        let counted_plain = shop.get(plain).await.1;
        assert!(counted.is_some(), "{target} is uncounted");
        if let Some(reached) = reached {
            assert!(
                counted == Some(&*reached) || counted == counted_plain,
                "{target}: {counted:?}, {reached}"
            );
        }
    }
    assert_eq!(
        shop.get("/%63heckout").await,
        (Some("checkout".to_owned()), Some("checkout"))
    );
}

#[tokio::test]
async fn every_request_target_form_is_counted() {
    let shop = Shop::new(routes(), path_rules());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(axum::serve(listener, shop.router.clone()).into_future());
    for (method, target, bucket) in [
        (Method::GET, "/checkout", Some("checkout")),
        (Method::GET, "/%63heckout", Some("checkout")),
        (
            Method::GET,
            "http://shop.example/checkout",
            Some("checkout"),
        ),
        (
            Method::GET,
            "http://shop.example/a/../checkout",
            Some("checkout"),
        ),
        (Method::GET, "//shop.example/checkout", Some("rest")),
        (Method::OPTIONS, "*", Some("rest")),
        (Method::CONNECT, "shop.example:80", Some("rest")),
        (Method::GET, "/healthz", None),
    ] {
        let before = shop.offered();
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!(
            "{method} {target} HTTP/1.1\r\nhost: shop.example\r\nconnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).await.unwrap();
        assert!(
            response.starts_with("HTTP/1.1 "),
            "{method} {target}: {response}"
        );
        assert_eq!(
            shop.counted_since(&before),
            bucket,
            "{method} {target}: {response}"
        );
    }
}
