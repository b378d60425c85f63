//! How fresh the word from above is: which of the zone's own reports the controller is known to have heard, and how
//! long ago. No relay can renew that.

use std::collections::VecDeque;
use std::time::Duration;

use plimsoll_core::report::Echo;
use plimsoll_core::time::MonoTime;

/// How many unconfirmed reports are told apart; at two a second these are 8 s.
const SENT_MAX: usize = 16;

/// What is known of the way up.
#[derive(Clone, Debug, Default)]
pub(crate) struct Upstream {
    /// Reports of the present stream that are not confirmed yet, and when they were sent.
    sent: VecDeque<(u64, MonoTime)>,
    /// When the latest confirmed report was sent, and when that became known.
    confirmed: Option<(MonoTime, MonoTime)>,
    /// When the parent last said how old its own word is, and how old it was.
    told: Option<(MonoTime, Duration)>,
}

impl Upstream {
    /// A new stream begins: its receipts start over, what is known does not become fresher by that.
    pub(crate) fn open(&mut self) {
        self.sent.clear();
    }

    /// A report was sent.
    pub(crate) fn on_report(&mut self, now: MonoTime, seq: u64) {
        if self.sent.len() >= SENT_MAX {
            self.sent.pop_back();
        }
        self.sent.push_back((seq, now));
    }

    /// A message of the parent was applied.
    pub(crate) fn on_message(&mut self, now: MonoTime, echo: Echo, age: Option<Duration>) {
        while let Some((seq, sent)) = self.sent.front().copied() {
            if seq > echo.confirmed {
                break;
            }
            self.sent.pop_front();
            self.confirmed = Some((sent, now));
        }
        if let Some(age) = age {
            self.told = Some((now, age));
        }
    }

    /// Whether the controller is there: it has confirmed a report that was sent no longer ago than `silent_after`. A parent that goes on talking without listening confirms nothing.
    pub(crate) fn is_led(&self, now: MonoTime, silent_after: Duration) -> bool {
        self.confirmed.is_some_and(|(sent, _)| now.since(sent) <= silent_after)
    }

    /// How long ago the controller last covered a roll-up of this zone; `None` if it never did.
    pub(crate) fn age(&self, now: MonoTime) -> Option<Duration> {
        let own = now.since(self.confirmed?.1);
        let told = self.told.map_or(Duration::ZERO, |(at, age)| age + now.since(at));
        Some(own.max(told))
    }
}
