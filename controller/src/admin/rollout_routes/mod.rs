//! The rollout on the admin port: stages and their history, promotion and abort, the return of entries after a kill to the
//! stages that they had, with what would be refused then, and evidence that begins anew.

mod policy;

pub(crate) use policy::routes as policy_routes;
pub use policy::{Ack, DryRun, DryRunResult, NamedText, Undo};

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::Method;
use axum::{Extension, Json};
use plimsoll_admin::access::{AdminCaller, Routes};
use plimsoll_admin::body::JsonBody;
use plimsoll_core::decision::Mode;
use plimsoll_core::names::Text;
use plimsoll_core::quantity::MonoTime;
use plimsoll_policy::BucketPolicy;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::admin::{
    Answer, BrainState, Commands, Refused, conflict, in_effect, invalid, to_the_end,
};
use crate::audit::{Actor, Entry};
use crate::brain::Brain;
use crate::bucket::{LawRate, Refusals};
use crate::rollout::{Promotion, RolloutError, Rollouts, reasons};
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
    /// The next stage; null if it is enforced, like the gate.
    pub next: Option<Mode>,
    /// The result of the gate to the next stage: `pass`, `fail` or `inconclusive`.
    pub gate: Option<String>,
    /// Why the gate does not pass, and what restricts its judgement, pass or not.
    pub why: Vec<String>,
    /// True if the entry is promoted as soon as its gate passes.
    pub auto_promote: bool,
    /// The statistics of the stage, over the window of its gate.
    pub evidence: Evidence,
    /// The change that began the stage, or its evidence anew; null once the history has dropped it.
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

/// An entry that a kill put in shadow, or a bucket that was killed without its pattern, and where it can return to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Returning {
    /// The entry of the policy, or the bucket.
    pub entry: String,
    /// The stage to which it returns; null if it cannot.
    pub to: Option<Mode>,
    /// Why it cannot return.
    pub refused: Option<String>,
    /// True while it is killed.
    pub killed: bool,
    /// True if the kill that put it in shadow has ended. It may be killed again since.
    pub ended: bool,
    /// Requests/s offered now.
    pub offered_rps: f64,
    /// The share of them that would be refused in that stage, by the present ratio of the law; null while that is unknown.
    pub would_refuse: Option<f64>,
}

/// A request to return entries and buckets to their stages before a kill.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Resume {
    /// Their names.
    pub entries: Vec<String>,
    /// The reason.
    pub reason: Text,
}

/// The answer to [`Resume`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Resumed {
    /// The changes that were made.
    pub changes: Vec<Change>,
    /// The entries that were not resumed, with the reason.
    pub refused: BTreeMap<String, String>,
    /// True once the changes are saved and survive a restart.
    pub saved: bool,
}

/// A request to begin the evidence of an entry anew.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Reset {
    /// The entry.
    pub entry: String,
    /// The reason.
    pub reason: Text,
}

/// The result of a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Done {
    /// The change; null if there was nothing to change.
    pub change: Option<Change>,
    /// True once it is saved and survives a restart.
    pub saved: bool,
}

pub(crate) fn routes() -> Routes<Commands> {
    let (get, post) = (Method::GET, Method::POST);
    Routes::new()
        .viewer(get.clone(), "/rollout", async |State(brain): BrainState| {
            Json(brain.with(statuses))
        })
        .viewer(
            get.clone(),
            "/rollout/history",
            async |State(brain): BrainState| Json(brain.with(changes)),
        )
        .operator(post.clone(), "/rollout/promote", promote)
        .operator(post.clone(), "/rollout/abort", abort)
        .viewer(get, "/rollout/resume", async |State(brain): BrainState| {
            Json(brain.with(returning))
        })
        .operator(post.clone(), "/rollout/resume", resume)
        .operator(post, "/rollout/reset", reset)
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
            killed_locally: brain.clients().killed_locally,
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
    Extension(caller): Extension<AdminCaller>,
    JsonBody(asked): JsonBody<Promote>,
) -> Answer<Json<Done>> {
    to_the_end(async move {
        let brain = &commands.brain;
        let mut promotion = Promotion {
            entry: &asked.entry,
            to: asked.to,
            force: asked.force.as_ref(),
            reason: asked.reason.as_ref(),
        };
        let planned = brain.with(|brain, now| brain.preview_promotion(now, promotion));
        let planned = planned.map_err(not_moved)?;
        let change = Entry::of_change("promote", &planned);
        let logged = commands.record(&caller, change).await?;
        // To the stage that was recorded, regardless of later changes.
        promotion.to = Some(planned.to);
        match brain.with(|brain, now| brain.promote(now, promotion)) {
            Ok(change) => {
                add_stage(&commands.events, &caller, &change);
                let saved = in_effect(brain).await;
                Ok(Json(Done {
                    change: Some(change),
                    saved,
                }))
            }
            Err(error) => {
                logged.refused(&error);
                Err(not_moved(error))
            }
        }
    })
    .await
}

