//! OpenTelemetry: observable instruments, which read the limiter when a reader collects.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use opentelemetry::KeyValue;
use opentelemetry::metrics::Meter;

use plimsoll_core::stats::metrics::{About, Family, Kind, Series, Value};

use super::{Metrics, Source};

/// The families that the instruments of one collection share, so that it reads the limiter once.
struct Collection {
    source: Arc<Source>,
    read: Mutex<Read>,
}

/// The last families read, and the instruments that have observed them. An instrument that comes a second time
/// begins a new collection.
#[derive(Default)]
struct Read {
    families: Arc<Vec<Family>>,
    observed: BTreeSet<String>,
}

impl Metrics {
    /// Creates an observable instrument for each metric on a meter. The instruments live as long as the meter's
    /// provider, and keep the limiter alive.
    ///
    /// Names are those of the other exporters, and counters keep their `_total`. A histogram becomes the counters
    /// `_bucket` by `le`, `_sum` and `_count`, because OpenTelemetry has no histograms that are observed.
    pub fn observe(&self, meter: &Meter) {
        let collection = Arc::new(Collection { source: Arc::clone(&self.source), read: Mutex::default() });
        for about in Self::described() {
            match about.kind {
                Kind::Gauge => {
                    let builder = meter.f64_observable_gauge(about.name).with_description(about.help);
                    let collection = Arc::clone(&collection);
                    let observe = builder.with_callback(move |gauge| {
                        collection.observe(about.name, "", |family, series| match &series.value {
                            Value::Number(value) => gauge.observe(*value, &attributes(family, series)),
                            Value::Histogram(_) => {}
                        });
                    });
                    observe.build();
                }
                Kind::Counter => counter(meter, &collection, &about, ""),
                Kind::Histogram => {
                    counter(meter, &collection, &about, "_bucket");
                    counter(meter, &collection, &about, "_count");
                    sum(meter, &collection, &about);
                }
            }
        }
    }
}

/// Creates a counter of a family, or of the part of a histogram that `suffix` names.
fn counter(meter: &Meter, collection: &Arc<Collection>, about: &About, suffix: &'static str) {
    let (name, collection) = (about.name, Arc::clone(collection));
    let builder = meter.u64_observable_counter(format!("{name}{suffix}")).with_description(about.help);
    let observe = builder.with_callback(move |counter| {
        collection.observe(name, suffix, |family, series| match &series.value {
            Value::Number(value) => counter.observe(*value as u64, &attributes(family, series)),
            Value::Histogram(durations) if suffix == "_bucket" => {
                let edges = durations.buckets.iter().map(|(edge, count)| (edge.to_string(), *count));
                for (edge, count) in edges.chain([("+Inf".to_owned(), durations.count)]) {
                    let le = KeyValue::new("le", edge);
                    let attributes: Vec<KeyValue> =
                        attributes(family, series).into_iter().chain([le]).collect();
                    counter.observe(count, &attributes);
                }
            }
            Value::Histogram(durations) => counter.observe(durations.count, &attributes(family, series)),
        });
    });
    observe.build();
}

/// Creates the counter of a histogram's sum.
fn sum(meter: &Meter, collection: &Arc<Collection>, about: &About) {
    let (name, collection) = (about.name, Arc::clone(collection));
    let builder = meter.f64_observable_counter(format!("{name}_sum")).with_description(about.help);
    let observe = builder.with_callback(move |counter| {
        collection.observe(name, "_sum", |family, series| {
            if let Value::Histogram(durations) = &series.value {
                counter.observe(durations.sum, &attributes(family, series));
            }
        });
    });
    observe.build();
}

fn attributes(family: &Family, series: &Series) -> Vec<KeyValue> {
    family.labels_of(series).map(|(label, value)| KeyValue::new(label, value.to_owned())).collect()
}

impl Collection {
    /// Passes each series of a family to an instrument.
    fn observe(&self, name: &'static str, suffix: &str, mut observe: impl FnMut(&Family, &Series)) {
        let families = self.read(format!("{name}{suffix}"));
        for family in families.iter().filter(|family| family.about.name == name) {
            family.series.iter().for_each(|series| observe(family, series));
        }
    }

    /// Returns the families for an instrument.
    fn read(&self, instrument: String) -> Arc<Vec<Family>> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if read.observed.is_empty() || read.observed.contains(&instrument) {
            *read = Read { families: Arc::new(self.source.families()), observed: BTreeSet::new() };
        }
        read.observed.insert(instrument);
        Arc::clone(&read.families)
    }
}
