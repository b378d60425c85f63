//! Tests of lists of rules against requests.

use http::Method;
use plimsoll_client::internals::KeyHandle;
use plimsoll_client::{BucketError, COST_MAX};

use super::*;
use crate::decide::Decider;
use crate::decide::tests::exported;

fn rules(rules: impl IntoIterator<Item = Rule>) -> Result<Rules, RulesError> {
    let (limiter, _) = Limiter::builder("shop").build_detached().unwrap();
    Rules::new(&limiter, Tenant::default(), rules)
}

fn applies(rules: &Rules, method: Method, uri: &str) -> Option<usize> {
    let request = http::Request::builder()
        .method(method)
        .uri(uri)
        .body(())
        .unwrap();
    let Ok(applied) = rules.target(Head::of(&request)) else {
        return None;
    };
    rules.rules.iter().position(|rule| {
        rule.target
            .as_ref()
            .is_some_and(|of| std::ptr::eq(of, applied))
    })
}

fn key_of(rules: &Rules, bucket: &str) -> KeyHandle {
    let buckets = rules
        .rules
        .iter()
        .filter_map(|rule| Some(&rule.target.as_ref()?.bucket));
    let mut buckets = buckets.filter(|of| of.name() == bucket);
    buckets.next().unwrap().key("default")
}

#[test]
fn first_matching_rule_applies() {
    let rules = rules([
        Rule::bucket("read")
            .prefix("/orders")
            .methods([Method::GET, Method::HEAD]),
        Rule::bucket("write").path("/orders/{id}"),
        Rule::bucket("cart").exact("/cart"),
        Rule::bucket("delete").methods([Method::DELETE]),
    ])
    .unwrap();
    for (method, uri, expected) in [
        (Method::GET, "/orders/7", Some(0)),
        (Method::HEAD, "/orders/", Some(0)),
        (Method::GET, "/orders", Some(0)),
        (Method::GET, "/orders2", None),
        (Method::PUT, "/orders/7?force=1", Some(1)),
        (Method::PUT, "/orders", None),
        (Method::PUT, "/orders/7/items", None),
        (Method::GET, "http://shop.example/cart?x=/orders/", Some(2)),
        (Method::GET, "/cart/", None),
        (Method::GET, "/CART", None),
        (Method::GET, "/%63art", Some(2)),
        (Method::GET, "/orders/%2e%2e/cart", Some(0)),
        (Method::DELETE, "/orders/7", Some(1)),
        (Method::DELETE, "/anything", Some(3)),
        (Method::GET, "/healthz", None),
    ] {
        assert_eq!(
            applies(&rules, method.clone(), uri),
            expected,
            "{method} {uri}"
        );
    }
}

#[test]
fn rule_without_conditions_matches_the_rest() {
    for rest in [Rule::bucket("rest"), Rule::bucket("rest").prefix("/")] {
        let rules = rules([Rule::bucket("cart").path("/cart"), rest]).unwrap();
        assert_eq!(applies(&rules, Method::OPTIONS, "*"), Some(1));
        assert_eq!(applies(&rules, Method::GET, "/"), Some(1));
    }
}

#[test]
fn catch_all_rule_is_always_last() {
    let rules = rules([Rule::otherwise("rest"), Rule::bucket("cart").path("/cart")]).unwrap();
    assert_eq!(applies(&rules, Method::GET, "/cart"), Some(0));
    assert_eq!(applies(&rules, Method::GET, "/carts"), Some(1));
}

#[test]
fn unlimited_path_is_unlimited_by_every_reading() {
    let rules = rules([
        Rule::unlimited().prefix("/static"),
        Rule::unlimited().path("/healthz"),
        Rule::unlimited().exact("/a%2fb"),
        Rule::bucket("cart").path("/cart"),
        Rule::bucket("ab").path("/a/b"),
    ])
    .unwrap();
    for (uri, expected) in [
        ("/static/cart", None),
        ("/static/a%20b", None),
        ("/static/../cart", Some(3)),
        ("/static/%2e%2e%2fcart", Some(3)),
        ("/healthz/../cart", Some(3)),
        ("/healthz", None),
        ("/a/b", Some(4)),
        ("/a%2fb", Some(4)),
        ("/a%2Fb", Some(4)),
    ] {
        assert_eq!(applies(&rules, Method::GET, uri), expected, "{uri}");
    }
}

