//! What the log says of rollouts: every change of a stage with its reasons, stages that differ from the file, feeds that are
//! too old, and policies that are held back.

use std::collections::BTreeSet;

use plimsoll_proto::shared::Shared;
use tokio_util::sync::CancellationToken;

use crate::brain::Brain;
use crate::state::{Cause, Change, Durable, Stage};
use crate::aggregators::Place;

/// Follows the brain, and says what has changed.
pub(crate) async fn follow(brain: Shared<Brain>, stop: CancellationToken) {
    let mut bell = brain.bell();
    let mut said = brain.with(|brain, _| brain.durable().changes);
    let mut stale = BTreeSet::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            rung = bell.changed() => if rung.is_err() { return },
        }
        let (changes, now_stale) = brain.with(|brain, now| {
            let history = brain.durable().history.iter().rev();
            let new: Vec<Change> = history.take_while(|change| change.number > said).cloned().collect();
            let stale: BTreeSet<Place> = brain.stale_feeds(now).map(|(place, _)| place.clone()).collect();
            (new, stale)
        });
        for change in changes.iter().rev() {
            said = change.number;
            say(change);
        }
        for (zone, aggregator) in now_stale.difference(&stale) {
            tracing::warn!(
                %zone, %aggregator,
                "nothing has been heard of the zone for too long: what is in canary returns to shadow, what is enforced \
                 keeps its last allocation"
            );
        }
        for (zone, aggregator) in stale.difference(&now_stale) {
            tracing::info!(%zone, %aggregator, "the zone is heard again, or no longer counts");
        }
        stale = now_stale;
    }
}

fn say(change: &Change) {
    let Change { entry, to, cause, why, .. } = change;
    let (from, why) = (change.from.map(|from| from.as_str()), why.join("; "));
    match cause {
        Cause::Breach | Cause::Stale | Cause::Lost | Cause::Forced => {
            tracing::warn!(entry, from, %to, cause = cause.as_str(), why, "the stage has changed");
        }
        _ => tracing::info!(entry, from, %to, cause = cause.as_str(), why, "the stage has changed"),
    }
}

/// A policy is held back.
pub(crate) fn held(brain: &Brain) {
    let Some(held) = brain.held() else { return };
    let drastic = held.differences.iter().filter(|difference| difference.drastic.is_some());
    let drastic: Vec<String> = drastic.take(20).map(ToString::to_string).collect();
    let hash = held.policy.hash();
    tracing::warn!(
        policy = %hash,
        "the policy changes very much and is held back; the last one stays. See `plimsoll diff`, release it with \
         `plimsoll apply --ack {hash}`:\n{}",
        drastic.join("\n")
    );
}

/// Whether there is nothing to say of a stage that was not said before.
fn is_alike(one: &Stage, other: &Stage) -> bool {
    (one.stage, one.file, one.pending) == (other.stage, other.file, other.pending)
}

/// Says what a policy or a restart has changed, and where what is in force differs from what the file asks for.
pub(crate) fn stages(before: Option<&Durable>, brain: &Brain) {
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
            tracing::info!(entry, mode = %stage.stage, "the mode in force");
        }
        if let Some(pending) = stage.pending {
            tracing::warn!(
                entry, mode = %stage.stage, %pending,
                "the file raises the mode: it waits for the gate; `plimsoll rollout status` says what is missing"
            );
        } else if stage.stage != stage.file {
            tracing::warn!(
                entry, mode = %stage.stage, file = %stage.file,
                "the mode in force is not the file's: to resume, `plimsoll rollout promote`, or change it in the file to \
                 shadow and then to {}",
                stage.file
            );
        }
    }
}
