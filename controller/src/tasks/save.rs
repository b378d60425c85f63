//! Saves the durable state, off the brain's lock. Messages to aggregators wait until every change is saved, unless
//! saving fails.

use std::time::Duration;

use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::admin::Commands;
use crate::audit::AuditLog;
use crate::state::DurableState;
use crate::state::store::StoreError;
use crate::tasks::events::{Event, EventKind, EventLog};
use crate::tasks::kill_log::KillLog;

const RETRY_DELAY: Duration = Duration::from_millis(500);
/// Maximum time that messages wait for the disk. They are sent unsaved then.
const SAVE_MAX: Duration = Duration::from_secs(2);

/// Saves the state by `save`, which may block, whenever it changed, until `stop` is cancelled.
pub(crate) async fn run(
    commands: Commands,
    save: impl Fn(&DurableState) -> Result<(), StoreError> + Clone + Send + 'static,
    mut kill_log: KillLog,
    stop: CancellationToken,
) {
    let Commands {
        brain,
        audit,
        events,
    } = &commands;
    let mut bell = brain.changes();
    // The save at the start may have failed, which was logged.
    let mut failing = brain.with(|brain, _| brain.pending_saves.failure.is_some());
    loop {
        tokio::select! {
            biased;
            // Before `stop`, so that the last changes are saved.
            rung = bell.changed() => if rung.is_err() { return },
            () = stop.cancelled() => return,
        }
        let Some((number, durable)) = brain.with(|brain, _| brain.unsaved()) else {
            continue;
        };
        let named = |instance: &str| brain.with(|brain, _| brain.aggregator_of(instance));
        note_kills(&mut kill_log, &durable, (audit, events), named);
        let save = save.clone();
        let mut saving = tokio::task::spawn_blocking(move || save(&durable));
        let saved = match timeout(SAVE_MAX, &mut saving).await {
            Ok(saved) => saved,
            Err(_) => {
                let reason = format!("no answer from the disk within {} s", SAVE_MAX.as_secs());
                on_failure(&commands, reason, &mut failing);
                tokio::select! {
                    () = stop.cancelled() => return,
                    saved = &mut saving => saved,
                }
            }
        };
        let failure = match saved {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(error) => Some(format!("the save panicked: {error}")),
        };
        if let Some(reason) = failure {
            on_failure(&commands, reason, &mut failing);
            tokio::select! {
                () = stop.cancelled() => return,
                () = sleep(RETRY_DELAY) => {}
            }
        } else {
            brain.with(|brain, _| brain.on_saved(number));
            brain.notify();
            if std::mem::replace(&mut failing, false) {
                let text = "the state is saved again";
                events.add(Event::new(EventKind::StateSaved, "controller", text));
            }
        }
    }
}

/// Adds the changes of kills since the last call to the audit log and the events.
pub(crate) fn note_kills(
    kill_log: &mut KillLog,
    durable: &DurableState,
    (audit, events): (&AuditLog, &EventLog),
    named: impl Fn(&str) -> Option<String>,
) {
    let (changes, kills) = kill_log.on(durable, named);
    for (actor, change) in changes {
        audit.note(actor, change);
    }
    kills.into_iter().for_each(|event| events.add(event));
}

fn on_failure(Commands { brain, events, .. }: &Commands, reason: String, failing: &mut bool) {
    if !std::mem::replace(failing, true) {
        let text = format!(
            "state save failed: kills and stages are in force, and a restart loses them until it succeeds: {reason}"
        );
        events.add(Event::new(EventKind::StateUnsaved, "controller", text));
    }
    brain.with(|brain, _| brain.on_save_failed(reason));
    brain.notify();
}
