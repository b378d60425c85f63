//! The log of rollouts and of what shapes them: changes of stages with their reasons, modes that differ from the
//! policy file, policies that are held back, what a new policy changes, and boosts that end.

use plimsoll_policy::Difference;
use plimsoll_proto::shared::Shared;

use crate::audit::{Actor, AuditLog, Entry};
use crate::brain::Brain;
use crate::state::{Cause, Change, DurableState, Stage};

/// The most differences of a policy that are logged.
const DIFFERENCES_MAX: usize = 20;

/// Logs changes of stages, and the ends of boosts. Records the returns to shadow that no operator ordered.
pub(crate) async fn follow(brain: Shared<Brain>, audit: AuditLog) {
    let mut wakeups = brain.changes();
    let (mut logged, mut since_s) =
        brain.with(|brain, _| (brain.durable().changes, brain.durable().ticked_s));
    while wakeups.changed().await.is_ok() {
        let changes: Vec<Change> = brain.with(|brain, _| {
            let now_s = brain.durable().ticked_s;
            if let (Some(since_s), Some(now_s)) = (since_s, now_s) {
                log_ended_boosts(brain, since_s, now_s);
            }
            since_s = now_s;
            let history = brain.durable().history.iter().rev();
            history.take_while(|change| change.number > logged).cloned().collect()
        });
        for change in changes.iter().rev() {
            logged = change.number;
            log_change(change);
            if matches!(change.cause, Cause::Breach | Cause::Stale) {
                audit.note(Actor::controller("gate", ""), return_to_shadow(change));
            }
        }
    }
}

fn return_to_shadow(Change { entry, from, to, why, .. }: &Change) -> Entry {
    Entry {
        what: format!("return {entry}"),
        before: from.map(|from| from.to_string()).unwrap_or_default(),
        after: to.to_string(),
        why: why.join("; "),
    }
}

fn log_ended_boosts(brain: &Brain, since_s: i64, now_s: i64) {
    let policy = brain.policy();
    for (tenant, boost) in policy.boosts_ended(since_s, now_s) {
        let (factor, weight) = (boost.factor, policy.tenant(tenant).weight.get());
        tracing::info!(%tenant, factor, weight, "boost ended");
    }
}

/// Returns the differences between two policies as one line.
pub(crate) fn one_line(differences: &[Difference]) -> String {
    let text = |Difference { path, from, to }: &Difference| match (from, to) {
        (Some(from), Some(to)) => format!("{path} {from} -> {to}"),
        (Some(from), None) => format!("{path} {from} removed"),
        (None, to) => format!("{path} {} added", to.as_deref().unwrap_or_default()),
    };
    let more = differences.len().saturating_sub(DIFFERENCES_MAX);
    let mut texts: Vec<String> = differences.iter().take(DIFFERENCES_MAX).map(text).collect();
    texts.extend((more > 0).then(|| format!("{more} more")));
    texts.join("; ")
}

fn log_change(change: &Change) {
    let Change { entry, to, cause, why, .. } = change;
    let (from, why) = (change.from.map(|from| from.as_str()), why.join("; "));
    match cause {
        Cause::Edit | Cause::Drift => {
            tracing::info!(entry, mode = %to, cause = cause.as_str(), why, "rollout evidence begins anew");
        }
        Cause::Breach | Cause::Stale | Cause::Lost | Cause::Forced => {
            tracing::warn!(entry, from, %to, cause = cause.as_str(), why, "stage changed");
        }
        _ => tracing::info!(entry, from, %to, cause = cause.as_str(), why, "stage changed"),
    }
}

/// Logs that a policy is held back, with the reasons.
pub(crate) fn held(brain: &Brain) {
    let Some(held) = brain.policies.held.as_ref() else { return };
    let hash = held.policy.hash();
    tracing::warn!(
        policy = %hash,
        "policy held back, and the last policy stays in force. See `plimsoll diff`, release it with \
         `plimsoll apply --ack {hash}`:\n{}",
        held.reasons.join("\n")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_logged_on_one_line_with_a_bound() {
        let difference = |path: &str, from: Option<&str>, to: Option<&str>| Difference {
            path: path.to_owned(),
            from: from.map(ToOwned::to_owned),
            to: to.map(ToOwned::to_owned),
        };
        let weight = difference("tenants.enterprise_acme.weight", Some("4"), Some("8"));
        let some = [
            weight.clone(),
            difference("buckets.a.limit", Some("1"), None),
            difference("buckets.b.limit", None, Some("2")),
        ];
        assert_eq!(
            one_line(&some),
            "tenants.enterprise_acme.weight 4 -> 8; buckets.a.limit 1 removed; buckets.b.limit 2 added"
        );
        let many = one_line(&vec![weight; DIFFERENCES_MAX + 7]);
        assert!(
            many.ends_with("weight 4 -> 8; 7 more") && many.matches("->").count() == DIFFERENCES_MAX,
            "{many}"
        );
    }
}
