//! Metric families built from plain rows, in the form that a Prometheus registry collects.

use prometheus::proto::{Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType};

use crate::responses::Durations;

/// Label values and the value of one series.
pub(super) type Row = (Vec<String>, f64);

/// The metric families of one scrape.
#[derive(Debug, Default)]
pub(super) struct Families(Vec<MetricFamily>);

impl Families {
    /// Adds a gauge, a value that rises and falls.
    pub(super) fn gauge(
        &mut self,
        name: &str,
        help: &str,
        labels: &[&str],
        rows: impl IntoIterator<Item = Row>,
    ) {
        let metrics = rows.into_iter().map(|(values, value)| {
            let (mut gauge, mut metric) = (Gauge::default(), labelled(labels, values));
            gauge.set_value(value);
            metric.set_gauge(gauge);
            metric
        });
        self.add(name, help, MetricType::GAUGE, metrics.collect());
    }

    /// Adds a counter, a value that only grows while the process lives.
    pub(super) fn counter(
        &mut self,
        name: &str,
        help: &str,
        labels: &[&str],
        rows: impl IntoIterator<Item = Row>,
    ) {
        let metrics = rows.into_iter().map(|(values, value)| {
            let (mut counter, mut metric) = (Counter::default(), labelled(labels, values));
            counter.set_value(value);
            metric.set_counter(counter);
            metric
        });
        self.add(name, help, MetricType::COUNTER, metrics.collect());
    }

    /// Adds a histogram.
    pub(super) fn histogram(
        &mut self,
        name: &str,
        help: &str,
        labels: &[&str],
        rows: impl IntoIterator<Item = (Vec<String>, Durations)>,
    ) {
        let metrics = rows.into_iter().map(|(values, durations)| {
            let buckets = durations.buckets.iter().map(|(upper_bound, count)| {
                let mut bucket = Bucket::default();
                bucket.set_upper_bound(*upper_bound);
                bucket.set_cumulative_count(*count);
                bucket
            });
            let (mut histogram, mut metric) = (Histogram::default(), labelled(labels, values));
            histogram.set_bucket(buckets.collect());
            histogram.set_sample_sum(durations.sum);
            histogram.set_sample_count(durations.count);
            metric.set_histogram(histogram);
            metric
        });
        self.add(name, help, MetricType::HISTOGRAM, metrics.collect());
    }

    /// Returns the families; those without a series are left out.
    pub(super) fn into_vec(self) -> Vec<MetricFamily> {
        self.0
    }

    fn add(&mut self, name: &str, help: &str, kind: MetricType, metrics: Vec<Metric>) {
        if metrics.is_empty() {
            return;
        }
        let mut family = MetricFamily::default();
        family.set_name(name.to_owned());
        family.set_help(help.to_owned());
        family.set_field_type(kind);
        family.set_metric(metrics);
        self.0.push(family);
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

/// Returns one row without labels.
pub(super) fn plain(value: f64) -> [Row; 1] {
    [(Vec::new(), value)]
}

/// Returns 1 for true and 0 for false.
pub(super) const fn flag(yes: bool) -> f64 {
    if yes { 1.0 } else { 0.0 }
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
