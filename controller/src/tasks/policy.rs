//! Activates changes of the policy files once they are recorded, and logs why a change was refused.

use std::sync::Arc;

use plimsoll_core::directive::Epoch;
use plimsoll_policy::{Difference, Policy, PolicyHash, Warning, differences};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use crate::admin::Commands;
use crate::audit::{Actor, AuditLog, Entry, Logged, NotLogged};
use crate::brain::{Brain, Offer};
use crate::policy_file::{PolicyFiles, Reload, Version};
use crate::state::{DurableState, Stage};
use crate::tasks::counters::Counters;
use crate::tasks::events::{Event, EventKind, EventLog};
use crate::tasks::unix_s;

/// Maximum number of differences of a policy that are logged.
const DIFFERENCES_MAX: usize = 20;

#[derive(Debug)]
pub(crate) struct PolicyTask {
    pub(crate) commands: Commands,
    pub(crate) files: PolicyFiles,
    /// The content of the files as the start read them; `None` if they are not valid.
    pub(crate) current: Option<Version>,
    /// The warnings of the latest policy, which were logged.
    pub(crate) logged: Vec<Warning>,
    pub(crate) counters: Counters,
    /// The policy that waits until the audit log can be written.
    pub(crate) unrecorded: Option<Arc<Policy>>,
}

impl PolicyTask {
    pub(crate) async fn run(mut self) {
        let (sender, mut reloads) = mpsc::channel(1);
        let counters = self.counters.clone();
        let on_read = move || counters.with(|counts| counts.policy_read_s = unix_s());
        let watch = tokio::spawn(
            self.files
                .clone()
                .watch(self.current.clone(), on_read, sender),
        );
        loop {
            let audit = self.commands.audit.clone();
            tokio::select! {
                reload = reloads.recv() => match reload {
                    Some(reload) => self.apply(reload).await,
                    None => break,
                },
                () = audit.writable(), if self.unrecorded.is_some() => {
                    if let Some(policy) = self.unrecorded.take() {
                        self.offer(policy).await;
                    }
                }
            }
        }
        if let Ok(Err(error)) = watch.await {
            tracing::error!(%error, "policy watch ended: restart the controller to read the files again");
        }
    }

    async fn apply(&mut self, reload: Reload) {
        let Commands { brain, events, .. } = &self.commands;
        self.counters.with(|counts| {
            counts.last_reload_refused = reload.is_err();
            counts.reloads.count(reload.is_ok());
        });
        self.unrecorded = None;
        let (policy, warnings) = match reload {
            Ok(content) => content,
            Err(error) => {
                // All faults, each with its lines.
                tracing::error!("policy refused, the last good one stays in force: {error}");
                let error = error.to_string();
                events.add_unlogged(refused(&error));
                brain.with(|brain, _| brain.policies.refused = Some(error));
                return;
            }
        };
        log_warnings(&warnings, &self.logged);
        self.logged = warnings;
        let (in_force, was_refused) = brain.with(|brain, _| {
            let was_refused = brain.policies.refused.is_some();
            (Arc::clone(brain.policy()), was_refused)
        });
        // Outside of the brain: a comparison of catalogues takes longer than a decision may.
        if policy.hash() == in_force.hash() && brain.with(|brain, _| brain.recalls_nothing()) {
            if was_refused {
                events.add(unchanged(policy.hash(), "the policy files are valid again"));
            }
            return;
        }
        let compared = spawn_blocking(move || Arc::unwrap_or_clone(policy).compared_to(&in_force));
        match compared.await {
            Ok(policy) => self.offer(Arc::new(policy)).await,
            Err(error) => {
                tracing::error!(%error, "policy not compared, the last good one stays in force")
            }
        }
    }

    /// Records a policy and offers it to the brain. A kill in it is active before.
    async fn offer(&mut self, policy: Arc<Policy>) {
        let Commands {
            brain,
            audit,
            events,
        } = &self.commands;
        let (change, kills) = brain.with(|brain, _| {
            let kills = policy.kill_switch && !brain.durable().killed_by_file;
            if kills {
                // A kill waits for no disk.
                brain.hold_unlogged(
                    Arc::clone(&policy),
                    "it is being recorded in the audit log".to_owned(),
                );
            }
            (change(brain, &policy), kills)
        });
        if kills {
            brain.notify();
        }
        let recorded = match change {
            Some(change) => audit.record(actor(&self.files), change).await.map(Some),
            None => Ok(None),
        };
        self.unrecorded = recorded.is_err().then(|| Arc::clone(&policy));
        brain.with(|brain, _| {
            let before = brain.durable().clone();
            put_in_force(brain, policy, recorded, events);
            log_stages(Some(&before), brain);
        });
        brain.notify();
    }
}

