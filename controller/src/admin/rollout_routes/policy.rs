//! The policy on the admin port: the current one, the held one and its acknowledgement, and the effect of one that is not
//! saved.

use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, State};
use axum::handler::Handler;
use axum::http::Method;
use axum::response::IntoResponse;
use axum::{Extension, Json};
use plimsoll_admin::access::{Caller, Routes};
use plimsoll_admin::body::JsonBody;
use plimsoll_core::names::Text;
use plimsoll_host::Shared;
use plimsoll_policy::{FILE_BYTES_MAX, Forecast, Policy, PolicyError, Source, differences};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::undo;
use crate::admin::status::{HeldStatus, Policies};
use crate::admin::{
    Answer, BrainState, Commands, TIMEOUT, conflict, in_effect, internal, invalid, on_disk,
    to_the_end, unavailable,
};
use crate::audit::{Actor, Entry};
use crate::brain::{AckError, Brain};
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

#[derive(Clone, Debug)]
pub(super) struct Judges {
    pub(super) brain: Shared<Brain>,
    files: PolicyFiles,
    /// One judgement at a time: it takes a processor for a while.
    turn: Arc<Semaphore>,
}

impl Judges {
    /// Runs a judgement once it has its turn.
    ///
    /// # Errors
    /// If others take too long.
    pub(super) async fn judge<T: Send + 'static>(
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
        let in_force = self.brain.with(|brain, _| Arc::clone(brain.policy()));
        let tenants = asked.tenants.as_ref().map(NamedText::source).transpose()?;
        let policy = self
            .files
            .read_texts(asked.policy.source()?, tenants, &in_force)?;
        Ok(self.judged(&Arc::new(policy.compared_to(&in_force)), &in_force))
    }

    pub(super) fn judged(&self, policy: &Arc<Policy>, in_force: &Policy) -> DryRunResult {
        let trial = self.brain.with(|brain, _| brain.trial(policy));
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

    fn forecast_of_held(&self) -> Option<Forecast> {
        let trial = self.brain.with(|brain, _| {
            let held = brain.policies.held.as_ref()?;
            Some(brain.trial(&held.policy))
        });
        trial.map(|trial| trial.forecast())
    }
}

pub(super) fn routes(commands: Commands, files: PolicyFiles) -> Routes {
    let judges = Judges {
        brain: commands.brain.clone(),
        files: files.clone(),
        turn: Arc::new(Semaphore::new(1)),
    };
    let acknowledge =
        async move |State(commands): State<Commands>, Extension(caller), JsonBody(asked)| {
            to_the_end(acknowledge(commands, files, caller, asked)).await
        };
    let of_commands = Routes::new()
        .viewer(Method::GET, "/policy", async |State(brain): BrainState| {
            Json(brain.with(|brain, _| Policies::of(brain)))
        })
        .admin(Method::POST, "/policy/ack", acknowledge)
        .with_state(commands.clone());
    let of_judges = Routes::new()
        .viewer(Method::GET, "/policy/forecast", forecast_of_held)
        .viewer(
            Method::POST,
            "/policy/dry-run",
            dry_run.layer(DefaultBodyLimit::max(DRY_RUN_BYTES_MAX)),
        )
        .with_state(judges.clone());
    of_commands
        .merge(of_judges)
        .merge(undo::routes(commands, judges))
}

async fn forecast_of_held(State(judges): State<Judges>) -> Answer {
    let forecast = judges.judge(Judges::forecast_of_held).await?;
    Ok(Json(forecast).into_response())
}

async fn dry_run(State(judges): State<Judges>, JsonBody(asked): JsonBody<DryRun>) -> Answer {
    let judged = judges.judge(move |judges| judges.dry_run(&asked)).await?;
    Ok(Json(judged.map_err(invalid)?).into_response())
}

async fn acknowledge(
    Commands {
        brain,
        audit,
        events,
    }: Commands,
    files: PolicyFiles,
    caller: Caller,
    asked: Ack,
) -> Answer {
    let on_disk = on_disk("the policy", move || files.hash())
        .await?
        .map_err(conflict)?;
    let planned = brain.with(|brain, _| {
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
    let logged = audit
        .record(Actor::from(&caller), planned)
        .await
        .map_err(unavailable)?;
    match brain.with(|brain, _| brain.acknowledge(&asked.hash, on_disk)) {
        Ok(_) => {
            events.add(event);
            in_effect(&brain).await;
            Ok(Json(brain.with(|brain, _| Policies::of(brain))).into_response())
        }
        Err(error) => {
            logged.refused(&error);
            Err(conflict(error))
        }
    }
}
