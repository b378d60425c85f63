//! Metric families built from plain rows, in the form that a Prometheus registry collects.

use std::collections::HashMap;

use prometheus::core::Desc;
use prometheus::proto::{Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType};

use crate::responses::Durations;

/// Label values and the value of one series.
pub(super) type Row = (Vec<String>, Value);

/// The value of one series, by the type of its family.
#[derive(Clone, Debug)]
pub(super) enum Value {
    /// A value that rises and falls.
    Gauge(f64),
    /// A value that only grows while the process lives.
    Counter(f64),
    Histogram(Durations),
}

/// The names of a family's labels.
type Labels = &'static [&'static str];

/// The metric families of one scrape.
#[derive(Debug, Default)]
pub(super) struct Families(Vec<(MetricFamily, Labels)>);

impl Families {
    /// Adds a family. All rows have values of one type.
    pub(super) fn add(
        &mut self,
        name: &str,
        help: &str,
        labels: Labels,
        rows: impl IntoIterator<Item = Row>,
    ) {
        let mut family = MetricFamily::default();
        family.set_name(name.to_owned());
        family.set_help(help.to_owned());
        let metrics = rows.into_iter().map(|(values, value)| {
            let mut metric = labelled(labels, values);
            family.set_field_type(value.write(&mut metric));
            metric
        });
        let metrics = metrics.collect();
        family.set_metric(metrics);
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

impl Value {
    /// Writes the value into a series, and returns its type.
    fn write(self, metric: &mut Metric) -> MetricType {
        match self {
            Self::Gauge(value) => {
                let mut gauge = Gauge::default();
                gauge.set_value(value);
                metric.set_gauge(gauge);
                MetricType::GAUGE
            }
            Self::Counter(value) => {
                let mut counter = Counter::default();
                counter.set_value(value);
                metric.set_counter(counter);
                MetricType::COUNTER
            }
            Self::Histogram(durations) => {
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
                MetricType::HISTOGRAM
            }
        }
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
pub(super) fn plain(value: impl Into<Option<Value>>) -> Option<Row> {
    Some((Vec::new(), value.into()?))
}

/// Returns a gauge: 1 for true and 0 for false.
pub(super) fn flag(yes: bool) -> Value {
    Value::Gauge(f64::from(u8::from(yes)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus::TextEncoder;

    #[test]
    fn families_are_encoded_as_text() {
        let mut families = Families::default();
        families.add("up", "1 while up.", &[], plain(flag(true)));
        families.add("seen_total", "Seen.", &["bucket"], [(vec!["api".to_owned()], Value::Counter(7.0))]);
        families.add("none_total", "Without series.", &[], []);
        let durations = Durations { buckets: vec![(0.1, 1), (1.0, 3)], sum: 1.5, count: 4 };
        let took = [(vec!["api".to_owned()], Value::Histogram(durations))];
        families.add("took_seconds", "Took.", &["bucket"], took);
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
