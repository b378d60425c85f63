//! Metrics rendered from the current state at each scrape. No registry has to follow the state: a series
//! disappears with the state behind it.

use std::collections::HashMap;

use prometheus::core::{Collector, Desc};
use prometheus::proto::{self, MetricFamily, MetricType};
use prometheus::{CounterVec, GaugeVec, Opts, Registry, TextEncoder};

/// Label values and the value of one series.
pub type Row = (Vec<String>, f64);

/// The metrics of one scrape.
#[derive(Debug, Default)]
pub struct Page {
    registry: Registry,
}

impl Page {
    /// Adds a gauge, a value that rises and falls.
    pub fn gauge(&mut self, name: &str, help: &str, labels: &[&str], rows: impl IntoIterator<Item = Row>) {
        let added = GaugeVec::new(Opts::new(name, help), labels).and_then(|vec| {
            for (labels, value) in rows {
                vec.get_metric_with_label_values(&labels)?.set(value);
            }
            self.registry.register(Box::new(vec))
        });
        log_failure(name, added);
    }

    /// Adds a counter, a value that only grows while the process lives.
    pub fn counter(&mut self, name: &str, help: &str, labels: &[&str], rows: impl IntoIterator<Item = Row>) {
        let added = CounterVec::new(Opts::new(name, help), labels).and_then(|vec| {
            for (labels, value) in rows {
                // A negative step would panic.
                vec.get_metric_with_label_values(&labels)?.inc_by(value.max(0.0));
            }
            self.registry.register(Box::new(vec))
        });
        log_failure(name, added);
    }

    /// Adds a histogram without labels. Each bin has its upper bound and the number of values in it alone, in the order of
    /// the bounds; the values above the last bound are in a bin with the bound infinity.
    pub fn histogram(
        &mut self,
        name: &str,
        help: &str,
        bins: impl IntoIterator<Item = (f64, u64)>,
        sum: f64,
    ) {
        let added =
            Desc::new(name.to_owned(), help.to_owned(), Vec::new(), HashMap::new()).and_then(|desc| {
                let family = histogram_family(name, help, bins, sum);
                self.registry.register(Box::new(Counted { desc, family }))
            });
        log_failure(name, added);
    }

    /// Returns the page in the Prometheus text format.
    #[must_use]
    pub fn text(&self) -> String {
        let text = TextEncoder::new().encode_to_string(&self.registry.gather());
        text.unwrap_or_else(|error| format!("# cannot encode metrics: {error}\n"))
    }
}

/// A histogram whose values were counted elsewhere.
struct Counted {
    desc: Desc,
    family: MetricFamily,
}

impl Collector for Counted {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.desc]
    }

    fn collect(&self) -> Vec<MetricFamily> {
        vec![self.family.clone()]
    }
}

fn histogram_family(
    name: &str,
    help: &str,
    bins: impl IntoIterator<Item = (f64, u64)>,
    sum: f64,
) -> MetricFamily {
    let mut count = 0;
    let mut buckets = Vec::new();
    for (upper_bound, values) in bins {
        count += values;
        if upper_bound.is_finite() {
            let mut bucket = proto::Bucket::default();
            bucket.set_upper_bound(upper_bound);
            bucket.set_cumulative_count(count);
            buckets.push(bucket);
        }
    }
    let mut histogram = proto::Histogram::default();
    histogram.set_bucket(buckets);
    histogram.set_sample_count(count);
    histogram.set_sample_sum(sum);
    let mut metric = proto::Metric::default();
    metric.set_histogram(histogram);
    let mut family = MetricFamily::default();
    family.set_name(name.to_owned());
    family.set_help(help.to_owned());
    family.set_field_type(MetricType::HISTOGRAM);
    family.set_metric(vec![metric]);
    family
}

/// Returns one row without labels.
#[must_use]
pub fn plain(value: f64) -> [Row; 1] {
    [(Vec::new(), value)]
}

/// Returns 1 for true and 0 for false.
#[must_use]
pub const fn flag(yes: bool) -> f64 {
    if yes { 1.0 } else { 0.0 }
}

fn log_failure(name: &str, added: prometheus::Result<()>) {
    if let Err(error) = added {
        tracing::error!(name, %error, "metric not exported");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_is_valid_prometheus_text() {
        let mut page = Page::default();
        page.gauge("plimsoll_epoch", "The epoch.", &[], plain(3.0));
        page.counter("plimsoll_x_total", "X.", &["why"], [(vec!["a\"b".to_owned()], 2.0)]);
        let text = page.text();
        assert!(text.contains("# TYPE plimsoll_epoch gauge\nplimsoll_epoch 3\n"), "{text}");
        assert!(
            text.contains("# TYPE plimsoll_x_total counter\nplimsoll_x_total{why=\"a\\\"b\"} 2\n"),
            "{text}"
        );
    }

    #[test]
    fn histogram_has_cumulative_bins_that_end_with_all_values() {
        let mut page = Page::default();
        let bins = [(0.001, 2), (0.01, 0), (f64::INFINITY, 3)];
        page.histogram("plimsoll_x_duration_seconds", "X.", bins, 7.5);
        let expected = "\
# HELP plimsoll_x_duration_seconds X.
# TYPE plimsoll_x_duration_seconds histogram
plimsoll_x_duration_seconds_bucket{le=\"0.001\"} 2
plimsoll_x_duration_seconds_bucket{le=\"0.01\"} 2
plimsoll_x_duration_seconds_bucket{le=\"+Inf\"} 5
plimsoll_x_duration_seconds_sum 7.5
plimsoll_x_duration_seconds_count 5
";
        assert_eq!(page.text(), expected);
    }
}
