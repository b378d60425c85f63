//! The reports of the present stream that the controller has not confirmed yet. They translate "report 17 is
//! confirmed" into "these totals of these keys are confirmed".

use std::collections::VecDeque;

use crate::report::Counts;

/// Maximum number of entries: at 10 reports/s these are 6.4 s, ten times as long as a healthy
/// confirmation takes. The last entry joins all later reports, which delays a confirmation but
/// never invents one.
const REPORTS_MAX: usize = 64;

/// Unconfirmed reports, oldest first.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    /// The number of each report, and the totals that it carried.
    reports: VecDeque<(u64, Vec<SentCounts>)>,
    /// The number of the latest report that the parent has merged.
    merged: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct SentCounts {
    pub(super) slot: u32,
    pub(super) generation: u32,
    pub(super) counts: Counts,
}

impl InFlight {
    pub(super) fn clear(&mut self) {
        self.reports.clear();
        self.merged = 0;
    }

    /// Adds a report; `sent` is in the order of slots.
    pub(super) fn push(&mut self, seq: u64, mut sent: Vec<SentCounts>) {
        if self.reports.len() >= REPORTS_MAX
            && let Some((_, previous)) = self.reports.pop_back()
        {
            sent = join(previous, sent);
        }
        self.reports.push_back((seq, sent));
    }

    /// Records that the parent has merged the reports up to `seq`. Returns the counts in those it had not
    /// merged before.
    pub(super) fn merged_up_to(&mut self, seq: u64) -> impl Iterator<Item = &SentCounts> {
        let before = self.merged;
        self.merged = before.max(seq);
        let new = self.reports.iter().skip_while(move |(at, _)| *at <= before);
        new.take_while(move |(at, _)| *at <= seq)
            .flat_map(|(_, sent)| sent)
    }

    /// Removes the reports up to `seq`, which the controller has confirmed. Returns the counts in them.
    pub(super) fn confirmed_up_to(&mut self, seq: u64) -> impl Iterator<Item = SentCounts> {
        let confirmed = self.reports.iter().take_while(|(at, _)| *at <= seq).count();
        self.reports.drain(..confirmed).flat_map(|(_, sent)| sent)
    }
}

/// Joins the counts of two reports, both in the order of slots. They are confirmed with the later
/// report.
fn join(earlier: Vec<SentCounts>, later: Vec<SentCounts>) -> Vec<SentCounts> {
    let mut all: Vec<SentCounts> = later.into_iter().chain(earlier).collect();
    // The sort is stable, so of two entries for one slot the later report's is first, and is kept.
    all.sort_by_key(|sent| sent.slot);
    all.dedup_by_key(|sent| sent.slot);
    all
}
