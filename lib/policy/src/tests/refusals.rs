//! Every refusal with its place, field and message.

use super::*;

type Row<'a> = (&'a str, (usize, usize), &'a str, &'a str);

fn check(refused: PolicyError, (text, (line, column), path, words): Row<'_>) -> PolicyFault {
    let fault = refused.faults()[0].clone();
    let head: String = text.chars().take(400).collect();
    assert_eq!(
        (fault.place, fault.path.as_str()),
        (SourcePlace { line, column }, path),
        "{head}\n{fault}"
    );
    let said = format!("{} {}", fault.message, fault.hint);
    assert!(
        said.contains(words),
        "{head}\n{fault}\nshould say {words:?}"
    );
    assert!(!fault.hint.is_empty(), "{head}\n{fault}");
    if let Some(line) = text
        .lines()
        .nth(line - 1)
        .filter(|line| !line.trim().is_empty() && line.len() < 80)
    {
        assert!(
            fault.snippet.as_ref().unwrap().contains(line.trim_end()),
            "{head}\n{fault}"
        );
    }
    fault
}

fn check_policy(row: Row<'_>) {
    let refused = read(row.0, ONE_CLASS_TENANTS).map(drop).expect_err(row.0);
    assert_eq!(check(refused, row).file, "policy.yaml");
}

fn check_tenants(row: Row<'_>) {
    let refused = read("buckets: {}", row.0).map(drop).expect_err(row.0);
    assert_eq!(check(refused, row).file, "tenants.yaml");
}

