//! The rollout on the admin port: stages and their history, promotion, abort, and the acknowledgement of a
//! held policy. For clients on this machine only, because there is no authentication.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use plimsoll_admin::loopback::{JsonBody, error_response, loopback_only};
use plimsoll_core::decision::Mode;
use plimsoll_core::names::Text;
use plimsoll_core::quantity::MonoTime;
use plimsoll_policy::Difference;
use plimsoll_proto::shared::Shared;
use serde::{Deserialize, Serialize};

use crate::admin::in_effect::in_effect;
use crate::brain::Brain;
use crate::rollout::{RolloutError, reasons};
use crate::state::{Change, Evidence};

/// The rollout of one entry of the policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EntryStatus {
    /// The bucket or pattern.
    pub entry: String,
    /// The stage, regardless of the kill switch.
    pub stage: Mode,
    /// True while a kill puts it in shadow.
    pub killed: bool,
    /// The mode in the policy file.
    pub file: Mode,
    /// The mode in the policy file that waits for its gate.
    pub pending: Option<Mode>,
    /// The next stage.
    pub next: Option<Mode>,
    /// The result of the gate to the next stage: `pass`, `fail` or `inconclusive`.
    pub gate: Option<String>,
    /// Why the gate does not pass.
    pub why: Vec<String>,
    /// True if the entry is promoted as soon as its gate passes.
    pub auto_promote: bool,
    /// The statistics of the stage, over the window of its gate.
    pub evidence: Evidence,
    /// The change that began the stage.
    pub since: Option<Change>,
}

/// A request to promote an entry.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Promote {
    /// The entry.
    pub entry: String,
    /// The target stage; the next one if absent.
    #[serde(default)]
    pub to: Option<Mode>,
    /// The reason to promote it although the gate does not pass.
    #[serde(default)]
    pub force: Option<Text>,
}

/// A request to return an entry to shadow.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Abort {
    /// The entry.
    pub entry: String,
    /// The reason.
    #[serde(default)]
    pub reason: Option<Text>,
}

/// A request to put a held policy in force.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ack {
    /// The hash of the policy: 16 hex digits.
    pub hash: String,
}

/// The result of a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Done {
    /// The change; null if there was nothing to change.
    pub change: Option<Change>,
    /// True once it is saved and survives a restart.
    pub saved: bool,
}

/// The policy in force and the held one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Policies {
    /// The hash of the policy in force.
    pub in_force: String,
    /// The policy that waits for acknowledgement.
    pub held: Option<HeldStatus>,
}

/// A policy that waits for acknowledgement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeldStatus {
    /// The hash of the policy.
    pub hash: String,
    /// The differences to the policy in force, drastic ones first.
    pub differences: Vec<Difference>,
}

/// Returns the routes, for clients on this machine only.
pub(crate) fn routes(brain: &Shared<Brain>) -> Router {
    let of = || brain.clone();
    let (status, history, promoting, aborting, policies, acking) = (of(), of(), of(), of(), of(), of());
    let routes = Router::new()
        .route("/rollout", get(async move || Json(status.with(statuses))))
        .route("/rollout/history", get(async move || Json(history.with(|brain, _| changes(brain)))))
        .route(
            "/rollout/promote",
            post(async move |JsonBody(asked): JsonBody<Promote>| promote(&promoting, asked).await),
        )
        .route(
            "/rollout/abort",
            post(async move |JsonBody(asked): JsonBody<Abort>| abort(&aborting, asked).await),
        )
        .route("/policy", get(async move || Json(policies.with(|brain, _| self::policies(brain)))))
        .route(
            "/policy/ack",
            post(async move |JsonBody(asked): JsonBody<Ack>| acknowledge(&acking, asked).await),
        );
    loopback_only(routes)
}

/// Returns the rollout of every entry.
fn statuses(brain: &mut Brain, now: MonoTime) -> Vec<EntryStatus> {
    let durable = brain.durable();
    let status = |(entry, policy): (String, &plimsoll_policy::BucketPolicy)| {
        let stage = *durable.stages.get(&entry)?;
        let judgement = brain.judgement(now, &entry, policy.rollout());
        Some(EntryStatus {
            stage: stage.stage,
            killed: durable.is_entry_killed(&entry),
            file: stage.file,
            pending: stage.pending,
            next: crate::rollout::next_stage(stage.stage),
            gate: judgement.as_ref().map(|judgement| judgement.as_str().to_owned()),
            why: judgement.as_ref().map(reasons).unwrap_or_default(),
            auto_promote: policy.rollout().auto_promote,
            evidence: brain.evidence(now, &entry, policy.rollout()),
            since: durable.history.iter().rev().find(|change| change.number == stage.change).cloned(),
            entry,
        })
    };
    brain.policy().entries().filter_map(status).collect()
}

fn changes(brain: &Brain) -> Vec<Change> {
    brain.durable().history.iter().cloned().collect()
}

fn policies(brain: &Brain) -> Policies {
    let held = brain.held_policy().map(|held| HeldStatus {
        hash: held.policy.hash().to_string(),
        differences: held.differences.clone(),
    });
    Policies { in_force: brain.policy().hash().to_string(), held }
}

async fn promote(brain: &Shared<Brain>, asked: Promote) -> Response {
    let Promote { entry, to, force } = asked;
    match brain.with(|brain, now| brain.promote(now, &entry, to, force.as_ref())) {
        Ok(change) => done(brain, Some(change)).await,
        Err(error) => refused(&error),
    }
}

async fn abort(brain: &Shared<Brain>, asked: Abort) -> Response {
    let Abort { entry, reason } = asked;
    match brain.with(|brain, _| brain.abort(&entry, reason.as_ref())) {
        Ok(change) => done(brain, change).await,
        Err(error) => refused(&error),
    }
}

async fn acknowledge(brain: &Shared<Brain>, asked: Ack) -> Response {
    let Ack { hash } = asked;
    match brain.with(|brain, _| brain.acknowledge(&hash)) {
        Ok(hash) => {
            tracing::info!(policy = %hash, "held policy acknowledged and in force");
            in_effect(brain).await;
            Json(brain.with(|brain, _| policies(brain))).into_response()
        }
        Err(error) => error_response(StatusCode::CONFLICT, error),
    }
}

async fn done(brain: &Shared<Brain>, change: Option<Change>) -> Response {
    let saved = in_effect(brain).await;
    // The statistics and the time of the change may have been filled in since.
    let change = change.map(|change| {
        let kept = brain.with(|brain, _| {
            brain.durable().history.iter().rev().find(|kept| kept.number == change.number).cloned()
        });
        kept.unwrap_or(change)
    });
    Json(Done { change, saved }).into_response()
}

fn refused(error: &RolloutError) -> Response {
    let status = match error {
        RolloutError::Unknown { .. } => StatusCode::BAD_REQUEST,
        RolloutError::Killed | RolloutError::Reached { .. } | RolloutError::Gate { .. } => {
            StatusCode::CONFLICT
        }
    };
    error_response(status, error)
}
