//! The collector of the crate `prometheus`.

use std::collections::HashMap;

use prometheus::core::{Collector, Desc};
use prometheus::proto::{
    Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType,
};

use plimsoll_core::stats::metrics::{About, Family, Kind, Value};

use super::Metrics;

impl Collector for Metrics {
    fn desc(&self) -> Vec<&Desc> {
        self.descs.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let families = self.source.families().into_iter();
        families
            .filter(|family| !family.series.is_empty())
            .map(convert)
            .collect()
    }
}

pub(super) fn descs() -> Vec<Desc> {
    let describe = |about: About| {
        let labels = about
            .labels
            .iter()
            .map(|label| (*label).to_owned())
            .collect();
        Desc::new(
            about.name.to_owned(),
            about.help.to_owned(),
            labels,
            HashMap::new(),
        )
    };
    let descs: prometheus::Result<_> = Metrics::described().into_iter().map(describe).collect();
    // An invalid name is excluded by a test.
    debug_assert!(descs.is_ok(), "{descs:?}");
    descs.unwrap_or_default()
}

fn convert(family: Family) -> MetricFamily {
    let mut converted = MetricFamily::default();
    converted.set_name(family.about.name.to_owned());
    converted.set_help(family.about.help.to_owned());
    converted.set_field_type(match family.about.kind {
        Kind::Gauge => MetricType::GAUGE,
        Kind::Counter => MetricType::COUNTER,
        Kind::Histogram => MetricType::HISTOGRAM,
    });
    let metrics = family.series.iter().map(|series| {
        let pairs = family.labels_of(series).map(|(name, value)| {
            let mut pair = LabelPair::default();
            pair.set_name(name.to_owned());
            pair.set_value(value.to_owned());
            pair
        });
        let mut metric = Metric::from_label(pairs.collect());
        write(family.about.kind, &series.value, &mut metric);
        metric
    });
    converted.set_metric(metrics.collect());
    converted
}

fn write(kind: Kind, value: &Value, metric: &mut Metric) {
    match value {
        Value::Number(value) if kind == Kind::Counter => {
            let mut counter = Counter::default();
            counter.set_value(*value);
            metric.set_counter(counter);
        }
        Value::Number(value) => {
            let mut gauge = Gauge::default();
            gauge.set_value(*value);
            metric.set_gauge(gauge);
        }
        Value::Histogram(durations) => {
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
        }
    }
}
