//! How often a parent closed a stream because of what came on it, and why.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::page::Page;
use crate::parent::OnRefused;

/// Streams refused since the start, by reason. Cloning gives another handle to the same counts.
#[derive(Clone, Debug, Default)]
pub struct Refusals {
    counts: Arc<Mutex<BTreeMap<&'static str, u64>>>,
}

impl Refusals {
    /// Adds them to a page of metrics.
    pub fn add_to(&self, page: &mut Page) {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let rows = counts.iter().map(|(reason, count)| (vec![(*reason).to_owned()], *count as f64));
        let help = "Streams closed because of what came on them.";
        page.counter("plimsoll_streams_refused_total", help, &["reason"], rows);
    }
}

impl OnRefused for Refusals {
    fn on_refused(&self, reason: &'static str) {
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner).entry(reason).or_default() += 1;
    }
}
