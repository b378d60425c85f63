//! The policy on the admin port: the current one, the held one and its acknowledgement, the effect of one that is not
//! saved, and the undo of the last change.

use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, State};
use axum::handler::Handler;
use axum::http::Method;
use axum::{Extension, Json};
use plimsoll_admin::access::{AdminCaller, Routes};
use plimsoll_admin::body::JsonBody;
use plimsoll_core::names::Text;
use plimsoll_policy::{FILE_BYTES_MAX, Forecast, Policy, PolicyError, Source, differences};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::admin::status::{HeldStatus, Policies};
use crate::admin::{
    Answer, Commands, TIMEOUT, conflict, in_effect, internal, invalid, on_disk, to_the_end,
    unavailable,
};
use crate::audit::Entry;
use crate::brain::{AckError, UndoError};
use crate::policy_file::{PolicyFiles, ReadError};
use crate::tasks::events::{Event, EventKind};
use crate::tasks::policy::one_line;

/// Maximum size of the body of a dry run: two files as JSON, where some characters take two bytes.
const DRY_RUN_BYTES_MAX: usize = 4 * FILE_BYTES_MAX;

/// A request to activate a held policy.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Ack {
    /// The hash of the policy: 16 hex digits.
    pub hash: String,
    /// The reason, if one is given.
    #[serde(default)]
    pub reason: Option<Text>,
}

/// A text that is not saved, with the name of its file for faults.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NamedText {
    /// The name of the file.
    pub name: String,
    /// The whole text.
    pub text: String,
}

impl NamedText {
    fn source(&self) -> Result<Source<'_>, PolicyError> {
        Source::from_bytes(&self.name, self.text.as_bytes())
    }
}

/// A request to judge a policy that is not saved.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DryRun {
    /// The text of `policy.yaml`.
    pub policy: NamedText,
    /// The text of `tenants.yaml`; null: the tenants in force.
    pub tenants: Option<NamedText>,
}

/// The effect that a policy would have if it were saved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DryRunResult {
    /// The hash of the current policy.
    pub in_force: String,
    /// The policy that was judged: what guardrails would hold it back for, if anything, and its differences.
    #[serde(flatten)]
    pub judged: HeldStatus,
    /// What it would refuse.
    pub forecast: Forecast,
}

/// A request to return to the policy before the last change.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Undo {
    /// The reason.
    pub reason: Text,
    /// True to return to it even if guardrails hold it back.
    pub release: bool,
}

#[derive(Clone, Debug)]
struct Judges {
    commands: Commands,
    files: PolicyFiles,
    /// One judgement at a time: it takes a processor for a while.
    turn: Arc<Semaphore>,
}

impl Judges {
    /// Runs a judgement once it has its turn.
    ///
    /// # Errors
    /// If others take too long.
    async fn judge<T: Send + 'static>(
        self,
        judge: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Answer<T> {
        let Ok(Ok(turn)) = timeout(TIMEOUT, Arc::clone(&self.turn).acquire_owned()).await else {
            return Err(unavailable("other policies are judged now; try again"));
        };
        let judged = spawn_blocking(move || {
            let _turn = turn;
            judge(&self)
        });
        judged.await.map_err(internal)
    }

    fn dry_run(&self, asked: &DryRun) -> Result<DryRunResult, ReadError> {
        let brain = &self.commands.brain;
        let in_force = brain.with(|brain, _| Arc::clone(brain.policy()));
        let tenants = asked.tenants.as_ref().map(NamedText::source).transpose()?;
        let policy = self
            .files
            .read_texts(asked.policy.source()?, tenants, &in_force)?;
        Ok(self.judged(&Arc::new(policy.compared_to(&in_force)), &in_force))
    }

    fn judged(&self, policy: &Arc<Policy>, in_force: &Policy) -> DryRunResult {
        let trial = self.commands.brain.with(|brain, _| brain.trial(policy));
        DryRunResult {
            in_force: in_force.hash().to_string(),
            judged: HeldStatus {
                hash: policy.hash().to_string(),
                since_s: None,
                reasons: match policy.guardrails {
                    true => trial.reasons(),
                    false => Vec::new(),
                },
                differences: differences(in_force, policy),
            },
            forecast: trial.forecast(),
        }
    }

    fn undo(&self) -> Result<(Arc<Policy>, DryRunResult), UndoError> {
        let brain = &self.commands.brain;
        let (earlier, in_force) = brain.with(|brain, _| brain.undoable())?;
        let catalogue = in_force.shared_catalogue().cloned();
        let policy = earlier.read()?.with_catalogue(catalogue);
        let policy = Arc::new(policy.compared_to(&in_force));
        let result = self.judged(&policy, &in_force);
        Ok((policy, result))
    }

