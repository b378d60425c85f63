//! Metrics as tables, of each tier and of what tiers share: the metrics page and its document are read from them, so
//! that no metric has two descriptions.

mod text;

pub use text::text;

use std::time::Duration;

/// A metric of a tier with the state `S`.
#[derive(Debug)]
pub struct Metric<S: ?Sized> {
    /// Its description.
    pub about: About,
    /// Returns its present series.
    pub read: fn(&S) -> Vec<Series>,
}

/// The description of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct About {
    /// The name.
    pub name: &'static str,
    /// The type.
    pub kind: Kind,
    /// The names of the labels.
    pub labels: &'static [&'static str],
    /// The meaning, as a sentence.
    pub help: &'static str,
    /// True for the few metrics that an operator reads first: the document has them in a table of their own.
    pub is_first: bool,
}

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A value that rises and falls.
    Gauge,
    /// A value that only grows while the process lives.
    Counter,
    /// Durations by bounds.
    Histogram,
}

/// One series: a value for each label, and the value. A label with an empty value is left out.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// The values of the labels.
    pub labels: Vec<String>,
    /// The value.
    pub value: Value,
}

/// The value of one series.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// The value of a gauge or a counter.
    Number(f64),
    /// The value of a histogram.
    Histogram(Durations),
}

/// Durations as a cumulative histogram.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Durations {
    /// Upper bounds in seconds without infinity, each with the number of values up to it.
    pub buckets: Vec<(f64, u64)>,
    /// The sum in seconds.
    pub sum: f64,
    /// The number of values.
    pub count: u64,
}

/// A metric with all of its series at one time.
#[derive(Clone, Debug, PartialEq)]
pub struct Family {
    /// The metric.
    pub about: About,
    /// Its series.
    pub series: Vec<Series>,
}

/// Returns the metrics of a table with their present series.
pub fn families<S: ?Sized>(table: &[Metric<S>], source: &S) -> Vec<Family> {
    table
        .iter()
        .map(|metric| Family {
            about: metric.about,
            series: (metric.read)(source),
        })
        .collect()
}

/// Returns the descriptions of a table.
pub fn described<S: ?Sized>(table: &[Metric<S>]) -> Vec<About> {
    table.iter().map(|metric| metric.about).collect()
}

/// Returns one series without labels.
pub fn one(value: impl Into<Value>) -> Vec<Series> {
    maybe(Some(value))
}

/// Returns one series without labels, or none.
pub fn maybe(value: Option<impl Into<Value>>) -> Vec<Series> {
    value
        .into_iter()
        .map(|value| Series {
            labels: Vec::new(),
            value: value.into(),
        })
        .collect()
}

/// Returns one series for each row of label values and a value.
pub fn rows<L>(rows: impl IntoIterator<Item = (L, impl Into<Value>)>) -> Vec<Series>
where
    L: IntoIterator<Item: Into<String>>,
{
    let series = rows.into_iter().map(|(labels, value)| Series {
        labels: labels.into_iter().map(Into::into).collect(),
        value: value.into(),
    });
    series.collect()
}

// === impl Metric ===

impl<S: ?Sized> Metric<S> {
    /// Makes a gauge.
    pub const fn gauge(
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
        read: fn(&S) -> Vec<Series>,
    ) -> Self {
        Self::of(Kind::Gauge, name, labels, help, read)
    }

    /// Makes a counter.
    pub const fn counter(
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
        read: fn(&S) -> Vec<Series>,
    ) -> Self {
        Self::of(Kind::Counter, name, labels, help, read)
    }

    /// Makes a histogram.
    pub const fn histogram(
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
        read: fn(&S) -> Vec<Series>,
    ) -> Self {
        Self::of(Kind::Histogram, name, labels, help, read)
    }

    const fn of(
        kind: Kind,
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
        read: fn(&S) -> Vec<Series>,
    ) -> Self {
        let about = About {
            name,
            kind,
            labels,
            help,
            is_first: false,
        };
        Self { about, read }
    }

    /// Marks a metric that an operator reads first.
    pub const fn first(self) -> Self {
        Self {
            about: About {
                is_first: true,
                ..self.about
            },
            read: self.read,
        }
    }
}

// === impl Kind ===

impl Kind {
    /// The word of the text format.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Gauge => "gauge",
            Self::Counter => "counter",
            Self::Histogram => "histogram",
        }
    }
}

// === impl Family ===

impl Family {
    /// Returns the labels of a series that have a value.
    pub fn labels_of<'a>(
        &self,
        series: &'a Series,
    ) -> impl Iterator<Item = (&'static str, &'a str)> + use<'a> {
        let pairs = self
            .about
            .labels
            .iter()
            .copied()
            .zip(series.labels.iter().map(String::as_str));
        pairs.filter(|(_, value)| !value.is_empty())
    }
}

// === impl Value ===

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Number(value)
    }
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Self::Number(value as f64)
    }
}

impl From<u32> for Value {
    fn from(value: u32) -> Self {
        Self::Number(value.into())
    }
}

impl From<usize> for Value {
    fn from(value: usize) -> Self {
        Self::Number(value as f64)
    }
}

impl From<bool> for Value {
    fn from(yes: bool) -> Self {
        Self::Number(f64::from(u8::from(yes)))
    }
}

impl From<Duration> for Value {
    fn from(duration: Duration) -> Self {
        Self::Number(duration.as_secs_f64())
    }
}

impl From<Durations> for Value {
    fn from(durations: Durations) -> Self {
        Self::Histogram(durations)
    }
}
