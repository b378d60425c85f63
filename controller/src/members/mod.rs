//! Several controllers on one store, of which one leads. Each process is a member: it registers under a lease, tries to
//! become the leader, and leads or stands by as the store says. A takeover is a restart on the state in the store.

mod args;
mod copy;
mod kill_orders;
mod lead;
pub(crate) mod metrics;
mod roster;
mod routes;
mod run;
mod session;
mod standby;
#[cfg(test)]
mod tests;

pub use self::args::{StoreAccess, StoreArgs, StoreArgsError};
pub use self::copy::{CopyError, StatePlace, copy};
pub(crate) use self::kill_orders::follow as follow_kill_orders;
pub use self::roster::{EndpointState, MemberStatus, MembersStatus};
pub(crate) use self::routes::routes;
pub use self::routes::{RESIGN, Resigned};
pub(crate) use self::run::run;

use std::sync::Arc;
use std::time::Instant;

use plimsoll_etcd::Client;
pub use plimsoll_etcd::StoreAddress;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, watch};

use self::roster::Roster;

/// Maximum number of members that are read. With more of them the ones read before are shown.
const MEMBERS_MAX: u64 = 16;
/// The keys of members are below it.
const MEMBERS: &str = "members/";

/// A controller of several, as it is registered in the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Member {
    /// Its address for aggregators: `https://HOST:PORT`, or `http://` without certificates.
    pub address: String,
    /// Its admin port, in the same form.
    pub admin: String,
    /// The version of Plimsoll.
    pub version: String,
    /// The start of the process in seconds since 1970.
    pub since_s: i64,
    /// The hash of its policy files; null while they cannot be read.
    pub files: Option<String>,
    /// True while aggregators look for the leader here.
    #[serde(default)]
    pub sought: bool,
}

/// The part of this process, as the store said last.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Part {
    /// Another member leads, or none.
    Standby { leader: Option<Member> },
    /// This member was elected: the key of the leader was created at this revision. No other member can be elected
    /// before the instant.
    Leading { lead: u64, confirmed_until: Instant },
}

/// What the rest of a process sees of its membership.
#[derive(Clone, Debug)]
pub(crate) struct Membership {
    pub(crate) client: Client,
    /// The record of this member, which the session registers after each change.
    pub(crate) own: watch::Sender<Member>,
    pub(crate) part: watch::Receiver<Part>,
    pub(crate) roster: watch::Receiver<Roster>,
    /// Tells the session to hand the lead over.
    pub(crate) resign: Arc<Notify>,
    /// Tells the session that the store has refused a write of this member as the leader.
    pub(crate) deposed: Arc<Notify>,
}

// === impl Part ===

impl Part {
    /// The revision at which the key of the leader was created; `None` at a standby.
    pub(crate) const fn lead(&self) -> Option<u64> {
        match self {
            Self::Leading { lead, .. } => Some(*lead),
            Self::Standby { .. } => None,
        }
    }

    /// The member that leads in place of this one, if one is known.
    pub(crate) const fn other_leader(&self) -> Option<&Member> {
        match self {
            Self::Leading { .. } => None,
            Self::Standby { leader } => leader.as_ref(),
        }
    }
}