    fn forecast_of_held(&self) -> Option<Forecast> {
        let trial = self.commands.brain.with(|brain, _| {
            let held = brain.policies.held.as_ref()?;
            Some(brain.trial(&held.policy))
        });
        trial.map(|trial| trial.forecast())
    }
}

pub(crate) fn routes(commands: Commands, files: PolicyFiles) -> Routes {
    let dry_run = dry_run.layer(DefaultBodyLimit::max(DRY_RUN_BYTES_MAX));
    let acknowledge = async |State(judges): State<Judges>, Extension(caller), JsonBody(asked)| {
        to_the_end(acknowledge(judges, caller, asked)).await
    };
    let undo_now = async |State(judges): State<Judges>, Extension(caller), JsonBody(asked)| {
        to_the_end(undo(judges, caller, asked)).await
    };
    Routes::new()
        .viewer(Method::GET, "/policy", policies)
        .admin(Method::POST, "/policy/ack", acknowledge)
        .viewer(Method::GET, "/policy/forecast", forecast_of_held)
        .viewer(Method::POST, "/policy/dry-run", dry_run)
        .viewer(Method::GET, "/policy/undo", undo_effect)
        .admin(Method::POST, "/policy/undo", undo_now)
        .with_state(Judges {
            commands,
            files,
            turn: Arc::new(Semaphore::new(1)),
        })
}

async fn policies(State(judges): State<Judges>) -> Json<Policies> {
    let brain = judges.commands.brain;
    Json(brain.with(|brain, _| Policies::of(brain)))
}

async fn forecast_of_held(State(judges): State<Judges>) -> Answer<Json<Option<Forecast>>> {
    judges.judge(Judges::forecast_of_held).await.map(Json)
}

async fn dry_run(
    State(judges): State<Judges>,
    JsonBody(asked): JsonBody<DryRun>,
) -> Answer<Json<DryRunResult>> {
    let judged = judges.judge(move |judges| judges.dry_run(&asked)).await?;
    judged.map(Json).map_err(invalid)
}

async fn acknowledge(judges: Judges, caller: AdminCaller, asked: Ack) -> Answer<Json<Policies>> {
    let files = judges.files.clone();
    let on_disk = on_disk("the policy", move || files.hash())
        .await?
        .map_err(conflict)?;
    let commands = &judges.commands;
    let planned = commands.brain.with(|brain, _| {
        let policy = brain.policies.acknowledged(&asked.hash, on_disk)?;
        let changes = one_line(&differences(brain.policy(), &policy));
        let (before, after) = (brain.policy().hash().to_string(), policy.hash().to_string());
        let text = format!("held policy {after} released and in force: {changes}");
        let event = Event::new(EventKind::PolicyReleased, "policy", text).by(&caller.name);
        let (event, why) = match &asked.reason {
            Some(reason) => (event.why(reason), format!("{reason}: {changes}")),
            None => (event, changes),
        };
        let entry = Entry {
            what: "apply".to_owned(),
            before,
            after,
            why,
        };
        Ok::<_, AckError>((entry, event))
    });
    let (planned, event) = planned.map_err(conflict)?;
    let logged = commands.record(&caller, planned).await?;
    let released = commands
        .brain
        .with(|brain, _| brain.acknowledge(&asked.hash, on_disk));
    if let Err(error) = released {
        logged.refused(&error);
        return Err(conflict(error));
    }
    commands.events.add(event);
    in_effect(&commands.brain).await;
    Ok(policies(State(judges)).await)
}

async fn undo_effect(State(judges): State<Judges>) -> Answer<Json<DryRunResult>> {
    let judged = judges.judge(Judges::undo).await?;
    let (_, result) = judged.map_err(conflict)?;
    Ok(Json(result))
}

async fn undo(
    judges: Judges,
    caller: AdminCaller,
    Undo { reason, release }: Undo,
) -> Answer<Json<Policies>> {
    let judged = judges.clone().judge(Judges::undo).await?;
    let (policy, result) = judged.map_err(conflict)?;
    let DryRunResult {
        in_force, judged, ..
    } = result;
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
    let Commands { brain, events, .. } = &judges.commands;
    let logged = judges.commands.record(&caller, entry).await?;
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
    in_effect(brain).await;
    Ok(policies(State(judges)).await)
}
