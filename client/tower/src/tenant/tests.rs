//! Tests of sources of tenants against requests.

use std::borrow::Cow;
use std::collections::HashMap;

use http::{HeaderValue, Request};

use super::*;

pub(super) fn tenant_of(tenant: &Tenant, headers: &[(&str, &str)]) -> String {
    let mut request = Request::new(());
    for (name, value) in headers {
        let name = HeaderName::try_from(*name).unwrap();
        request
            .headers_mut()
            .append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
    of(tenant, &request)
}

fn of(tenant: &Tenant, request: &Request<()>) -> String {
    let found = tenant.find(Head::of(request));
    let text = found.as_ref().map_or("", Found::as_str);
    // An empty tenant counts as the class `default`.
    if text.is_empty() { "default" } else { text }.to_owned()
}

#[test]
fn plan_is_of_the_source_with_the_tenant() {
    let source = |name: &'static str| {
        let tenant = Tenant::header(name).unwrap();
        tenant.plan(move |head| {
            head.header(if name == "x-user" {
                "x-plan"
            } else {
                "x-trial"
            })
        })
    };
    let either = source("x-user").or(source("x-guest"));
    let plain = Tenant::header("x-user").unwrap();
    for (tenant, headers, plan) in [
        (
            &either,
            &[("x-user", "jo"), ("x-plan", "free"), ("x-trial", "t")][..],
            Some("free"),
        ),
        (
            &either,
            &[("x-guest", "al"), ("x-plan", "free"), ("x-trial", "t")],
            Some("t"),
        ),
        (&either, &[("x-user", "jo")], None),
        (&plain, &[("x-user", "jo"), ("x-plan", "free")], None),
        (
            &plain.clone().or(source("x-guest")),
            &[("x-user", "jo"), ("x-trial", "t")],
            None,
        ),
    ] {
        let request = headers
            .iter()
            .fold(Request::builder(), |request, (name, value)| {
                request.header(*name, *value)
            });
        let request = request.body(()).unwrap();
        assert_eq!(tenant.plan_of(Head::of(&request)), plan, "{headers:?}");
    }
}

#[test]
fn header_counts_only_with_one_valid_value() {
    let tenant = Tenant::header("X-Tenant").unwrap();
    for (values, expected) in [
        (&["acme"][..], "acme"),
        (&[], "default"),
        (&["acme", "acme"], "default"),
        (&["café"], "café"),
    ] {
        let headers: Vec<_> = values.iter().map(|value| ("x-tenant", *value)).collect();
        assert_eq!(tenant_of(&tenant, &headers), expected, "{values:?}");
    }
    let error = Tenant::header("x tenant").unwrap_err();
    assert_eq!(
        format!("{error:?}"),
        "`x tenant` is no name of a header: use letters, digits and `-`, such as `x-tenant`"
    );
}

#[test]
fn tenant_follows_claims_and_never_headers() {
    #[derive(Clone)]
    struct Claims(Option<String>);
    let tenant = Tenant::extension(|claims: &Claims| claims.0.as_deref());
    let mut request = Request::builder()
        .header("x-tenant", "big")
        .body(())
        .unwrap();
    assert_eq!(of(&tenant, &request), "default", "no token was verified");
    for (account, expected) in [(Some("acme"), "acme"), (None, "default")] {
        request
            .extensions_mut()
            .insert(Claims(account.map(str::to_owned)));
        assert_eq!(of(&tenant, &request), expected);
    }
}

#[test]
fn tenant_may_be_constant_or_computed() {
    let headers = [("x-tenant", "acme")];
    assert_eq!(tenant_of(&Tenant::default(), &headers), "default");
    assert_eq!(
        tenant_of(&Tenant::constant("batch").unwrap(), &headers),
        "batch"
    );
    assert!(matches!(
        Tenant::constant("").unwrap_err(),
        TenantError::Empty
    ));
    let by_host = Tenant::from_fn(|request| request.uri.host());
    let mut request = Request::new(());
    assert_eq!(of(&by_host, &request), "default");
    *request.uri_mut() = "http://acme.example/".parse().unwrap();
    assert_eq!(of(&by_host, &request), "acme.example");
}

#[test]
fn tenant_function_may_return_its_own_name() {
    let accounts: HashMap<&str, Arc<str>> = HashMap::from([("7", "acme".into())]);
    let strings: HashMap<&str, String> = HashMap::from([("7", "acme".to_owned())]);
    let account = |request: Head<'_>| request.header("x-account").map(str::to_owned);
    let sources = [
        Tenant::by(move |request: Head<'_>| accounts.get(request.header("x-account")?).cloned()),
        Tenant::by(move |request: Head<'_>| strings.get(request.header("x-account")?).cloned()),
        Tenant::by(move |request: Head<'_>| {
            (account(request)? == "7").then_some(Cow::Borrowed("acme"))
        }),
        Tenant::by(move |request: Head<'_>| (account(request)? == "7").then_some("acme")),
    ];
    for tenant in &sources {
        for (value, expected) in [("7", "acme"), ("8", "default")] {
            assert_eq!(tenant_of(tenant, &[("x-account", value)]), expected);
        }
    }
    let long = Tenant::by(|_: Head<'_>| Some("a".repeat(1_000)));
    assert_eq!(tenant_of(&long, &[]), "a".repeat(1_000));
}

#[test]
fn first_source_with_a_tenant_counts() {
    let header = |name| Tenant::header(name).unwrap();
    let tenant = header("x-a")
        .or(Tenant::by(|request: Head<'_>| {
            request.header("x-b").map(str::to_owned)
        }))
        .or(header("x-c"));
    for (headers, expected) in [
        (&[("x-a", "a"), ("x-b", "b"), ("x-c", "c")][..], "a"),
        (&[("x-b", "b"), ("x-c", "c")], "b"),
        (&[("x-a", ""), ("x-b", ""), ("x-c", "c")], "c"),
        (&[("x-a", "auth0|1a"), ("x-c", "c")], "auth0|1a"),
        (&[("x-a", ""), ("x-c", "c")], "c"),
        (&[], "default"),
    ] {
        assert_eq!(tenant_of(&tenant, headers), expected, "{headers:?}");
    }
    assert_eq!(
        format!("{tenant:?}"),
        "Tenant(header x-a or function or header x-c)"
    );
    let last = header("x-a").or(Tenant::constant("guests").unwrap());
    assert_eq!(tenant_of(&last, &[("x-a", "")]), "guests");
    assert_eq!(last.constant, None);
}
