//! `/check` and `/nginx`.

use plimsoll_client::Reason;

use super::*;

const BUCKET: (&str, &str) = ("x-plimsoll-bucket", "checkout");
const RULES: &str = "
http:
  tenant: { header: x-tenant }
  rules:
    - { path: \"/orders/{id}\", methods: [GET, HEAD], bucket: orders-read }
    - { prefix: /orders, bucket: orders-write, cost: 5 }
    - { exact: /healthz, unlimited: true }
";
const REST: &str = "
http:
  rules:
    - { exact: /healthz, unlimited: true }
    - { bucket: rest }
";

fn offered(port: &Port, bucket: &str) -> u64 {
    port.plane.counts(bucket).unwrap().offered
}

#[test]
fn admitted_proxy_request_has_no_body() {
    let port = Port::new();
    for (path, status) in [("/check", 200), ("/nginx", 204)] {
        let answer = port.get(path, &[BUCKET, ("x-plimsoll-tenant", "acme")]);
        assert_eq!(
            (answer.status, answer.headers.len(), answer.body.as_str()),
            (status, 0, ""),
            "{path}"
        );
    }
    assert_eq!(
        port.plane
            .tenant_counts("checkout", "acme")
            .unwrap()
            .admitted,
        2
    );
    assert_eq!(
        port.counts(),
        [("check", "allowed", 1), ("nginx", "allowed", 1)]
    );
}

#[test]
fn proxy_refusal_is_the_middleware_problem() {
    let port = Port::new();
    port.plane.limit("checkout", 1_000.0).unwrap();
    (0..1_000).for_each(|_| assert_eq!(port.get("/check", &[BUCKET]).status, 200));
    let answer = port.get("/check", &[BUCKET]);
    assert_eq!(answer.status, 429);
    assert_eq!(
        answer.header("content-type"),
        Some("application/problem+json")
    );
    let wait: u64 = answer.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=3).contains(&wait), "{wait}");
    for (name, value) in [
        ("ratelimit-policy", "\"checkout\";q=1000;w=1".to_owned()),
        ("ratelimit", format!("\"checkout\";r=0;t={wait}")),
        ("x-ratelimit-limit", "1000".to_owned()),
        ("x-ratelimit-remaining", "0".to_owned()),
        ("x-ratelimit-reason", "burst_guard".to_owned()),
    ] {
        assert_eq!(answer.header(name), Some(value.as_str()), "{name}");
    }
    assert!(answer.headers.contains_key("x-ratelimit-reset"));
    let problem = answer.json();
    assert_eq!(
        (&problem["status"], &problem["reason"]),
        (&429.into(), &"burst_guard".into())
    );
    assert_eq!(problem["violated-policies"][0], "checkout");
    assert_eq!(
        port.counts(),
        [("check", "allowed", 1_000), ("check", "refused", 1)]
    );
}

#[test]
fn nginx_gets_a_bare_403_with_fields() {
    let port = Port::new();
    port.plane.limit("checkout", 0.0).unwrap();
    let answer = port.get("/nginx", &[BUCKET]);
    assert_eq!((answer.status, answer.body.as_str()), (403, ""));
    for name in [
        "retry-after",
        "ratelimit",
        "ratelimit-policy",
        "x-ratelimit-limit",
        "x-ratelimit-reason",
    ] {
        assert!(answer.headers.contains_key(name), "{name}");
    }
    assert_eq!(answer.header("content-type"), None);
    assert_eq!(port.counts(), [("nginx", "refused", 1)]);
}

