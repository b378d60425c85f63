//! The listener of one port, which never fails: it accepts in bursts, and waits while descriptors are
//! short.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;

use plimsoll_core::exchange::admission::Admission;
use plimsoll_host::Shared;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep};

use crate::connections::{ConnectionPlace, Connections};

/// Connections accepted without a pause, unless a rate is given.
const ACCEPT_BURST: usize = 16;
const ACCEPT_PAUSE: Duration = Duration::from_millis(5);
/// The pause after a failure, such as a lack of descriptors, if no connection could be closed for it.
const FAILURE_PAUSE: Duration = Duration::from_millis(100);

/// A listener that never fails.
#[derive(Debug)]
pub struct Acceptor {
    listener: TcpListener,
    connections: Connections,
    /// The rate of new connections, for a port that carries streams; `None` for a fixed one.
    admission: Option<Shared<Admission>>,
    /// Connections to accept before the next pause.
    left: usize,
    /// End of the last pause.
    paused: Instant,
}

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

    /// Returns the connections of the port.
    pub const fn connections(&self) -> &Connections {
        &self.connections
    }

    /// Accepts without pauses, for a port whose clients may open a connection for each request.
    pub fn without_pauses(self) -> Self {
        Self {
            left: usize::MAX,
            ..self
        }
    }

    /// Accepts at a rate that follows the load of the process, and measures the load for the streams.
    pub fn with_admission(self, admission: Shared<Admission>) -> Self {
        Self {
            admission: Some(admission),
            ..self
        }
    }

    /// Pauses, and returns the number of connections to accept before the next pause.
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

    /// Returns the next connection with its peer and its place. Accepts in bursts, so that established
    /// streams keep getting CPU time while a fleet reconnects; new connections wait in the accept queue.
    pub async fn next(&mut self) -> (TcpStream, SocketAddr, ConnectionPlace) {
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
    use super::*;
    use crate::connections::SHORT_GREETING_MAX;

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
}
