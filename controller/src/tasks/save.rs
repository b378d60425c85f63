//! Saves the durable state, off the brain's lock. Directives that depend on a change are sent after it is
//! saved.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_proto::shared::Shared;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::brain::Brain;
use crate::state::store::Store;
use crate::tasks::kill_log::KillLog;

/// The delay between a failed save and the next one.
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// Saves the state whenever it changed, until `stop` is cancelled.
pub(crate) async fn run(
    brain: Shared<Brain>,
    store: Arc<Store>,
    mut kill_log: KillLog,
    stop: CancellationToken,
) {
    let mut bell = brain.changes();
    let mut failing = false;
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            rung = bell.changed() => if rung.is_err() { return },
        }
        let Some((number, durable)) = brain.with(|brain, _| brain.unsaved()) else { continue };
        kill_log.on(&durable);
        let store = Arc::clone(&store);
        let saved = tokio::task::spawn_blocking(move || store.save(&durable)).await;
        let failure = match saved {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(error) => Some(format!("the save panicked: {error}")),
        };
        brain.with(|brain, _| match failure {
            None => brain.on_saved(number),
            Some(_) => brain.on_save_failed(),
        });
        brain.notify();
        if let Some(error) = failure {
            if !std::mem::replace(&mut failing, true) {
                tracing::error!(error, "state save failed: directives are sent unsaved until it succeeds");
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = sleep(RETRY_DELAY) => {}
            }
        } else if std::mem::replace(&mut failing, false) {
            tracing::info!("state save succeeds again");
        }
    }
}