/// Returns the policy that was active before a restart; guardrails compare `files` with it. Its catalogue is that of the
/// files: the rows are not saved.
pub(crate) fn saved_policy(
    durable: &DurableState,
    files: Option<&Arc<Policy>>,
) -> Option<Arc<Policy>> {
    let is_restart = durable.epoch > Epoch::default();
    match durable.policy.as_ref().map(|texts| texts.read()) {
        Some(Ok(policy)) => {
            let catalogue = files.and_then(|files| files.shared_catalogue().cloned());
            Some(Arc::new(policy.with_catalogue(catalogue)))
        }
        Some(Err(error)) => {
            tracing::warn!(
                "saved policy refused by this build: the files are in force without a comparison: {error}"
            );
            None
        }
        None => {
            if is_restart {
                tracing::warn!("no saved policy: the files are in force without a comparison");
            }
            None
        }
    }
}

/// Records the policy of the files and offers it to a brain that has just started, or holds it back. Returns it if it
/// waits to be recorded. Blocks.
pub(crate) fn offer_at_start(
    brain: &mut Brain,
    policy: &Arc<Policy>,
    files: &PolicyFiles,
    (audit, events): (&AuditLog, &EventLog),
) -> Option<Arc<Policy>> {
    let recorded = match change(brain, policy) {
        Some(change) => audit.record_at_start(actor(files), change).map(Some),
        None => Ok(None),
    };
    let is_recorded = recorded.is_ok();
    put_in_force(brain, Arc::clone(policy), recorded, events);
    (!is_recorded).then(|| Arc::clone(policy))
}

/// Holds the policy of the files of an elected member back, which differ from the policy that the fleet has: a takeover
/// changes no policy. Changes of these files are judged as always.
pub(crate) fn hold_at_takeover(brain: &mut Brain, policy: &Arc<Policy>, events: &EventLog) {
    let why = "the files of the member that leads now differ from the policy in force, which a takeover does not change";
    brain
        .policies
        .hold(Arc::clone(policy), vec![why.to_owned()]);
    add_held(brain, events, false);
}

/// Records the policy that a controller starts with if it has no earlier one. Blocks.
///
/// # Errors
/// When it cannot be recorded.
pub(crate) fn record_first(
    policy: &Policy,
    files: &PolicyFiles,
    (audit, events): (&AuditLog, &EventLog),
) -> Result<Logged, NotLogged> {
    let after = policy.hash().to_string();
    let text = format!("policy {after} in force, the first one of this controller");
    events.add(Event::new(EventKind::PolicyInForce, "policy", text));
    let why = "a controller without an earlier policy starts".to_owned();
    audit.record_at_start(
        actor(files),
        Entry {
            what: "policy".to_owned(),
            after,
            why,
            ..Entry::default()
        },
    )
}

fn actor(files: &PolicyFiles) -> Actor {
    Actor::controller("file", files.policy.display().to_string())
}

/// Returns the entry of an offered policy; `None` if it is active, and no other one is held back.
fn change(brain: &Brain, offered: &Policy) -> Option<Entry> {
    let in_force = brain.policy();
    let is_change = in_force.hash() != offered.hash() || brain.policies.held.is_some();
    is_change.then(|| Entry {
        what: "policy".to_owned(),
        before: in_force.hash().to_string(),
        after: offered.hash().to_string(),
        why: one_line(&differences(in_force, offered)),
    })
}

