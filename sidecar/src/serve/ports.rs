//! The connections that each port may have, within the descriptors of the process.

use plimsoll_host::descriptors;
use plimsoll_proto::transport::Connections;

use super::{Lag, Room};

/// The most TCP connections of the rate limit service, of which one address has half at most.
const RLS_CONNECTIONS_MAX: usize = 512;
/// The most TCP connections of HTTP checks, of which one address has half at most.
const HTTP_CONNECTIONS_MAX: usize = 2_048;
/// The most connections of the admin port, of which one address has half at most.
const ADMIN_CONNECTIONS_MAX: usize = 128;

/// The most connections of a port over its Unix socket; further ones wait in the accept queue.
const UNIX_CONNECTIONS_MAX: usize = 256;

/// The TCP connections of all ports, the room of their requests, and how late these run. Clones share the counts.
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
        let at_most = |max: usize| Connections::fair(max.min(part_of_descriptors(4)), usize::MAX);
        Self {
            rls: at_most(RLS_CONNECTIONS_MAX),
            http: at_most(HTTP_CONNECTIONS_MAX),
            admin: at_most(ADMIN_CONNECTIONS_MAX),
            room: Room::default(),
            lag: Lag::default(),
        }
    }
}

/// Returns the most connections of one Unix socket: at most an eighth of the descriptors.
pub(super) fn unix_connections_max() -> usize {
    UNIX_CONNECTIONS_MAX.min(part_of_descriptors(8))
}

fn part_of_descriptors(divisor: u64) -> usize {
    usize::try_from(descriptors::limit() / divisor).unwrap_or(usize::MAX).max(2)
}
