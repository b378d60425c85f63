//! How fresh the word from above is: the age of the controller's last receipt, which no relay can renew.

use std::time::Duration;

use plimsoll_core::report::Echo;
use plimsoll_core::time::MonoTime;

/// What is known of the way up.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Upstream {
    /// The highest roll-up covered on the present stream.
    covered: u64,
    /// When a receipt last moved forward.
    moved: Option<MonoTime>,
    /// When the parent last said how old its own word is, and how old it was.
    told: Option<(MonoTime, Duration)>,
}

impl Upstream {
    /// A new stream begins: its receipts start over, what is known does not become fresher by that.
    pub(crate) fn open(&mut self) {
        self.covered = 0;
    }

    /// A message of the parent was applied.
    pub(crate) fn on_message(&mut self, now: MonoTime, echo: Echo, age: Option<Duration>) {
        if echo.confirmed > self.covered {
            self.covered = echo.confirmed;
            self.moved = Some(now);
        }
        if let Some(age) = age {
            self.told = Some((now, age));
        }
    }

    /// How long ago the controller last covered a roll-up of this zone; `None` if it never did. A parent that goes on
    /// talking without listening moves no receipt, and so renews nothing.
    pub(crate) fn age(&self, now: MonoTime) -> Option<Duration> {
        let own = now.since(self.moved?);
        let told = self.told.map_or(Duration::ZERO, |(at, age)| age + now.since(at));
        Some(own.max(told))
    }
}
