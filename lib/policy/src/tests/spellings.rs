//! Every number and every switch of the schema in every odd spelling: each is refused at its place.

use super::*;

/// The number fields of a bucket with their paths; `@` is the number.
const OF_BUCKET: [(&str, &str); 23] = [
    ("limit: @", "limit"),
    ("limit: 1, tenant_limit: @", "tenant_limit"),
    ("limit: 1, burst_s: @", "burst_s"),
    ("limit: 1, candidate: @", "candidate"),
    (
        "limit: { learned: { percentile: @ } }",
        "limit.learned.percentile",
    ),
    ("limit: { learned: { days: @ } }", "limit.learned.days"),
    (
        "limit: { learned: { headroom: @ } }",
        "limit.learned.headroom",
    ),
    ("limit: { learned: { min: @ } }", "limit.learned.min"),
    ("limit: { learned: { max: @ } }", "limit.learned.max"),
    (
        "limit: { learned: { until_history: @ } }",
        "limit.learned.until_history",
    ),
    (
        "limit: { prometheus: { url: http://p, query: up, min: @ } }",
        "limit.prometheus.min",
    ),
    (
        "limit: { prometheus: { url: http://p, query: up, max: @ } }",
        "limit.prometheus.max",
    ),
    (
        "limit: 1, rollout: { canary_percent: @ }",
        "rollout.canary_percent",
    ),
    (
        "limit: 1, rollout: { min_samples: @ }",
        "rollout.min_samples",
    ),
    (
        "limit: 1, rollout: { shadow: { min_days: @ } }",
        "rollout.shadow.min_days",
    ),
    (
        "limit: 1, rollout: { shadow: { window_h: @ } }",
        "rollout.shadow.window_h",
    ),
    (
        "limit: 1, rollout: { shadow: { max_drop_ratio: @ } }",
        "rollout.shadow.max_drop_ratio",
    ),
    (
        "limit: 1, rollout: { canary: { min_hours: @ } }",
        "rollout.canary.min_hours",
    ),
    (
        "limit: 1, rollout: { canary: { window_min: @ } }",
        "rollout.canary.window_min",
    ),
    (
        "limit: 1, rollout: { canary: { max_drop_ratio: @ } }",
        "rollout.canary.max_drop_ratio",
    ),
    (
        "limit: 1, rollout: { canary: { max_p99_delta_ms: @ } }",
        "rollout.canary.max_p99_delta_ms",
    ),
    (
        "limit: 1, rollout: { queries: [ { name: a, url: http://p, query: up, max: @ } ] }",
        "rollout.queries.0.max",
    ),
    (
        "limit: 1, rollout: { queries: [ { name: a, url: http://p, query: up, min: @ } ] }",
        "rollout.queries.0.min",
    ),
];
const OF_TENANT: [(&str, &str); 3] = [
    ("weight: @", "weight"),
    ("burst_multiplier: @", "burst_multiplier"),
    ("boost: @, boost_until: 2026-12-01T00:00:00Z", "boost"),
];
const OF_FAIRNESS: [(&str, &str); 2] = [
    ("reweight_interval_s: @", "reweight_interval_s"),
    ("min_floor_rps: @", "min_floor_rps"),
];
const WHOLE: [&str; 2] = ["limit.learned.days", "rollout.min_samples"];
const RATES: [&str; 9] = [
    "limit",
    "tenant_limit",
    "candidate",
    "limit.learned.min",
    "limit.learned.max",
    "limit.learned.until_history",
    "limit.prometheus.min",
    "limit.prometheus.max",
    "min_floor_rps",
];

/// Spellings that no number field takes: not plain decimal, not finite, or negative.
const ODD: &str = "1_000 1_000.5 0o17 0O17 017 00 01.5 0x10 0XfF 0b11 +5 +0 +1e3 .5 5. 1.e3 1e 1e+ e3 -1 -1e-9 -0 -0.0 \
    -0x1 .inf -.inf +.inf .Inf .nan .NaN inf -inf Infinity nan 1e400 1e999 -1e999 1e-400 4.9e-325 \"5\" \
    '5' \"1e3\" true \"true\" yes 1,5 1.2.3 2026-12-01 10:30 5rps [5]";

/// Refuses each text; `at` is the place of the value and `path` the field.
fn refused(policy: &str, tenants: &str, at: (usize, usize), path: &str) -> PolicyFault {
    let error = read(policy, tenants)
        .map(drop)
        .expect_err(&format!("{policy}{tenants}"));
    let fault = error.faults()[0].clone();
    let (line, column) = at;
    assert_eq!(
        (fault.place, fault.path.as_str()),
        (SourcePlace { line, column }, path),
        "{policy}{tenants}{fault}"
    );
    assert!(
        !fault.message.is_empty() && !fault.hint.is_empty(),
        "{fault}"
    );
    fault
}

