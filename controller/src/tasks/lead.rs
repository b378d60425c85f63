//! Tells the brain of an elected member whether its lead is confirmed, and lets changes that may add refusals wait while it
//! is not.

use std::time::Duration;

use plimsoll_host::Shared;
use tokio::sync::watch;
use tokio::time::{Instant, interval};

use crate::aggregators::leadership::Mandate;
use crate::audit::AuditLog;
use crate::brain::Brain;
use crate::members::Part;

const PERIOD: Duration = Duration::from_millis(100);
const UNCONFIRMED: &str = "the store does not confirm that this controller leads; try again once it answers (`plimsoll status`)";

/// Follows the lead, forever.
pub(crate) async fn follow(part: watch::Receiver<Part>, brain: Shared<Brain>, audit: AuditLog) {
    let mut periods = interval(PERIOD);
    let mut was_confirmed = true;
    loop {
        periods.tick().await;
        let confirmed = part.borrow().is_confirmed(Instant::now().into_std());
        if std::mem::replace(&mut was_confirmed, confirmed) == confirmed {
            continue;
        }
        audit.bar((!confirmed).then_some(UNCONFIRMED));
        brain.with(|brain, _| brain.leadership.mandate = Mandate::Elected { confirmed });
        brain.notify();
        if confirmed {
            tracing::info!("the store confirms the lead again");
        } else {
            tracing::error!(
                "lead unconfirmed: the store does not answer. Values are sent as before, shares stay as they are, and what may \
                 add refusals waits"
            );
        }
    }
}
