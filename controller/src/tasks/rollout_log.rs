//! The log of rollouts: changes of stages with their reasons, modes that differ from the policy file, stale
//! zones, and policies that are held back.

use std::collections::BTreeSet;

use plimsoll_proto::shared::Shared;

use crate::aggregators::Place;
use crate::brain::Brain;
use crate::state::{Cause, Change, DurableState, Stage};

/// Drastic differences of a held policy that are logged, at most.
const DIFFERENCES_MAX: usize = 20;

/// Logs changes of stages and stale zones.
pub(crate) async fn follow(brain: Shared<Brain>) {
    let mut wakeups = brain.changes();
    let mut logged = brain.with(|brain, _| brain.durable().changes);
    let mut stale = BTreeSet::new();
    while wakeups.changed().await.is_ok() {
        let (changes, now_stale) = brain.with(|brain, now| {
            let history = brain.durable().history.iter().rev();
            let new: Vec<Change> = history.take_while(|change| change.number > logged).cloned().collect();
            let stale: BTreeSet<Place> =
                brain.stale_aggregators(now).map(|(place, _)| place.clone()).collect();
            (new, stale)
        });
        for change in changes.iter().rev() {
            logged = change.number;
            log_change(change);
        }
        for (zone, aggregator) in now_stale.difference(&stale) {
            tracing::warn!(
                %zone, %aggregator,
                "zone is stale: it has sent no report for too long; canaries return to shadow, enforced buckets keep its \
                 last allocation"
            );
        }
        for (zone, aggregator) in stale.difference(&now_stale) {
            tracing::info!(%zone, %aggregator, "zone is no longer stale: it reports again, or counts no more");
        }
        stale = now_stale;
    }
}

fn log_change(change: &Change) {
    let Change { entry, to, cause, why, .. } = change;
    let (from, why) = (change.from.map(|from| from.as_str()), why.join("; "));
    match cause {
        Cause::Breach | Cause::Stale | Cause::Lost | Cause::Forced => {
            tracing::warn!(entry, from, %to, cause = cause.as_str(), why, "stage changed");
        }
        _ => tracing::info!(entry, from, %to, cause = cause.as_str(), why, "stage changed"),
    }
}

/// Logs that a policy is held back, with its drastic differences.
pub(crate) fn held(brain: &Brain) {
    let Some(held) = brain.policies.held.as_ref() else { return };
    let drastic = held.differences.iter().filter(|difference| difference.drastic.is_some());
    let drastic: Vec<String> = drastic.take(DIFFERENCES_MAX).map(ToString::to_string).collect();
    let hash = held.policy.hash();
    tracing::warn!(
        policy = %hash,
        "policy held back: its differences are drastic, and the last policy stays in force. See `plimsoll diff`, release \
         it with `plimsoll apply --ack {hash}`:\n{}",
        drastic.join("\n")
    );
}

/// Returns true if both stages give the same log lines.
fn is_alike(one: &Stage, other: &Stage) -> bool {
    (one.stage, one.file, one.pending) == (other.stage, other.file, other.pending)
}

/// Logs the modes that a policy or a restart changed, and modes that differ from the policy file.
pub(crate) fn stages(before: Option<&DurableState>, brain: &Brain) {
    let durable = brain.durable();
    let was_killed = before.is_some_and(|before| before.kill.is_killed());
    if durable.kill.is_killed() {
        return;
    }
    for (entry, stage) in &durable.stages {
        let earlier = before.and_then(|before| before.stages.get(entry));
        if earlier.is_some_and(|earlier| is_alike(earlier, stage)) && !was_killed {
            continue;
        }
        if earlier.is_none_or(|earlier| earlier.stage != stage.stage) {
            tracing::info!(entry, mode = %stage.stage, "mode in force");
        }
        if let Some(pending) = stage.pending {
            tracing::warn!(
                entry, mode = %stage.stage, %pending,
                "mode pending: the policy file raises it, and its gate is not passed yet; `plimsoll rollout status` shows why"
            );
        } else if stage.stage != stage.file {
            tracing::warn!(
                entry, mode = %stage.stage, file = %stage.file,
                "mode differs from the policy file: to resume, run `plimsoll rollout promote`, or set the mode in the file \
                 to shadow and then to {}",
                stage.file
            );
        }
    }
}