#[test]
fn withheld_refusal_admits_and_says_so() {
    let port = Port::new();
    port.plane
        .refuse("checkout", Reason::ClusterOverload)
        .unwrap();
    let withholds: [fn(&Port); 2] = [
        |port| port.plane.shadow("checkout", true).unwrap(),
        |port| port.plane.kill(true),
    ];
    for withhold in withholds {
        withhold(&port);
        for (path, status) in [("/check", 200), ("/nginx", 204)] {
            let answer = port.get(path, &[BUCKET]);
            assert_eq!(
                (answer.status, answer.header("x-plimsoll-shadow")),
                (status, Some("drop")),
                "{path}"
            );
        }
        port.plane.shadow("checkout", false).unwrap();
        port.plane.kill(false);
        assert_eq!(port.get("/check", &[BUCKET]).status, 429);
    }
    assert_eq!(port.plane.counts("checkout").unwrap().would_refuse, 4);
    let expected = [
        ("check", "refused", 2),
        ("check", "withheld", 2),
        ("nginx", "withheld", 2),
    ];
    assert_eq!(port.counts(), expected);
}

/// The answer to a gRPC request is HTTP as well: a proxy would mistake the status 200 of a gRPC
/// refusal for an admission.
#[test]
fn any_refused_kind_has_the_refusal_status() {
    let port = Port::new();
    port.plane
        .refuse("checkout", Reason::ClusterOverload)
        .unwrap();
    for headers in [
        &[
            BUCKET,
            ("content-type", "application/grpc+proto"),
            ("te", "trailers"),
        ][..],
        &[BUCKET, ("content-type", "application/grpc-web")],
        &[BUCKET, ("x-forwarded-method", "HEAD")],
        &[
            BUCKET,
            ("accept", "text/html"),
            ("range", "bytes=0-1"),
            ("if-none-match", "*"),
        ],
        &[BUCKET, ("expect", "100-continue"), ("content-length", "10")],
        &[BUCKET, ("upgrade", "websocket"), ("connection", "upgrade")],
        &[
            BUCKET,
            ("authorization", "Basic YWxhZGRpbg=="),
            ("authorization", "again"),
        ],
    ] {
        assert_eq!(port.get("/check", headers).status, 429, "{headers:?}");
        assert_eq!(port.get("/nginx", headers).status, 403, "{headers:?}");
    }
    for method in [
        "HEAD", "POST", "PUT", "OPTIONS", "DELETE", "PATCH", "PROPFIND",
    ] {
        let request = || Request::builder().method(method).header(BUCKET.0, BUCKET.1);
        assert_eq!(
            port.ask(request().uri("/check").body("").unwrap()).status,
            429,
            "{method}"
        );
        assert_eq!(
            port.ask(request().uri("/nginx?x=1").body("").unwrap())
                .status,
            403,
            "{method}"
        );
    }
}

#[test]
fn preflight_passes_and_is_counted() {
    let preflight = |method: &'static str| {
        [
            BUCKET,
            ("origin", "https://a"),
            ("access-control-request-method", "PUT"),
            method_header(method),
        ]
    };
    fn method_header(method: &'static str) -> (&'static str, &'static str) {
        ("x-forwarded-method", method)
    }
    for port in [Port::new(), Port::with_rules(REST)] {
        port.plane.refuse_all(Reason::ClusterOverload);
        let uri = ("x-forwarded-uri", "/a");
        assert_eq!(
            port.get("/check", &[&preflight("OPTIONS")[..], &[uri]].concat())
                .status,
            200
        );
        assert_eq!(port.counts(), [("check", "passed", 1)]);
        assert_eq!(
            port.get("/check", &[&preflight("GET")[..], &[uri]].concat())
                .status,
            429
        );
        assert_eq!(
            port.get("/check", &[BUCKET, uri, method_header("OPTIONS")])
                .status,
            429
        );
        assert_eq!(port.mistakes(), []);
    }
}

