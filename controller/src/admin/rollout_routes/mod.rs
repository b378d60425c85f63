//! The rollout on the admin port: stages and their history, promotion and abort.

mod policy;
mod resume;
mod undo;

pub use policy::{Ack, DryRun, DryRunResult, NamedText};
pub use resume::{Reset, Resume, Resumed, Returning};
pub use undo::Undo;

use axum::extract::State;
use axum::http::Method;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use plimsoll_admin::access::{Caller, Routes};
use plimsoll_admin::body::JsonBody;
use plimsoll_core::decision::Mode;
use plimsoll_core::names::Text;
use plimsoll_core::quantity::MonoTime;
use plimsoll_host::Shared;
use plimsoll_policy::BucketPolicy;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::admin::{
    Answer, BrainState, Commands, Refused, conflict, in_effect, invalid, to_the_end, unavailable,
};
use crate::audit::{Actor, Entry};
use crate::brain::Brain;
use crate::bucket::Refusals;
use crate::policy_file::PolicyFiles;
use crate::rollout::{Promotion, RolloutError, reasons};
use crate::state::{Change, Evidence};
use crate::tasks::events::EventLog;
use crate::tasks::journal;

/// The rollout of one entry of the policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EntryStatus {
    /// The bucket or pattern.
    pub entry: String,
    /// The stage, regardless of the kill switch.
    pub stage: Mode,
    /// True while a kill puts it in shadow.
    pub killed: bool,
    /// Connected clients of the fleet that a kill file stops from refusing.
    pub killed_locally: u32,
    /// The mode in the policy file.
    pub file: Mode,
    /// The mode in the policy file that waits for its gate.
    pub pending: Option<Mode>,
    /// The next stage.
    pub next: Option<Mode>,
    /// The result of the gate to the next stage: `pass`, `fail` or `inconclusive`.
    pub gate: Option<String>,
    /// Why the gate does not pass, and what restricts its judgement, pass or not.
    pub why: Vec<String>,
    /// True if the entry is promoted as soon as its gate passes.
    pub auto_promote: bool,
    /// The statistics of the stage, over the window of its gate.
    pub evidence: Evidence,
    /// The change that began the stage, or its evidence anew.
    pub since: Option<Change>,
}

/// A request to promote an entry.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Promote {
    /// The entry.
    pub entry: String,
    /// The target stage; the next one if absent.
    pub to: Option<Mode>,
    /// The reason to promote it although the gate does not pass.
    pub force: Option<Text>,
    /// The reason for the history, where the gate passes.
    pub reason: Option<Text>,
}

/// A request to return an entry to shadow.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Abort {
    /// The entry.
    pub entry: String,
    /// The reason.
    pub reason: Option<Text>,
}

/// The result of a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Done {
    /// The change; null if there was nothing to change.
    pub change: Option<Change>,
    /// True once it is saved and survives a restart.
    pub saved: bool,
}

pub(crate) fn routes(commands: Commands, files: PolicyFiles) -> Routes {
    let get = Method::GET;
    let of_rollouts = Routes::new()
        .viewer(get.clone(), "/rollout", async |State(brain): BrainState| {
            Json(brain.with(statuses))
        })
        .viewer(get, "/rollout/history", async |State(brain): BrainState| {
            Json(brain.with(changes))
        })
        .operator(Method::POST, "/rollout/promote", promote)
        .operator(Method::POST, "/rollout/abort", abort)
        .with_state(commands.clone());
    of_rollouts
        .merge(resume::routes(commands.clone()))
        .merge(policy::routes(commands, files))
}

fn statuses(brain: &mut Brain, now: MonoTime) -> Vec<EntryStatus> {
    let entries = brain.policy().entries();
    entries
        .filter_map(|(entry, policy)| EntryStatus::of(brain, now, &entry, policy))
        .collect()
}

/// Returns a note about callers who send their requests again, which is part of what a gate observes.
fn retries(brain: &Brain, entry: &str) -> Option<String> {
    let lately = brain.buckets.states.get(entry)?.refusals.last_5_min();
    let share = lately.retried_ratio();
    (share >= Refusals::SHOWN_MIN).then(|| {
        format!(
            "callers sent {:.1} % of the requests of 5 min again",
            share * 100.0
        )
    })
}

