//! The connections of one port. A connection is pending until its peer has sent a greeting, the first
//! report of a stream; on a fair port, until its end. Pending connections are bounded in number, in all
//! and for each source. A lack of descriptors is counted.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use plimsoll_core::exchange::Source;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::handshakes::{FailedHandshakes, is_due};
use crate::pending::PendingConnections;

/// The time that a connection has to greet before it gives its place to a new one.
const GREETING_MAX: Duration = Duration::from_secs(1);
/// The limit while descriptors are short: each place is one of few, and many may wait for it.
pub(super) const SHORT_GREETING_MAX: Duration = Duration::from_millis(250);
/// The default bound on connections without a greeting.
pub const PENDING_MAX_DEFAULT: usize = 2_048;

/// The connections of one port. Clones share the counts.
#[derive(Clone, Debug)]
pub struct Connections {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// Maximum number of pending connections; one source has half of them at most.
    pending_max: usize,
    /// Maximum number of open connections.
    open_max: usize,
    /// True if connections never greet, and a source with few takes the places of one with many.
    is_fair: bool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    pending: PendingConnections,
    open: usize,
    counts: ConnectionCounts,
    failed_handshakes: FailedHandshakes,
    refused_logged: Option<Instant>,
    failure_logged: Option<Instant>,
    has_logged_failure: bool,
}

/// The counts of one port since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionCounts {
    /// Connections that are pending now: their peer has not sent a greeting. On a fair port, all.
    pub pending: usize,
    /// Connections closed because too many were pending: on arrival, or for one of another source.
    pub refused: u64,
    /// Connections closed because no greeting arrived in time, or before another needed their place.
    pub timed_out: u64,
    /// Attempts to accept a connection that failed.
    pub failures: u64,
    /// True if the last attempt failed.
    pub is_failing: bool,
}

/// The place of one connection; dropping it makes room for another.
#[derive(Debug)]
pub struct ConnectionPlace {
    connections: Connections,
    source: Source,
    number: u64,
    closed: CancellationToken,
}

impl Connections {
    /// Allows `pending_max` pending connections in all, half of them from one source. Further ones are
    /// closed, unless another was silent for a second and gives its place to the new one
    /// ([`ConnectionPlace::closed`]). Allows `open_max` connections in all, with or without a greeting.
    /// Further ones wait in the accept queue.
    pub fn new(pending_max: usize, open_max: usize) -> Self {
        Self::with(pending_max, open_max, false)
    }

    /// Allows `max` connections, none of which greets, and half of them from one source. Closes a
    /// connection of the source with the most ([`ConnectionPlace::closed`]) for one of a source
    /// with fewer, so that a few hosts cannot keep all others out.
    pub fn fair(max: usize) -> Self {
        Self::with(max, usize::MAX, true)
    }

    fn with(pending_max: usize, open_max: usize, is_fair: bool) -> Self {
        Self {
            inner: Arc::new(Inner {
                pending_max,
                open_max,
                is_fair,
                state: Mutex::default(),
            }),
        }
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> ConnectionCounts {
        let state = self.state();
        ConnectionCounts {
            pending: state.pending.len(),
            ..state.counts
        }
    }

    /// Counts a connection that was closed because its handshake failed, and logs one for each reason in 10 s.
    pub fn on_handshake_failed(&self, peer: IpAddr, reason: &'static str, cause: &dyn Display) {
        self.state()
            .failed_handshakes
            .on_failed(peer, reason, cause);
    }

    /// Returns the number of failed handshakes by reason, including reasons that have not occurred.
    pub fn failed_handshakes(&self) -> BTreeMap<&'static str, u64> {
        self.state().failed_handshakes.counts()
    }

