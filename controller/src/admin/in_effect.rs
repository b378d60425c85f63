//! What was ordered at the admin port takes effect once it is written down, or cannot be: the answer waits for that.

use std::time::Duration;

use plimsoll_proto::shared::Shared;
use tokio::time::timeout;

use crate::brain::Brain;

/// How long an answer waits for the disk. What was ordered does not depend on who waits.
const WITHIN: Duration = Duration::from_secs(3);

/// Rings, and waits; true if everything is written down.
pub(crate) async fn in_effect(brain: &Shared<Brain>) -> bool {
    let mut bell = brain.bell();
    brain.ring();
    let in_effect = async {
        while !brain.with(|brain, _| brain.is_in_effect()) {
            if bell.changed().await.is_err() {
                return;
            }
        }
    };
    let _ = timeout(WITHIN, in_effect).await;
    brain.with(|brain, _| brain.is_saved())
}
