//! The families of a limiter, read from its state.

mod decisions;
mod feed;
mod requests;
#[cfg(feature = "quota")]
mod store;

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use plimsoll_core::names::Bucket;

use super::model::{Family, plain};
use crate::hot::table::Table;
use crate::limiter::Limiter;
use decisions::ByMode;

/// A limiter, and the state that an export leaves for the next.
#[derive(Debug)]
pub(super) struct Source {
    limiter: Limiter,
    /// The decisions of each bucket by mode, as of the last export.
    decisions: Mutex<HashMap<Bucket, ByMode>>,
}

impl Source {
    pub(super) fn new(limiter: Limiter) -> Self {
        Self { limiter, decisions: Mutex::default() }
    }

    /// Returns all families with their present series.
    pub(super) fn families(&self) -> Vec<Family> {
        self.read(true)
    }

    /// Returns all families for their descriptions. Counts no decisions: the mode that they are counted for is that of
    /// the first export.
    #[cfg(any(test, feature = "opentelemetry", feature = "prometheus"))]
    pub(super) fn described(&self) -> Vec<Family> {
        self.read(false)
    }

    fn read(&self, counts_decisions: bool) -> Vec<Family> {
        let table = &self.limiter.table;
        let mut families = vec![decisions::decisions(self, counts_decisions)];
        let help =
            "Requests admitted without a key to count them for: their bucket has no room or an invalid name.";
        families.push(Family::counter(
            "plimsoll_decisions_untracked_total",
            help,
            &[],
            plain(table.untracked()),
        ));
        let help = "Requests whose tenant is empty, and that count for the class `default`.";
        families.push(Family::counter(
            "plimsoll_tenants_invalid_total",
            help,
            &[],
            plain(table.invalid_tenants()),
        ));
        families.push(self.setup_problems());
        families.extend(waits(table));
        #[cfg(feature = "quota")]
        families.extend(store::families(table));
        #[cfg(feature = "middleware")]
        families.push(requests::passed(table));
        if let Some(control) = &self.limiter.control {
            families.push(decisions::refusals(control));
            families.extend(decisions::admissions(control));
            families.extend(feed::families(control));
            families.extend(requests::responses(control));
        }
        families
    }

    fn setup_problems(&self) -> Family {
        let problems = self.limiter.setup_problems();
        let series = problems
            .iter()
            .map(|problem| (vec![problem.kind().to_owned(), problem.subject().to_owned()], 1.0));
        let help = "1 while the limiter is wired wrongly, by kind of problem and its bucket, zone or address.";
        Family::gauge("plimsoll_setup_problems", help, &["problem", "subject"], series)
    }

    fn by_mode(&self) -> MutexGuard<'_, HashMap<Bucket, ByMode>> {
        self.decisions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the calls that wait, or have waited, for their turn.
fn waits(table: &Table) -> [Family; 2] {
    let waiting = &table.waiting;
    let ended = waiting.results().map(|(result, waits)| (vec![result.to_owned()], waits));
    let help = "Requests that were not admitted immediately and waited, by result (admitted, timed_out, \
                overflowed: too many waited).";
    [
        Family::gauge(
            "plimsoll_waiters",
            "Requests that wait for their turn.",
            &[],
            plain(waiting.waiters() as f64),
        ),
        Family::counter("plimsoll_waits_total", help, &["result"], ended),
    ]
}
