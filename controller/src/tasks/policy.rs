//! Puts changes of the policy files in force once they are recorded, and logs why a change was refused.

use std::sync::Arc;

use plimsoll_policy::{Policy, PolicyHash, Warning, differences};
use plimsoll_proto::shared::Shared;
use tokio::sync::mpsc;

use crate::audit::{Actor, AuditLog, Entry, Logged, NotLogged};
use crate::brain::{Brain, Offer};
use crate::policy_file::{PolicyFiles, Reload};
use crate::tasks::events::Events;
use crate::tasks::{rollout_log, unix_s};

/// Follows the policy files.
#[derive(Debug)]
pub(crate) struct PolicyTask {
    pub(crate) brain: Shared<Brain>,
    pub(crate) files: PolicyFiles,
    /// The policy read at the start.
    pub(crate) current: PolicyHash,
    /// The warnings that were logged last.
    pub(crate) logged: Vec<Warning>,
    pub(crate) events: Events,
    pub(crate) audit: AuditLog,
    /// The policy that is held back until it can be recorded.
    pub(crate) unrecorded: Option<Arc<Policy>>,
}

impl PolicyTask {
    /// Applies every valid change.
    pub(crate) async fn run(mut self) {
        let (sender, mut reloads) = mpsc::channel(1);
        let events = self.events.clone();
        let on_read = move || events.on_policy_read(unix_s());
        let watch = tokio::spawn(self.files.clone().watch(Some(self.current), on_read, sender));
        loop {
            let audit = self.audit.clone();
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
        self.events.on_reload(reload.is_ok());
        self.unrecorded = None;
        let (policy, warnings) = match reload {
            Ok(content) => content,
            Err(error) => {
                tracing::error!("policy refused, the last good one stays in force: {error}");
                self.brain.with(|brain, _| brain.on_refused(error.to_string()));
                return;
            }
        };
        log_warnings(&warnings, &self.logged);
        self.logged = warnings;
        self.offer(policy).await;
    }

    /// Puts a policy in force once it is recorded.
    async fn offer(&mut self, policy: Arc<Policy>) {
        let (change, kills) = self.brain.with(|brain, _| {
            let kills = policy.kill_switch() && !brain.durable().killed_by_file;
            if kills {
                // A kill waits for no disk.
                brain.hold_unlogged(Arc::clone(&policy), "it is being recorded in the audit log".to_owned());
            }
            (change(brain, &policy), kills)
        });
        if kills {
            self.brain.notify();
        }
        let recorded = match change {
            Some(change) => self.audit.record(actor(&self.files), change).await.map(Some),
            None => Ok(None),
        };
        self.unrecorded = recorded.is_err().then(|| Arc::clone(&policy));
        self.brain.with(|brain, _| {
            let before = brain.durable().clone();
            put_in_force(brain, policy, recorded);
            rollout_log::stages(Some(&before), brain);
        });
        self.brain.notify();
    }
}

/// Records the policy of the files and offers it to a brain that has just started, or holds it back. Returns it if it
/// waits to be recorded. Blocks.
pub(crate) fn offer_at_start(
    brain: &mut Brain,
    policy: &Arc<Policy>,
    files: &PolicyFiles,
    audit: &AuditLog,
) -> Option<Arc<Policy>> {
    let recorded = match change(brain, policy) {
        Some(change) => audit.record_at_start(actor(files), change).map(Some),
        None => Ok(None),
    };
    let is_recorded = recorded.is_ok();
    put_in_force(brain, Arc::clone(policy), recorded);
    (!is_recorded).then(|| Arc::clone(policy))
}

/// Records the policy with which a controller starts that has no earlier one. Blocks.
///
/// # Errors
/// When it cannot be recorded.
pub(crate) fn record_first(
    policy: &Policy,
    files: &PolicyFiles,
    audit: &AuditLog,
) -> Result<Logged, NotLogged> {
    let after = policy.hash().to_string();
    let why = "a controller without an earlier policy starts".to_owned();
    audit.record_at_start(actor(files), Entry { what: "policy".to_owned(), after, why, ..Entry::default() })
}

fn actor(files: &PolicyFiles) -> Actor {
    Actor::controller("file", files.policy.display().to_string())
}

/// Returns the entry of an offered policy; `None` if it is in force, and no other one is held back.
fn change(brain: &Brain, offered: &Policy) -> Option<Entry> {
    let in_force = brain.policy();
    let is_change = in_force.hash() != offered.hash() || brain.policies.held.is_some();
    is_change.then(|| Entry {
        what: "policy".to_owned(),
        before: in_force.hash().to_string(),
        after: offered.hash().to_string(),
        why: rollout_log::one_line(&differences(in_force, offered)),
    })
}

/// Puts a policy in force that is recorded or needs no record, or holds it back.
fn put_in_force(brain: &mut Brain, policy: Arc<Policy>, recorded: Result<Option<Logged>, NotLogged>) {
    let hash = policy.hash();
    let recorded = match recorded {
        Ok(recorded) => recorded,
        Err(NotLogged(error)) => {
            let why = format!(
                "the audit log cannot be written: {error}; the policy is put in force by itself as soon as it can"
            );
            tracing::error!(policy = %hash, "policy held back, and the last policy stays in force: {why}");
            brain.hold_unlogged(policy, why);
            return;
        }
    };
    let changes = rollout_log::one_line(&differences(brain.policy(), &policy));
    match brain.offer(policy) {
        Offer::Taken => tracing::info!(policy = %hash, changes, "policy in force"),
        Offer::Held => {
            rollout_log::held(brain);
            let reasons = brain.policies.held.as_ref().map(|held| held.reasons.join("; "));
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
        logged.iter().any(|logged| logged.path == warning.path && logged.message == warning.message)
    };
    for warning in warnings.iter().filter(|warning| !known(warning)) {
        tracing::warn!("{warning}");
    }
}
