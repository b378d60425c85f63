//! The return of entries after a kill to the stages that they had, with what would be refused then, and evidence that
//! begins anew.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::Method;
use axum::response::IntoResponse;
use axum::{Extension, Json};
use plimsoll_admin::access::{Caller, Routes};
use plimsoll_admin::body::JsonBody;
use plimsoll_core::decision::Mode;
use plimsoll_core::names::Text;
use plimsoll_core::quantity::MonoTime;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{add_stage, done, not_moved};
use crate::admin::{Answer, BrainState, Commands, in_effect, to_the_end};
use crate::audit::{Actor, Entry};
use crate::brain::Brain;
use crate::rollout::Rollouts;
use crate::state::Change;

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

pub(super) fn routes(commands: Commands) -> Routes {
    Routes::new()
        .viewer(
            Method::GET,
            "/rollout/resume",
            async |State(brain): BrainState| Json(brain.with(returning)),
        )
        .operator(Method::POST, "/rollout/resume", resume)
        .operator(Method::POST, "/rollout/reset", reset)
        .with_state(commands)
}

fn returning(brain: &mut Brain, _now: MonoTime) -> Vec<Returning> {
    let (durable, policy) = (brain.durable(), brain.policy());
    // Offered and refused requests/s, by entry and by bucket.
    let mut rates: BTreeMap<&str, (f64, Option<f64>)> = BTreeMap::new();
    for bucket in brain.buckets.states.values() {
        let is_limited = bucket.divided_limit().per_second().is_some();
        let own = Some(bucket.name.as_str()).filter(|own| bucket.entry.as_deref() != Some(own));
        for name in bucket.entry.as_deref().into_iter().chain(own) {
            let (offered, refused) = rates.entry(name).or_default();
            for (_, share) in bucket.shares() {
                *offered += share.offered;
                if is_limited {
                    *refused.get_or_insert(0.0) += share.offered * share.ratio.as_f64();
                }
            }
        }
    }
    let percents: BTreeMap<String, f64> = policy
        .entries()
        .map(|(name, entry)| (name, entry.rollout.canary_percent.get()))
        .collect();
    let row = |name: &str| {
        let to = Rollouts::stage_after_kill(durable, policy, name);
        let entry = durable.held_below(name).unwrap_or(name);
        let (offered_rps, refused) = rates.get(name).copied().unwrap_or_default();
        let carried_out = match to {
            Ok(Mode::Canary) => percents.get(entry).copied().unwrap_or_default() / 100.0,
            _ => 1.0,
        };
        let share = |refused: f64| carried_out * refused / offered_rps.max(f64::MIN_POSITIVE);
        Returning {
            entry: name.to_owned(),
            refused: to.as_ref().err().map(ToString::to_string),
            would_refuse: refused.filter(|_| to.is_ok()).map(share),
            to: to.ok(),
            killed: durable.is_entry_killed(name),
            ended: durable.before_kill(name).is_some_and(|before| before.ended),
            offered_rps,
        }
    };
    durable.returning().map(row).collect()
}

async fn resume(
    State(Commands {
        brain,
        audit,
        events,
    }): State<Commands>,
    Extension(caller): Extension<Caller>,
    JsonBody(Resume { entries, reason }): JsonBody<Resume>,
) -> Answer {
    to_the_end(async move {
        let (mut changes, mut refused) = (Vec::new(), BTreeMap::new());
        for entry in entries {
            let planned = brain
                .with(|brain, _| Rollouts::resumed_stage(brain.durable(), brain.policy(), &entry));
            let to = match planned {
                Ok(to) => to,
                Err(error) => {
                    refused.insert(entry, error.to_string());
                    continue;
                }
            };
            let change = Entry {
                what: format!("resume {entry}"),
                before: Mode::Shadow.to_string(),
                after: to.to_string(),
                why: reason.to_string(),
            };
            // An entry resumes once that is recorded, to no higher stage.
            match audit.record(Actor::from(&caller), change).await {
                Err(error) => drop(refused.insert(entry, error.to_string())),
                Ok(logged) => match brain.with(|brain, _| brain.resume(&entry, to, &reason)) {
                    Ok(change) => {
                        add_stage(&events, &caller, &change);
                        changes.push(change);
                    }
                    Err(error) => {
                        logged.refused(&error);
                        refused.insert(entry, error.to_string());
                    }
                },
            }
        }
        let saved = in_effect(&brain).await;
        Ok(Json(Resumed {
            changes,
            refused,
            saved,
        })
        .into_response())
    })
    .await
}

async fn reset(
    State(commands): State<Commands>,
    Extension(caller): Extension<Caller>,
    JsonBody(Reset { entry, reason }): JsonBody<Reset>,
) -> Answer {
    let brain = &commands.brain;
    let change = brain.with(|brain, _| brain.reset(&entry, &reason));
    let change = change.map_err(|error| not_moved(&error))?;
    add_stage(&commands.events, &caller, &change);
    let saved = commands
        .note(&caller, Entry::of_change("reset evidence of", &change))
        .await;
    Ok(done(brain, Some(change), saved))
}
