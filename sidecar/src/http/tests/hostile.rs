//! Any input is answered, and never by a server error.

use std::sync::LazyLock;

use http::HeaderValue;
use plimsoll_client::Reason;
use proptest::prelude::*;

use super::*;

const RULES: &str = "
http:
  rules:
    - { path: \"/orders/{id}\", methods: [GET], bucket: orders-read }
    - { prefix: /, bucket: rest }
";

/// A sidecar without rules, and one with them; their buckets refuse. Both serve all cases, because
/// starting one takes a while.
static PORTS: LazyLock<[Port; 2]> = LazyLock::new(|| {
    let ports = [Port::new(), Port::with_rules(RULES)];
    ports
        .iter()
        .for_each(|port| port.plane.refuse_all(Reason::ClusterOverload));
    ports
});

fn body() -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![
        Just("{".to_owned()),
        Just("}".to_owned()),
        Just("[".to_owned()),
        Just("]".to_owned()),
        Just(",".to_owned()),
        Just(":".to_owned()),
        Just("null".to_owned()),
        Just("\"bucket\":\"b\"".to_owned()),
        Just("\"requests\":[{\"bucket\":\"b\"}]".to_owned()),
        Just("\"reports\":[{\"bucket\":\"b\",\"status\":200}]".to_owned()),
        Just("\"together\":true".to_owned()),
        "\"[a-z_]{1,8}\":-?[0-9]{1,25}(e[0-9]{1,3})?",
    ];
    let parts = proptest::collection::vec(part, 0..8).prop_map(|parts| parts.concat().into_bytes());
    let object = "(\"[a-z_]{1,12}\":(\"[^\"]{0,9}\"|[0-9]{1,6}|true|null),?){0,4}"
        .prop_map(|text| format!("{{{text}}}").into_bytes());
    prop_oneof![
        parts,
        object,
        proptest::collection::vec(any::<u8>(), 0..200)
    ]
}

fn value() -> impl Strategy<Value = HeaderValue> {
    proptest::collection::vec(any::<u8>(), 0..100)
        .prop_filter_map("no value", |bytes| HeaderValue::from_bytes(&bytes).ok())
}

proptest! {
    #[test]
    fn any_body_gets_a_decision_or_problem(body in body()) {
        let [port, _] = &*PORTS;
        for call in [crate::http::json::Call::Check, crate::http::json::Call::Report] {
            let status = port.service.end(call, &body).now_or_never().unwrap().status().as_u16();
            prop_assert!([200, 204, 400].contains(&status), "{} {}", status, String::from_utf8_lossy(&body));
        }
    }

    #[test]
    fn any_headers_get_proxy_answers(
        values in proptest::collection::vec((0_usize..8, value()), 0..10),
    ) {
        const NAMES: [&str; 8] = [
            "x-plimsoll-bucket", "x-plimsoll-tenant", "x-plimsoll-cost", "x-forwarded-uri", "x-forwarded-method",
            "x-original-uri", "x-original-method", "traceparent",
        ];
        for port in &*PORTS {
            for (path, statuses) in [("/check", [200, 429]), ("/nginx", [204, 403])] {
                let request = Request::get(path);
                let request = values.iter().fold(request, |request, (name, value)| {
                    request.header(NAMES[*name], value)
                });
                let status = port.ask(request.body("").unwrap()).status;
                prop_assert!(statuses.contains(&status), "{path} {status} {values:?}");
            }
        }
    }

    /// The rule for all paths matches any path.
    #[test]
    fn no_path_spelling_escapes_the_rules(path in value()) {
        let [_, port] = &*PORTS;
        let uri = HeaderValue::from_bytes(&[b"/", path.as_bytes()].concat()).unwrap();
        let request = Request::get("/nginx").header("x-original-uri", uri).header("x-original-method", "PUT");
        prop_assert_eq!(port.ask(request.body("").unwrap()).status, 403);
    }
}
