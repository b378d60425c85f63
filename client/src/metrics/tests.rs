//! Each way to export metrics, read back: all have the same names, labels and values.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_core::stats::metrics::{About, Family, Kind, Value};

use super::*;
use crate::Request;
use crate::responses::Ending;
use crate::setup::SetupProblem;

/// The value of each series, by its name and labels as in the text format.
type Values = BTreeMap<String, f64>;

/// A limiter with decisions, responses and a problem.
fn limiter() -> Limiter {
    let (limiter, _feed) = Limiter::builder("shop").build_detached().unwrap();
    let bucket = limiter.bucket("orders").unwrap();
    assert!((0..3).all(|_| limiter.check(&Request::new(&bucket, "acme")).is_admit()));
    let recorder = limiter.table.responses.recorder(bucket.place.bucket);
    recorder.ended(Duration::from_millis(3), Some(Ending::Status(200)));
    recorder.ended(Duration::from_millis(30), Some(Ending::Grpc(14)));
    limiter.table.problems.raise(SetupProblem::LayerTwice { bucket: "orders".to_owned() });
    limiter
}

fn identity<'a, 'b>(name: &str, labels: impl Iterator<Item = (&'a str, &'b str)>) -> String {
    // A reader may have sorted the labels.
    let labels: BTreeMap<&str, &str> = labels.collect();
    format!("{name}{labels:?}")
}