/// Activates a policy that is recorded or needs no record, or holds it back.
fn put_in_force(
    brain: &mut Brain,
    policy: Arc<Policy>,
    recorded: Result<Option<Logged>, NotLogged>,
    events: &EventLog,
) {
    let hash = policy.hash();
    let recorded = match recorded {
        Ok(recorded) => recorded,
        Err(refusal) => {
            let why = match refusal {
                NotLogged::Disk(error) => format!("the audit log cannot be written: {error}"),
                NotLogged::Barred(reason) => reason.to_owned(),
            };
            let why = format!("{why}; the policy is put in force by itself as soon as it can");
            let text =
                format!("policy {hash} held back, and the last policy stays in force: {why}");
            events.add(Event::new(EventKind::PolicyHeld, "policy", text));
            brain.hold_unlogged(policy, why);
            return;
        }
    };
    let changes = one_line(&differences(brain.policy(), &policy));
    let is_told = brain.held_before(&hash);
    match brain.offer(policy) {
        Offer::Taken if changes.is_empty() && recorded.is_some() => {
            events.add(unchanged(hash, "the held policy is withdrawn"));
        }
        // A restart with the same files.
        Offer::Taken if changes.is_empty() => {
            tracing::info!(policy = %hash, "policy in force, as before");
        }
        Offer::Taken => {
            let text = format!("policy {hash} in force: {changes}");
            events.add(Event::new(EventKind::PolicyInForce, "policy", text));
        }
        Offer::Held => {
            add_held(brain, events, is_told);
            let reasons = brain
                .policies
                .held
                .as_ref()
                .map(|held| held.reasons.join("; "));
            if let Some(recorded) = recorded {
                recorded.continued("held back", reasons.unwrap_or_default());
            }
        }
    }
}

/// Logs the warnings that are not among `logged`: a policy that is edited often should not repeat the known
/// ones.
pub(crate) fn log_warnings(warnings: &[Warning], logged: &[Warning]) {
    let known = |warning: &&Warning| {
        logged
            .iter()
            .any(|logged| logged.path == warning.path && logged.message == warning.message)
    };
    for warning in warnings.iter().filter(|warning| !known(warning)) {
        tracing::warn!("{warning}");
    }
}

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

/// The event of policy files that are not valid, or cannot be read.
pub(crate) fn refused(error: &str) -> Event {
    let first = error.lines().next().unwrap_or_default();
    let text = format!("policy files refused, and the last policy stays in force: {first}");
    Event::new(EventKind::PolicyRefused, "policy", text)
}

/// The event of files that are those of the policy in force again.
fn unchanged(hash: PolicyHash, why: &str) -> Event {
    let text = format!("policy {hash} stays in force: {why}");
    Event::new(EventKind::PolicyInForce, "policy", text)
}

/// Logs a policy that is held back, and adds the event unless an earlier process has told it.
fn add_held(brain: &Brain, events: &EventLog, is_told: bool) {
    let Some(held) = brain.policies.held.as_ref() else {
        return;
    };
    let hash = held.policy.hash();
    tracing::warn!(
        policy = %hash,
        "policy held back, and the last policy stays in force. See `plimsoll diff`, release it with \
         `plimsoll apply --ack {hash}`:\n{}",
        held.reasons.join("\n")
    );
    if is_told {
        return;
    }
    let text = format!(
        "policy {hash} held back, and the last policy stays in force: {}. `plimsoll apply --ack {hash}` releases it",
        held.reasons.join("; ")
    );
    events.add_unlogged(Event::new(EventKind::PolicyHeld, "policy", text));
}

/// Logs the modes that a policy or a restart changed, and modes that differ from the policy file. Logs nothing while
/// the fleet is killed.
pub(crate) fn log_stages(before: Option<&DurableState>, brain: &Brain) {
    let durable = brain.durable();
    let was_killed = before.is_some_and(|before| before.kill.is_killed());
    if durable.kill.is_killed() {
        return;
    }
    for (entry, stage) in &durable.stages {
        let earlier = before.and_then(|before| before.stages.get(entry));
        let shown = |stage: &Stage| (stage.stage, stage.file, stage.pending);
        if earlier.map(shown) == Some(shown(stage)) && !was_killed {
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
                "mode differs from the policy file: run `plimsoll rollout resume` after a kill, else `plimsoll rollout promote`, or \
                 set the mode in the file to shadow and then to {}",
                stage.file
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_logged_on_one_line() {
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
            many.ends_with("weight 4 -> 8; 7 more")
                && many.matches("->").count() == DIFFERENCES_MAX,
            "{many}"
        );
    }
}
