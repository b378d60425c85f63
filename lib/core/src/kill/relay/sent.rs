//! The kill state that was sent to a parent on the present stream.

use crate::kill::drill::Drill;
use crate::kill::{KillNews, Kills};

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
    /// Returns the kills for report `seq`: the generations of buckets that changed since the last report. Report
    /// 512 and its multiples have all generations.
    pub fn next(&mut self, kills: &Kills, seq: u64) -> KillNews {
        let news = kills.news(if is_repeated(seq) { 0 } else { self.version });
        *self = Self {
            version: kills.version(),
            drill: news.drill,
        };
        news
    }

    /// Returns true if a drill arrived that no report carries yet; its report should go before the interval
    /// is over.
    pub fn is_report_due(&self, kills: &Kills) -> bool {
        self.drill < kills.drill()
    }
}

/// Returns true if a numbered report repeats generations and claims.
pub(super) const fn is_repeated(seq: u64) -> bool {
    seq > 0 && seq.is_multiple_of(REPEATED_EVERY)
}