    /// Counts a connection that was closed because no greeting arrived in time.
    pub fn on_timeout(&self) {
        self.state().counts.timed_out += 1;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.inner
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes the oldest pending connection, of one source or of any, that is at least `silent_min` old.
    /// Returns true if there was one. Does nothing on a fair port, whose connections never greet.
    fn close_silent(&self, state: &mut State, of: Option<Source>, silent_min: Duration) -> bool {
        !self.inner.is_fair && state.pending.close_oldest(of, silent_min)
    }

    /// Returns the place of an accepted connection; `None` if it must be closed.
    pub(super) fn place(&self, peer: IpAddr) -> Option<ConnectionPlace> {
        let mut state = self.state();
        state.on_accepted();
        let source = Source::from(peer);
        let of_peer = state.pending.of_source(source);
        let max = self.inner.pending_max;
        let may_enter =
            of_peer < max.div_ceil(2) || self.close_silent(&mut state, Some(source), GREETING_MAX);
        let is_full = may_enter
            && state.pending.len() >= max
            && !self.close_silent(&mut state, None, GREETING_MAX);
        if may_enter && (!is_full || self.inner.is_fair && state.pending.close_one_for(of_peer + 1))
        {
            // The connection that gave its place is refused instead.
            state.counts.refused += u64::from(is_full);
            state.open += 1;
            let (number, closed) = state.pending.begin(source);
            return Some(ConnectionPlace {
                connections: self.clone(),
                source,
                number,
                closed,
            });
        }
        state.counts.refused += 1;
        if is_due(&mut state.refused_logged) {
            let (pending, refused) = (state.pending.len(), state.counts.refused);
            tracing::warn!(%peer, of_peer, pending, refused, "connection refused: too many without a greeting");
        }
        None
    }

    /// Closes a pending connection to free its descriptor. Returns true if there was one to close.
    pub(super) fn make_room(&self) -> bool {
        self.close_silent(&mut self.state(), None, SHORT_GREETING_MAX)
    }

    /// Returns an error if as many connections are open as descriptors allow.
    pub(super) fn check_room(&self) -> io::Result<()> {
        let (open, max) = (self.state().open, self.inner.open_max);
        if open < max {
            return Ok(());
        }
        let text =
            format!("{open} connections are open, as many as the limit of open files allows");
        Err(io::Error::other(text))
    }

    pub(super) fn on_failure(&self, error: &io::Error) {
        let mut state = self.state();
        state.counts.failures += 1;
        state.counts.is_failing = true;
        if is_due(&mut state.failure_logged) {
            state.has_logged_failure = true;
            tracing::error!(
                %error,
                "connections cannot be accepted; if descriptors ran out, raise the limit of open files (ulimit -n)"
            );
        }
    }
}

impl Default for Connections {
    fn default() -> Self {
        Self::new(PENDING_MAX_DEFAULT, usize::MAX)
    }
}

impl State {
    fn on_accepted(&mut self) {
        self.counts.is_failing = false;
        if std::mem::take(&mut self.has_logged_failure) {
            tracing::info!(
                failures = self.counts.failures,
                "connections are accepted again"
            );
        }
    }
}

impl ConnectionPlace {
    /// Returns the source that the place is counted for.
    pub const fn source(&self) -> Source {
        self.source
    }

    /// Notes that the peer has greeted: the connection is open and not pending anymore.
    pub fn settle(&mut self) {
        self.connections.state().pending.end(self.number);
    }

