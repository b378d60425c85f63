//! Tables of descriptors and the rules that they match.

use super::*;

const RULES: &str = r#"
rls:
  domains:
    shop:
      refusal: grpc
      descriptors:
        - key: generic_key
          value: checkout
          bucket: checkout
          descriptors:
            - key: account
              bucket: checkout
              tenant: { entry: account }
              cost: 5
            - key: account
              value: internal
              unlimited: true
            - key: account
              value: vip
              bucket: vip
              refusal: bare
              descriptors:
                - { key: region, bucket: vip, tenant: { entry: region } }
        - key: path
          value: "/api/*"
          bucket: api
        - key: path
          value: "/api/v2/*"
          bucket: api-2
          tenant: v2
        - key: path
          value: "/api/v2/x"
          bucket: api-x
        - key: path
          bucket: rest
        - key: only
          value: "a*"
          bucket: only
        - key: name
          bucket: { entry: name }
          tenant: { entry: name }
    "*":
      refusal: problem
      descriptors:
        - key: generic_key
          bucket: others
buckets: [search, checkout]
"#;

#[test]
fn most_precise_complete_rule_matches() {
    let rules = rules(RULES);
    for (descriptor, expected) in [
        ("generic_key=checkout", "checkout/default Grpc"),
        ("generic_key=other", "none"),
        ("generic_key=checkout,account=acme", "checkout/acme x5 Grpc"),
        ("generic_key=checkout,account=", "checkout/ x5 Grpc"),
        ("generic_key=checkout,account=internal", "unlimited"),
        ("generic_key=checkout,account=vip", "vip/default Bare"),
        ("generic_key=checkout,account=vip,region=eu", "vip/eu Bare"),
        ("generic_key=checkout,account=acme,region=eu", "none"),
        ("generic_key=checkout,account=vip,region=eu,more=1", "none"),
        ("generic_key=checkout,other=1", "none"),
        ("account=acme", "none"),
        ("account=acme,generic_key=checkout", "none"),
        ("path=/api/v1", "api/default Grpc"),
        ("path=/api/", "api/default Grpc"),
        ("path=/api", "rest//api Grpc"),
        ("path=/api/v2", "api/default Grpc"),
        ("path=/api/v2/", "api-2/v2 Grpc"),
        ("path=/api/v2/xy", "api-2/v2 Grpc"),
        ("path=/api/v2/x", "api-x/default Grpc"),
        ("path=/api/v3/x", "api/default Grpc"),
        ("path=/apj", "rest//apj Grpc"),
        ("path=", "rest/ Grpc"),
        ("path=/api/*", "api/default Grpc"),
        ("only=a", "only/default Grpc"),
        ("only=b", "none"),
        ("only=", "none"),
        ("name=search", "search/search Grpc"),
        ("name=checkout", "checkout/checkout Grpc"),
        ("name=other", "none"),
        ("name=no name", "none"),
        ("", "none"),
    ] {
        assert_eq!(found(&rules, "shop", descriptor), expected, "{descriptor}");
    }
}

/// As in Envoy's own rate limit service, each value of such an entry has a separate counter.
#[test]
fn values_that_no_rule_names_are_tenants() {
    let rules = rules(
        "
rls:
  domains:
    d:
      descriptors:
        - key: foo
          bucket: one
          descriptors:
            - { key: bar, bucket: two }
            - { key: bar, value: x, bucket: fixed }
            - { key: bar, value: y, bucket: class, tenant: default }
            - { key: name, bucket: { entry: name } }
            - { key: plan, bucket: planned, plan: { entry: plan } }
            - { key: trial, bucket: planned, plan: trial }
buckets: [search]
",
    );
    for (descriptor, expected) in [
        ("foo=1", "one/1"),
        ("foo=2", "one/2"),
        ("foo=1,bar=2", "two/1|2"),
        ("foo=1|2,bar=", "two/1%7C2|"),
        ("foo=1,bar=2|", "two/1|2%7C"),
        ("foo=1,bar=x", "fixed/1"),
        ("foo=1,bar=y", "class/default"),
        ("foo=1,name=search", "search/1"),
        ("foo=1,plan=free", "planned/1 in free"),
        ("foo=1,trial=yes", "planned/1|yes in trial"),
    ] {
        assert_eq!(found(&rules, "d", descriptor), expected, "{descriptor}");
    }
}

