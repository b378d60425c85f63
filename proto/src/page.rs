//! A page of metrics, built anew from the state whenever it is asked for: nothing to keep in step, and what is gone
//! from the state is gone from the page.

use prometheus::proto::MetricFamily;
use prometheus::{CounterVec, GaugeVec, Opts, Registry, TextEncoder};

/// One value and the values of its labels.
pub type Row = (Vec<String>, f64);

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
        let text = page.text();
        assert!(text.contains("# TYPE plimsoll_epoch gauge\nplimsoll_epoch 3\n"), "{text}");
        assert!(
            text.contains("# TYPE plimsoll_x_total counter\nplimsoll_x_total{why=\"a\\\"b\"} 2\n"),
            "{text}"
        );
    }
}
