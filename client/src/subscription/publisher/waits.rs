//! The waits of refused callers: follows the overload of each key through its directives, and selects the class of
//! waits in its directive word.

use std::collections::HashMap;
use std::time::Duration;

use plimsoll_core::decision::WaitClass;
use plimsoll_core::decision::wait::OverloadTrend;
use plimsoll_core::quantity::{DropRatio, MonoTime};

use crate::hot::directive_word::DirectiveWord;
use crate::hot::table::Table;

/// Interval of updates of the classes of all keys. Silence means an unchanged ratio, but an
/// overload that lasts on is expected to last longer.
const RENEWAL: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Waits {
    now: MonoTime,
    renewed: MonoTime,
    /// By key: its overload. At most one for each key with its own directive.
    overloads: HashMap<u32, OverloadTrend>,
}

impl Waits {
    pub(super) fn set_time(&mut self, now: MonoTime) {
        self.now = self.now.max(now);
    }

    /// Records the ratio of a key from now on. Returns the class of its waits, the shortest for a key without a ratio.
    pub(super) fn class(&mut self, key: u32, ratio: Option<DropRatio>) -> WaitClass {
        let now = self.now;
        let Some(ratio) = ratio.filter(|ratio| *ratio > DropRatio::NONE) else {
            if let Some(overload) = self.overloads.get_mut(&key) {
                overload.observe(now, DropRatio::NONE);
            }
            return WaitClass::SHORTEST;
        };
        let new = OverloadTrend::new(now, ratio);
        let overload = self.overloads.entry(key).or_insert(new);
        if overload.is_over(now) {
            *overload = new;
        }
        overload.observe(now, ratio);
        overload.class(now)
    }

    pub(super) fn remove(&mut self, key: u32) {
        self.overloads.remove(&key);
    }

    /// Publishes the classes that have changed since the last call, once in [`RENEWAL`].
    pub(super) fn renew(&mut self, now: MonoTime, table: &Table) {
        self.set_time(now);
        if now.since(self.renewed) < RENEWAL {
            return;
        }
        self.renewed = now;
        self.overloads.retain(|_, overload| !overload.is_over(now));
        for (key, overload) in &self.overloads {
            let word = table.own_directive(*key);
            let class = overload.class(now);
            if word != DirectiveWord::NOTHING
                && word.ratio() > DropRatio::NONE
                && word.class() != class
            {
                table.publish(*key, word.wait(class));
            }
        }
    }
}
