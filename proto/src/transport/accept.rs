//! Accepts connections of one port. Connections without a greeting are bounded in number, in all
//! and for each source. A lack of descriptors is counted, and the port waits for its end.

use std::collections::{BTreeMap, HashMap};
use std::fmt::{Debug, Display};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use plimsoll_core::exchange::Source;
use plimsoll_core::exchange::admission::Admission;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::handshakes::FailedHandshakes;
use crate::shared::Shared;

/// Connections accepted without a pause, unless a rate is given.
const ACCEPT_BURST: usize = 16;
const ACCEPT_PAUSE: Duration = Duration::from_millis(5);
/// The pause after a failure: descriptors or memory ran out.
const FAILURE_PAUSE: Duration = Duration::from_millis(100);
/// The time that a connection has to greet before it gives its place to a new one.
const GREETING_MAX: Duration = Duration::from_secs(1);
/// The limit while descriptors are short: each place is one of few, and many may wait for it.
const SHORT_GREETING_MAX: Duration = Duration::from_millis(250);
/// The interval of log lines about refused connections, and about a lack of descriptors.
const LOGGED_EVERY: Duration = Duration::from_secs(10);
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
    /// A source with few pending connections takes the places of one with many.
    is_fair: bool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The number of pending connections of each source, and all of them from the oldest.
    of_source: HashMap<Source, usize>,
    pending: BTreeMap<u64, Pending>,
    next: u64,
    open: usize,
    counts: Counts,
    failed_handshakes: FailedHandshakes,
    refused_logged: Option<Instant>,
    failure_logged: Option<Instant>,
    has_logged_failure: bool,
}

#[derive(Debug)]
struct Pending {
    source: Source,
    since: Instant,
    closed: CancellationToken,
}

/// The counts of one port since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections that are pending now: their peer has not sent a greeting.
    pub pending: usize,
    /// Connections closed on arrival, because too many were pending.
    pub refused: u64,
    /// Connections closed because no greeting arrived in time.
    pub timed_out: u64,
    /// Attempts to accept a connection that failed.
    pub failures: u64,
    /// True if the last attempt failed.
    pub is_failing: bool,
}

/// The place of one connection; dropping it makes room for another.
#[derive(Debug)]
pub struct Place {
    connections: Connections,
    source: Source,
    number: u64,
    closed: CancellationToken,
}

/// A listener that never fails.
#[derive(Debug)]
pub struct Acceptor {
    listener: TcpListener,
    pub(super) connections: Connections,
    /// The rate of new connections, for a port that carries streams.
    admission: Option<Shared<Admission>>,
    left: usize,
    paused: Instant,
}

// === impl Connections ===

impl Connections {
    /// Allows `pending_max` pending connections in all, half of them from one source, and
    /// `open_max` connections in all, with or without a greeting. Further ones wait in the accept
    /// queue. A connection that was silent for a second gives its place to a new one
    /// ([`Place::closed`]).
    pub fn new(pending_max: usize, open_max: usize) -> Self {
        Self::from(Inner {
            pending_max,
            open_max,
            is_fair: false,
            state: Mutex::default(),
        })
    }

    /// Allows as many, and closes a connection of the source with the most ([`Place::closed`]) for one of a source with
    /// fewer, so that a few hosts cannot keep all others out.
    pub fn fair(pending_max: usize, open_max: usize) -> Self {
        Self::from(Inner {
            pending_max,
            open_max,
            is_fair: true,
            state: Mutex::default(),
        })
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> Counts {
        self.state().counts
    }

    /// Counts a connection that was closed because its handshake failed, and logs the failures of a reason every
    /// 10 s.
    pub fn on_handshake_failed(&self, peer: IpAddr, reason: &'static str, cause: &dyn Display) {
        self.state()
            .failed_handshakes
            .on_failed(peer, reason, cause);
    }

    /// The number of failed handshakes by reason.
    pub fn failed_handshakes(&self) -> BTreeMap<&'static str, u64> {
        self.state().failed_handshakes.counts()
    }