#[test]
fn rules_compare_the_original_request() {
    for (path, names, refused) in [
        ("/check", ["x-forwarded-method", "x-forwarded-uri"], 429),
        ("/nginx", ["x-original-method", "x-original-uri"], 403),
    ] {
        for (method, uri, bucket) in [
            ("GET", "/orders/7", Some("orders-read")),
            ("HEAD", "/orders/7?x=/healthz", Some("orders-read")),
            ("PUT", "/orders/7", Some("orders-write")),
            ("PROPFIND", "/orders/7", Some("orders-write")),
            ("PUT", "/%6Frders/a/b", Some("orders-write")),
            ("PUT", "/healthz/../orders", Some("orders-write")),
            ("PUT", "/healthz\\..;x=1\\orders", Some("orders-write")),
            ("PUT", "/ORDERS", None),
            ("PUT", "/orders/<script>", Some("orders-write")),
            ("PUT", "/orders/{a}|b^`\"\\", Some("orders-write")),
            ("PUT", "/orders#/healthz", Some("orders-write")),
            ("PUT", "http://shop.example/orders", Some("orders-write")),
            ("GET", "/healthz", None),
            ("GET", "/other", None),
        ] {
            let port = Port::with_rules(RULES);
            port.plane.refuse_all(Reason::ClusterOverload);
            // The bucket header is ignored if there are rules.
            let headers = [
                (names[0], method),
                (names[1], uri),
                ("x-tenant", "acme"),
                BUCKET,
            ];
            let answer = port.get(path, &headers);
            assert_eq!(
                answer.status == refused,
                bucket.is_some(),
                "{path} {method} {uri}: {answer:?}"
            );
            let Some(bucket) = bucket else {
                assert_eq!(port.counts(), [(&path[1..], "passed", 1)], "{uri}");
                continue;
            };
            let cost = if bucket == "orders-write" { 5 } else { 1 };
            assert_eq!(
                port.plane.tenant_counts(bucket, "acme").unwrap().refused,
                cost,
                "{method} {uri}"
            );
            assert_eq!(port.mistakes(), [], "{method} {uri}");
        }
    }
}

/// A fallback from one dialect to the other would let callers choose the path.
#[test]
fn headers_of_another_proxy_are_the_callers() {
    let port = Port::with_rules(RULES);
    port.plane
        .refuse("orders-write", Reason::ClusterOverload)
        .unwrap();
    let forged = [
        ("x-original-uri", "/healthz"),
        ("x-original-method", "GET"),
        ("x-forwarded-path", "/healthz"),
    ];
    let own = [
        ("x-forwarded-uri", "/orders"),
        ("x-forwarded-method", "PUT"),
    ];
    assert_eq!(
        port.get("/check", &[&forged[..], &own].concat()).status,
        429
    );
}

#[test]
fn unnamed_original_meets_no_path_rules() {
    for headers in [
        &[][..],
        &[
            ("x-forwarded-uri", "/healthz"),
            ("x-forwarded-uri", "/healthz"),
        ],
        &[("x-forwarded-uri", "")],
        &[("x-forwarded-uri", "healthz")],
    ] {
        let port = Port::with_rules(REST);
        port.plane.refuse("rest", Reason::ClusterOverload).unwrap();
        assert_eq!(port.get("/check", headers).status, 429, "{headers:?}");
        assert_eq!(
            port.mistakes(),
            [("original_method", 1), ("original_uri", 1)],
            "{headers:?}"
        );
        let port = Port::with_rules(RULES);
        port.plane.refuse_all(Reason::ClusterOverload);
        assert_eq!(port.get("/check", headers).status, 200, "{headers:?}");
    }
}