fn each_field(
    spelling: &str,
    is_wanted: impl Fn(&str) -> bool,
    check: impl Fn(&str, &str, (usize, usize), &str),
) {
    let fill = |field: &str, indent: usize| {
        (
            field.replace('@', spelling),
            indent + field.find('@').unwrap(),
        )
    };
    for (field, path) in OF_BUCKET.into_iter().filter(|(_, path)| is_wanted(path)) {
        let (text, column) = fill(field, 8);
        let policy = format!("buckets:\n  b: {{ {text} }}\n");
        check(
            &policy,
            ONE_CLASS_TENANTS,
            (2, column),
            &format!("buckets.b.{path}"),
        );
    }
    for (field, path) in OF_TENANT.into_iter().filter(|(_, path)| is_wanted(path)) {
        let (text, column) = fill(field, 14);
        let tenants = format!("tenants:\n  default: {{ {text} }}\n");
        check(
            "buckets: {}\n",
            &tenants,
            (2, column),
            &format!("tenants.default.{path}"),
        );
    }
    for (field, path) in OF_FAIRNESS.into_iter().filter(|(_, path)| is_wanted(path)) {
        let (text, column) = fill(field, 13);
        let tenants = format!("tenants: {{ default: {{}} }}\nfairness: {{ {text} }}\n");
        check(
            "buckets: {}\n",
            &tenants,
            (2, column),
            &format!("fairness.{path}"),
        );
    }
}

#[test]
fn number_fields_refuse_odd_spellings() {
    for odd in ODD.split(' ').filter(|odd| *odd != "1,5") {
        each_field(
            odd,
            |_| true,
            |policy, tenants, at, path| drop(refused(policy, tenants, at, path)),
        );
    }
    // In a flow mapping a comma ends the value; in a block it is text.
    refused(
        "buckets:\n  b:\n    limit: 1,5\n",
        ONE_CLASS_TENANTS,
        (3, 12),
        "buckets.b.limit",
    );
    let fault = refused(
        "buckets:\n  b: { limit: 1_000 }\n",
        ONE_CLASS_TENANTS,
        (2, 15),
        "buckets.b.limit",
    );
    assert!(
        fault.message.contains("`1_000`") && fault.hint.contains("1000"),
        "{fault}"
    );
}

#[test]
fn number_fields_take_usual_spellings() {
    for spelling in ["1", "1.0", "1e0", "1E0", "1.0e+0", "10e-1"] {
        each_field(
            spelling,
            |_| true,
            |policy, tenants, _, _| drop(accepted(policy, tenants)),
        );
    }
}

#[test]
fn whole_numbers_refuse_fractions_and_rounding() {
    for odd in [
        "1.5",
        "7.000001",
        "9007199254740993",
        "1e16",
        "18446744073709551616",
    ] {
        let is_whole = |path: &str| WHOLE.contains(&path);
        each_field(odd, is_whole, |policy, tenants, at, path| {
            refused(policy, tenants, at, path);
        });
    }
}

#[test]
fn rates_above_the_highest_are_refused_everywhere() {
    for high in ["1e12", "1000000000000"] {
        let is_rate = |path: &str| RATES.contains(&path);
        each_field(high, is_rate, |policy, tenants, _, _| {
            accepted(policy, tenants);
        });
    }
    for high in [
        "1000000000001",
        "1.0000001e12",
        "1e13",
        "18446744073709551615",
        "1.7976931348623157e308",
    ] {
        let is_rate = |path: &str| RATES.contains(&path);
        each_field(high, is_rate, |policy, tenants, at, path| {
            let fault = refused(policy, tenants, at, path);
            assert!(fault.message.contains("1000000000000"), "{fault}");
        });
    }
}

