//! Who speaks: what a child says of itself in its greeting.

use std::fmt;

use crate::names::{Name, Zone};

/// One start of one process: 128 random bits drawn when it begins.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceId(pub u128);

impl fmt::Debug for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// Which tier a child belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Decides inside a service.
    Client,
    /// Merges the reports of a zone.
    Aggregator,
}

/// What a child says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// This start of the process.
    pub instance: InstanceId,
    /// A name that outlives restarts, such as host and port.
    pub name: Name,
    /// The service it belongs to.
    pub service: Name,
    /// The failure domain it runs in.
    pub zone: Zone,
    /// Its tier.
    pub role: Role,
}