async fn abort(
    State(commands): State<Commands>,
    Extension(caller): Extension<AdminCaller>,
    JsonBody(asked): JsonBody<Abort>,
) -> Answer<Json<Done>> {
    let brain = &commands.brain;
    let change = brain.with(|brain, _| brain.abort(&asked.entry, asked.reason.as_ref()));
    let change = change.map_err(not_moved)?;
    let saved = match &change {
        None => in_effect(brain).await,
        Some(change) => {
            add_stage(&commands.events, &caller, change);
            commands
                .note(&caller, Entry::of_change("abort", change))
                .await
        }
    };
    Ok(Json(Done { change, saved }))
}

pub(crate) fn returning(brain: &mut Brain, _now: MonoTime) -> Vec<Returning> {
    let (durable, policy) = (brain.durable(), brain.policy());
    let rates = law_rates(brain);
    let percents: BTreeMap<String, f64> = policy
        .entries()
        .map(|(name, entry)| (name, entry.rollout.canary_percent.get()))
        .collect();
    let row = |name: &str| {
        let to = Rollouts::stage_after_kill(durable, policy, name);
        // A name that a pattern matches follows the rollout of the pattern.
        let pattern_or_own = durable.held_below(name).unwrap_or(name);
        let LawRate { offered_rps, ratio } = rates.get(name).copied().unwrap_or_default();
        let carried_out = match to {
            Ok(Mode::Canary) => percents.get(pattern_or_own).copied().unwrap_or_default() / 100.0,
            _ => 1.0,
        };
        Returning {
            entry: name.to_owned(),
            refused: to.as_ref().err().map(ToString::to_string),
            would_refuse: ratio
                .filter(|_| to.is_ok())
                .map(|ratio| carried_out * ratio),
            to: to.ok(),
            killed: durable.is_entry_killed(name),
            ended: durable.before_kill(name).is_some_and(|before| before.ended),
            offered_rps,
        }
    };
    durable.returning().map(row).collect()
}

/// The rates of each entry, and of each bucket that has no entry of its own.
fn law_rates(brain: &Brain) -> BTreeMap<&str, LawRate> {
    let mut rates = BTreeMap::<&str, LawRate>::new();
    for bucket in brain.buckets.states.values() {
        let own = Some(bucket.name.as_str()).filter(|own| bucket.entry.as_deref() != Some(own));
        for name in bucket.entry.as_deref().into_iter().chain(own) {
            for (_, share) in bucket.shares() {
                let rate = rates.entry(name).or_default();
                rate.add(share.offered, share.law_ratio());
            }
        }
    }
    rates
}

async fn resume(
    State(commands): State<Commands>,
    Extension(caller): Extension<AdminCaller>,
    JsonBody(Resume { entries, reason }): JsonBody<Resume>,
) -> Answer<Json<Resumed>> {
    to_the_end(async move {
        let (mut changes, mut refused) = (Vec::new(), BTreeMap::new());
        for entry in entries {
            match resume_one(&commands, &caller, &entry, &reason).await {
                Ok(change) => changes.push(change),
                Err(why) => drop(refused.insert(entry, why)),
            }
        }
        let saved = in_effect(&commands.brain).await;
        Ok(Json(Resumed {
            changes,
            refused,
            saved,
        }))
    })
    .await
}

/// Returns the change, or why there is none.
async fn resume_one(
    commands: &Commands,
    caller: &AdminCaller,
    entry: &str,
    reason: &Text,
) -> Result<Change, String> {
    let brain = &commands.brain;
    let planned =
        brain.with(|brain, _| Rollouts::resumed_stage(brain.durable(), brain.policy(), entry));
    let to = planned.map_err(|error| error.to_string())?;
    let planned = Entry {
        what: format!("resume {entry}"),
        before: Mode::Shadow.to_string(),
        after: to.to_string(),
        why: reason.to_string(),
    };
    // An entry resumes once that is recorded, to no higher stage.
    let recorded = commands.audit.record(Actor::from(caller), planned).await;
    let logged = recorded.map_err(|error| error.to_string())?;
    let resumed = brain.with(|brain, _| brain.resume(entry, to, reason));
    match resumed {
        Ok(change) => {
            add_stage(&commands.events, caller, &change);
            Ok(change)
        }
        Err(error) => {
            logged.refused(&error);
            Err(error.to_string())
        }
    }
}

async fn reset(
    State(commands): State<Commands>,
    Extension(caller): Extension<AdminCaller>,
    JsonBody(Reset { entry, reason }): JsonBody<Reset>,
) -> Answer<Json<Done>> {
    let brain = &commands.brain;
    let change = brain.with(|brain, _| brain.reset(&entry, &reason));
    let change = change.map_err(not_moved)?;
    add_stage(&commands.events, &caller, &change);
    let saved = commands
        .note(&caller, Entry::of_change("reset evidence of", &change))
        .await;
    Ok(Json(Done {
        change: Some(change),
        saved,
    }))
}

/// Adds the event of a stage that an operator moved.
fn add_stage(events: &EventLog, caller: &AdminCaller, change: &Change) {
    let event = journal::of_stage(change).map(|event| event.by(&caller.name));
    event.into_iter().for_each(|event| events.add(event));
}

fn not_moved(error: RolloutError) -> Refused {
    match error {
        RolloutError::Unknown { .. } => invalid(error),
        _ => conflict(error),
    }
}
