//! The wait for the first answer of any aggregator, which is a setup problem once it takes too long.

use plimsoll_core::quantity::MonoTime;

use crate::setup::FIRST_ANSWER_WITHIN;

pub(in crate::subscription) struct FirstAnswer {
    /// The addresses, as texts about them name them.
    pub(in crate::subscription) addresses: String,
    /// The first tick.
    since: Option<MonoTime>,
    is_overdue: bool,
}

impl FirstAnswer {
    pub(in crate::subscription) const fn from(addresses: String) -> Self {
        Self {
            addresses,
            since: None,
            is_overdue: false,
        }
    }

    /// Returns true for the first tick at which the answer is overdue.
    pub(in crate::subscription) fn falls_due(&mut self, now: MonoTime) -> bool {
        let since = *self.since.get_or_insert(now);
        let is_overdue = now.since(since) >= FIRST_ANSWER_WITHIN;
        is_overdue && !std::mem::replace(&mut self.is_overdue, true)
    }
}
