//! Metric families built from plain rows, in the form that a Prometheus registry collects.

use std::collections::HashMap;

use prometheus::core::Desc;
use prometheus::proto::{Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType};

use crate::responses::Durations;

/// Label values and the value of one series.
pub(super) type Row = (Vec<String>, f64);

/// The names of a family's labels.
type Labels = &'static [&'static str];

/// The metric families of one scrape.
#[derive(Debug, Default)]
pub(super) struct Families(Vec<(MetricFamily, Labels)>);

impl Families {
    /// Adds a gauge, a value that rises and falls.
    pub(super) fn gauge(
        &mut self,
        name: &str,
        help: &str,
        labels: Labels,
        rows: impl IntoIterator<Item = Row>,
    ) {
        self.add(name, help, MetricType::GAUGE, labels, rows, |metric, value| {
            let mut gauge = Gauge::default();
            gauge.set_value(value);
            metric.set_gauge(gauge);
        });
    }

    /// Adds a counter, a value that only grows while the process lives.
    pub(super) fn counter(
        &mut self,
        name: &str,
        help: &str,
        labels: Labels,
        rows: impl IntoIterator<Item = Row>,
    ) {
        self.add(name, help, MetricType::COUNTER, labels, rows, |metric, value| {
            let mut counter = Counter::default();
            counter.set_value(value);
            metric.set_counter(counter);
        });
    }

    /// Adds a histogram.
    pub(super) fn histogram(
        &mut self,
        name: &str,
        help: &str,
        labels: Labels,
        rows: impl IntoIterator<Item = (Vec<String>, Durations)>,
    ) {
        self.add(name, help, MetricType::HISTOGRAM, labels, rows, |metric, durations| {
            let buckets = durations.buckets.iter().map(|(upper_bound, count)| {
                let mut bucket = Bucket::default();
                bucket.set_upper_bound(*upper_bound);
                bucket.set_cumulative_count(*count);
                bucket
            });
            let mut histogram = Histogram::default();
            histogram.set_bucket(buckets.collect());
            histogram.set_sample_sum(durations.sum);
            histogram.set_sample_count(durations.count);
            metric.set_histogram(histogram);
        });
    }

    fn add<V>(
        &mut self,
        name: &str,
        help: &str,
        kind: MetricType,
        labels: Labels,
        rows: impl IntoIterator<Item = (Vec<String>, V)>,
        set: impl Fn(&mut Metric, V),
    ) {
        let metrics = rows.into_iter().map(|(values, value)| {
            let mut metric = labelled(labels, values);
            set(&mut metric, value);
            metric
        });
        let mut family = MetricFamily::default();
        family.set_metric(metrics.collect());
        family.set_name(name.to_owned());
        family.set_help(help.to_owned());
        family.set_field_type(kind);
        self.0.push((family, labels));
    }

    /// Returns the descriptions of all families.
    ///
    /// # Errors
    /// When a metric's name is invalid.
    pub(super) fn descs(&self) -> prometheus::Result<Vec<Desc>> {
        let desc = |(family, labels): &(MetricFamily, Labels)| {
            let labels = labels.iter().map(|label| (*label).to_owned()).collect();
            Desc::new(family.name().to_owned(), family.help().to_owned(), labels, HashMap::new())
        };
        self.0.iter().map(desc).collect()
    }

    /// Returns the families; those without a series are left out.
    pub(super) fn into_vec(self) -> Vec<MetricFamily> {
        let families = self.0.into_iter().map(|(family, _)| family);
        families.filter(|family| !family.get_metric().is_empty()).collect()
    }
}

fn labelled(labels: &[&str], values: Vec<String>) -> Metric {
    debug_assert_eq!(labels.len(), values.len(), "each label has a value");
    let pairs = labels.iter().zip(values).map(|(name, value)| {
        let mut pair = LabelPair::default();
        pair.set_name((*name).to_owned());
        pair.set_value(value);
        pair
    });
    Metric::from_label(pairs.collect())
}

/// Returns one row without labels, or none.
pub(super) fn plain(value: impl Into<Option<f64>>) -> Option<Row> {
    Some((Vec::new(), value.into()?))
}

/// Returns 1 for true and 0 for false.
pub(super) fn flag(yes: bool) -> f64 {
    f64::from(u8::from(yes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus::TextEncoder;

    #[test]
    fn families_are_encoded_as_text() {
        let mut families = Families::default();
        families.gauge("up", "1 while up.", &[], plain(flag(true)));
        families.counter("seen_total", "Seen.", &["bucket"], [(vec!["api".to_owned()], 7.0)]);
        families.counter("none_total", "Without series.", &[], []);
        let durations = Durations { buckets: vec![(0.1, 1), (1.0, 3)], sum: 1.5, count: 4 };
        families.histogram("took_seconds", "Took.", &["bucket"], [(vec!["api".to_owned()], durations)]);
        let text = TextEncoder::new().encode_to_string(&families.into_vec()).unwrap();
        let expected = "# HELP up 1 while up.\n# TYPE up gauge\nup 1\n\
                        # HELP seen_total Seen.\n# TYPE seen_total counter\nseen_total{bucket=\"api\"} 7\n\
                        # HELP took_seconds Took.\n# TYPE took_seconds histogram\n\
                        took_seconds_bucket{bucket=\"api\",le=\"0.1\"} 1\n\
                        took_seconds_bucket{bucket=\"api\",le=\"1\"} 3\n\
                        took_seconds_bucket{bucket=\"api\",le=\"+Inf\"} 4\n\
                        took_seconds_sum{bucket=\"api\"} 1.5\ntook_seconds_count{bucket=\"api\"} 4\n";
        assert_eq!(text, expected);
    }
}