/// Good traffic is not refused for a mistake in the configuration of its proxy.
#[test]
fn proxy_mistakes_admit_and_are_counted() {
    const LISTED: &str = "buckets: [checkout]\n";
    let long = "x".repeat(129);
    for (headers, mistake) in [
        (&[][..], "no_bucket"),
        (&[BUCKET, BUCKET], "bucket"),
        (&[("x-plimsoll-bucket", "")], "bucket"),
        (&[("x-plimsoll-bucket", "two words")], "bucket"),
        (&[("x-plimsoll-bucket", long.as_str())], "bucket"),
        (&[("x-plimsoll-bucket", "caf\u{e9}")], "bucket"),
        (&[("x-plimsoll-bucket", "search")], "bucket_not_listed"),
    ] {
        let port = Port::with_rules(LISTED);
        port.plane.refuse_all(Reason::ClusterOverload);
        for (path, status) in [("/check", 200), ("/nginx", 204)] {
            assert_eq!(port.get(path, headers).status, status, "{headers:?}");
        }
        assert_eq!(port.mistakes(), [(mistake, 2)], "{headers:?}");
        assert_eq!(
            port.counts(),
            [("check", "passed", 1), ("nginx", "passed", 1)],
            "{headers:?}"
        );
    }
}

#[test]
fn cost_is_a_number_or_else_1() {
    for (cost, offered, is_mistake) in [
        (&["7"][..], 7, false),
        (&["10000"], 10_000, false),
        (&[], 1, false),
        (&["0"], 1, true),
        (&["4294967295"], 10_000, false),
        (&["4294967296"], 1, true),
        (&["-1"], 1, true),
        (&["+5"], 1, true),
        (&["1.5"], 1, true),
        (&[""], 1, true),
        (&["99999999999999999999"], 1, true),
        (&["5", "5"], 1, true),
    ] {
        let port = Port::new();
        let costs = cost.iter().map(|cost| ("x-plimsoll-cost", *cost));
        let headers: Vec<_> = std::iter::once(BUCKET).chain(costs).collect();
        assert_eq!(port.get("/check", &headers).status, 200);
        assert_eq!(self::offered(&port, "checkout"), offered, "{cost:?}");
        assert_eq!(port.mistakes().len(), usize::from(is_mistake), "{cost:?}");
    }
}

#[test]
fn wiring_of_proxies_is_watched() {
    let named = Port::new();
    let by_rules = Port::with_rules(
        "http: { tenant: { header: x-account }, rules: [{ path: '/orders/{id}', bucket: orders }] }\n",
    );
    for (port, header, kind, words) in [
        (&named, BUCKET, "no_tenant", "x-plimsoll-tenant"),
        (
            &by_rules,
            ("x-forwarded-uri", "/v2/orders/7"),
            "no_rule_matches",
            "`/v2/orders/7`",
        ),
        (
            &by_rules,
            ("x-forwarded-uri", "/orders/7"),
            "no_tenant",
            "header x-account",
        ),
    ] {
        (0..100).for_each(|_| drop(port.get("/check", &[header])));
        let problems = port.plane.limiter().status().problems;
        let [problem] = problems.as_slice() else {
            panic!("{problems:?}");
        };
        assert_eq!(problem.problem, kind);
        assert!(problem.text.contains(words), "{}", problem.text);
    }
    let rules = by_rules.plane.limiter().status().rules;
    let text = "bucket `orders`, path `/orders/{id}`".to_owned();
    assert_eq!(rules, [(text, 100)].into());
}

#[test]
fn all_buckets_of_a_rule_admit_or_none() {
    let port = Port::with_rules(
        "http:\n  tenant: { header: x-account }\n  rules:\n    - bucket: orders\n      also:\n        \
         - { bucket: by-user, tenant: { header: x-user }, cost: 2 }\n",
    );
    port.plane.limit("by-user", 4.0).unwrap();
    let headers = &[("x-account", "acme"), ("x-user", "jo")];
    let statuses: Vec<u16> = (0..3).map(|_| port.get("/check", headers).status).collect();
    assert_eq!(statuses, [200, 200, 429]);
    let counts = |bucket, tenant| port.plane.tenant_counts(bucket, tenant).unwrap();
    let (orders, by_user) = (counts("orders", "acme"), counts("by-user", "jo"));
    assert_eq!((orders.admitted, orders.refused), (2, 1));
    assert_eq!((by_user.admitted, by_user.refused), (4, 2));
}
