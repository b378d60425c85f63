//! Puts changes of the policy files in force, and logs why a change was refused.

use plimsoll_policy::{PolicyHash, Warning, differences};
use plimsoll_proto::shared::Shared;
use tokio::sync::mpsc;

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
}

impl PolicyTask {
    /// Applies every valid change.
    pub(crate) async fn run(mut self) {
        let (sender, mut reloads) = mpsc::channel(1);
        let events = self.events.clone();
        let on_read = move || events.on_policy_read(unix_s());
        let watch = tokio::spawn(self.files.clone().watch(Some(self.current), on_read, sender));
        while let Some(reload) = reloads.recv().await {
            self.apply(reload);
        }
        if let Ok(Err(error)) = watch.await {
            tracing::error!(%error, "policy watch ended: restart the controller to read the files again");
        }
    }

    fn apply(&mut self, reload: Reload) {
        self.events.on_reload(reload.is_ok());
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
        let hash = policy.hash();
        self.brain.with(|brain, _| {
            let before = brain.durable().clone();
            let changes = rollout_log::one_line(&differences(brain.policy(), &policy));
            match brain.offer(policy) {
                Offer::Taken => tracing::info!(policy = %hash, changes, "policy in force"),
                Offer::Held => rollout_log::held(brain),
            }
            rollout_log::stages(Some(&before), brain);
        });
        self.brain.notify();
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
