//! Runs the control law at a fixed interval.

use std::time::{SystemTime, UNIX_EPOCH};

use plimsoll_core::law::Parameters;
use plimsoll_proto::shared::Shared;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::brain::Brain;

/// Ticks the brain until `stop` is cancelled. A tick that was missed is not made up for.
pub(crate) async fn run(brain: Shared<Brain>, stop: CancellationToken) {
    let mut ticks = interval(Parameters::default().tick);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = ticks.tick() => {
                let unix_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
                brain.with(|brain, now| brain.on_tick(now, i64::try_from(unix_s).unwrap_or(i64::MAX)));
            }
        }
        brain.notify();
    }
}
