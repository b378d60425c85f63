//! Tables of faults and warnings: each with its place, its field and its remedy.

use super::*;

/// Returns the faults of a text: place, field and message, then the hint.
fn faults(text: &str) -> Vec<(String, String)> {
    let error = read(text)
        .map(|_| panic!("no fault in\n{text}"))
        .unwrap_err();
    let faults = error.faults().iter();
    faults
        .map(|f| {
            (
                format!("{} {}: {}", f.place, f.path, f.message),
                f.hint.clone(),
            )
        })
        .collect()
}

fn domain(rules: &str) -> String {
    format!("rls: {{ domains: {{ shop: {{ descriptors: [{rules}] }} }} }}")
}

#[track_caller]
fn has_one(text: &str, message: &str, hint: &str) {
    let found = faults(text);
    assert_eq!(found.len(), 1, "{found:#?}\n{text}");
    assert!(
        found[0].0.contains(message),
        "{found:#?}\nhas not: {message}"
    );
    assert!(found[0].1.contains(hint), "{found:#?}\nhas not: {hint}");
}

#[test]
fn fault_of_a_descriptor_has_its_remedy() {
    for [rules, message, hint] in rows(
        r#"
        { key: a } | descriptors.0: the rule does nothing | write `bucket` or `unlimited: true`
        { key: a, unlimited: false } | the rule does nothing | `descriptors`
        { key: a, bukcet: b } | descriptors.0.bukcet: unknown field `bukcet` | did you mean `bucket`?
        { bucket: b } | descriptors.0.key: `key` is missing | write it
        { key: '', bucket: b } | descriptors.0.key: the key is empty | the proxy sends
        { key: a, value: '', bucket: b } | descriptors.0.value: the value is empty | leave `value` out
        { key: a, value: '*', bucket: b } | descriptors.0.value: `*` alone is every value | leave `value` out
        { key: a, bucket: 'b c' } | descriptors.0.bucket: a name consists of letters | 1 to 128
        { key: a, value: x*y, bucket: b } | value: `*` stands for any text at the end alone | one `*` at the end
        { key: a, value: x*y*, bucket: b } | value: `*` stands for any text at the end alone | one `*` at the end
        { key: a, bucket: b, tenant: '' } | descriptors.0.tenant: a name must not be empty | `default`
        { key: a, bucket: b, tenant: a%7Cb } | descriptors.0.tenant: a tenant in rules has no `%` | `auth0|1a`
        { key: a, bucket: b, tenant: { entry: b } } | tenant.entry: no entry `b` on the way to this rule | known here: `a`
        { key: account, bucket: b, tenant: { entry: acount } } | no entry `acount` | did you mean `account`?
        { key: a, bucket: b, tenant: { header: x } } | unknown field `header` | `entry`
        { key: a, bucket: b, tenant: 7 } | descriptors.0.tenant: expected a name or `{ entry: KEY }` |
        { key: a, bucket: { entry: a } } | descriptors.0.bucket: a bucket from a value needs the list `buckets` | list the names
        { key: a, bucket: b, cost: 0 } | descriptors.0.cost: 0 is not in 1..=10000 | from 1 on
        { key: a, bucket: b, cost: 10001 } | descriptors.0.cost: 10001 is not in 1..=10000 | from 1 on
        { key: a, bucket: b, cost: 1.5 } | descriptors.0.cost: 1.5 is not a whole number | without a fraction
        { key: a, bucket: b, cost: '5' } | descriptors.0.cost: expected a number | without quotes
        { key: a, bucket: b, unlimited: true } | descriptors.0.unlimited: a rule has a bucket or is unlimited | one of the two
        { key: a, value: x, unlimited: true, cost: 2 } | descriptors.0.cost: `cost` without a bucket | write `bucket`
        { key: a, value: x, unlimited: true, tenant: t } | descriptors.0.tenant: `tenant` without a bucket |
        { key: a, bucket: b, refusal: problme } | `problme` is not a value of this field | did you mean `problem`?
        { key: a, bucket: b, takes_limit: true } | descriptors.0.takes_limit: a sidecar applies no limits that descriptors bring along | a limit or a quota in the policy
        { key: a, bucket: b, descriptors: [] } | descriptors.0.descriptors: the list is empty |
         | shop.descriptors: the list is empty | write a rule
        { key: a, bucket: b }, { key: a, bucket: c } | descriptors.1: the rule can never match: the one at 1:41 has the same | keep one
        { key: a, value: 'x*', bucket: b }, { key: a, value: 'x*', bucket: c } | descriptors.1: the rule can never match |
        { key: a, bucket: x, descriptors: [{ key: a, bucket: y, tenant: { entry: a } }] } | descriptors.0.descriptors.0.tenant.entry: two entries on the way to this rule have the key `a` | different keys
        "#,
    ) {
        has_one(&domain(&rules), &message, &hint);
    }
}