#[test]
fn every_spelling_meets_rules_of_every_kind() {
    let admin = || Rule::bucket("admin");
    for rule in [
        admin().exact("/admin/x"),
        admin().prefix("/admin"),
        admin().path("/admin/{id}"),
    ] {
        let rules = rules([
            Rule::unlimited().prefix("/static"),
            rule,
            Rule::bucket("rest"),
        ])
        .unwrap();
        for uri in [
            "/admin/x",
            "/%61dmin/x",
            "/%2561dmin/x",
            "/%25252561dmin/x",
            "/admin%2fx",
            "/admin%252Fx",
            "//admin//x",
            "/./admin/./x",
            "/%2e/admin/%2E/x",
            "/static/../admin/x",
            "/static/%2e./admin/x",
            "/static/%252e%252e/admin/x",
            "/static//..//../admin/x",
            "/admin/y//../../x",
            "/admin;x=1/x",
            "/admin/x;y",
            "/admin%3bx/x",
            "/admin%253bx/x",
            "/;/admin/x",
            "/static/..;/admin/x",
            "/static/..;a=b/admin;c/x;d",
            "/static/%2e%2e%3b/admin/x",
            "/static/.;a/..;b/admin/x",
            "/static/..%2fadmin/x",
            "\\admin\\x",
            "/admin\\x",
            "/admin%5cx",
            "/ad%09min/x",
            "/static%2f../admin/x%00.txt",
            "/admin%255Cx",
            "/static\\..\\admin\\x",
            "/static/..%5cadmin%5cx",
            "/static\\..;\\admin/x",
            "/admin;a\\b/x",
            "/static/y;\\z/../../admin/x",
            "/static/../admin/y%2f..%2fx",
            "/static/../%61dmin;%2f/x",
        ] {
            let uri = uri
                .strip_prefix('\\')
                .map_or(uri.to_owned(), |rest| format!("/\\{rest}"));
            assert_eq!(applies(&rules, Method::GET, &uri), Some(1), "{uri}");
        }
        for uri in [
            "/admins/x",
            "/static/../other/x",
            "/other;/admin/x",
            "/a%64mi/x",
        ] {
            assert_eq!(applies(&rules, Method::GET, uri), Some(2), "{uri}");
        }
    }
}

#[test]
fn oversized_path_meets_a_limited_rule() {
    let rules = rules([
        Rule::unlimited().prefix("/static"),
        Rule::bucket("write")
            .prefix("/admin")
            .methods([Method::PUT]),
        Rule::bucket("admin").prefix("/admin"),
        Rule::bucket("rest"),
    ])
    .unwrap();
    let hostile = format!("/static{}", "/%2561;x\\..//.;".repeat(1_000));
    assert_eq!(applies(&rules, Method::GET, &hostile), Some(2));
    assert_eq!(applies(&rules, Method::GET, &"/a".repeat(10_000)), Some(3));
}

#[test]
fn case_of_letters_matters_unless_ignored() {
    let strict = rules([
        Rule::bucket("a").path("/Admin/{id}"),
        Rule::bucket("caf").exact("/Caf%C3%A9"),
    ])
    .unwrap();
    let ignoring = strict.clone().ignore_case();
    for (uri, by_strict, by_ignoring) in [
        ("/Admin/X", Some(0), Some(0)),
        ("/ADMIN/x", None, Some(0)),
        ("/%41DMIN/x", None, Some(0)),
        ("/admin/", None, None),
        ("/cAF%c3%a9", None, Some(1)),
    ] {
        assert_eq!(applies(&strict, Method::GET, uri), by_strict, "{uri}");
        assert_eq!(applies(&ignoring, Method::GET, uri), by_ignoring, "{uri}");
    }
}