/// Returns the values of families in the form that histograms have with Prometheus.
fn values(families: &[Family]) -> Values {
    let mut values = Values::new();
    for family in families {
        for series in &family.series {
            let mut add = |suffix: &str, le: Option<&str>, value: f64| {
                let labels = family.labels_of(series).chain(le.map(|le| ("le", le)));
                let name = format!("{}{suffix}", family.about.name);
                assert!(values.insert(identity(&name, labels), value).is_none(), "{name} twice");
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
fn limiter_has_the_metrics_of_its_decisions_responses_and_problems() {
    let metrics = Metrics::new(&limiter());
    let values = values(&metrics.source.families());
    for (name, labels, value) in [
        (
            "plimsoll_decisions_total",
            vec![("bucket", "orders"), ("mode", "unknown"), ("result", "admit")],
            3.0,
        ),
        ("plimsoll_responses_total", vec![("bucket", "orders"), ("code", "200")], 1.0),
        ("plimsoll_responses_total", vec![("bucket", "orders"), ("code", "grpc_unavailable")], 1.0),
        ("plimsoll_request_duration_seconds_count", vec![("bucket", "orders")], 2.0),
        ("plimsoll_request_duration_seconds_sum", vec![("bucket", "orders")], 0.033),
        ("plimsoll_request_duration_seconds_bucket", vec![("bucket", "orders"), ("le", "0.005")], 1.0),
        ("plimsoll_setup_problems", vec![("problem", "layer_twice"), ("subject", "orders")], 1.0),
        ("plimsoll_requests_passed_total", vec![("reason", "counted_before")], 0.0),
        ("plimsoll_feed_unreported", vec![], 3.0),
    ] {
        assert_eq!(values.get(&identity(name, labels.into_iter())), Some(&value), "{name} of {values:#?}");
    }
}

#[test]
fn metric_names_follow_the_convention() {
    let described = Metrics::described();
    assert!(described.len() > 20, "{}", described.len());
    for About { name, help, kind, .. } in &described {
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
    assert!(registry.register(Box::new(metrics.clone())).is_err(), "registered twice");
    // A registry sorts families and series.
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let gathered = ::prometheus::TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
    assert_eq!(sorted(&gathered), sorted(&metrics.text()));
    assert!(gathered.contains("plimsoll_setup_problems{problem=\"layer_twice\",subject=\"orders\"} 1\n"));
}

#[cfg(feature = "metrics")]
mod facade {
    use std::sync::Mutex;

    use ::metrics::{Counter, CounterFn, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder};
    use ::metrics::{SharedString, Unit};

    use super::*;

    /// Keeps what is published to it.
    #[derive(Default)]
    struct Kept {
        values: Arc<Mutex<Values>>,
        described: Mutex<Vec<(String, Option<Unit>)>>,
    }

    /// One series of it.
    struct Handle(String, Arc<Mutex<Values>>);

    impl Handle {
        fn put(&self, value: f64) {
            self.1.lock().unwrap().insert(self.0.clone(), value);
        }
    }

    impl CounterFn for Handle {
        fn increment(&self, _: u64) {
            panic!("counters are absolute");
        }

        fn absolute(&self, value: u64) {
            self.put(value as f64);
        }
    }

    impl GaugeFn for Handle {
        fn increment(&self, _: f64) {
            panic!("gauges are set");
        }

        fn decrement(&self, _: f64) {
            panic!("gauges are set");
        }

        fn set(&self, value: f64) {
            self.put(value);
        }
    }

    impl Kept {
        fn handle(&self, key: &Key) -> Arc<Handle> {
            let labels = key.labels().map(|label| (label.key(), label.value()));
            Arc::new(Handle(identity(key.name(), labels), Arc::clone(&self.values)))
        }

        fn describe(&self, name: KeyName, unit: Option<Unit>) {
            self.described.lock().unwrap().push((name.as_str().to_owned(), unit));
        }
    }

    impl Recorder for Kept {
        fn describe_counter(&self, name: KeyName, unit: Option<Unit>, _: SharedString) {
            self.describe(name, unit);
        }

        fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, _: SharedString) {
            self.describe(name, unit);
        }

        fn describe_histogram(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
            panic!("{} is published as counters", name.as_str());
        }

        fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
            Counter::from_arc(self.handle(key))
        }

        fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
            Gauge::from_arc(self.handle(key))
        }

        fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
            panic!("{} is published as counters", key.name());
        }
    }

    #[test]
    fn recorder_gets_all_values_and_descriptions() {
        let (recorder, limiter) = (Kept::default(), limiter());
        let metrics = Metrics::new(&limiter);
        let publish = || ::metrics::with_local_recorder(&recorder, || metrics.publish());
        publish();
        let expected = values(&metrics.source.families());
        assert_eq!(*recorder.values.lock().unwrap(), expected);
        let described = recorder.described.lock().unwrap().clone();
        assert!(described.contains(&("plimsoll_responses_total".to_owned(), None)), "{described:?}");
        let sum = "plimsoll_request_duration_seconds_sum".to_owned();
        assert!(described.contains(&(sum, Some(Unit::Seconds))), "{described:?}");

        limiter.table.problems.clear("layer_twice", "orders");
        assert!(limiter.check(&Request::new("orders", "acme")).is_admit());
        publish();
        assert_eq!(recorder.described.lock().unwrap().len(), described.len(), "described once");
        let mut expected = values(&metrics.source.families());
        let ended = [("problem", "layer_twice"), ("subject", "orders")];
        expected.insert(identity("plimsoll_setup_problems", ended.into_iter()), 0.0);
        assert_eq!(*recorder.values.lock().unwrap(), expected, "an ended gauge is 0");
    }
}

#[cfg(feature = "opentelemetry")]
mod opentelemetry {
    use ::opentelemetry::metrics::MeterProvider;
    use opentelemetry_sdk::metrics::data::{AggregatedMetrics, MetricData};
    use opentelemetry_sdk::metrics::{InMemoryMetricExporter, PeriodicReader, SdkMeterProvider};

    use super::*;

    /// Returns the values of the last collection, and checks that counters are monotonic.
    fn last(exporter: &InMemoryMetricExporter) -> Values {
        let mut values = Values::new();
        let collections = exporter.get_finished_metrics().unwrap();
        let scopes = collections.last().unwrap().scope_metrics();
        for metric in scopes.flat_map(|scope| scope.metrics()) {
            let mut add = |attributes: Vec<(String, String)>, value: f64| {
                let labels = attributes.iter().map(|(label, value)| (label.as_str(), value.as_str()));
                assert!(values.insert(identity(metric.name(), labels), value).is_none(), "{}", metric.name());
            };
            macro_rules! points {
                ($points:expr) => {
                    for point in $points {
                        let labels = point
                            .attributes()
                            .map(|label| (label.key.to_string(), label.value.as_str().into_owned()));
                        add(labels.collect(), point.value() as f64);
                    }
                };
            }
            match metric.data() {
                AggregatedMetrics::F64(MetricData::Gauge(gauge)) => points!(gauge.data_points()),
                AggregatedMetrics::F64(MetricData::Sum(sum)) => {
                    assert!(sum.is_monotonic(), "{}", metric.name());
                    points!(sum.data_points());
                }
                AggregatedMetrics::U64(MetricData::Sum(sum)) => {
                    assert!(sum.is_monotonic(), "{}", metric.name());
                    points!(sum.data_points());
                }
                other => panic!("{}: {other:?}", metric.name()),
            }
        }
        values
    }

    #[test]
    fn reader_collects_all_values_each_time() {
        let limiter = limiter();
        let metrics = Metrics::new(&limiter);
        let exporter = InMemoryMetricExporter::default();
        let reader =
            PeriodicReader::builder(exporter.clone()).with_interval(Duration::from_secs(86_400)).build();
        let provider = SdkMeterProvider::builder().with_reader(reader).build();
        metrics.observe(&provider.meter("shop"));
        for decisions in [4, 5] {
            assert!(limiter.check(&Request::new("orders", "acme")).is_admit());
            provider.force_flush().unwrap();
            let collected = last(&exporter);
            assert_eq!(collected, values(&metrics.source.families()));
            let labels = [("bucket", "orders"), ("mode", "unknown"), ("result", "admit")];
            let admitted = collected[&identity("plimsoll_decisions_total", labels.into_iter())];
            assert_eq!(admitted, f64::from(decisions), "each collection reads the limiter");
        }
        provider.shutdown().unwrap();
    }
}
