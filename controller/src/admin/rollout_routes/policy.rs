//! The policy on the admin port: the current one, the held one, and its acknowledgement.

use axum::extract::State;
use axum::http::Method;
use axum::response::IntoResponse;
use axum::{Extension, Json};
use plimsoll_admin::access::{Caller, Routes};
use plimsoll_admin::body::JsonBody;
use plimsoll_policy::{Difference, differences};
use serde::{Deserialize, Serialize};

use crate::admin::{
    Answer, BrainState, Commands, conflict, in_effect, on_disk, to_the_end, unavailable,
};
use crate::audit::{Actor, Entry};
use crate::brain::{AckError, Brain};
use crate::policy_file::PolicyFiles;
use crate::tasks::policy::one_line;

/// A request to activate a held policy.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ack {
    /// The hash of the policy: 16 hex digits.
    pub hash: String,
}

/// The current policy and the held one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Policies {
    /// The hash of the current policy.
    pub in_force: String,
    /// The policy that waits for acknowledgement.
    pub held: Option<HeldStatus>,
    /// Why the files as they are now were refused; null if they were not.
    pub refused: Option<String>,
}

impl Policies {
    /// Returns the policies of a controller.
    pub fn of(brain: &Brain) -> Self {
        let held = brain.policies.held.as_ref().map(|held| HeldStatus {
            hash: held.policy.hash().to_string(),
            reasons: held.reasons.clone(),
            differences: held.differences.clone(),
        });
        let refused = brain.policies.refused.clone();
        Self {
            in_force: brain.policy().hash().to_string(),
            held,
            refused,
        }
    }
}

/// A policy that waits for acknowledgement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeldStatus {
    /// The hash of the policy.
    pub hash: String,
    /// Why it is held back.
    pub reasons: Vec<String>,
    /// Its differences from the current policy.
    pub differences: Vec<Difference>,
}

pub(super) fn routes(commands: Commands, files: PolicyFiles) -> Routes {
    let acknowledge =
        async move |State(commands): State<Commands>, Extension(caller), JsonBody(asked)| {
            to_the_end(acknowledge(commands, files, caller, asked)).await
        };
    Routes::new()
        .viewer(Method::GET, "/policy", async |State(brain): BrainState| {
            Json(brain.with(|brain, _| Policies::of(brain)))
        })
        .admin(Method::POST, "/policy/ack", acknowledge)
        .with_state(commands)
}

async fn acknowledge(
    Commands { brain, audit }: Commands,
    files: PolicyFiles,
    caller: Caller,
    asked: Ack,
) -> Answer {
    let on_disk = on_disk("the policy", move || files.hash())
        .await?
        .map_err(conflict)?;
    let planned = brain.with(|brain, _| {
        let policy = brain.policies.acknowledged(&asked.hash, on_disk)?;
        let why = one_line(&differences(brain.policy(), &policy));
        let (before, after) = (brain.policy().hash().to_string(), policy.hash().to_string());
        Ok::<_, AckError>(Entry {
            what: "apply".to_owned(),
            before,
            after,
            why,
        })
    });
    let planned = planned.map_err(conflict)?;
    let logged = audit
        .record(Actor::from(&caller), planned)
        .await
        .map_err(unavailable)?;
    match brain.with(|brain, _| brain.acknowledge(&asked.hash, on_disk)) {
        Ok(hash) => {
            tracing::info!(policy = %hash, "held policy acknowledged and in force");
            in_effect(&brain).await;
            Ok(Json(brain.with(|brain, _| Policies::of(brain))).into_response())
        }
        Err(error) => {
            logged.refused(&error);
            Err(conflict(error))
        }
    }
}