#[test]
fn fault_of_the_file_has_its_remedy() {
    for [text, message, hint] in rows(
        r#"
         | 1:1 : the file is empty |
        rsl: {} | 1:1 rsl: unknown field `rsl` | did you mean `rls`?
        rls: {} | rls.domains: `domains` is missing |
        rls: { domains: {} } | 1:17 rls.domains: no domain has rules | leave `rls` out
        rls: { domains: { shop: {} } } | rls.domains.shop.descriptors: `descriptors` is missing |
        rls: { domains: { '': { descriptors: [{ key: a, bucket: b }] } } } | the domain is empty |
        buckets: [] | 1:10 buckets: the list is empty | leave `buckets` out
        buckets: [a, a] | 1:14 buckets.1: duplicate name `a`, first written at 1:11 | keep one
        buckets: [a, 'b c'] | 1:14 buckets.1: a name consists of |
        buckets: [a]\nbuckets: [b] | 2:1 buckets: duplicate key `buckets` |
        "#,
    ) {
        has_one(&text, &message, &hint);
    }
}

#[test]
fn http_rule_fault_has_its_place() {
    for [rules, message, hint] in rows(
        r#"
         | 1:16 http.rules: the list is empty | headers name the bucket
        { path: /a } | 1:17 http.rules.0: the rule names no bucket | `unlimited: true`
        { path: a, bucket: b } | http.rules.0.path: it must begin with `/` | without scheme
        { path: '/a?b', bucket: b } | http.rules.0.path: a path has no query | %3F
        { path: '/a/*', bucket: b } | http.rules.0.path: `*` alone is no wildcard | .prefix("/a")
        { prefix: '/a/{id}', bucket: b } | http.rules.0.prefix: `exact` and `prefix` have no parameters | use .path(..)
        { path: '/a/{id', bucket: b } | http.rules.0.path: a parameter is a name in braces |
        { path: /a, prefix: /b, bucket: b } | http.rules.0.prefix: a rule has one condition on paths, not `path` and `prefix` | a rule for each
        { path: /a, bucket: b, unlimited: true } | http.rules.0.unlimited: a rule has a bucket or is unlimited |
        { path: /a, bucket: 'b c' } | http.rules.0.bucket: a name consists of |
        { path: /a, bucket: b, cost: 0 } | http.rules.0.cost: 0 is not in 1..=10000 |
        { path: /a, unlimited: true, cost: 2 } | http.rules.0.cost: `cost` without a bucket |
        { path: /a, bucket: b, methods: [get] } | http.rules.0.methods.0: `get` is not the name of a method | upper case
        { path: /a, bucket: b, methods: ['GE T'] } | http.rules.0.methods.0: `GE T` is not |
        { path: /a, bucket: b, methods: [] } | http.rules.0.methods: the list of methods is empty | leave `methods` out
        { path: /a, bucket: b }, { path: /a, bucket: c } | 1:42 http.rules.1: the rule can never match: rule 1 (bucket `b`, path `/a`) matches the same requests | one of the two
        { prefix: /a, bucket: b }, { path: /a/x, bucket: c } | http.rules.1: the rule can never match: rule 1 (bucket `b`, prefix `/a`) matches all its requests | the narrower rule first
        { pth: /a, bucket: b } | http.rules.0.pth: unknown field `pth` | did you mean `path`?
        "#,
    ) {
        has_one(&format!("http: {{ rules: [{rules}] }}"), &message, &hint);
    }
    has_one(
        "http: { tenant: { header: 'x y' } }",
        "http.tenant.header: `x y` is not the name of a header",
        "x-tenant",
    );
    has_one(
        "http: { tenant: 'x%20y' }",
        "http.tenant: a tenant in rules has no `%`",
        "`auth0|1a`",
    );
    has_one(
        "http: { tenant: { heder: x } }",
        "unknown field `heder`",
        "did you mean `header`?",
    );
}

#[test]
fn all_file_faults_appear_together() {
    let text = "rls:\n  domains:\n    shop:\n      descriptors:\n        - { key: a }\n        - { key: b, bucket: b, cost: 0 }\nhttp:\n  rules:\n    - { path: a, bucket: x }\n    - { bucket: 'y z' }\n    - { path: /a, bucket: a }\n    - { exact: /a, bucket: c }\nbuckets: ['u v']\n";
    let places: Vec<String> = faults(text)
        .into_iter()
        .map(|(fault, _)| fault.split_whitespace().next().unwrap().to_owned())
        .collect();
    assert_eq!(places, ["5:11", "6:38", "9:15", "10:17", "12:7", "13:11"]);
}

