//! Metrics rendered from the current state at each scrape. No registry has to follow the state: a series
//! disappears with the state behind it.

use prometheus::{CounterVec, GaugeVec, Opts, Registry, TextEncoder};

/// Label values and the value of one series.
pub type Row = (Vec<String>, f64);

/// The metrics of one scrape.
#[derive(Debug, Default)]
pub struct Page {
    registry: Registry,
}

impl Page {
    /// Adds a gauge, a value that rises and falls.
    pub fn gauge(&mut self, name: &str, help: &str, labels: &[&str], rows: impl IntoIterator<Item = Row>) {
        let added = GaugeVec::new(Opts::new(name, help), labels).and_then(|vec| {
            for (labels, value) in rows {
                vec.get_metric_with_label_values(&labels)?.set(value);
            }
            self.registry.register(Box::new(vec))
        });
        log_failure(name, added);
    }

    /// Adds a counter, a value that only grows while the process lives.
    pub fn counter(&mut self, name: &str, help: &str, labels: &[&str], rows: impl IntoIterator<Item = Row>) {
        let added = CounterVec::new(Opts::new(name, help), labels).and_then(|vec| {
            for (labels, value) in rows {
                // A negative step would panic.
                vec.get_metric_with_label_values(&labels)?.inc_by(value.max(0.0));
            }
            self.registry.register(Box::new(vec))
        });
        log_failure(name, added);
    }

    /// Returns the page in the Prometheus text format.
    #[must_use]
    pub fn text(&self) -> String {
        let text = TextEncoder::new().encode_to_string(&self.registry.gather());
        text.unwrap_or_else(|error| format!("# cannot encode metrics: {error}\n"))
    }
}

/// Returns one row without labels.
#[must_use]
pub fn plain(value: f64) -> [Row; 1] {
    [(Vec::new(), value)]
}

/// Returns 1 for true and 0 for false.
#[must_use]
pub const fn flag(yes: bool) -> f64 {
    if yes { 1.0 } else { 0.0 }
}

fn log_failure(name: &str, added: prometheus::Result<()>) {
    if let Err(error) = added {
        tracing::error!(name, %error, "metric not exported");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_is_valid_prometheus_text() {
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
