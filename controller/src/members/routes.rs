//! The routes about the members at the admin port, at the leader and at standbys.

use axum::Json;
use axum::extract::State;
use axum::http::{Method, StatusCode};
use axum::response::IntoResponse;
use plimsoll_admin::access::Routes;
use plimsoll_etcd::EndpointStatus;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::session::decode;
use super::{MEMBERS, MEMBERS_MAX, Member, Membership, Order, Part};
use crate::admin::{Answer, conflict, unavailable};
use crate::state::store::etcd::LEADER;

/// The members of a fleet's controllers, and their store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MembersStatus {
    /// True if this member leads.
    pub leading: bool,
    /// True if the leader is certain that no other member leads; null at a standby.
    pub confirmed: Option<bool>,
    /// All registered members, by their address.
    pub members: Vec<MemberStatus>,
    /// The endpoints of the store.
    pub store: Vec<EndpointState>,
}

/// One member.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemberStatus {
    /// Its record.
    #[serde(flatten)]
    pub member: Member,
    /// True if it leads.
    pub leads: bool,
}

/// One endpoint of the store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EndpointState {
    /// Its address.
    pub endpoint: String,
    /// Its version; null if it does not answer.
    pub version: Option<String>,
    /// True if it leads the store.
    pub leads: bool,
    /// Size of its database in bytes.
    pub bytes: u64,
    /// Its alarms, or why it does not answer.
    pub problems: Vec<String>,
}

/// Routes of a member; of a controller with a state directory without one.
pub(crate) fn routes(membership: Option<Membership>) -> Routes {
    let part = membership.as_ref().map(|membership| membership.part.clone());
    let lead = move || async move {
        let stands_by = part.is_some_and(|part| part.borrow().lead().is_none());
        match stands_by {
            true => (StatusCode::SERVICE_UNAVAILABLE, "standby\n"),
            false => (StatusCode::OK, "leading\n"),
        }
    };
    let routes = Routes::new().open(Method::GET, "/lead", lead);
    let Some(membership) = membership else {
        return routes;
    };
    let of_members = Routes::new()
        .viewer(Method::GET, "/members", members)
        .operator(Method::POST, "/lead/resign", resign)
        .with_state(membership);
    routes.merge(of_members)
}

async fn members(State(membership): State<Membership>) -> Answer {
    let client = &membership.client;
    let (members, leader, endpoints) = tokio::join!(
        client.list(MEMBERS, MEMBERS_MAX),
        client.get(LEADER),
        client.status()
    );
    let store = endpoints.into_iter().map(EndpointState::from).collect();
    let leader = leader.ok().flatten().and_then(|key| decode(&key.value));
    let of_key = |member: Member| MemberStatus {
        leads: leader.as_ref().is_some_and(|leader| leader.address == member.address),
        member,
    };
    let mut members: Vec<MemberStatus> = match members {
        Ok(listing) => {
            let members = listing.entries.iter().filter_map(|key| decode(&key.value));
            members.map(of_key).collect()
        }
        // Without the store, what this process knows.
        Err(_) => vec![MemberStatus {
            leads: membership.part.borrow().lead().is_some(),
            member: membership.own.borrow().clone(),
        }],
    };
    members.sort_by(|one, other| one.member.address.cmp(&other.member.address));
    let confirmed = match &*membership.part.borrow() {
        Part::Leading {
            confirmed_until, ..
        } => Some(Instant::now() < *confirmed_until),
        Part::Standby { .. } => None,
    };
    Ok(Json(MembersStatus {
        leading: confirmed.is_some(),
        confirmed,
        members,
        store,
    })
    .into_response())
}

/// Hands the lead over, and leaves it to other members for a while.
async fn resign(State(membership): State<Membership>) -> Answer {
    let mut part = membership.part.clone();
    let lead = part.borrow_and_update().lead();
    let Some(lead) = lead else {
        return Err(conflict("this controller does not lead"));
    };
    let members = membership.client.list(MEMBERS, MEMBERS_MAX).await;
    let members = members.map_err(unavailable)?;
    if members.entries.len() < 2 {
        return Err(conflict(
            "no other controller is registered: nothing would lead. Start another one first",
        ));
    }
    membership.orders.send_replace(Order::Resign);
    // The answer is sent by a port that closes with the lead.
    let _ = part.wait_for(|part| part.lead() != Some(lead)).await;
    Ok("resigned\n".into_response())
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
