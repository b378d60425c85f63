//! Connections between children and parents: how a child dials, and the server of a parent. Streams detect a dead
//! peer by its silence (see [`crate::driver`]), without keepalive pings: a busy peer would answer those late, too.

mod dial;
#[cfg(feature = "server")]
mod guarded;
mod parent_list;
#[cfg(feature = "server")]
mod serve;
#[cfg(feature = "server")]
mod socket;
#[cfg(feature = "server")]
mod standby;
mod watched;

use tokio::io::{AsyncRead, AsyncWrite};

#[cfg(feature = "tls")]
pub(crate) use self::dial::Mutual;
pub use self::dial::{Dial, InvalidEndpoint, Security};
#[cfg(feature = "server")]
pub(crate) use self::guarded::{ConnectionGuard, Greeted};
pub use self::parent_list::{InvalidParentList, ParentList};
#[cfg(feature = "server")]
pub use self::serve::{ServeError, serve, serve_standby};
#[cfg(feature = "server")]
pub(crate) use self::socket::Certified;
pub(crate) use self::watched::Watched;

/// The bytes of a connection, with or without protection.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Duplex for T {}
