//! The facade `metrics`: its counters and gauges are set to the limiter's values.

use std::collections::BTreeSet;
use std::sync::PoisonError;

use metrics::{Key, KeyName, Label, Level, Metadata, Recorder, SharedString, Unit};

use plimsoll_core::stats::metrics::{About, Family, Kind, Series, Value};

use super::Metrics;

const METADATA: Metadata<'_> = Metadata::new("plimsoll", Level::INFO, Some(module_path!()));

/// The gauges that were published, to reset those whose series have ended.
#[derive(Debug, Default)]
pub(super) struct Published {
    is_described: bool,
    gauges: BTreeSet<Key>,
}

impl Metrics {
    /// Publishes the present values to the recorder of the facade `metrics`: of this thread, or the global one. Call
    /// it before each scrape or push, such as every few seconds in a task of its own.
    ///
    /// Counters are absolute. The facade has no histograms that are set, so a histogram is published in the form
    /// that Prometheus gives it: counters `_bucket` by `le` and `_count`, and a gauge `_sum`. A gauge whose series
    /// has ended, such as a setup problem that was mended, becomes 0, because the facade cannot remove it.
    pub fn publish(&self) {
        let families = self.source.families();
        let mut published = self.published.lock().unwrap_or_else(PoisonError::into_inner);
        metrics::with_recorder(|recorder| {
            if !std::mem::replace(&mut published.is_described, true) {
                families.iter().for_each(|family| describe(recorder, &family.about));
            }
            let mut gauges = BTreeSet::new();
            for family in &families {
                for series in &family.series {
                    publish(recorder, family, series, &mut gauges);
                }
            }
            for ended in published.gauges.difference(&gauges) {
                recorder.register_gauge(ended, &METADATA).set(0.0);
            }
            published.gauges = gauges;
        });
    }
}

fn describe(recorder: &dyn Recorder, about: &About) {
    let unit = about.name.ends_with("_seconds").then_some(Unit::Seconds);
    let help = SharedString::const_str(about.help);
    let name = |suffix| KeyName::from(format!("{}{suffix}", about.name));
    match about.kind {
        Kind::Gauge => recorder.describe_gauge(name(""), unit, help),
        Kind::Counter => recorder.describe_counter(name(""), None, help),
        Kind::Histogram => {
            recorder.describe_counter(name("_bucket"), None, help.clone());
            recorder.describe_counter(name("_count"), None, help.clone());
            recorder.describe_gauge(name("_sum"), unit, help);
        }
    }
}

fn publish(recorder: &dyn Recorder, family: &Family, series: &Series, gauges: &mut BTreeSet<Key>) {
    let key = |suffix: &str, le: Option<String>| {
        let labels = family.labels_of(series).map(|(label, value)| Label::new(label, value.to_owned()));
        let labels = labels.chain(le.map(|le| Label::new("le", le)));
        Key::from_parts(format!("{}{suffix}", family.about.name), labels.collect::<Vec<_>>())
    };
    let count = |key, value| recorder.register_counter(&key, &METADATA).absolute(value);
    let mut gauge = |key: Key, value| {
        recorder.register_gauge(&key, &METADATA).set(value);
        gauges.insert(key);
    };
    match &series.value {
        Value::Number(value) if family.about.kind == Kind::Counter => count(key("", None), *value as u64),
        Value::Number(value) => gauge(key("", None), *value),
        Value::Histogram(durations) => {
            for (edge, value) in &durations.buckets {
                count(key("_bucket", Some(edge.to_string())), *value);
            }
            count(key("_bucket", Some("+Inf".to_owned())), durations.count);
            count(key("_count", None), durations.count);
            gauge(key("_sum", None), durations.sum);
        }
    }
}
