//! The routes about the members at the admin port, at the leader and at standbys.

use axum::Json;
use axum::extract::State;
use axum::http::{Method, StatusCode};
use plimsoll_admin::access::Routes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{MembersStatus, Membership};
use crate::admin::{Answer, Refused, conflict};

/// The route of [`Resigned`].
pub const RESIGN: &str = "/lead/resign";

/// The answer of a leader that handed the lead over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Resigned {
    /// Its admin port.
    pub address: String,
}

/// Routes of a member, or of a controller with a state directory, which is the only one.
pub(crate) fn routes(membership: Option<Membership>) -> Routes {
    let part = membership
        .as_ref()
        .map(|membership| membership.part.clone());
    let lead = move || async move {
        let stands_by = part.is_some_and(|part| part.borrow().lead().is_none());
        match stands_by {
            true => (StatusCode::SERVICE_UNAVAILABLE, "standby\n"),
            false => (StatusCode::OK, "leading\n"),
        }
    };
    let lead = Routes::new().open(Method::GET, "/lead", lead);
    let of_members = Routes::new()
        .viewer(Method::GET, "/members", members)
        .operator(Method::POST, RESIGN, resign)
        .with_state(membership);
    lead.merge(of_members)
}

async fn members(State(membership): State<Option<Membership>>) -> Answer<Json<MembersStatus>> {
    Ok(Json(membership.ok_or_else(alone)?.status()))
}

/// Hands the lead over, and leaves it to other members for a while.
async fn resign(State(membership): State<Option<Membership>>) -> Answer<Json<Resigned>> {
    let membership = membership.ok_or_else(alone)?;
    let mut part = membership.part.clone();
    let lead = part.borrow_and_update().lead();
    let Some(lead) = lead else {
        return Err(conflict("this controller does not lead"));
    };
    if membership.status().members.len() < 2 {
        return Err(conflict(
            "no other controller is registered, so none would lead. Start another one first",
        ));
    }
    membership.resign.notify_one();
    // The answer is sent by a port that closes with the lead.
    let _ = part.wait_for(|part| part.lead() != Some(lead)).await;
    let address = membership.own.borrow().admin.clone();
    Ok(Json(Resigned { address }))
}

fn alone() -> Refused {
    conflict("this controller is the only one: it shares no store (--store) with others")
}
