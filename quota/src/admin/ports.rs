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
        let at_most = |max: usize| Connections::fair(max, usize::MAX);
        Self {
            resp: at_most(Self::resp_max()),
            admin: at_most(ADMIN_CONNECTIONS_MAX.min(part_of_descriptors(8))),
        }
    }

    /// The most connections of the Redis protocol in this process.
    pub(crate) fn resp_max() -> usize {
        RESP_CONNECTIONS_MAX.min(part_of_descriptors(2))
    }
}

fn part_of_descriptors(divisor: u64) -> usize {
    usize::try_from(descriptors::limit() / divisor).unwrap_or(usize::MAX).max(2)
}
