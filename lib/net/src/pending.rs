//! The pending connections of a port, whose peers have not greeted, or on a fair port all: by age, and
//! their number by source.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use plimsoll_core::exchange::Source;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

#[derive(Debug, Default)]
pub(super) struct PendingConnections {
    by_source: HashMap<Source, usize>,
    /// From the oldest, because numbers rise.
    by_age: BTreeMap<u64, Pending>,
    next: u64,
}

#[derive(Debug)]
struct Pending {
    source: Source,
    since: Instant,
    /// Cancelled to close the connection.
    close: CancellationToken,
}

impl PendingConnections {
    pub(super) fn len(&self) -> usize {
        self.by_age.len()
    }

    pub(super) fn of_source(&self, source: Source) -> usize {
        self.by_source.get(&source).copied().unwrap_or(0)
    }

    /// Starts the pending time of a connection. Returns its number, and the token that closes it.
    pub(super) fn begin(&mut self, source: Source) -> (u64, CancellationToken) {
        let (number, close) = (self.next, CancellationToken::new());
        self.next += 1;
        self.by_age.insert(
            number,
            Pending {
                source,
                since: Instant::now(),
                close: close.clone(),
            },
        );
        *self.by_source.entry(source).or_default() += 1;
        (number, close)
    }

    /// Ends the pending time of a connection. Returns its token, or `None` if the time has ended before.
    pub(super) fn end(&mut self, number: u64) -> Option<CancellationToken> {
        let Pending { source, close, .. } = self.by_age.remove(&number)?;
        if let Some(of_source) = self.by_source.get_mut(&source) {
            *of_source -= 1;
            if *of_source == 0 {
                self.by_source.remove(&source);
            }
        }
        Some(close)
    }

    /// Closes the oldest connection of the source with the most, if those are more than the `of_newcomer`
    /// that the source of a newcomer will have with it. Returns true if one was closed. Linear in the
    /// pending connections.
    pub(super) fn close_one_for(&mut self, of_newcomer: usize) -> bool {
        let most = self.by_source.iter().max_by_key(|(_, count)| **count);
        let crowd = most
            .filter(|(_, most)| **most > of_newcomer)
            .map(|(source, _)| *source);
        crowd.is_some_and(|source| self.close_oldest(Some(source), Duration::ZERO))
    }

    /// Closes the oldest connection, of one source or of any, that has been pending for `pending_min`
    /// or longer. Returns true if there was one.
    pub(super) fn close_oldest(&mut self, of: Option<Source>, pending_min: Duration) -> bool {
        let now = Instant::now();
        let mut pending = self
            .by_age
            .iter()
            .take_while(|(_, pending)| now.duration_since(pending.since) >= pending_min);
        let oldest = pending.find(|(_, pending)| of.is_none_or(|of| of == pending.source));
        let closed = oldest
            .map(|(number, _)| *number)
            .and_then(|number| self.end(number));
        closed.inspect(CancellationToken::cancel).is_some()
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.by_age.is_empty() && self.by_source.is_empty()
    }
}
