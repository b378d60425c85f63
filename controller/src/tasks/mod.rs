//! The tasks that run the brain: they give it the time, save its state and its history, reload the policy,
//! and log what changed.

pub(crate) mod counters;
pub mod events;
pub(crate) mod history;
pub(crate) mod journal;
pub(crate) mod kill_log;
pub(crate) mod lead;
pub(crate) mod policy;
pub mod policy_file;
pub(crate) mod promotions;
pub(crate) mod save;
#[cfg(test)]
pub(crate) mod tests;

use std::time::{SystemTime, UNIX_EPOCH};

use plimsoll_core::kill::KillClaim;
use plimsoll_core::law::Parameters;
use plimsoll_host::Shared;
use tokio::time::{MissedTickBehavior, interval};

use crate::brain::Brain;

/// The time of day in seconds since 1970.
pub(crate) fn unix_s() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// Ticks the brain at a fixed interval, forever. A tick that was missed is not made up for.
pub(crate) async fn tick(brain: Shared<Brain>) {
    let mut ticks = interval(Parameters::default().tick);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let (claims, unprotected) = brain.with(|brain, now| {
            brain.on_tick(now, unix_s());
            (brain.take_kill_claims(now), brain.take_unprotected())
        });
        for bucket in unprotected {
            tracing::warn!(%bucket, "bucket without room: it is unprotected, whatever the policy says");
        }
        for (
            scope,
            KillClaim {
                generation,
                zone,
                service,
                name,
            },
        ) in claims
        {
            tracing::warn!(
                %scope, claimed = generation.0, %zone, %service, %name,
                "kill generation without an order: ignored; the process that holds it stays in shadow until \
                 `plimsoll kill off` for the scope"
            );
        }
        brain.notify();
    }
}
