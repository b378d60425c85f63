//! Which reports of which child each roll-up contained, so that a child can be told what the controller has covered.

use std::collections::VecDeque;

use plimsoll_core::exchange::StreamId;
use plimsoll_core::report::InstanceId;
use plimsoll_core::exchange::sessions::Sessions;

/// How many unconfirmed roll-ups are told apart; more are taken together, which delays a confirmation but never
/// invents one. At two a second these are 16 s, and at ten a second, as below another aggregator, 3 s.
const ROLLUPS_MAX: usize = 32;

/// The roll-ups on the present stream that the controller has not covered yet.
#[derive(Debug, Default)]
pub(crate) struct Rollups {
    pending: VecDeque<Rollup>,
}

#[derive(Debug)]
struct Rollup {
    seq: u64,
    /// The highest report of each child contained in it.
    contained: Vec<(InstanceId, StreamId, u64)>,
}

impl Rollups {
    /// A new stream to the parent begins: what was sent on the last one can no longer be confirmed.
    pub(crate) fn open(&mut self) {
        self.pending.clear();
    }

    /// Roll-up `seq` contains everything entered so far.
    pub(crate) fn sent(&mut self, seq: u64, roster: &Sessions) {
        if self.pending.len() >= ROLLUPS_MAX {
            self.pending.pop_back();
        }
        let contained = roster.iter().filter_map(|child| {
            child.stream.map(|stream| (child.identity.instance, stream, child.books.seq()))
        });
        self.pending.push_back(Rollup { seq, contained: contained.collect() });
    }

    /// The controller has covered every roll-up up to `confirmed`.
    pub(crate) fn on_confirmed(&mut self, confirmed: u64, roster: &mut Sessions) {
        while self.pending.front().is_some_and(|rollup| rollup.seq <= confirmed) {
            let Some(rollup) = self.pending.pop_front() else { return };
            for (instance, stream, seq) in rollup.contained {
                // Numbers of a stream that was replaced mean nothing on the present one.
                if let Some(child) = roster.get_mut(instance).filter(|child| child.stream == Some(stream)) {
                    child.confirmed = child.confirmed.max(seq);
                }
            }
        }
    }
}
