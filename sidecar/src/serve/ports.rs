//! The limits of connections of each port, within the descriptors of the process.

use plimsoll_admin::ports::ADMIN_CONNECTIONS_MAX;
use plimsoll_host::descriptors;
use plimsoll_net::Connections;

use super::{Lag, Room};

/// Maximum number of TCP connections of the rate limit service. One address may have half of them.
const RLS_CONNECTIONS_MAX: usize = 512;
/// Maximum number of TCP connections of HTTP checks. One address may have half of them.
const HTTP_CONNECTIONS_MAX: usize = 2_048;
/// Maximum number of connections of a port over its Unix socket; more wait in the accept queue.
const UNIX_CONNECTIONS_MAX: usize = 256;

/// TCP connections of all ports, the room of their requests, and their lag. Clones share the
/// counts.
#[derive(Clone, Debug)]
pub(crate) struct Ports {
    pub(crate) rls: Connections,
    pub(crate) http: Connections,
    pub(crate) admin: Connections,
    pub(crate) room: Room,
    pub(crate) lag: Lag,
}

impl Ports {
    /// Allows at most a quarter of the descriptors to each port.
    pub(crate) fn new() -> Self {
        let at_most = |max: usize| Connections::fair(max.min(descriptors::part(4)));
        Self {
            rls: at_most(RLS_CONNECTIONS_MAX),
            http: at_most(HTTP_CONNECTIONS_MAX),
            admin: at_most(ADMIN_CONNECTIONS_MAX),
            room: Room::default(),
            lag: Lag::default(),
        }
    }
}

/// Returns the maximum number of connections of one Unix socket: at most an eighth of the
/// descriptors.
pub(super) fn unix_connections_max() -> usize {
    UNIX_CONNECTIONS_MAX.min(descriptors::part(8))
}
