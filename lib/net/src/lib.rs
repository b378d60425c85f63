//! What servers share below their protocols: sockets that listen, limits of the connections of a
//! port, TLS handshakes with a deadline, and the loop that accepts connections.
#![forbid(unsafe_code)]

mod acceptor;
mod connections;
mod handshakes;
mod listen;
mod pending;
mod protection;
mod serve;

pub use acceptor::Acceptor;
pub use connections::{ConnectionCounts, ConnectionPlace, Connections, PENDING_MAX_DEFAULT};
pub use handshakes::NOT_PLAINTEXT;
pub use listen::{ListenError, bind, listen, open};
pub use protection::{Protection, Stream};
pub use serve::serve;
