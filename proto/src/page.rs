//! A page of metrics, built anew from the state whenever it is asked for: nothing to keep in step, and what is gone
//! from the state is gone from the page.

use std::collections::HashMap;

use prometheus::core::{Collector, Desc};
use prometheus::proto::{Bucket, Histogram, LabelPair, Metric, MetricFamily, MetricType};
use prometheus::{CounterVec, GaugeVec, Opts, Registry, TextEncoder};

/// One value and the values of its labels.
pub type Row = (Vec<String>, f64);

/// A histogram that was counted elsewhere.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Buckets {
    /// Upper edges, ascending, and how many values are not above each.
    pub up_to: Vec<(f64, u64)>,
    /// The sum of all values.
    pub sum: f64,
    /// How many values there are.
    pub count: u64,
}

/// The metrics of one moment.
#[derive(Debug, Default)]
pub struct Page {
    registry: Registry,
}

impl Page {
    /// Adds a gauge: a value that may rise and fall.
    pub fn gauge(&mut self, name: &str, help: &str, labels: &[&str], rows: impl IntoIterator<Item = Row>) {
        let added = GaugeVec::new(Opts::new(name, help), labels).and_then(|vec| {
            for (labels, value) in rows {
                vec.get_metric_with_label_values(&labels)?.set(value);
            }
            self.registry.register(Box::new(vec))
        });
        complain(name, added);
    }

    /// Adds a counter: a value that only ever grows while the process lives.
    pub fn counter(&mut self, name: &str, help: &str, labels: &[&str], rows: impl IntoIterator<Item = Row>) {
        let added = CounterVec::new(Opts::new(name, help), labels).and_then(|vec| {
            for (labels, value) in rows {
                // A negative step would panic; a count is none.
                vec.get_metric_with_label_values(&labels)?.inc_by(value.max(0.0));
            }
            self.registry.register(Box::new(vec))
        });
        complain(name, added);
    }

    /// Adds a histogram.
    pub fn histogram(
        &mut self,
        name: &str,
        help: &str,
        labels: &[&str],
        rows: impl IntoIterator<Item = (Vec<String>, Buckets)>,
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
            self.registry.register(Box::new(Counted { desc, family }))
        });
        complain(name, added);
    }

    /// The metrics as Prometheus knows them.
    #[must_use]
    pub fn families(&self) -> Vec<MetricFamily> {
        self.registry.gather()
    }

    /// The metrics as Prometheus reads them.
    #[must_use]
    pub fn text(&self) -> String {
        let text = TextEncoder::new().encode_to_string(&self.families());
        text.unwrap_or_else(|error| format!("# the metrics cannot be written: {error}\n"))
    }
}

/// A family that is complete.
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

fn metric(labels: &[&str], values: Vec<String>, buckets: &Buckets) -> Metric {
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

/// One row without labels.
#[must_use]
pub fn plain(value: f64) -> [Row; 1] {
    [(Vec::new(), value)]
}

/// A yes as 1, a no as 0.
#[must_use]
pub const fn flag(yes: bool) -> f64 {
    if yes { 1.0 } else { 0.0 }
}

fn complain(name: &str, added: prometheus::Result<()>) {
    if let Err(error) = added {
        tracing::error!(name, %error, "a metric cannot be added");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_reads_as_prometheus_expects() {
        let mut page = Page::default();
        page.gauge("plimsoll_epoch", "The epoch.", &[], plain(3.0));
        page.counter("plimsoll_x_total", "X.", &["why"], [(vec!["a\"b".to_owned()], 2.0)]);
        let buckets = Buckets { up_to: vec![(0.1, 2), (0.5, 3)], sum: 1.5, count: 4 };
        page.histogram("plimsoll_y_seconds", "Y.", &["bucket"], [(vec!["b".to_owned()], buckets)]);
        page.histogram("plimsoll_z_seconds", "Z.", &[], []);
        let text = page.text();
        for line in [
            "# TYPE plimsoll_y_seconds histogram",
            "plimsoll_y_seconds_bucket{bucket=\"b\",le=\"0.1\"} 2",
            "plimsoll_y_seconds_bucket{bucket=\"b\",le=\"+Inf\"} 4",
            "plimsoll_y_seconds_sum{bucket=\"b\"} 1.5",
            "plimsoll_y_seconds_count{bucket=\"b\"} 4",
        ] {
            assert!(text.contains(&format!("{line}\n")), "{line}: {text}");
        }
        assert!(text.contains("# TYPE plimsoll_epoch gauge\nplimsoll_epoch 3\n"), "{text}");
        assert!(
            text.contains("# TYPE plimsoll_x_total counter\nplimsoll_x_total{why=\"a\\\"b\"} 2\n"),
            "{text}"
        );
    }
}
