//! Both ways to export metrics, read back: they have the same names, labels and values.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_core::stats::metrics::{About, Family, Kind, Value};

use super::*;
use crate::Request;
use crate::responses::Ending;
use crate::setup::SetupProblem;

type Values = BTreeMap<String, f64>;

fn limiter() -> Limiter {
    let (limiter, _feed) = Limiter::builder("shop").build_detached().unwrap();
    let bucket = limiter.bucket("orders").unwrap();
    assert!((0..3).all(|_| limiter.check(&Request::new(&bucket, "acme")).is_admit()));
    let recorder = limiter.table.responses.recorder(bucket.place.bucket);
    recorder.ended(Duration::from_millis(3), Some(Ending::Status(200)));
    recorder.ended(Duration::from_millis(30), Some(Ending::Grpc(14)));
    limiter.table.problems.raise(SetupProblem::LayerTwice {
        bucket: "orders".to_owned(),
    });
    limiter
}

fn identity<'a, 'b>(name: &str, labels: impl Iterator<Item = (&'a str, &'b str)>) -> String {
    // A reader may have sorted the labels.
    let labels: BTreeMap<&str, &str> = labels.collect();
    format!("{name}{labels:?}")
}

fn values(families: &[Family]) -> Values {
    let mut values = Values::new();
    for family in families {
        for series in &family.series {
            let mut add = |suffix: &str, le: Option<&str>, value: f64| {
                let labels = family.labels_of(series).chain(le.map(|le| ("le", le)));
                let name = format!("{}{suffix}", family.about.name);
                assert!(
                    values.insert(identity(&name, labels), value).is_none(),
                    "{name} twice"
                );
            };
            match &series.value {
                Value::Number(value) => add("", None, *value),
                Value::Histogram(durations) => {
                    for (edge, count) in &durations.buckets {
                        add("_bucket", Some(&edge.to_string()), *count as f64);
                    }
                    add("_bucket", Some("+Inf"), durations.count as f64);
                    add("_sum", None, durations.sum);
                    add("_count", None, durations.count as f64);
                }
            }
        }
    }
    values
}

#[test]
fn limiter_exports_all_its_metrics() {
    let metrics = Metrics::new(&limiter());
    let values = values(&metrics.source.families());
    for (name, labels, value) in [
        (
            "plimsoll_decisions_total",
            vec![
                ("bucket", "orders"),
                ("mode", "unknown"),
                ("result", "admit"),
            ],
            3.0,
        ),
        (
            "plimsoll_responses_total",
            vec![("bucket", "orders"), ("code", "200")],
            1.0,
        ),
        (
            "plimsoll_responses_total",
            vec![("bucket", "orders"), ("code", "grpc_unavailable")],
            1.0,
        ),
        (
            "plimsoll_request_duration_seconds_count",
            vec![("bucket", "orders")],
            2.0,
        ),
        (
            "plimsoll_request_duration_seconds_sum",
            vec![("bucket", "orders")],
            0.033,
        ),
        (
            "plimsoll_request_duration_seconds_bucket",
            vec![("bucket", "orders"), ("le", "0.005")],
            1.0,
        ),
        (
            "plimsoll_setup_problems",
            vec![("problem", "layer_twice"), ("subject", "orders")],
            1.0,
        ),
        (
            "plimsoll_requests_passed_total",
            vec![("reason", "counted_before")],
            0.0,
        ),
        ("plimsoll_feed_unreported", vec![], 3.0),
    ] {
        assert_eq!(
            values.get(&identity(name, labels.into_iter())),
            Some(&value),
            "{name} of {values:#?}"
        );
    }
}

#[test]
fn metric_names_follow_the_convention() {
    let described = Metrics::described();
    assert!(described.len() > 20, "{}", described.len());
    for About {
        name, help, kind, ..
    } in &described
    {
        assert!(name.starts_with("plimsoll_"), "{name}");
        assert_eq!(name.ends_with("_total"), *kind == Kind::Counter, "{name}");
        assert!(help.ends_with('.'), "{name}: {help}");
    }
}

#[cfg(feature = "prometheus")]
#[test]
fn registry_gathers_what_the_text_says() {
    let metrics = Metrics::new(&limiter());
    let registry = ::prometheus::Registry::new();
    registry.register(Box::new(metrics.clone())).unwrap();
    assert!(
        registry.register(Box::new(metrics.clone())).is_err(),
        "registered twice"
    );
    // A registry sorts families and series.
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let gathered = ::prometheus::TextEncoder::new()
        .encode_to_string(&registry.gather())
        .unwrap();
    assert_eq!(sorted(&gathered), sorted(&metrics.text()));
    assert!(
        gathered
            .contains("plimsoll_setup_problems{problem=\"layer_twice\",subject=\"orders\"} 1\n")
    );
}