/// Each fault shows its line, so that reading on would take time in the square of the file's
/// length.
#[test]
fn reading_stops_at_the_reported_faults() {
    let many = |item: &str| vec![item; 10_000].join(",\n");
    let found = faults(&domain(&many("{ key: a }")));
    assert_eq!(found.len(), plimsoll_policy::FAULTS_MAX);
    assert!(
        found[19]
            .0
            .contains("descriptors.19: the rule does nothing"),
        "{found:#?}"
    );
    assert_eq!(
        faults(&domain(&many("{ key: a, bucket: b }"))).len(),
        plimsoll_policy::FAULTS_MAX
    );
    assert_eq!(
        faults(&format!("buckets: [{}]", many("a"))).len(),
        plimsoll_policy::FAULTS_MAX
    );
}

#[test]
fn bounds_are_refused_by_name() {
    let many = |count: usize, item: &dyn Fn(usize) -> String| {
        (0..count).map(item).collect::<Vec<_>>().join(",\n")
    };
    let descriptors = many(DESCRIPTOR_RULES_MAX + 1, &|i| {
        format!("{{ key: k, value: v{i}, bucket: b }}")
    });
    has_one(
        &domain(&descriptors),
        "descriptors.10000: a file has at most 10000",
        "covers many values",
    );
    let domains = many(DOMAINS_MAX + 1, &|i| {
        format!("d{i}: {{ descriptors: [{{ key: k, bucket: b }}] }}")
    });
    has_one(
        &format!("rls: {{ domains: {{ {domains} }} }}"),
        "at most 1000 fit (DOMAINS_MAX)",
        "`*`",
    );
    let names = many(NAMES_MAX + 1, &|i| format!("n{i}"));
    has_one(
        &format!("buckets: [{names}]"),
        "at most 10000 fit (NAMES_MAX)",
        "leave `buckets` out",
    );
    let paths = many(HTTP_RULES_MAX + 1, &|i| {
        format!("{{ path: /p{i}, bucket: b }}")
    });
    has_one(
        &format!("http: {{ rules: [{paths}] }}"),
        "at most 500 fit (HTTP_RULES_MAX)",
        "`prefix`",
    );
    let long = "x".repeat(ENTRY_BYTES_MAX + 1);
    has_one(
        &domain(&format!("{{ key: {long}, bucket: b }}")),
        "a key has at most 1024 bytes",
        "",
    );
    has_one(
        &domain(&format!("{{ key: a, value: {long}, bucket: b }}")),
        "a value has at most 1024 bytes",
        "",
    );
    let nested = |depth: usize| {
        let innermost = format!("{{ key: k{depth}, bucket: b }}");
        (1..depth).rev().fold(innermost, |below, at| {
            format!("{{ key: k{at}, descriptors: [{below}] }}")
        })
    };
    rules(&domain(&nested(ENTRIES_MAX)));
    has_one(
        &domain(&nested(ENTRIES_MAX + 1)),
        "a descriptor has at most 16 entries (ENTRIES_MAX)",
        "none can match",
    );
    assert!(
        faults(&domain(&nested(100)))[0]
            .0
            .contains("nested deeper than")
    );
}

#[test]
fn legal_surprise_is_a_warning_in_place() {
    for (text, expected) in [
        (
            domain("{ key: a, unlimited: true }"),
            "1:62 rls.domains.shop.descriptors.0.unlimited: every descriptor of the one entry `a`",
        ),
        (
            "http: { rules: [{ path: /a, bucket: b }] }".to_owned(),
            "1:7 http: requests without the header x-plimsoll-tenant",
        ),
        (
            "http: { tenant: t, rules: [{ path: /a, bucket: b }, { unlimited: true }] }".to_owned(),
            "http.rules.1: every request that no rule above matches passes",
        ),
    ] {
        let (_, warnings) = read(&text).unwrap_or_else(|error| panic!("{error}"));
        let shown: Vec<String> = warnings
            .iter()
            .map(|w| format!("{} {}: {}", w.at, w.path, w.message))
            .collect();
        assert_eq!(shown.len(), 1, "{shown:#?}\n{text}");
        assert!(
            shown[0].contains(expected),
            "{shown:#?}\nhas not: {expected}"
        );
    }
    for text in [
        domain("{ key: a, value: x, unlimited: true }"),
        domain("{ key: a, bucket: b, descriptors: [{ key: c, unlimited: true }] }"),
        "http: { tenant: { header: x-tenant }, rules: [{ path: /a, bucket: b }, { bucket: rest }] }"
            .to_owned(),
        "buckets: [a]".to_owned(),
    ] {
        let (_, warnings) = read(&text).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(warnings, [], "{text}");
    }
}
