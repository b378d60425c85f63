//! Limits of connections on each port, within the descriptors of the process.

use plimsoll_host::descriptors;
use plimsoll_proto::transport::Connections;

/// Maximum number of connections of the Redis protocol. One address may have half of them.
const RESP_CONNECTIONS_MAX: usize = 4_096;
/// Maximum number of connections of the admin port. One address may have half of them.
const ADMIN_CONNECTIONS_MAX: usize = 128;

#[derive(Clone, Debug)]
pub(crate) struct Ports {
    pub(crate) resp: Connections,
    pub(crate) admin: Connections,
}

impl Ports {
    /// Allows up to half of the descriptors for the Redis protocol and an eighth for the admin
    /// port. The rest is for the files of the store.
    pub(crate) fn new() -> Self {
        let ports = |max: usize, divisor: u64| {
            let part = usize::try_from(descriptors::limit() / divisor)
                .unwrap_or(usize::MAX)
                .max(2);
            Connections::fair(max.min(part), usize::MAX)
        };
        Self {
            resp: ports(RESP_CONNECTIONS_MAX, 2),
            admin: ports(ADMIN_CONNECTIONS_MAX, 8),
        }
    }
}
