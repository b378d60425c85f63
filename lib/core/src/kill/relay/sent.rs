//! The kill state that was sent to a parent on the present stream.

use crate::kill::Kills;
use crate::kill::drill::Drill;
use crate::report::Report;

/// Number of reports until all generations are sent again, so that a parent forgets the claims of
/// ended processes, and of no others.
const REPEATED_EVERY: u64 = 512;

/// The latest generations and drill in the reports of one stream. A new stream starts with the default value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SentKills {
    version: u64,
    drill: Drill,
}

impl SentKills {
    /// Fills a report with the fleet's generation, the generations of buckets that changed since the last
    /// report, and the latest drill. Report 512 and its multiples have all generations, if their number is set
    /// before this call.
    pub fn fill(&mut self, kills: &Kills, report: &mut Report) {
        report.kill = kills.fleet();
        report.kills = kills.since(if is_repeated(report) { 0 } else { self.version });
        (report.drill, report.claimed_drill) = (kills.drill(), kills.claimed_drill);
        *self = Self {
            version: kills.version(),
            drill: kills.drill(),
        };
    }

    /// Returns true if a drill arrived that no report carries yet; its report should go before the interval
    /// is over.
    pub fn is_report_due(&self, kills: &Kills) -> bool {
        self.drill < kills.drill()
    }
}

/// Returns true if a numbered report repeats generations and claims.
pub(super) const fn is_repeated(report: &Report) -> bool {
    report.seq > 0 && report.seq.is_multiple_of(REPEATED_EVERY)
}