    /// Counts a connection that was closed because no greeting arrived in time.
    pub(super) fn on_timeout(&self) {
        self.state().counts.timed_out += 1;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.inner
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes the oldest connection, of one source or of any, that was silent for so long. Returns
    /// true if there was one. Not on a fair port: its connections never settle.
    fn close_silent(&self, state: &mut State, of: Option<Source>, silent_min: Duration) -> bool {
        !self.inner.is_fair && state.close_oldest(of, silent_min)
    }

    fn place(&self, peer: IpAddr) -> Option<Place> {
        let mut state = self.state();
        state.on_accepted();
        let source = Source::from(peer);
        let of_peer = state.of_source.get(&source).copied().unwrap_or(0);
        let max = self.inner.pending_max;
        let may_enter =
            of_peer < max.div_ceil(2) || self.close_silent(&mut state, Some(source), GREETING_MAX);
        let is_full =
            state.counts.pending >= max && !self.close_silent(&mut state, None, GREETING_MAX);
        if may_enter && (!is_full || self.inner.is_fair && state.close_one_for(of_peer + 1)) {
            state.counts.refused += u64::from(is_full);
            state.open += 1;
            let (number, closed) = state.pend(source);
            return Some(Place {
                connections: self.clone(),
                source,
                number,
                closed,
            });
        }
        state.counts.refused += 1;
        if is_due(&mut state.refused_logged) {
            let (pending, refused) = (state.counts.pending, state.counts.refused);
            tracing::warn!(%peer, of_peer, pending, refused, "connection refused: too many without a greeting");
        }
        None
    }

    fn make_room(&self) -> bool {
        self.close_silent(&mut self.state(), None, SHORT_GREETING_MAX)
    }

    /// Returns an error if as many connections are open as descriptors allow.
    fn check_room(&self) -> io::Result<()> {
        let (open, max) = (self.state().open, self.inner.open_max);
        let text =
            || format!("{open} connections are open, as many as the limit of open files allows");
        if open < max {
            Ok(())
        } else {
            Err(io::Error::other(text()))
        }
    }

    fn on_failure(&self, error: &io::Error) {
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

impl From<Inner> for Connections {
    fn from(inner: Inner) -> Self {
        Self {
            inner: Arc::new(inner),
        }
    }
}

impl Default for Connections {
    fn default() -> Self {
        Self::new(PENDING_MAX_DEFAULT, usize::MAX)
    }
}

// === impl State ===

impl State {
    /// Starts the pending time of a connection.
    fn pend(&mut self, source: Source) -> (u64, CancellationToken) {
        let (number, closed) = (self.next, CancellationToken::new());
        self.next += 1;
        self.pending.insert(
            number,
            Pending {
                source,
                since: Instant::now(),
                closed: closed.clone(),
            },
        );
        *self.of_source.entry(source).or_default() += 1;
        self.counts.pending += 1;
        (number, closed)
    }

    /// Ends the pending time of a connection, unless it has ended.
    fn on_settled(&mut self, number: u64) -> Option<CancellationToken> {
        let Pending { source, closed, .. } = self.pending.remove(&number)?;
        self.counts.pending -= 1;
        if let Some(of_source) = self.of_source.get_mut(&source) {
            *of_source -= 1;
            if *of_source == 0 {
                self.of_source.remove(&source);
            }
        }
        Some(closed)
    }

    /// Closes the oldest connection of the source with the most, unless that has no more than `count`. Linear in the
    /// pending connections.
    fn close_one_for(&mut self, count: usize) -> bool {
        let most = self
            .of_source
            .iter()
            .max_by_key(|(_, of_source)| **of_source);
        let Some(source) = most
            .filter(|(_, most)| **most > count)
            .map(|(source, _)| *source)
        else {
            return false;
        };
        self.close_oldest(Some(source), Duration::ZERO)
    }

    /// Closes the oldest connection, of one source or of any, that has been pending for so long.
    fn close_oldest(&mut self, of: Option<Source>, pending_min: Duration) -> bool {
        let mut pending = self
            .pending
            .iter()
            .take_while(|(_, pending)| pending.since.elapsed() >= pending_min);
        let oldest = pending.find(|(_, pending)| of.is_none_or(|of| of == pending.source));
        let closed = oldest
            .map(|(number, _)| *number)
            .and_then(|number| self.on_settled(number));
        closed.inspect(CancellationToken::cancel).is_some()
    }

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

// === impl Place ===

impl Place {
    pub(super) const fn source(&self) -> Source {
        self.source
    }

    /// Notes that the peer has greeted: the connection is open and not pending anymore.
    pub(super) fn settle(&mut self) {
        self.connections.state().on_settled(self.number);
    }

    /// Is cancelled when another connection takes this place: this one must be dropped then.
    pub const fn closed(&self) -> &CancellationToken {
        &self.closed
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.settle();
        self.connections.state().open -= 1;
    }
}

// === impl Acceptor ===

impl Acceptor {
    /// Accepts the connections of `listener`.
    pub fn new(listener: TcpListener, connections: Connections) -> Self {
        Self {
            listener,
            connections,
            admission: None,
            left: ACCEPT_BURST,
            paused: Instant::now(),
        }
    }

    /// Accepts without pauses, for a port with a connection for each request.
    pub fn without_pauses(self) -> Self {
        Self {
            left: usize::MAX,
            ..self
        }
    }

    /// Accepts at a rate that follows the load of the process, and measures the load for the streams.
    pub(super) fn with_admission(self, admission: Shared<Admission>) -> Self {
        Self {
            admission: Some(admission),
            ..self
        }
    }

    async fn pause(&mut self) -> usize {
        let began = Instant::now();
        sleep(ACCEPT_PAUSE).await;
        let now = Instant::now();
        let passed = now - std::mem::replace(&mut self.paused, now);
        let Some(admission) = &self.admission else {
            return ACCEPT_BURST;
        };
        let late = (now - began).saturating_sub(ACCEPT_PAUSE);
        admission.with(|admission, now| {
            admission.on_lateness(now, late);
            admission.connections(passed)
        })
    }

    /// Returns the next connection with its peer and its place. Accepts in bursts, so that established streams keep
    /// getting CPU time while a fleet reconnects; the others wait in the accept queue.
    pub async fn next(&mut self) -> (TcpStream, SocketAddr, Place) {
        loop {
            if self.left == 0 {
                self.left = self.pause().await;
            }
            let accepted = match self.connections.check_room() {
                Ok(()) => self.listener.accept().await,
                Err(full) => Err(full),
            };
            match accepted {
                Ok((stream, peer)) => {
                    self.left -= 1;
                    // Fails only for a connection that is broken already.
                    let is_usable = stream.set_nodelay(true).is_ok();
                    if let Some(place) = self.connections.place(peer.ip()).filter(|_| is_usable) {
                        return (stream, peer, place);
                    }
                }
                Err(error) if is_of_peer(&error) => self.left -= 1,
                Err(error) => {
                    self.connections.on_failure(&error);
                    sleep(if self.connections.make_room() {
                        ACCEPT_PAUSE
                    } else {
                        FAILURE_PAUSE
                    })
                    .await;
                }
            }
        }
    }
}

fn is_due(logged: &mut Option<Instant>) -> bool {
    let is_due = logged.is_none_or(|at| at.elapsed() >= LOGGED_EVERY);
    if is_due {
        *logged = Some(Instant::now());
    }
    is_due
}

/// Returns true for a connection that broke before it was accepted.
fn is_of_peer(error: &io::Error) -> bool {
    use ErrorKind::{
        BrokenPipe, ConnectionAborted, ConnectionReset, Interrupted, TimedOut, WouldBlock,
    };
    matches!(
        error.kind(),
        BrokenPipe | ConnectionAborted | ConnectionReset | Interrupted | TimedOut | WouldBlock
    )
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    #[test]
    fn pending_connections_are_bounded_by_address() {
        let connections = Connections::new(4, 5);
        let peer = |last| IpAddr::from(Ipv4Addr::new(10, 0, 0, last));
        let mut places: Vec<Place> = (0..2)
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
            Counts {
                pending: 4,
                refused: 2,
                ..Counts::default()
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
            connections.state().of_source.is_empty(),
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

    /// A process with few descriptors and only silent connections.
    #[tokio::test(start_paused = true)]
    async fn silent_connection_makes_room_without_descriptors() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut acceptor = Acceptor::new(listener, Connections::new(8, 2));
        let mut peers = Vec::new();
        let mut accepted = Vec::new();
        for _ in 0..2 {
            peers.push(TcpStream::connect(address).await.unwrap());
            accepted.push(acceptor.next().await);
        }
        let child = TcpStream::connect(address).await.unwrap();
        let began = Instant::now();
        let (_, _, oldest) = accepted.remove(0);
        tokio::spawn(async move { oldest.closed().cancelled().await });
        let (_, peer, _place) = acceptor.next().await;
        assert_eq!(peer, child.local_addr().unwrap());
        assert!(
            began.elapsed() < 2 * SHORT_GREETING_MAX,
            "{:?}",
            began.elapsed()
        );
        assert!(!accepted[0].2.closed().is_cancelled(), "one is enough");
    }

    #[test]
    fn modest_source_displaces_a_pending_crowd() {
        let connections = Connections::fair(8, 100);
        let place = |last| connections.place(IpAddr::from(Ipv4Addr::new(10, 0, 0, last)));
        let hostile: Vec<Place> = (0..8).map(|number| place(number % 2).unwrap()).collect();
        assert!(place(0).is_none(), "one address has half of the places");
        let operators = [7, 8, 9].map(|last| place(last).unwrap());
        let closed = |places: &[Place]| -> Vec<bool> {
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
        let again: Vec<Place> = (0..100).filter_map(|number| place(number % 2)).collect();
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
        assert!(connections.state().of_source.is_empty() && connections.state().pending.is_empty());
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