/// Checks the rows of a table: text, `LINE:COLUMN`, path and words.
fn each(check: fn(Row<'_>), table: &str) {
    for [text, place, path, words] in rows(table) {
        check((&text, place_of(&place), &path, &words));
    }
}

#[test]
fn structure() {
    let deep = format!("buckets: {}1{}", "{ a: ".repeat(64), " }".repeat(64));
    let deep_lists = format!("buckets: {}", "[".repeat(100_000));
    each(
        check_policy,
        r#"
             | 1:1 | | empty
            # only a comment\n | 1:1 | | empty
            ---\n | 1:4 | | empty
            null\n | 1:1 | | empty
            just text\n | 1:1 | | root is not a mapping
            - a\n- b\n | 1:1 | | root is not a mapping
            buckets: {}\n---\nbuckets: {}\n | 2:1 | | second document
            buckets: {}\n---\n | 2:1 | | second document
            buckets:\n | 1:1 | buckets | null
            buckets:\n  b:\n    limit:\n | 3:5 | buckets.b.limit | null where a value belongs
            buckets:\n  b:\n    limit: ~\n | 3:5 | buckets.b.limit | null
            buckets:\n  b: { limit: 1, mode: null }\n | 2:18 | buckets.b.mode | null
            buckets:\n  b: { limit: 1, candidate: NULL }\n | 2:18 | buckets.b.candidate | null
            buckets:\n  b:\n | 2:3 | buckets.b | null
            buckets:\n  ~: { limit: 1 }\n | 2:3 | buckets | key must not be null
            buckets:\n  [a]: { limit: 1 }\n | 2:3 | buckets | key must be a name
            buckets:\n  b: { limit: 1 }\n  b: { limit: 2 }\n | 3:3 | buckets.b | first written at 2:3
            buckets:\n  b: { limit: 1 }\n  'b': { limit: 2 }\n | 3:3 | buckets.b | duplicate
            buckets:\n  b:\n    limit: 1\n    limit: 1\n | 4:5 | buckets.b.limit | duplicate key `limit`
            buckets: {}\nbuckets: {}\n | 2:1 | buckets | duplicate
            buckets:\n  a: &x { limit: 1 }\n | 2:6 | buckets.a | anchors
            buckets:\n  a: { limit: &x 1 }\n | 2:15 | buckets.a.limit | anchors
            buckets:\n  &x a: { limit: 1 }\n | 2:3 | buckets | anchors
            buckets:\n  a: *x\n | 2:6 | buckets.a | aliases
            buckets:\n  a: !t { limit: 1 }\n | 2:6 | buckets.a | tags
            buckets:\n  a: { limit: !!float 1 }\n | 2:15 | buckets.a.limit | tags
            !!map\nbuckets: {}\n | 1:1 | | tags
            buckets:\n  <<: { limit: 1 }\n | 2:3 | buckets."<<" | letters
            "#,
    );
    check_policy((
        &deep,
        (1, 325),
        &format!("buckets{}", ".a".repeat(63)),
        "nested deeper than 64",
    ));
    check_policy((&deep_lists, (1, 74), "buckets", "nested deeper than 64"));
    for text in [
        "buckets: {",
        "buckets: }",
        "a: b: c",
        "\"a",
        "buckets:\n\t- x",
        "a\nb: c",
        "buckets: {}\n... x",
        "%",
    ] {
        let error = read(text, ONE_CLASS_TENANTS).expect_err(text);
        assert!(!error.faults()[0].hint.is_empty(), "{text}: {error}");
    }
    let large = format!("buckets: {{}} #{}", "x".repeat(FILE_BYTES_MAX));
    check_policy((&large, (1, 1), "", "larger than 1048576 bytes"));
    check_tenants((&large, (1, 1), "", "larger than"));
}

#[test]
fn shape() {
    each(
        check_policy,
        r#"
            kill_switch: false\n | 1:1 | buckets | `buckets` is missing
            buckets: 7\n | 1:10 | buckets |
            buckets: [a]\n | 1:10 | buckets |
            buckets: {}\nbukets: {}\n | 2:1 | bukets | did you mean `buckets`?
            buckets: {}\nx-notes: {}\n | 2:1 | x-notes | known here: `kill_switch`
            buckets: {}\ntenants: {}\n | 2:1 | tenants | file of the tenants
            buckets: {}\nkill_switch: on\n | 2:14 | kill_switch | `true` or `false`
            buckets: {}\nkill_switch: 1\n | 2:14 | kill_switch | `true` or `false`
            buckets: {}\nguardrails: maybe\n | 2:13 | guardrails | known here: `on`, `off`
            buckets: {}\nguardrails: 1\n | 2:13 | guardrails | expected `on` or `off`
            buckets:\n  b: 100\n | 2:6 | buckets.b |
            buckets:\n  b: {}\n | 2:3 | buckets.b.limit | `limit` is missing
            buckets:\n  b:\n    limt: 1\n | 3:5 | buckets.b.limt | did you mean `limit`?
            buckets:\n  a.b:\n    limt: 1\n | 3:5 | buckets."a.b".limt | did you mean `limit`?
            buckets:\n  b:\n    limit: lots\n | 3:12 | buckets.b.limit | `unlimited`
            buckets:\n  b:\n    limit: "5"\n | 3:12 | buckets.b.limit | without quotes
            buckets:\n  b:\n    limit: true\n | 3:12 | buckets.b.limit | expected a number
            buckets:\n  b:\n    limit: [1]\n | 3:12 | buckets.b.limit | expected a number
            buckets:\n  b:\n    limit: { learnt: {} }\n | 3:14 | buckets.b.limit.learnt | `learned`
            buckets:\n  b:\n    limit: {}\n | 3:12 | buckets.b.limit | exactly one source
            buckets:\n  b: { limit: 1, burst_s: 1s }\n | 2:27 | buckets.b.burst_s | expected a number
            buckets:\n  b: { limit: 1, mode: enforced }\n | 2:24 | buckets.b.mode | did you mean `enforce`?
            buckets:\n  b: { limit: 1, coin: fair }\n | 2:24 | buckets.b.coin | `coherent`
            buckets:\n  b: { limit: 1, coin: independent }\n | 2:24 | buckets.b.coin | write `dithered`
            buckets:\n  b: { limit: 1, law: balanced }\n | 2:18 | buckets.b.law | remove it
            buckets:\n  b: { limit: 1, release: 5 }\n | 2:27 | buckets.b.release | `auto`, `never`
            buckets:\n  b: { limit: 1, on_silence: ratio }\n | 2:18 | buckets.b.on_silence | remove it
            buckets:\n  b: { limit: 1, mode: {shadow: 1} }\n | 2:33 | buckets.b.mode |
            buckets:\n  b: { limit: { prometheus: { url: http://p } } }\n | 2:17 | buckets.b.limit.prometheus.query | missing
            buckets: {}\nrollout: { shadow: { min_hours: 1 } }\n | 2:22 | rollout.shadow.min_hours | `min_days`
            buckets: {}\nrollout: { queries: {} }\n | 2:21 | rollout.queries |
            buckets: {}\nrollout: { querys: [] }\n | 2:12 | rollout.querys | did you mean `queries`?
            buckets: {}\nrollout:\n  queries: [ { name: a, url: http://p, query: up, most: 1 } ]\n | 3:51 | rollout.queries.0.most | `max`
            buckets: {}\nrollout:\n  queries: [ { name: a, url: http://p, max: 1 } ]\n | 3:14 | rollout.queries.0.query | `query` is missing
            buckets: {}\nrollout:\n  queries: [ { name: a, url: http://p, query: up, max: "1" } ]\n | 3:56 | rollout.queries.0.max | without quotes
            buckets: {}\nrollout: { auto_promote: yes }\n | 2:26 | rollout.auto_promote | `true` or `false`
            "#,
    );
    each(
        check_tenants,
        r#"
             | 1:1 | | empty
            tenants:\n | 1:1 | tenants | null
            fairness: {}\n | 1:1 | tenants.default | `default` is missing
            tenants: {}\n | 1:1 | tenants.default | `default` is missing
            tenants: { a: {} }\n | 1:1 | tenants.default | add `default: {}`
            tenants:\n  default: {}\n  auth0|1a: {}\n | 3:3 | tenants."auth0|1a" | has the name `auth0%7C1a`
            tenants:\n  default: {}\n  a%7c: {}\n | 3:3 | tenants."a%7c" | in upper case
            tenants:\n  default: {}\n  a: { wieght: 1 }\n | 3:8 | tenants.a.wieght | did you mean `weight`?
            tenants:\n  default: {}\n  a: {}\n  a: {}\n | 4:3 | tenants.a | duplicate
            tenants: { default: {} }\nfairness: { algorithm: drr }\n | 2:24 | fairness.algorithm | `weighted_max_min`
            "#,
    );
}

#[test]
fn values() {
    let query = "{ name: a, url: http://p, query: up, max: 1 }";
    let nine = format!(
        "buckets: {{}}\nrollout:\n  queries: [ {} ]\n",
        [query; 9].join(", ")
    );
    let two = format!("buckets: {{}}\nrollout:\n  queries:\n    - {query}\n    - {query}\n");
    check_policy((
        &nine,
        (3, 12),
        "rollout.queries",
        "9 queries, at most 8 may be",
    ));
    check_policy((
        &two,
        (5, 15),
        "rollout.queries.1.name",
        "another query is called `a`",
    ));
    for [item, column, field, words] in rows(
        r#"
        { name: a b, url: http://p, query: up, max: 1 } | 15 | .name | letters
        { name: '', url: http://p, query: up, max: 1 } | 15 | .name | empty
        { name: a, url: 'prometheus:9090', query: up, max: 1 } | 23 | .url | http://
        { name: a, url: http://, query: up, max: 1 } | 23 | .url | not the URL of a server
        { name: a, url: 'http:///me@p', query: up, max: 1 } | 23 | .url | not the URL of a server
        { name: a, url: 'http://me:secret@p', query: up, max: 1 } | 23 | .url | a user or a password
        { name: a, url: 'https://me@p/x', query: up, max: 1 } | 23 | .url | a user or a password
        { name: a, url: http://p, query: ' ', max: 1 } | 40 | .query | one number
        { name: a, url: http://p, query: up } | 7 | | exactly one bound
        { name: a, url: http://p, query: up, min: 1, max: 2 } | 7 | | exactly one bound
        "#,
    ) {
        let text = format!("buckets: {{}}\nrollout:\n  queries:\n    - {item}\n");
        check_policy((
            &text,
            (4, column.parse().unwrap()),
            &format!("rollout.queries.0{field}"),
            &words,
        ));
    }
    each(
        check_policy,
        r#"
            buckets: {}\nrollout: { canary_percent: 100.1 }\n | 2:28 | rollout.canary_percent | 0..=100
            buckets: {}\nrollout: { min_samples: 1.5 }\n | 2:25 | rollout.min_samples | whole number
            buckets: {}\nrollout: { shadow: { min_days: 1e300 } }\n | 2:32 | rollout.shadow.min_days | longer
            buckets:\n  b: { limit: { learned: { percentile: 0 } } }\n | 2:40 | buckets.b.limit.learned.percentile | above 0
            buckets:\n  b: { limit: { learned: { percentile: 100.5 } } }\n | 2:40 | buckets.b.limit.learned.percentile | 100
            buckets:\n  b: { limit: { learned: { days: 0.5 } } }\n | 2:34 | buckets.b.limit.learned.days | whole number
            buckets:\n  b: { limit: { learned: { min: 2, max: 1 } } }\n | 2:33 | buckets.b.limit.learned.min | min 2 is above max 1
            buckets:\n  b: { limit: { prometheus: { url: 'http://me:secret@p', query: up } } }\n | 2:36 | buckets.b.limit.prometheus.url | a user or a password
            buckets:\n  b: { limit: { prometheus: { url: p, query: up } } }\n | 2:36 | buckets.b.limit.prometheus.url | http://
            buckets:\n  b: { limit: { prometheus: { url: http://p, query: ' ' } } }\n | 2:53 | buckets.b.limit.prometheus.query | empty
            buckets:\n  b: { limit: { prometheus: { url: http://p, query: q, min: 2, max: 1 } } }\n | 2:61 | buckets.b.limit.prometheus.min | above max
            buckets:\n  b: { limit: { learned: {}, prometheus: { url: http://p, query: q } } }\n | 2:15 | buckets.b.limit | exactly one
            buckets:\n  "a b": { limit: 1 }\n | 2:3 | buckets."a b" | letters
            buckets:\n  "": { limit: 1 }\n | 2:3 | buckets."" | empty
            buckets:\n  "a*b": { limit: 1 }\n | 2:3 | buckets.a*b | at its end
            buckets:\n  "a**": { limit: 1 }\n | 2:3 | buckets.a** | one `*`
            buckets:\n  "café*": { limit: 1 }\n | 2:3 | buckets."café*" | letters
            buckets:\n  b:\n    limit: 1\n    rollout: { canary_percent: 200 }\n | 4:32 | buckets.b.rollout.canary_percent | 0..=100
            "#,
    );
    each(
        check_tenants,
        r#"
            tenants:\n  default: { weight: 0 }\n | 2:22 | tenants.default.weight | 0.000001..=1000000
            tenants:\n  default: { weight: 9e-7 }\n | 2:22 | tenants.default.weight | weight
            tenants:\n  default: { weight: 1000001 }\n | 2:22 | tenants.default.weight | weight
            tenants:\n  default: { burst_multiplier: 0.99 }\n | 2:32 | tenants.default.burst_multiplier | 1 or more
            tenants:\n  default: {}\n  'a b': {}\n | 3:3 | tenants."a b" | letters
            tenants:\n  default: {}\n  "a*": {}\n | 3:3 | tenants.a* | letters
            tenants:\n  default: {}\n  a: { plan: fre }\nplans: { free: {} }\n | 3:14 | tenants.a.plan | did you mean `free`
            tenants:\n  default: {}\nplans: { default: {} }\n | 2:3 | tenants.default | keep one of the two
            tenants: { default: {} }\nplans: { free: { plan: a } }\n | 2:24 | plans.free.plan | only tenants have plans
            tenants: { default: {} }\nplans: { "a b": {} }\n | 2:10 | plans."a b" | 1 to 32
            tenants: { default: {} }\nplans: { a: { limits: { "x*y": 1 } } }\n | 2:25 | plans.a.limits.x*y | at its end
            tenants:\n  default: {}\n  a%~b: {}\n | 3:3 | tenants."a%~b" | with the field `plan`
            tenants:\n  default: { boost: 2 }\n | 2:21 | tenants.default.boost | boost_until
            tenants:\n  default: { boost_until: 2026-12-01T00:00:00Z }\n | 2:27 | tenants.default.boost_until | boost: 2.0
            tenants:\n  default: { boost: 2, boost_until: soon }\n | 2:37 | tenants.default.boost_until | 2026-12-01T00:00:00Z
            tenants:\n  default: { boost: 0, boost_until: 2026-12-01T00:00:00Z }\n | 2:21 | tenants.default.boost | weight
            tenants:\n  default: { weight: 1e6, boost: 2, boost_until: 2026-12-01T00:00:00Z }\n | 2:34 | tenants.default.boost | 2000000
            tenants: { default: {} }\nfairness: { reweight_interval_s: 0 }\n | 2:34 | fairness.reweight_interval_s | above 0
            tenants: { default: {} }\nfairness: { reweight_interval_s: 1e-12 }\n | 2:34 | fairness.reweight_interval_s | above 0
            "#,
    );
    let long = format!("buckets:\n  {}: {{ limit: 1 }}\n", "x".repeat(129));
    check_policy((
        &long,
        (2, 3),
        &format!("buckets.{}", "x".repeat(129)),
        "at most 128 bytes",
    ));
}

#[test]
fn all_policy_faults_appear_in_order() {
    let policy = "buckets:\n  z: { limit: -1 }\n  a: { limit: 1, burst_s: -1 }\nrollout: { canary_percent: 101 }\n";
    let tenants = "tenants:\n  a: { weight: 0 }\n";
    let error = read(policy, tenants).unwrap_err();
    let places: Vec<String> = error
        .faults()
        .iter()
        .map(|f| format!("{}:{}", f.file, f.place))
        .collect();
    assert_eq!(
        places,
        [
            "policy.yaml:2:15",
            "policy.yaml:3:27",
            "policy.yaml:4:28",
            "tenants.yaml:1:1",
            "tenants.yaml:2:16"
        ]
    );
    let many: String = (0..1000)
        .map(|i| format!("  b{i}: {{ limit: -1 }}\n"))
        .collect();
    let error = read(&format!("buckets:\n{many}"), ONE_CLASS_TENANTS).unwrap_err();
    assert_eq!(error.faults().len(), FAULTS_MAX);
}

#[test]
fn a_fault_reads_well() {
    let error = read("buckets:\n  checkout:\n    limit: -1\n", ONE_CLASS_TENANTS).unwrap_err();
    assert_eq!(
        error.to_string(),
        "policy.yaml:3:12: buckets.checkout.limit: a rate is a number of requests/s from 0 to 1000000000000, not -1\n  \
           |\n\
         3 |     limit: -1\n  \
           |            ^\n  \
           = hint: write a number of requests/s from 0 on; 0 denies everything"
    );
    assert!(!error.faults()[0].summary().contains('\n'));
}

#[test]
fn policy_fault_stays_readable_in_any_file() {
    let long = format!("buckets: {{ {}: {{ limt: 1 }} }}", "\u{1f980}".repeat(5000));
    let escape = "buckets: { \"\\e[31m\": { limit: 1 } }\r\u{85}x: \u{9b}1m";
    for text in [long.as_str(), escape, "buckets:\r  b:\r    limit: -1\r"] {
        let shown = read(text, ONE_CLASS_TENANTS).unwrap_err().to_string();
        assert!(shown.len() < 4000, "{shown}");
        assert!(
            !shown.contains(|c: char| c.is_control() && c != '\n'),
            "{shown:?}"
        );
    }
    let error = read("buckets:\r  b:\r    limit: -1\r", ONE_CLASS_TENANTS).unwrap_err();
    assert_eq!(
        error.faults()[0].place,
        SourcePlace {
            line: 3,
            column: 12
        }
    );
    assert!(
        error.faults()[0]
            .snippet
            .as_ref()
            .unwrap()
            .contains("3 |     limit: -1")
    );
}

#[test]
fn bytes_become_a_source_or_a_fault() {
    assert_eq!(Source::from_bytes("p", b"a: 1").unwrap().text, "a: 1");
    let error = Source::from_bytes("p", b"a: 1\nb: \xff").unwrap_err();
    assert_eq!(
        (error.faults()[0].place, error.faults()[0].file.as_str()),
        (SourcePlace { line: 2, column: 4 }, "p")
    );
    let error = Source::from_bytes("p", &vec![b' '; FILE_BYTES_MAX + 1]).unwrap_err();
    assert!(error.to_string().contains("larger than"), "{error}");
}
