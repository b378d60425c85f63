//! Limits of connections on each port, within the descriptors of the process.

use plimsoll_admin::ports::ADMIN_CONNECTIONS_MAX;
use plimsoll_host::descriptors;
use plimsoll_net::Connections;

/// Maximum number of connections of the Redis protocol. One address may have half of them.
const RESP_CONNECTIONS_MAX: usize = 4_096;

#[derive(Clone, Debug)]
pub(crate) struct Ports {
    pub(crate) resp: Connections,
    pub(crate) admin: Connections,
}

impl Ports {
    /// Allows up to half of the descriptors for the Redis protocol and an eighth for the admin
    /// port. The rest is for the files of the store.
    pub(crate) fn new() -> Self {
        Self {
            resp: Connections::fair(RESP_CONNECTIONS_MAX.min(descriptors::part(2))),
            admin: Connections::fair(ADMIN_CONNECTIONS_MAX.min(descriptors::part(8))),
        }
    }
}
