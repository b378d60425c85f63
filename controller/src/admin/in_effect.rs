//! The wait of the admin port for a save: an order takes effect once it is saved, or once saving fails.

use std::time::Duration;

use plimsoll_proto::shared::Shared;
use tokio::time::timeout;

use crate::brain::Brain;

/// The longest wait for the disk. The order takes effect even if the caller stops waiting.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Wakes the save task, and waits until the orders given so far take effect. Returns true if they are saved.
pub(crate) async fn in_effect(brain: &Shared<Brain>) -> bool {
    let mut changes = brain.changes();
    brain.notify();
    let in_effect = async {
        while !brain.with(|brain, _| brain.is_in_effect()) {
            if changes.changed().await.is_err() {
                return;
            }
        }
    };
    let _ = timeout(TIMEOUT, in_effect).await;
    brain.with(|brain, _| brain.is_saved())
}
