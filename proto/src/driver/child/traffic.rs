//! Byte counts of connections, taken at their sockets, so that they include the framing and TLS.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::net::TcpStream;
use tokio_util::io::{InspectReader, InspectWriter};

use crate::transport::Duplex;

/// Bytes sent and received by all connections that share the counts.
#[derive(Debug, Default)]
pub struct Traffic {
    /// Bytes sent to the parent.
    pub up: AtomicU64,
    /// Bytes received from the parent.
    pub down: AtomicU64,
}

impl Traffic {
    pub(super) fn count(self: &Arc<Self>, stream: TcpStream) -> impl Duplex + use<> {
        let (up, down) = (Arc::clone(self), Arc::clone(self));
        let count = |total: &AtomicU64, bytes: &[u8]| {
            total.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        };
        let stream = InspectReader::new(stream, move |bytes: &[u8]| count(&down.down, bytes));
        InspectWriter::new(stream, move |bytes: &[u8]| count(&up.up, bytes))
    }
}
