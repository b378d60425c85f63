//! The connections that each port may have, within the descriptors of the process.

use plimsoll_host::descriptors;
use plimsoll_proto::transport::Connections;

/// The most connections of the Redis protocol, of which one address has half at most.
const RESP_CONNECTIONS_MAX: usize = 4_096;
/// The most connections of the admin port, of which one address has half at most.
const ADMIN_CONNECTIONS_MAX: usize = 128;

/// The connections of both ports. Clones share the counts.
#[derive(Clone, Debug)]
pub(crate) struct Ports {
    pub(crate) resp: Connections,
    pub(crate) admin: Connections,
}

impl Ports {
    /// Allows at most half of the descriptors to the Redis protocol and an eighth to the admin port. The rest is left to
    /// the files of the store.
    pub(crate) fn new() -> Self {
        let ports = |max: usize, divisor: u64| {
            let part = usize::try_from(descriptors::limit() / divisor).unwrap_or(usize::MAX).max(2);
            Connections::fair(max.min(part), usize::MAX)
        };
        Self { resp: ports(RESP_CONNECTIONS_MAX, 2), admin: ports(ADMIN_CONNECTIONS_MAX, 8) }
    }
}
