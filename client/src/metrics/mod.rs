//! The metrics of a limiter and its feed, as services export them.

#[cfg(feature = "prometheus")]
mod prometheus;
mod source;

use std::sync::Arc;

use plimsoll_core::stats::metrics::{self, About, Family};

use crate::limiter::Limiter;
use source::Source;

/// The metrics of a limiter, its feed and its middleware. They are read from the counters when they are exported,
/// which costs the request path nothing.
///
/// There are two ways to export them, with the same names, labels and values:
/// * [`text`](Self::text) returns the text that a Prometheus server or an OpenTelemetry collector scrapes, without any
///   other crate;
/// * with the feature `prometheus`, which is on by default, this is a collector for a registry of the crate
///   `prometheus`.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use plimsoll_client::{Limiter, Metrics, Request};
///
/// let (limiter, _feed) = Limiter::builder("shop").build()?;
/// let metrics = Metrics::new(&limiter);
/// let _ = limiter.check(&Request::new("checkout", "acme"));
/// assert!(metrics.text().contains("plimsoll_decisions_total{bucket=\"checkout\""));
/// # Ok(()) }
/// ```
///
/// Decisions are counted for the mode of their bucket at the export before. So use one `Metrics`, or clones of it, for
/// one limiter.
#[derive(Clone, Debug)]
pub struct Metrics {
    source: Arc<Source>,
    #[cfg(feature = "prometheus")]
    descs: Arc<[::prometheus::core::Desc]>,
}

impl Metrics {
    /// The value of the header `Content-Type` for [`text`](Self::text).
    pub const TEXT_TYPE: &'static str = "text/plain; version=0.0.4; charset=utf-8";

    /// Makes the metrics of a limiter.
    #[must_use]
    pub fn new(limiter: &Limiter) -> Self {
        let source = Arc::new(Source::new(limiter.clone()));
        Self {
            #[cfg(feature = "prometheus")]
            descs: prometheus::descs().into(),
            source,
        }
    }

    /// Returns the descriptions of all metrics, for documents. Not part of the API.
    #[doc(hidden)]
    #[must_use]
    pub fn described() -> Vec<About> {
        source::described()
    }

    /// Returns all metrics with their series, for a page with others. Not part of the API.
    #[doc(hidden)]
    pub fn families(&self) -> Vec<Family> {
        self.source.families()
    }

    /// Returns all metrics in the text format of Prometheus, for the response to a scrape.
    pub fn text(&self) -> String {
        metrics::text(&self.source.families())
    }
}

#[cfg(test)]
#[cfg(not(feature = "loom"))]
mod tests;
