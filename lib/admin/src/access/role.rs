//! The roles of an admin port, and the caller of a request as its handler knows it.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use plimsoll_core::names::Text;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The permissions of a caller. Each role includes those before it.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    clap::ValueEnum,
    JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Reads everything and changes nothing by an admin port.
    Viewer,
    /// Operates the fleet: kills, drills, rollouts, resets of quotas, forgotten aggregators, acknowledged losses, the lead.
    Operator,
    /// Acknowledges and undoes policies, and imports histories.
    Admin,
}

/// The caller of an accepted request. Handlers take it as `Extension<AdminCaller>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminCaller {
    /// The name of the token, or [`AdminCaller::LOOPBACK`].
    pub name: Arc<str>,
    /// The role held.
    pub role: Role,
    /// The address of the peer.
    pub from: IpAddr,
}

impl Role {
    /// The name as in a tokens file.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl AdminCaller {
    /// The name of programs on this machine that need no token. No token may have it.
    pub const LOOPBACK: &str = "loopback";

    /// Returns the name that an order is kept under: the token's name. A caller without a token is
    /// named as the order states.
    pub fn by(&self, stated: Option<Text>) -> Option<Text> {
        if &*self.name == Self::LOOPBACK {
            stated
        } else {
            Text::new(&self.name).ok()
        }
    }
}
