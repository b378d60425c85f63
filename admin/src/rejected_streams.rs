//! Counter of the streams that a parent closed because the child broke a rule.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_proto::driver::parent::OnRejected;

use crate::metrics_page::Page;

/// Streams closed since the process started, by reason. Clones share the counts.
#[derive(Clone, Debug, Default)]
pub struct RejectedStreams {
    counts: Arc<Mutex<BTreeMap<&'static str, u64>>>,
}

impl RejectedStreams {
    /// Adds the counts to a metrics page.
    pub fn add_to(&self, page: &mut Page) {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let rows = counts.iter().map(|(reason, count)| (vec![(*reason).to_owned()], *count as f64));
        let help = "Streams that this parent closed because the child broke a rule.";
        page.counter("plimsoll_streams_rejected_total", help, &["reason"], rows);
    }
}

impl OnRejected for RejectedStreams {
    fn on_rejected(&self, reason: &'static str) {
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner).entry(reason).or_default() += 1;
    }
}
