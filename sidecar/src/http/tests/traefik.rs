//! The contract with Traefik's ForwardAuth, by what its documentation says that it sends: a GET with all headers of the
//! original request, and the headers `X-Forwarded-Method`, `-Proto`, `-Host`, `-Uri` and `-For`. An answer 2xx lets the
//! request pass, with the headers that `authResponseHeaders` names; any other answer is handed to the caller as it is.

use plimsoll_client::Reason;

use super::*;

const RULES: &str = "
http:
  tenant: { header: x-tenant }
  rules:
    - { path: \"/orders/{id}\", methods: [GET], bucket: orders-read }
    - { prefix: /orders, bucket: orders-write }
    - { exact: /healthz, unlimited: true }
";

/// Sends what ForwardAuth sends for an original request, with `trustForwardHeader` off: its own headers replace those of
/// the caller.
fn forward_auth(port: &Port, method: &str, uri: &str, original: &[(&str, &str)]) -> Answer {
    let own = [
        ("x-forwarded-method", method),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-host", "shop.example"),
        ("x-forwarded-uri", uri),
        ("x-forwarded-for", "203.0.113.9"),
        ("accept-encoding", "gzip"),
        ("host", "127.0.0.1:7421"),
    ];
    let copied =
        original.iter().filter(|(name, _)| !own.iter().any(|(own, _)| name.eq_ignore_ascii_case(own)));
    let headers: Vec<_> = copied.copied().chain(own).collect();
    port.get("/check", &headers)
}

#[test]
fn original_request_is_decided_by_its_method_path_and_tenant() {
    let port = Port::with_rules(RULES);
    port.plane.refuse("orders-write", Reason::ClusterOverload).unwrap();
    let tenant = ("x-tenant", "acme");
    assert_eq!(forward_auth(&port, "GET", "/orders/7?full=1", &[tenant]).status, 200);
    assert_eq!(forward_auth(&port, "PUT", "/orders/7", &[tenant]).status, 429);
    assert_eq!(forward_auth(&port, "GET", "/healthz", &[tenant]).status, 200);
    assert_eq!(port.plane.tenant_counts("orders-read", "acme").unwrap().admitted, 1);
    assert_eq!(port.plane.tenant_counts("orders-write", "acme").unwrap().refused, 1);
    assert_eq!(port.mistakes(), []);
}

/// The body of the original request does not come, but its headers do.
#[test]
fn headers_of_the_original_request_change_nothing() {
    let port = Port::with_rules(RULES);
    port.plane.refuse("orders-write", Reason::ClusterOverload).unwrap();
    for original in [
        &[("content-type", "application/grpc"), ("te", "trailers")][..],
        &[("authorization", "Bearer of-the-caller"), ("cookie", "session=1")],
        &[("content-type", "application/json"), ("content-encoding", "gzip")],
        &[("x-forwarded-uri", "/healthz"), ("x-forwarded-method", "GET")],
        &[("x-original-uri", "/healthz"), ("x-plimsoll-bucket", "free"), ("x-plimsoll-cost", "0")],
        &[("connection", "close"), ("upgrade", "websocket")],
    ] {
        let answer = forward_auth(&port, "PUT", "/orders", original);
        assert_eq!(answer.status, 429, "{original:?}");
        assert_eq!(answer.header("content-type"), Some("application/problem+json"));
        assert!(answer.header("retry-after").is_some() && answer.json()["reason"] == "cluster_overload");
    }
}

/// `authResponseHeaders: [x-plimsoll-shadow]` hands it on to the service.
#[test]
fn withheld_refusal_lets_the_request_pass_with_a_header() {
    let port = Port::with_rules(RULES);
    port.plane.refuse("orders-write", Reason::ClusterOverload).unwrap();
    port.plane.shadow("orders-write", true).unwrap();
    let answer = forward_auth(&port, "PUT", "/orders", &[]);
    assert_eq!((answer.status, answer.header("x-plimsoll-shadow")), (200, Some("drop")));
}
