//! The undo of the last change of the policy on the admin port: its effect, and the undo itself.

use std::sync::Arc;

use axum::extract::State;
use axum::http::Method;
use axum::response::IntoResponse;
use axum::{Extension, Json};
use plimsoll_admin::access::{Caller, Routes};
use plimsoll_admin::body::JsonBody;
use plimsoll_core::names::Text;
use plimsoll_policy::Policy;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::policy::{DryRunResult, Judges};
use crate::admin::status::Policies;
use crate::admin::{Answer, Commands, conflict, in_effect, to_the_end, unavailable};
use crate::audit::{Actor, Entry};
use crate::brain::UndoError;
use crate::tasks::events::{Event, EventKind};
use crate::tasks::policy::one_line;

/// A request to return to the policy before the last change.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Undo {
    /// The reason.
    pub reason: Text,
    /// True to return to it even if guardrails hold it back.
    pub release: bool,
}

impl Judges {
    fn undo(&self) -> Result<(Arc<Policy>, DryRunResult), UndoError> {
        let (earlier, in_force) = self.brain.with(|brain, _| brain.undoable())?;
        let catalogue = in_force.shared_catalogue().cloned();
        let policy = earlier.read()?.with_catalogue(catalogue);
        let policy = Arc::new(policy.compared_to(&in_force));
        let result = self.judged(&policy, &in_force);
        Ok((policy, result))
    }
}

pub(super) fn routes(commands: Commands, judges: Judges) -> Routes {
    let of_undo = judges.clone();
    let undo = async move |State(commands): State<Commands>, Extension(caller), JsonBody(asked)| {
        to_the_end(undo(commands, of_undo, caller, asked)).await
    };
    let effect = async |State(judges): State<Judges>| -> Answer {
        let judged = judges.judge(Judges::undo).await?;
        let (_, result) = judged.map_err(conflict)?;
        Ok(Json(result).into_response())
    };
    let of_judges = Routes::new()
        .viewer(Method::GET, "/policy/undo", effect)
        .with_state(judges);
    let of_commands = Routes::new()
        .admin(Method::POST, "/policy/undo", undo)
        .with_state(commands);
    of_judges.merge(of_commands)
}

async fn undo(
    Commands {
        brain,
        audit,
        events,
    }: Commands,
    judges: Judges,
    caller: Caller,
    Undo { reason, release }: Undo,
) -> Answer {
    let judged = judges.judge(Judges::undo).await?;
    let (
        policy,
        DryRunResult {
            in_force, judged, ..
        },
    ) = judged.map_err(conflict)?;
    if !judged.reasons.is_empty() && !release {
        return Err(conflict(UndoError::Held(judged.reasons)));
    }
    let differences = one_line(&judged.differences);
    let entry = Entry {
        what: "undo".to_owned(),
        before: in_force.clone(),
        after: judged.hash.clone(),
        why: format!("{reason}; {differences}"),
    };
    let logged = audit.record(Actor::from(&caller), entry).await;
    let logged = logged.map_err(unavailable)?;
    let why = format!("undone by {}: {reason}", caller.name);
    if let Err(error) = brain.with(|brain, _| brain.undo(policy, why)) {
        logged.refused(&error);
        return Err(conflict(error));
    }
    let text = format!(
        "policy {} in force again, and {in_force} undone: {differences}",
        judged.hash
    );
    let event = Event::new(EventKind::PolicyUndone, "policy", text);
    events.add(event.by(&caller.name).why(reason));
    in_effect(&brain).await;
    Ok(Json(brain.with(|brain, _| Policies::of(brain))).into_response())
}
