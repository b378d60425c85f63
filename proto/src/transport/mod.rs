//! Connections. Their streams detect a dead peer by its silence (see [`crate::driver`]), without keepalive
//! pings: a busy peer would answer those late, too.

#[cfg(feature = "server")]
mod accept;
#[cfg(feature = "server")]
mod guarded;
#[cfg(feature = "server")]
mod serve;

use std::time::Duration;

use tonic::transport::Endpoint;

#[cfg(feature = "server")]
pub use self::accept::{Acceptor, Connections, Counts, PENDING_MAX_DEFAULT, Place};
#[cfg(feature = "server")]
pub(crate) use self::guarded::{ConnectionGuard, Greeted};
#[cfg(feature = "server")]
pub use self::serve::{ServeError, listen, serve};
use crate::MESSAGE_BYTES_MAX;

/// The longest time that a connection attempt may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// The flow-control window of a child, in bytes: one message of the largest size. Later changes wait in the
/// parent's state machine, where they are conflated; with the default window megabytes of outdated messages
/// would pile up.
const STREAM_WINDOW_BYTES: u32 = MESSAGE_BYTES_MAX as u32;

/// An address that is not `http://HOST:PORT`.
#[derive(Debug, thiserror::Error)]
#[error("invalid parent address `{address}`: write it as http://HOST:PORT")]
pub struct InvalidEndpoint {
    /// The rejected address.
    address: String,
}

/// Returns the endpoint of a parent at `http://HOST:PORT`. It does not connect yet.
///
/// # Errors
/// When `address` is not such a URI.
pub fn endpoint(address: &str) -> Result<Endpoint, InvalidEndpoint> {
    let invalid = || InvalidEndpoint { address: address.to_owned() };
    let endpoint = Endpoint::from_shared(address.to_owned()).map_err(|_| invalid())?;
    if endpoint.uri().scheme_str() != Some("http") || endpoint.uri().port_u16().is_none() {
        return Err(invalid());
    }
    Ok(endpoint
        .connect_timeout(CONNECT_TIMEOUT)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .tcp_nodelay(true))
}
