//! The rate of one key in the fast loop, and what the entries of one report have in common.

use std::time::Duration;

use plimsoll_core::law::{Slack, Spread, Window, parameters};
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::report::{Counts, Entered};

/// The time that one report of a client covers, as its entries are added to rates.
#[derive(Debug)]
pub(crate) struct ReportSpan {
    spread: Spread,
    /// The time constant of the smoothed rate, in seconds.
    share_s: f64,
}

impl ReportSpan {
    /// The span of a report that arrives `now`. The smoothed rate of a client begins with its first one.
    pub(crate) fn new(now: MonoTime, report: &Entered) -> Self {
        let span = report.span.unwrap_or_default();
        if report.first_span {
            let time = span.max(Duration::from_millis(1));
            return Self {
                spread: Spread::first(now, span),
                share_s: time.as_secs_f64(),
            };
        }
        let time = parameters::SHARE_TIME.as_secs_f64();
        Self {
            spread: Spread::new(now, report.late, span),
            // As if the requests had faded since.
            share_s: time * (report.late.as_secs_f64() / time).exp(),
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct KeyRates {
    pub(crate) window: Window,
    /// Requests/s, smoothed as clients smooth theirs: a client's share is a share of it. Reports add to it, and
    /// ticks fade it.
    pub(crate) offered: f64,
    /// The counts in the present period of the slack.
    pub(crate) period: Counts,
    /// The cap of all guards together and the headroom, in requests/s.
    pub(crate) room: f64,
    pub(crate) slack: Slack,
    /// True once the key had requests.
    pub(crate) used: bool,
    /// Until then the window has not seen enough, if the key had traffic before it was tracked.
    pub(crate) young_until: Option<MonoTime>,
}

impl KeyRates {
    #[inline]
    pub(crate) fn add(&mut self, report: &ReportSpan, counts: Counts) {
        let offered = counts.offered as f64;
        self.used = true;
        self.window.add_spread(&report.spread, offered);
        self.period = self.period.plus(counts);
        // Immediately and not spread: if it lagged behind the rate that clients see themselves,
        // every share would be too large.
        self.offered += offered / report.share_s;
    }

    /// The present rate in requests/s, over the longer window where requests are few.
    pub(crate) fn rate(&mut self, now: MonoTime) -> f64 {
        if !self.used {
            return 0.0;
        }
        let rate = self.window.rate(now);
        if rate * parameters::WINDOW.as_secs_f64() >= parameters::COUNTS_MIN {
            rate
        } else {
            self.window.over(parameters::WINDOW_FEW)
        }
    }
}