#[test]
fn domain_without_rules_uses_general_ones() {
    let rules = rules(RULES);
    for (domain, descriptor, expected) in [
        ("other", "generic_key=checkout", "others/checkout"),
        ("*", "generic_key=checkout", "others/checkout"),
        ("other", "path=/api/v1", "none"),
        ("shop", "generic_key=x", "none"),
        ("", "generic_key=x", "others/x"),
    ] {
        assert_eq!(
            found(&rules, domain, descriptor),
            expected,
            "{domain} {descriptor}"
        );
    }
    let alone =
        super::rules("rls: { domains: { shop: { descriptors: [{ key: a, bucket: b }] } } }");
    assert_eq!(found(&alone, "other", "a=1"), "none");
}

#[test]
fn entries_name_bucket_and_tenant_without_rules() {
    let listed = rules("buckets: [a, b]");
    for (descriptor, of_any, of_listed) in [
        ("bucket=a", "a/default", "a/default"),
        ("bucket=c", "c/default", "none"),
        ("bucket=a,tenant=t", "a/t", "a/t"),
        ("tenant=t,bucket=a", "a/t", "a/t"),
        ("tenant=t,bucket=a,plan=p", "a/t in p", "a/t in p"),
        ("tenant=t", "none", "none"),
        ("bucket=a,bucket=b", "none", "none"),
        ("bucket=a,other=1", "none", "none"),
        ("bucket=no name", "none", "none"),
        ("", "none", "none"),
    ] {
        assert_eq!(
            found(&Rules::built_in(), "any", descriptor),
            of_any,
            "{descriptor}"
        );
        assert_eq!(found(&listed, "any", descriptor), of_listed, "{descriptor}");
    }
}

#[test]
fn caller_names_are_valid_and_listed() {
    let (any, listed) = (Rules::built_in(), rules(RULES));
    for (name, by_any, by_listed) in [
        ("search", true, true),
        ("vip", true, false),
        ("no name", false, false),
        ("", false, false),
    ] {
        assert_eq!(
            (any.takes(name), listed.takes(name)),
            (by_any, by_listed),
            "{name}"
        );
    }
}

#[test]
fn every_bucket_of_the_file_is_declared() {
    let text = format!(
        "{RULES}http: {{ rules: [{{ prefix: /a, bucket: web }}, {{ unlimited: true }}] }}\n"
    );
    let buckets: Vec<String> = rules(&text).buckets().map(ToString::to_string).collect();
    let expected = [
        "api", "api-2", "api-x", "checkout", "only", "others", "rest", "search", "vip", "web",
    ];
    assert_eq!(buckets, expected);
}

#[test]
fn hash_is_that_of_the_text() {
    assert_eq!(rules(RULES).hash(), RulesHash::of(RULES.as_bytes()));
    assert_ne!(rules(RULES).hash(), Rules::built_in().hash());
    assert_eq!(Rules::built_in().hash().to_string(), "f52a15e9a9b5e89b");
}

#[test]
fn nested_prefixes_are_found_in_any_order() {
    let prefixes = ["abc", "a", "abcdef", "b", "abd", "ab"];
    let list = prefixes
        .map(|prefix| format!("{{ key: k, value: '{prefix}*', bucket: {prefix} }}"))
        .join(", ");
    let rules = rules(&format!(
        "rls: {{ domains: {{ d: {{ descriptors: [{list}] }} }} }}"
    ));
    for (value, expected) in [
        ("abcdef", "abcdef"),
        ("abcdez", "abc"),
        ("abcdeg", "abc"),
        ("abce", "abc"),
        ("abz", "ab"),
        ("az", "a"),
        ("abda", "abd"),
        ("bb", "b"),
    ] {
        assert_eq!(
            found(&rules, "d", &format!("k={value}")),
            format!("{expected}/default"),
            "{value}"
        );
    }
    assert_eq!(found(&rules, "d", "k=c"), "none");
}