#[test]
fn number_fields_refuse_out_of_range_values() {
    for (path, spellings) in [
        (
            "limit.learned.headroom",
            &["0", "0.0", "0.009", "100.1", "1e300"][..],
        ),
        ("limit.learned.percentile", &["0", "100.1", "1e12"]),
        ("limit.learned.days", &["0", "0.5"]),
        ("burst_s", &["3601", "1e18"]),
        ("rollout.canary_percent", &["100.1"]),
        ("rollout.shadow.max_drop_ratio", &["1.01", "50"]),
        ("rollout.canary.max_drop_ratio", &["1.01", "50"]),
        ("rollout.shadow.min_days", &["3651", "1e300"]),
        ("rollout.shadow.window_h", &["87601"]),
        ("rollout.canary.min_hours", &["87601"]),
        ("rollout.canary.window_min", &["5256001"]),
        ("rollout.canary.max_p99_delta_ms", &["1e15"]),
        ("weight", &["0", "1000001"]),
        ("burst_multiplier", &["0.99", "1000001"]),
        ("boost", &["0", "1e9"]),
        ("reweight_interval_s", &["0", "1e-12", "315360001"]),
    ] {
        for odd in spellings {
            each_field(
                odd,
                |of| of == path,
                |policy, tenants, at, path| drop(refused(policy, tenants, at, path)),
            );
        }
    }
}

#[test]
fn switches_take_only_true_and_false() {
    let fields = [
        ("kill_switch: @\nbuckets: {}\n", (1, 14), "kill_switch"),
        (
            "buckets: {}\nrollout: { auto_promote: @ }\n",
            (2, 26),
            "rollout.auto_promote",
        ),
        (
            "buckets: {}\nrollout: { require_gates: @ }\n",
            (2, 27),
            "rollout.require_gates",
        ),
        (
            "buckets:\n  b: { limit: 1, rollout: { auto_promote: @ } }\n",
            (2, 43),
            "buckets.b.rollout.auto_promote",
        ),
    ];
    for (text, at, path) in fields {
        for odd in [
            "\"true\"", "'false'", "yes", "no", "on", "off", "y", "1", "0", "1.0", "t", "truee",
            "[true]",
        ] {
            let fault = refused(&text.replace('@', odd), ONE_CLASS_TENANTS, at, path);
            assert!(
                format!("{} {}", fault.message, fault.hint).contains("`true` or `false`"),
                "{fault}"
            );
        }
        for usual in ["true", "false", "True", "FALSE"] {
            accepted(&text.replace('@', usual), ONE_CLASS_TENANTS);
        }
    }
    for odd in ["\"true\"", "'yes'", "yes", "1", "ON", "[on]"] {
        refused(
            &format!("guardrails: {odd}\nbuckets: {{}}\n"),
            ONE_CLASS_TENANTS,
            (1, 13),
            "guardrails",
        );
    }
}

#[test]
fn boost_ends_take_only_utc() {
    for odd in [
        "2026-12-01",
        "1796083200",
        "2026-12-01T00:00:00+01:00",
        "\"\"",
        "never",
        "true",
        "[2026]",
    ] {
        let tenants = format!("tenants:\n  default: {{ boost: 2, boost_until: {odd} }}\n");
        refused(
            "buckets: {}\n",
            &tenants,
            (2, 37),
            "tenants.default.boost_until",
        );
    }
}

#[test]
fn sent_text_has_no_control_characters() {
    for odd in [
        "\\r\\n", "\\n", "\\r", "\\t", "\\0", "\\e[31m", "\\x7f", "\\x85", " ", "\\u2028",
    ] {
        let url = format!(
            "buckets:\n  b: {{ limit: {{ prometheus: {{ url: \"http://p{odd}x\", query: up }} }} }}\n"
        );
        refused(
            &url,
            ONE_CLASS_TENANTS,
            (2, 36),
            "buckets.b.limit.prometheus.url",
        );
        let gate = format!(
            "buckets: {{}}\nrollout: {{ queries: [ {{ name: a, url: \"http://p/{odd}\", query: up, max: 1 }} ] }}\n"
        );
        refused(&gate, ONE_CLASS_TENANTS, (2, 39), "rollout.queries.0.url");
    }
    for odd in ["\\r", "\\0", "\\e[31m", "\\x7f", "\\x9b"] {
        let query = format!(
            "buckets:\n  b: {{ limit: {{ prometheus: {{ url: http://p, query: \"up{odd}\" }} }} }}\n"
        );
        refused(
            &query,
            ONE_CLASS_TENANTS,
            (2, 53),
            "buckets.b.limit.prometheus.query",
        );
        let notes = format!("tenants:\n  default: {{ notes: \"a{odd}\" }}\n");
        refused("buckets: {}\n", &notes, (2, 21), "tenants.default.notes");
    }
    accepted(
        "buckets:\n  b: { limit: { prometheus: { url: http://p, query: \"a\\n + b\\t\" } } }\n",
        ONE_CLASS_TENANTS,
    );
    accepted(
        "buckets: {}\n",
        "tenants:\n  default: { notes: \"one\\ntwo\" }\n",
    );
}
