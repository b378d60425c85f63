//! The reports of each child that each roll-up contains, so that a child can be sent what the controller has
//! confirmed.

use std::collections::VecDeque;

use plimsoll_core::exchange::StreamId;
use plimsoll_core::exchange::sessions::Sessions;
use plimsoll_core::report::InstanceId;

/// Unconfirmed roll-ups that are remembered one by one. Beyond it later ones replace the last: that delays a
/// confirmation and never invents one. At two a second this covers 16 s, at ten a second, as below another
/// aggregator, 3 s.
const ROLLUPS_MAX: usize = 32;

#[derive(Debug, Default)]
pub(crate) struct Rollups {
    pending: VecDeque<Rollup>,
}

#[derive(Debug)]
struct Rollup {
    seq: u64,
    /// The latest report of each connected child: its instance, its stream and the report's number.
    contained: Vec<(InstanceId, StreamId, u64)>,
}

impl Rollups {
    /// A new stream to the parent begins. Roll-ups of the last one cannot be confirmed anymore.
    pub(crate) fn open(&mut self) {
        self.pending.clear();
    }

    pub(crate) fn sent(&mut self, seq: u64, sessions: &Sessions) {
        if self.pending.len() >= ROLLUPS_MAX {
            self.pending.pop_back();
        }
        let contained = sessions.iter().filter_map(|child| {
            child
                .stream
                .map(|stream| (child.identity.instance, stream, child.books.seq()))
        });
        self.pending.push_back(Rollup {
            seq,
            contained: contained.collect(),
        });
    }

    pub(crate) fn on_confirmed(&mut self, confirmed: u64, sessions: &mut Sessions) {
        while self
            .pending
            .front()
            .is_some_and(|rollup| rollup.seq <= confirmed)
        {
            let Some(rollup) = self.pending.pop_front() else {
                return;
            };
            for (instance, stream, seq) in rollup.contained {
                // Sequence numbers of a replaced stream mean nothing on the present one.
                if let Some(child) = sessions
                    .get_mut(instance)
                    .filter(|child| child.stream == Some(stream))
                {
                    child.confirmed = child.confirmed.max(seq);
                }
            }
        }
    }
}
