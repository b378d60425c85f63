//! Makes the promotions with passed gates, once they are recorded in the audit log.

use tokio::task::JoinSet;

use crate::admin::Commands;
use crate::audit::{Actor, Entry};
use crate::rollout::Ready;

/// Makes promotions, as long as the brain lives. They wait while they cannot be recorded.
pub(crate) async fn run(commands: Commands) {
    let Commands { brain, audit, .. } = &commands;
    let mut wakeups = brain.changes();
    let mut is_waiting = false;
    while wakeups.changed().await.is_ok() {
        let ready = brain.with(|brain, _| brain.rollouts.ready.clone().unwrap_or_default());
        let was_waiting = is_waiting;
        is_waiting = !ready.is_empty() && !audit.is_writable();
        if is_waiting {
            if !was_waiting {
                tracing::warn!(
                    entries = ready.len(),
                    "promotions by gates wait until they can be recorded, and the lead is confirmed"
                );
            }
            continue;
        }
        let mut promotions = JoinSet::new();
        for ready in ready {
            promotions.spawn(promote(commands.clone(), ready));
        }
        while promotions.join_next().await.is_some() {}
    }
}

async fn promote(Commands { brain, audit, .. }: Commands, ready: Ready) {
    let Ready {
        entry,
        from,
        to,
        why,
        ..
    } = &ready;
    let change = Entry {
        what: format!("promote {entry}"),
        before: from.to_string(),
        after: to.to_string(),
        why: why.join("; "),
    };
    // A failure is logged by the log itself, and the gate is judged again with the next tick.
    let Ok(logged) = audit.record(Actor::controller("gate", ""), change).await else {
        return;
    };
    if brain.with(|brain, _| brain.promote_ready(&ready)) {
        brain.notify();
    } else {
        logged.refused("the gate does not pass any more, or the stage has changed");
    }
}