#[test]
fn passing_request_counts_by_its_reason() {
    let rules = rules([
        Rule::unlimited().path("/healthz"),
        Rule::bucket("cart").path("/cart"),
    ])
    .unwrap();
    let preflight = |request: http::request::Builder| {
        request
            .method("OPTIONS")
            .header("origin", "https://a.example")
            .header("access-control-request-method", "PUT")
    };
    let sent = |rules: &Rules, uri: &str, is_preflight: bool| {
        let request = http::Request::builder().uri(uri);
        let request = if is_preflight {
            preflight(request)
        } else {
            request
        };
        let request = request.body(()).unwrap();
        Decider::Rules(rules.clone()).decide(Head::of(&request));
        assert_eq!(
            rules.ask_uncounted(Head::of(&request), |_| ()).is_ok(),
            uri == "/cart" && (!is_preflight || rules.limits_preflights)
        );
    };
    for (uri, is_preflight) in [
        ("/healthz", false),
        ("/cart", false),
        ("/cart", true),
        ("/other", false),
        ("/other", false),
        ("/healthz/..", false),
    ] {
        sent(&rules, uri, is_preflight);
    }
    let passed = |rules: &Rules| exported(&rules.limiter, "plimsoll_requests_passed_total");
    let expected = [("no_rule", 3), ("unlimited", 1), ("cors_preflight", 1)]
        .map(|(reason, count)| (reason.to_owned(), count));
    assert_eq!(passed(&rules), expected);
    assert_eq!(key_of(&rules, "cart").counts().offered, 1);
    let rules = rules.limit_preflights();
    sent(&rules, "/cart", true);
    assert_eq!(
        (passed(&rules), key_of(&rules, "cart").counts().offered),
        (expected.into(), 2)
    );
}

#[test]
fn request_counts_as_its_cost_within_bounds() {
    let cost = |request: Head<'_>| {
        request
            .header("x-cost")
            .and_then(|cost| cost.parse().ok())
            .unwrap_or(7)
    };
    let by_name = Tenant::from_fn(|_| Some("default"));
    let (limiter, _) = Limiter::builder("shop").build_detached().unwrap();
    for tenant in [Tenant::default(), by_name] {
        let rules = Rules::new(&limiter, tenant, [Rule::bucket("export").cost(cost)]).unwrap();
        let key = limiter.bucket("export").unwrap().key("default");
        for (header, expected) in [
            (Some("3"), 3),
            (Some("0"), 1),
            (Some("1"), 1),
            (Some("10000"), 10_000),
            (Some("10001"), u64::from(COST_MAX)),
            (Some("4294967295"), u64::from(COST_MAX)),
            (Some("-1"), 7),
            (None, 7),
        ] {
            let request = http::Request::builder();
            let request = header
                .iter()
                .fold(request, |request, cost| request.header("x-cost", *cost));
            let request = request.body(()).unwrap();
            let before = key.counts().offered;
            Decider::Rules(rules.clone()).decide(Head::of(&request));
            assert_eq!(key.counts().offered - before, expected, "{header:?}");
            let asked = rules.ask(Head::of(&request), |request| limiter.check(request));
            assert!(asked.unwrap().is_admit());
            assert_eq!(key.counts().offered - before, 2 * expected, "{header:?}");
        }
    }
}

#[test]
fn function_names_what_a_request_counts_for() {
    let (limiter, _) = Limiter::builder("shop").build_detached().unwrap();
    let key = limiter.bucket("export").unwrap().key("default");
    for (cost, expected) in [(1, 1), (5, 5), (u32::MAX, u64::from(COST_MAX)), (0, 1)] {
        let before = key.counts().offered;
        let decider = Decider::Function(
            limiter.clone(),
            Box::new(move |_| Some(Request::new("export", "default").cost(cost))),
        );
        decider.decide(Head::of(&http::Request::new(())));
        assert_eq!(key.counts().offered - before, expected, "{cost}");
    }
}

#[test]
fn list_error_prints_text_and_rule() {
    let error = rules([Rule::bucket("a").path("/a"), Rule::bucket("no name")]).unwrap_err();
    assert!(matches!(
        &error,
        RulesError::Bucket {
            source: BucketError::Name { .. },
            ..
        }
    ));
    assert_eq!(format!("{error:?}"), error.to_string());
    assert!(
        error
            .to_string()
            .starts_with("rule 2 (bucket `no name`): bucket `no name`: "),
        "{error}"
    );
    assert_eq!(rules([]).unwrap_err(), RulesError::Empty);
}
