//! The identity that a child sends in its greeting.

use std::fmt;

use crate::names::{Name, Zone};

/// The id of one start of one process: 128 random bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceId(pub u128);

impl fmt::Debug for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// The tier of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A client inside a service.
    Client,
    /// An aggregator of a zone.
    Aggregator,
}

impl Role {
    /// The word used in logs and status.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Aggregator => "aggregator",
        }
    }
}

/// The identity of a child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The id of this start of the process.
    pub instance: InstanceId,
    /// A name that is stable over restarts, such as host and port.
    pub name: Name,
    /// The service.
    pub service: Name,
    /// The failure domain.
    pub zone: Zone,
    /// The tier.
    pub role: Role,
}

impl Identity {
    /// Returns `ROLE ZONE/SERVICE/NAME`, as messages name a child.
    pub fn described(&self) -> String {
        let (role, zone) = (self.role.as_str(), &self.zone);
        format!("{role} {zone}/{}/{}", self.service, self.name)
    }
}