impl EntryStatus {
    pub(crate) fn of(
        brain: &Brain,
        now: MonoTime,
        entry: &str,
        policy: &BucketPolicy,
    ) -> Option<Self> {
        let durable = brain.durable();
        let stage = *durable.stages.get(entry)?;
        let judgement = brain.judgement(now, entry, &policy.rollout);
        let evidence = brain.rollouts.evidence(now, entry, &policy.rollout);
        let mut why = judgement.as_ref().map(reasons).unwrap_or_default();
        if judgement.is_some() {
            why.extend(evidence.notes(stage.stage));
            why.extend(retries(brain, entry));
        }
        Some(Self {
            entry: entry.to_owned(),
            stage: stage.stage,
            killed: durable.is_entry_killed(entry),
            killed_locally: brain.killed_locally(),
            file: stage.file,
            pending: stage.pending,
            next: crate::rollout::next_stage(stage.stage),
            gate: judgement
                .as_ref()
                .map(|judgement| judgement.as_str().to_owned()),
            why,
            auto_promote: policy.rollout.auto_promote,
            evidence,
            since: durable.change(stage.change).cloned(),
        })
    }
}

fn changes(brain: &mut Brain, _now: MonoTime) -> Vec<Change> {
    brain.durable().history.iter().cloned().collect()
}

async fn promote(
    State(commands): State<Commands>,
    Extension(caller): Extension<Caller>,
    JsonBody(asked): JsonBody<Promote>,
) -> Answer {
    to_the_end(async move {
        let Commands {
            brain,
            audit,
            events,
        } = commands;
        let mut promotion = Promotion {
            entry: &asked.entry,
            to: asked.to,
            force: asked.force.as_ref(),
            reason: asked.reason.as_ref(),
        };
        let planned = brain.with(|brain, now| brain.preview_promotion(now, promotion));
        let planned = planned.map_err(|error| not_moved(&error))?;
        let change = Entry::of_change("promote", &planned);
        let logged = audit
            .record(Actor::from(&caller), change)
            .await
            .map_err(unavailable)?;
        // To the stage that was recorded, regardless of later changes.
        promotion.to = Some(planned.to);
        match brain.with(|brain, now| brain.promote(now, promotion)) {
            Ok(change) => {
                add_stage(&events, &caller, &change);
                let saved = in_effect(&brain).await;
                Ok(done(&brain, Some(change), saved))
            }
            Err(error) => {
                logged.refused(&error);
                Err(not_moved(&error))
            }
        }
    })
    .await
}

async fn abort(
    State(commands): State<Commands>,
    Extension(caller): Extension<Caller>,
    JsonBody(asked): JsonBody<Abort>,
) -> Answer {
    let brain = &commands.brain;
    let change = brain.with(|brain, _| brain.abort(&asked.entry, asked.reason.as_ref()));
    let change = change.map_err(|error| not_moved(&error))?;
    let saved = match &change {
        None => in_effect(brain).await,
        Some(change) => {
            add_stage(&commands.events, &caller, change);
            commands
                .note(&caller, Entry::of_change("abort", change))
                .await
        }
    };
    Ok(done(brain, change, saved))
}

/// Adds the event of a stage that an operator moved.
fn add_stage(events: &EventLog, caller: &Caller, change: &Change) {
    let event = journal::of_stage(change).map(|event| event.by(&caller.name));
    event.into_iter().for_each(|event| events.add(event));
}

fn done(brain: &Shared<Brain>, change: Option<Change>, saved: bool) -> Response {
    // The statistics and the time of the change may have been filled in since.
    let change = change.map(|change| {
        brain
            .with(|brain, _| brain.durable().change(change.number).cloned())
            .unwrap_or(change)
    });
    Json(Done { change, saved }).into_response()
}

fn not_moved(error: &RolloutError) -> Refused {
    let is_unknown = matches!(error, RolloutError::Unknown { .. });
    if is_unknown {
        invalid(error)
    } else {
        conflict(error)
    }
}
