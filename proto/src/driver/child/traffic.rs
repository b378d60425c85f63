//! Byte counts of connections, taken at their sockets, so that they include the framing.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::Uri;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_util::io::{InspectReader, InspectWriter};
use tonic::transport::{Channel, Endpoint, Error};
use tower::service_fn;

/// Bytes sent and received by all connections that share the counts.
#[derive(Debug, Default)]
pub struct Traffic {
    /// Bytes sent to the parent.
    pub up: AtomicU64,
    /// Bytes received from the parent.
    pub down: AtomicU64,
}

/// Opens a connection that counts its bytes in `traffic`.
pub(super) async fn connect_metered(endpoint: &Endpoint, traffic: Arc<Traffic>) -> Result<Channel, Error> {
    let connector = service_fn(move |uri: Uri| {
        let (up, down) = (Arc::clone(&traffic), Arc::clone(&traffic));
        async move {
            let authority = uri.authority().map(ToString::to_string).unwrap_or_default();
            let stream = TcpStream::connect(authority).await?;
            stream.set_nodelay(true)?;
            let count = |total: &AtomicU64, bytes: &[u8]| {
                total.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            };
            let stream = InspectReader::new(stream, move |bytes: &[u8]| count(&down.down, bytes));
            let stream = InspectWriter::new(stream, move |bytes: &[u8]| count(&up.up, bytes));
            Ok::<_, io::Error>(TokioIo::new(stream))
        }
    });
    endpoint.connect_with_connector(connector).await
}
