//! Metric families as plain data, which every way to export them reads.

use crate::responses::Durations;

/// A metric with all of its series at one time.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Family {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) kind: Kind,
    /// The names of the labels.
    pub(super) labels: &'static [&'static str],
    pub(super) series: Vec<Series>,
}

/// The type of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A value that rises and falls.
    Gauge,
    /// A value that only grows while the process lives.
    Counter,
    Histogram,
}

/// One series of a family: a value for each label, and the value.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Series {
    pub(super) labels: Vec<String>,
    pub(super) value: Value,
}

/// The value of one series, of its family's kind.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Gauge(f64),
    Counter(u64),
    Histogram(Durations),
}

impl Family {
    /// Makes a family of gauges.
    pub(super) fn gauge(
        name: &'static str,
        help: &'static str,
        labels: &'static [&'static str],
        series: impl IntoIterator<Item = (Vec<String>, f64)>,
    ) -> Self {
        let value = |(labels, value)| (labels, Value::Gauge(value));
        Self::of(name, help, Kind::Gauge, labels, series.into_iter().map(value))
    }

    /// Makes a family of counters.
    pub(super) fn counter(
        name: &'static str,
        help: &'static str,
        labels: &'static [&'static str],
        series: impl IntoIterator<Item = (Vec<String>, u64)>,
    ) -> Self {
        let value = |(labels, value)| (labels, Value::Counter(value));
        Self::of(name, help, Kind::Counter, labels, series.into_iter().map(value))
    }

    /// Makes a family of histograms.
    pub(super) fn histogram(
        name: &'static str,
        help: &'static str,
        labels: &'static [&'static str],
        series: impl IntoIterator<Item = (Vec<String>, Durations)>,
    ) -> Self {
        let value = |(labels, value)| (labels, Value::Histogram(value));
        Self::of(name, help, Kind::Histogram, labels, series.into_iter().map(value))
    }

    fn of(
        name: &'static str,
        help: &'static str,
        kind: Kind,
        labels: &'static [&'static str],
        series: impl Iterator<Item = (Vec<String>, Value)>,
    ) -> Self {
        let series = series.map(|(values, value)| {
            debug_assert_eq!(labels.len(), values.len(), "{name}: each label has a value");
            Series { labels: values, value }
        });
        Self { name, help, kind, labels, series: series.collect() }
    }

    /// Returns the labels of a series that have a value: an empty one means that the label is absent.
    pub(super) fn labels_of<'a>(
        &self,
        series: &'a Series,
    ) -> impl Iterator<Item = (&'static str, &'a str)> + use<'a> {
        let pairs = self.labels.iter().copied().zip(series.labels.iter().map(String::as_str));
        pairs.filter(|(_, value)| !value.is_empty())
    }
}

/// Returns one series without labels, or none.
pub(super) fn plain<V>(value: impl Into<Option<V>>) -> Option<(Vec<String>, V)> {
    Some((Vec::new(), value.into()?))
}

/// Returns 1 for true and 0 for false.
pub(super) fn flag(yes: bool) -> f64 {
    f64::from(u8::from(yes))
}

/// Families of every kind, with values that have to be escaped.
#[cfg(test)]
pub(super) fn samples(scale: u64) -> Vec<Family> {
    let labelled = |value: &str| vec![value.to_owned(), String::new()];
    let durations = Durations {
        buckets: vec![(0.1, scale), (1.0, 3 * scale)],
        sum: 1.5 * scale as f64,
        count: 4 * scale,
    };
    let name = "took_seconds";
    vec![
        Family::gauge("up", "1 while up.", &[], plain(flag(true))),
        Family::counter(
            "seen_total",
            "Seen,\nand\\or \"read\".",
            &["bucket", "mode"],
            [(labelled("api"), 7 * scale), (vec!["a\"b\\c\nd".to_owned(), "shadow".to_owned()], u64::MAX)],
        ),
        Family::counter("none_total", "Without series.", &[], []),
        Family::gauge(
            "odd",
            "Odd values.",
            &["of"],
            [
                (vec!["large".to_owned()], 1e21),
                (vec!["small".to_owned()], 1.5e-9),
                (vec!["infinite".to_owned()], f64::INFINITY),
            ],
        ),
        Family::histogram(name, "Took.", &["bucket", "cohort"], [(labelled("api"), durations)]),
    ]
}
