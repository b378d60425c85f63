//! The rollout at the admin port: what is in which stage and why, what somebody asks for, and the policy that is held
//! back. For callers on this machine alone, as long as nobody has to show who they are.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use plimsoll_policy::Difference;
use plimsoll_core::decision::Mode;
use plimsoll_core::names::Text;
use plimsoll_core::quantity::MonoTime;
use plimsoll_proto::local::{Asked, local, refuse};
use plimsoll_proto::shared::Shared;
use serde::{Deserialize, Serialize};

use crate::brain::{Brain, RolloutError};
use crate::state::{Change, Exhibit};
use crate::admin::in_effect::in_effect;
use crate::rollout::words;

/// One entry of the policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EntryStatus {
    /// Its name: a bucket or a pattern.
    pub entry: String,
    /// What is in force, before a kill is considered.
    pub stage: Mode,
    /// Whether the kill switch makes it shadow.
    pub killed: bool,
    /// What the file says.
    pub file: Mode,
    /// What the file asks for and no gate has let through.
    pub pending: Option<Mode>,
    /// The stage that comes next.
    pub next: Option<Mode>,
    /// What the gate to it says: `pass`, `fail` or `inconclusive`.
    pub gate: Option<String>,
    /// What speaks against passing.
    pub why: Vec<String>,
    /// Whether a gate that is passed needs nobody's word.
    pub auto_promote: bool,
    /// What was seen of the stage, over the window of its gate.
    pub evidence: Exhibit,
    /// The change that began it.
    pub since: Option<Change>,
}

/// Asks for a later stage.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Promote {
    /// The entry.
    pub entry: String,
    /// The stage it shall come to; the next one, if absent.
    #[serde(default)]
    pub to: Option<Mode>,
    /// Why, if it shall go past a gate that is not passed.
    #[serde(default)]
    pub force: Option<Text>,
}

/// Asks for shadow.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Abort {
    /// The entry.
    pub entry: String,
    /// Why.
    #[serde(default)]
    pub reason: Option<Text>,
}

/// Releases a policy that is held back.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ack {
    /// Its name: 16 hex digits.
    pub hash: String,
}

/// What was done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Done {
    /// The change; nothing where all was so already.
    pub change: Option<Change>,
    /// Whether it is written down: a restart would remember it.
    pub saved: bool,
}

/// The policies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Policies {
    /// The name of the policy in force.
    pub in_force: String,
    /// The one that is held back.
    pub held: Option<HeldStatus>,
}

/// A policy that is held back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeldStatus {
    /// Its name.
    pub hash: String,
    /// In what it differs from the one in force, what is drastic first.
    pub differences: Vec<Difference>,
}

/// The routes.
pub(crate) fn routes(brain: &Shared<Brain>) -> Router {
    let of = || brain.clone();
    let (status, history, promoting, aborting, policies, acking) = (of(), of(), of(), of(), of(), of());
    let routes = Router::new()
        .route("/rollout", get(async move || Json(status.with(statuses))))
        .route("/rollout/history", get(async move || Json(history.with(|brain, _| changes(brain)))))
        .route(
            "/rollout/promote",
            post(async move |Asked(asked): Asked<Promote>| promote(&promoting, asked).await),
        )
        .route("/rollout/abort", post(async move |Asked(asked): Asked<Abort>| abort(&aborting, asked).await))
        .route("/policy", get(async move || Json(policies.with(|brain, _| self::policies(brain)))))
        .route("/policy/ack", post(async move |Asked(asked): Asked<Ack>| acknowledge(&acking, asked).await));
    local(routes)
}

/// Every entry and its stage.
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
            next: crate::rollout::next(stage.stage),
            gate: judgement.as_ref().map(|judgement| judgement.as_str().to_owned()),
            why: judgement.as_ref().map(words).unwrap_or_default(),
            auto_promote: policy.rollout().auto_promote,
            evidence: brain.exhibit(now, &entry, policy.rollout()),
            since: durable.history.iter().rev().find(|change| change.number == stage.change).cloned(),
            entry,
        })
    };
    brain.rollouts().into_iter().filter_map(status).collect()
}

fn changes(brain: &Brain) -> Vec<Change> {
    brain.durable().history.iter().cloned().collect()
}

fn policies(brain: &Brain) -> Policies {
    let held = brain.held().map(|held| HeldStatus {
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
            tracing::info!(policy = %hash, "a policy that was held back is acknowledged and in force");
            in_effect(brain).await;
            Json(brain.with(|brain, _| policies(brain))).into_response()
        }
        Err(error) => refuse(StatusCode::CONFLICT, error),
    }
}

async fn done(brain: &Shared<Brain>, change: Option<Change>) -> Response {
    let saved = in_effect(brain).await;
    // What was seen of the stage, and the time of the change, may have been filled in meanwhile.
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
    refuse(status, error)
}