    /// Is cancelled when this place or its descriptor is needed for another connection: this one must be
    /// dropped then.
    pub const fn closed(&self) -> &CancellationToken {
        &self.closed
    }
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        self.settle();
        self.connections.state().open -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    #[test]
    fn pending_connections_are_bounded_by_address() {
        let connections = Connections::new(4, 5);
        let peer = |last| IpAddr::from(Ipv4Addr::new(10, 0, 0, last));
        let mut places: Vec<ConnectionPlace> = (0..2)
            .map(|_| connections.place(peer(1)).unwrap())
            .collect();
        assert!(
            connections.place(peer(1)).is_none(),
            "one address has half of the places"
        );
        places.push(connections.place(peer(2)).unwrap());
        places.push(connections.place(peer(3)).unwrap());
        assert!(connections.place(peer(4)).is_none(), "no place is left");
        assert_eq!(
            connections.counts(),
            ConnectionCounts {
                pending: 4,
                refused: 2,
                ..ConnectionCounts::default()
            }
        );
        places.remove(0);
        places.push(connections.place(peer(1)).unwrap());
        assert!(connections.check_room().is_ok());
        places[0].settle();
        assert_eq!(connections.counts().pending, 3);
        places.push(connections.place(peer(4)).unwrap());
        assert!(
            connections.check_room().is_err(),
            "a connection stays open after its greeting"
        );
        places.clear();
        assert!(connections.check_room().is_ok());
        assert_eq!(connections.counts().pending, 0);
        assert!(
            connections.state().pending.is_empty(),
            "no address is remembered"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn silent_connections_give_way_oldest_first() {
        let connections = Connections::new(4, 100);
        let place = |last| connections.place(IpAddr::from(Ipv4Addr::new(10, 0, 0, last)));
        let mut silent = Vec::new();
        for last in [1, 1, 2, 2] {
            silent.push(place(last).unwrap());
            tokio::time::advance(GREETING_MAX / 8).await;
        }
        assert!(
            place(1).is_none() && place(3).is_none(),
            "all may still greet"
        );
        tokio::time::advance(GREETING_MAX / 2).await;
        let closed = || {
            silent
                .iter()
                .map(|place| u8::from(place.closed().is_cancelled()))
                .collect::<Vec<_>>()
        };
        let _child = place(3).unwrap();
        assert_eq!(closed(), [1, 0, 0, 0]);
        tokio::time::advance(GREETING_MAX).await;
        let _same_source = place(2).unwrap();
        assert_eq!(closed(), [1, 0, 1, 0]);
        assert_eq!(connections.counts().pending, 4);
    }

    #[tokio::test(start_paused = true)]
    async fn refused_connection_closes_no_silent_one() {
        let connections = Connections::new(4, 100);
        let place = |last| connections.place(IpAddr::from(Ipv4Addr::new(10, 0, 0, last)));
        let silent = [2, 3].map(|last| place(last).unwrap());
        tokio::time::advance(GREETING_MAX).await;
        let _crowd = [1, 1].map(|last| place(last).unwrap());
        assert!(place(1).is_none(), "one address has half of the places");
        assert!(silent.iter().all(|place| !place.closed().is_cancelled()));
    }

    #[test]
    fn modest_source_displaces_a_pending_crowd() {
        let connections = Connections::fair(8);
        let place = |last| connections.place(IpAddr::from(Ipv4Addr::new(10, 0, 0, last)));
        let hostile: Vec<ConnectionPlace> =
            (0..8).map(|number| place(number % 2).unwrap()).collect();
        assert!(place(0).is_none(), "one address has half of the places");
        let operators = [7, 8, 9].map(|last| place(last).unwrap());
        let closed = |places: &[ConnectionPlace]| -> Vec<bool> {
            places
                .iter()
                .map(|place| place.closed().is_cancelled())
                .collect()
        };
        assert_eq!(
            closed(&hostile)
                .iter()
                .filter(|is_closed| **is_closed)
                .count(),
            3
        );
        assert_eq!(closed(&hostile[4..]), [false; 4], "the oldest are closed");
        let again: Vec<ConnectionPlace> = (0..100).filter_map(|number| place(number % 2)).collect();
        assert_eq!(
            closed(&operators),
            [false; 3],
            "those of a source with many are closed"
        );
        assert_eq!(connections.counts().pending, 8);
        drop((hostile, operators, again));
        assert_eq!(
            (connections.counts().pending, connections.state().open),
            (0, 0)
        );
        assert!(connections.state().pending.is_empty());
    }

    #[test]
    fn ipv6_network_has_half_the_pending_connections() {
        let connections = Connections::new(4, 5);
        let peer =
            |network, host| IpAddr::from(Ipv6Addr::new(0x2001, 0xdb8, 0, network, 0, 0, 0, host));
        let _places = [1, 2].map(|host| connections.place(peer(1, host)).unwrap());
        assert!(
            connections.place(peer(1, 3)).is_none(),
            "a host has any address of its network"
        );
        assert!(connections.place(peer(2, 1)).is_some());
    }
}
