//! Metrics rendered from the current state at each scrape. No registry has to follow the state: a series disappears with
//! the state behind it.

#[cfg(test)]
mod tests;

use std::collections::HashMap;

use prometheus::core::{Collector, Desc};
use prometheus::proto::{Bucket, Histogram, LabelPair, Metric, MetricFamily, MetricType};
use prometheus::{CounterVec, GaugeVec, Opts, Registry, TextEncoder};

/// Label values and the value of one series.
pub type Row = (Vec<String>, f64);

/// Counts of one histogram series, collected by the caller.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HistogramCounts {
    /// Upper bounds, ascending, each with the number of values up to it.
    pub up_to: Vec<(f64, u64)>,
    /// The sum of all values.
    pub sum: f64,
    /// The number of values.
    pub count: u64,
}

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

    /// Adds a histogram. One without series is left out of the page.
    pub fn histogram(
        &mut self,
        name: &str,
        help: &str,
        labels: &[&str],
        rows: impl IntoIterator<Item = (Vec<String>, HistogramCounts)>,
    ) {
        let names = labels.iter().map(|label| (*label).to_owned()).collect();
        let added = Desc::new(name.to_owned(), help.to_owned(), names, HashMap::new()).and_then(|desc| {
            let metrics: Vec<Metric> =
                rows.into_iter().map(|(values, buckets)| metric(labels, values, &buckets)).collect();
            if metrics.is_empty() {
                return Ok(());
            }
            let mut family = MetricFamily::default();
            family.set_name(name.to_owned());
            family.set_help(help.to_owned());
            family.set_field_type(MetricType::HISTOGRAM);
            family.set_metric(metrics);
            self.registry.register(Box::new(Complete { desc, family }))
        });
        log_failure(name, added);
    }

    /// Returns the metric families.
    #[must_use]
    pub fn families(&self) -> Vec<MetricFamily> {
        self.registry.gather()
    }

    /// Returns the page in the Prometheus text format.
    #[must_use]
    pub fn text(&self) -> String {
        let text = TextEncoder::new().encode_to_string(&self.families());
        text.unwrap_or_else(|error| format!("# cannot encode metrics: {error}\n"))
    }
}

/// A metric family with all its series.
struct Complete {
    desc: Desc,
    family: MetricFamily,
}

impl Collector for Complete {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.desc]
    }

    fn collect(&self) -> Vec<MetricFamily> {
        vec![self.family.clone()]
    }
}

fn metric(labels: &[&str], values: Vec<String>, buckets: &HistogramCounts) -> Metric {
    let pairs = labels.iter().zip(values).map(|(name, value)| {
        let mut pair = LabelPair::default();
        pair.set_name((*name).to_owned());
        pair.set_value(value);
        pair
    });
    let counted = buckets.up_to.iter().map(|(edge, count)| {
        let mut bucket = Bucket::default();
        bucket.set_upper_bound(*edge);
        bucket.set_cumulative_count(*count);
        bucket
    });
    let mut histogram = Histogram::default();
    histogram.set_bucket(counted.collect());
    histogram.set_sample_sum(buckets.sum);
    histogram.set_sample_count(buckets.count);
    let mut metric = Metric::from_label(pairs.collect());
    metric.set_histogram(histogram);
    metric
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
