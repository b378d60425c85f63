//! The traffic of one key as the fast loop sees it, and what all entries of a report have in common on their way there.

use std::time::Duration;

use plimsoll_core::law::{Parameters, Slack, Spread, Window};
use plimsoll_core::report::Counts;
use plimsoll_core::quantity::MonoTime;

/// What is the same for all entries of the report that is being entered.
#[derive(Debug)]
pub(crate) struct Arriving {
    spread: Spread,
    /// The time over which a share follows what comes, in seconds.
    share_s: f64,
}

impl Arriving {
    /// Of a report that took `span` to gather and arrives `now`. `first` says that it is the first of its client, whose
    /// share begins with it.
    pub(crate) fn new(now: MonoTime, span: Duration, first: bool, parameters: &Parameters) -> Self {
        let time = if first { span.max(Duration::from_millis(1)) } else { parameters.share_time };
        let spread =
            if first { Spread::first(now, span, parameters) } else { Spread::new(now, span, parameters) };
        Self { spread, share_s: time.as_secs_f64() }
    }
}

/// The traffic of one key, as the fast loop sees it.
#[derive(Debug)]
pub(crate) struct KeyRates {
    pub(crate) window: Window,
    /// Requests/s offered, smoothed as clients smooth theirs: what a client's share is a share of. As of `ticked`.
    pub(crate) offered: f64,
    /// What came since the slack was last looked at.
    pub(crate) period: Counts,
    pub(crate) cap: f64,
    pub(crate) slack: Slack,
    /// Anything came at all.
    pub(crate) used: bool,
    /// Until when its window has not seen enough to tell, if the key had traffic before it had a lane.
    pub(crate) young_until: Option<MonoTime>,
}

impl KeyRates {
    pub(crate) fn new(young_until: Option<MonoTime>, parameters: &Parameters) -> Self {
        Self {
            window: Window::default(),
            offered: 0.0,
            period: Counts::ZERO,
            cap: 0.0,
            slack: Slack::new(parameters),
            used: false,
            young_until,
        }
    }

    #[inline]
    pub(crate) fn add(&mut self, arriving: &Arriving, counts: Counts, parameters: &Parameters) {
        let offered = counts.offered as f64;
        self.used = true;
        self.window.add_spread(&arriving.spread, offered, parameters);
        self.period = self.period.plus(counts);
        // At once and not spread: lagging behind what clients know of themselves, it would make every share too large.
        self.offered += offered / arriving.share_s;
    }

    /// What is offered now, over the longer window where few come.
    pub(crate) fn rate(&mut self, now: MonoTime, parameters: &Parameters) -> f64 {
        if !self.used {
            return 0.0;
        }
        let rate = self.window.rate(now, parameters);
        if rate * parameters.window.as_secs_f64() >= parameters.counts_min {
            rate
        } else {
            self.window.over(parameters.window_few, parameters)
        }
    }
}
