//! HTTP refusals, read by two parsers of structured fields and by a JSON schema.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use axum::body::Bytes;
use axum::http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use plimsoll_tower::testing::ControlPlane;
use plimsoll_tower::{PlimsollLayer, Reason, Rule, Rules, Tenant};
use serde_json::{Value, json};

use super::{BUCKET, python, refusing, serve};

/// Sends a request of a tenant; returns the status, the headers and the document of its refusal.
async fn send(address: SocketAddr, path: &str, tenant: &str) -> (StatusCode, HeaderMap, Value) {
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let request = Request::get(format!("http://{address}{path}")).header("x-tenant", tenant);
    let response = client
        .request(request.body(Empty::new()).unwrap())
        .await
        .unwrap();
    let (parts, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    (
        parts.status,
        parts.headers,
        serde_json::from_slice(&body).unwrap(),
    )
}

fn field<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers
        .get(name)
        .unwrap_or_else(|| panic!("no {name}"))
        .to_str()
        .unwrap()
}

/// Parses a list of items with integer parameters by the crate `sfv`.
fn parsed(field: &str) -> Value {
    let list = sfv::Parser::new(field).parse::<sfv::List>().unwrap();
    let member = |entry: &sfv::ListEntry| {
        let sfv::ListEntry::Item(item) = entry else {
            panic!("an inner list in {field}")
        };
        let value = |value: &sfv::BareItem| json!(i64::from(value.as_integer().unwrap()));
        let parameters = item
            .params
            .iter()
            .map(|(key, found)| (key.as_str().to_owned(), value(found)));
        json!([
            item.bare_item.as_string().unwrap().as_str(),
            Value::Object(parameters.collect())
        ])
    };
    list.iter().map(member).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn two_parsers_agree_on_limit_fields() {
    let fleet = refusing().await;
    let rules = Rules::new(
        &fleet.limiter,
        Tenant::header("x-tenant").unwrap(),
        [Rule::otherwise(BUCKET)],
    );
    let address = serve(PlimsollLayer::new(rules.unwrap())).await;
    let mut fields = Vec::new();
    for tenant in ["acme", "acme", "acme", "burst"] {
        let before = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap();
        let (status, headers, _) = send(address, "/orders/7", tenant).await;
        let after = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap();
        assert_eq!(status, 429);
        let wait: u64 = field(&headers, "retry-after").parse().unwrap();
        assert!((1..=240).contains(&wait), "{wait}");
        let x: Vec<&str> = ["limit", "remaining", "reason"]
            .map(|name| field(&headers, &format!("x-ratelimit-{name}")))
            .into();
        let reason = if tenant == "burst" {
            "burst_guard"
        } else {
            "cluster_overload"
        };
        assert_eq!(x, ["100", "0", reason]);
        let reset: u64 = field(&headers, "x-ratelimit-reset").parse().unwrap();
        let second = Duration::from_secs(1);
        assert!(
            (before.as_secs() + wait..=(after + second).as_secs() + wait).contains(&reset),
            "{reset}"
        );
        let (policy, state) = (
            field(&headers, "ratelimit-policy"),
            field(&headers, "ratelimit"),
        );
        assert_eq!(parsed(policy), json!([[BUCKET, { "q": 100, "w": 1 }]]));
        assert_eq!(parsed(state), json!([[BUCKET, { "r": 0, "t": wait }]]));
        fields.extend([policy.to_owned(), state.to_owned()]);
    }
    let input = json!(fields);
    let run = move || python::run(include_str!("fields.py"), &["http_sf"], &input);
    if let Some(by_other) = tokio::task::spawn_blocking(run).await.unwrap() {
        let by_sfv: Vec<Value> = fields.iter().map(|field| parsed(field)).collect();
        assert_eq!(by_other, json!(by_sfv));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tenant_limit_hides_the_bucket_limit() {
    let fleet = refusing().await;
    let rules = Rules::new(
        &fleet.limiter,
        Tenant::header("x-tenant").unwrap(),
        [Rule::otherwise(BUCKET)],
    );
    let address = serve(PlimsollLayer::new(rules.unwrap())).await;
    let (_, headers, problem) = send(address, "/orders/7", "stopped").await;
    assert_eq!(field(&headers, "x-ratelimit-reason"), "tenant_limit");
    assert_eq!(problem["violated-policies"], json!([BUCKET]));
    for name in [
        "ratelimit",
        "ratelimit-policy",
        "x-ratelimit-limit",
        "x-ratelimit-remaining",
    ] {
        assert!(!headers.contains_key(name), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn waits_at_limit_zero_differ() {
    let fleet = refusing().await;
    let rules = Rules::new(
        &fleet.limiter,
        Tenant::header("x-tenant").unwrap(),
        [Rule::otherwise(BUCKET)],
    );
    let address = serve(PlimsollLayer::new(rules.unwrap())).await;
    let mut waits = BTreeSet::new();
    for _ in 0..60 {
        waits.insert(field(&send(address, "/", "acme").await.1, "retry-after").to_owned());
    }
    assert!(waits.len() > 1, "60 refusals say {waits:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn problem_documents_fit_the_schema() {
    let layers: [fn(PlimsollLayer) -> PlimsollLayer; 3] = [
        |layer| layer,
        |layer| layer.status(StatusCode::SERVICE_UNAVAILABLE),
        |layer| {
            layer
                .problem_type("https://shop.example/problems/busy")
                .status(StatusCode::OK)
        },
    ];
    let mut documents = Vec::new();
    for with in layers {
        let plane = ControlPlane::new(7);
        let rules = Rules::new(
            &plane.limiter(),
            Tenant::constant("acme").unwrap(),
            [Rule::otherwise("orders")],
        )
        .unwrap();
        let address = serve(with(PlimsollLayer::new(rules))).await;
        for reason in Reason::ALL {
            plane.refuse("orders", reason).unwrap();
            for path in [
                "/orders/7?force=1",
                "/a%20b/c%2Fd",
                "/%",
                "//evil.example/login",
                "/a{b}|c",
            ] {
                let (status, headers, document) = send(address, path, "acme").await;
                assert_eq!(field(&headers, "content-type"), "application/problem+json");
                assert_eq!(document["status"], json!(status.as_u16()));
                assert_eq!(document["reason"], reason.as_str());
                documents.push(document);
            }
        }
    }
    // The schema notices faults.
    let good = documents.len();
    for (member, value) in [("status", json!("429")), ("reason", json!("busy"))] {
        let mut broken = documents[0].clone();
        broken[member] = value;
        documents.push(broken);
    }
    let schema: Value = serde_json::from_str(include_str!("problem.schema.json")).unwrap();
    let input = json!({ "schema": schema, "documents": documents });
    let packages = ["jsonschema", "rfc3986_validator"];
    let run = move || python::run(include_str!("problem.py"), &packages, &input);
    if let Some(faults) = tokio::task::spawn_blocking(run).await.unwrap() {
        let mut expected = vec![json!([]); good];
        expected.extend(["$.status", "$.reason"].map(|at| json!([at])));
        // Of a status, both its type and its value are wrong.
        let mut faults = faults.as_array().unwrap().clone();
        faults[good].as_array_mut().unwrap().dedup();
        assert_eq!(faults, expected);
    }
}
