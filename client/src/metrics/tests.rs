//! Both ways to export metrics, read back: they have the same names, labels and values.

use std::time::Duration;

use plimsoll_core::stats::metrics::{About, Kind};

use super::*;
use crate::Request;
use crate::responses::Ending;
use crate::setup::SetupProblem;

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

#[test]
fn limiter_exports_all_its_metrics() {
    let text = Metrics::new(&limiter()).text();
    for line in [
        "plimsoll_decisions_total{bucket=\"orders\",mode=\"unknown\",result=\"admit\"} 3",
        "plimsoll_responses_total{bucket=\"orders\",code=\"200\"} 1",
        "plimsoll_responses_total{bucket=\"orders\",code=\"grpc_unavailable\"} 1",
        "plimsoll_request_duration_seconds_count{bucket=\"orders\"} 2",
        "plimsoll_request_duration_seconds_sum{bucket=\"orders\"} 0.033",
        "plimsoll_request_duration_seconds_bucket{bucket=\"orders\",le=\"0.005\"} 1",
        "plimsoll_setup_problems{problem=\"layer_twice\",subject=\"orders\"} 1",
        "plimsoll_requests_passed_total{reason=\"counted_before\"} 0",
        "plimsoll_feed_unreported 3",
    ] {
        assert_eq!(
            text.lines().filter(|of| *of == line).count(),
            1,
            "{line} of {text}"
        );
    }
    let series = text.lines().filter(|line| !line.starts_with('#'));
    let series = series.filter_map(|line| line.rsplit_once(' '));
    let mut names: Vec<&str> = series.map(|(name, _)| name).collect();
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all, "a series twice");
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
