//! Puts changes of the policy files in force, and logs why a change was refused.

use plimsoll_policy::{PolicyHash, Warning};
use plimsoll_proto::shared::Shared;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::brain::{Brain, Offer};
use crate::policy_file::{PolicyFiles, Reload};
use crate::tasks::events::Events;
use crate::tasks::rollout_log;

/// Follows the policy files.
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
    /// Applies every valid change until `stop` is cancelled.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let (sender, mut reloads) = mpsc::channel(1);
        let watch = tokio::spawn(self.files.clone().watch(Some(self.current), sender));
        loop {
            let reload = tokio::select! {
                () = stop.cancelled() => return,
                reload = reloads.recv() => reload,
            };
            match reload {
                None => break,
                Some(reload) => self.apply(reload),
            }
        }
        if let Ok(Err(error)) = watch.await {
            tracing::error!(%error, "policy watch ended: restart the controller to read the files again");
        }
    }

    fn apply(&mut self, reload: Reload) {
        let (policy, warnings) = match reload {
            Reload::Refused(error) => {
                self.events.on_reload(false);
                tracing::error!("policy refused, the last good one stays in force: {error}");
                return;
            }
            Reload::Accepted { policy, warnings } => (policy, warnings),
        };
        self.events.on_reload(true);
        log_warnings(&warnings, &self.logged);
        self.logged = warnings;
        let hash = policy.hash();
        self.brain.with(|brain, _| {
            let before = brain.durable().clone();
            match brain.offer(policy) {
                Offer::Taken => tracing::info!(policy = %hash, "policy in force"),
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
