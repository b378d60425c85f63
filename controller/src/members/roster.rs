//! The roster: all members and the endpoints of the store, as this process read them last.

use std::time::Duration;

use plimsoll_etcd::{Client, EndpointStatus};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::session::decode;
use super::{MEMBERS, MEMBERS_MAX, Member, Membership};

const READ_EVERY: Duration = Duration::from_secs(2);

/// The controllers of a fleet, and their store.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MembersStatus {
    /// True if the member that answers leads.
    pub leading: bool,
    /// True if it is certain that no other member leads; null at a standby.
    pub confirmed: Option<bool>,
    /// All registered members, by their address.
    pub members: Vec<MemberStatus>,
    /// The endpoints of the store.
    pub store: Vec<EndpointState>,
}

/// One member.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MemberStatus {
    /// Its record.
    #[serde(flatten)]
    pub member: Member,
    /// True if it leads.
    pub leads: bool,
}

/// One endpoint of the store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EndpointState {
    /// Its address.
    pub endpoint: String,
    /// Its version; null if it does not answer.
    pub version: Option<String>,
    /// True if it leads the store.
    pub leads: bool,
    /// Size of its database in bytes; 0 if it does not answer.
    pub bytes: u64,
    /// Its alarms, or why it does not answer.
    pub problems: Vec<String>,
}

/// What the store said last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Roster {
    members: Vec<Member>,
    store: Vec<EndpointState>,
}

/// Reads the roster, forever. Members that were read stay while they cannot be read.
pub(super) async fn follow(client: Client, roster: watch::Sender<Roster>) {
    let mut reads = interval(READ_EVERY);
    reads.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        reads.tick().await;
        let (listing, endpoints) = tokio::join!(client.list(MEMBERS, MEMBERS_MAX), client.status());
        let store = endpoints.into_iter().map(EndpointState::from).collect();
        roster.send_modify(|roster| {
            roster.store = store;
            if let Ok(listing) = listing {
                let members = listing.entries.iter().filter_map(|key| decode(&key.value));
                roster.members = members.collect();
                roster
                    .members
                    .sort_by(|one, other| one.address.cmp(&other.address));
            }
        });
    }
}

impl Membership {
    /// True if aggregators look for the leader at another member.
    pub(crate) fn is_another_sought(&self) -> bool {
        let own = self.own.borrow().address.clone();
        let roster = self.roster.borrow();
        let mut others = roster.members.iter().filter(|it| it.address != own);
        others.any(|it| it.sought)
    }

    /// Returns what is shown to operators.
    pub(crate) fn status(&self) -> MembersStatus {
        let (own, roster) = (self.own.borrow().clone(), self.roster.borrow().clone());
        let part = self.part.borrow().clone();
        let is_confirmed = part.is_confirmed(Instant::now().into_std());
        let confirmed = part.lead().map(|_| is_confirmed);
        let leader = match confirmed {
            Some(_) => Some(own.address.clone()),
            None => part.other_leader().map(|it| it.address.clone()),
        };
        let is_listed = roster.members.iter().any(|it| it.address == own.address);
        let members = roster
            .members
            .into_iter()
            .chain((!is_listed).then_some(own));
        MembersStatus {
            leading: confirmed.is_some(),
            confirmed,
            members: members
                .map(|member| MemberStatus {
                    leads: leader.as_ref() == Some(&member.address),
                    member,
                })
                .collect(),
            store: roster.store,
        }
    }
}

impl From<EndpointStatus> for EndpointState {
    fn from(EndpointStatus { endpoint, member }: EndpointStatus) -> Self {
        match member {
            Ok(member) => Self {
                endpoint,
                version: Some(member.version),
                leads: member.is_leader,
                bytes: member.database_bytes,
                problems: member.problems,
            },
            Err(error) => Self {
                endpoint,
                version: None,
                leads: false,
                bytes: 0,
                problems: vec![error.to_string()],
            },
        }
    }
}
