//! Tells the brain of an elected member whether its lead is confirmed, and lets changes that may add refusals wait while it
//! is not. Hands the lead over if aggregators reach other members only.

use std::time::Duration;

use tokio::time::{Instant, interval};

use crate::admin::Commands;
use crate::aggregators::leadership::Mandate;
use crate::brain::Brain;
use crate::members::Membership;
use crate::tasks::events::{Event, EventKind};

const PERIOD: Duration = Duration::from_millis(100);
const UNCONFIRMED: &str = "the store does not confirm that this controller leads; try again once it answers (`plimsoll status`)";

/// Time without any aggregator after which a leader hands over, if another member is sought.
const UNREACHED_MAX: Duration = Duration::from_secs(10);
/// Minimum time of a lead before that: the next leader may not be reached either.
const LED_MIN: Duration = Duration::from_secs(60);

/// Follows the lead, until it is handed over.
pub(crate) async fn follow(
    membership: Membership,
    Commands {
        brain,
        audit,
        events,
    }: Commands,
) {
    let add = |kind, text: &str| events.add(Event::new(kind, "controller", text));
    let part = membership.part.clone();
    let mut periods = interval(PERIOD);
    let mut was_confirmed = true;
    let (since, mut reached) = (Instant::now(), Instant::now());
    loop {
        periods.tick().await;
        if brain.with(|brain, _| brain.downstream.sessions.connected().next().is_some()) {
            reached = Instant::now();
        }
        if reached.elapsed() >= UNREACHED_MAX
            && since.elapsed() >= LED_MIN
            && membership.is_another_sought()
        {
            add(
                EventKind::LeadHandedOver,
                "no aggregator reaches this controller, and some reach another one: it hands the lead over",
            );
            membership.resign.notify_one();
            return;
        }
        let confirmed = part.borrow().is_confirmed(Instant::now().into_std());
        if std::mem::replace(&mut was_confirmed, confirmed) == confirmed {
            continue;
        }
        audit.bar((!confirmed).then_some(UNCONFIRMED));
        brain.with(|brain, _| brain.leadership.mandate = Mandate::Elected { confirmed });
        brain.notify();
        if confirmed {
            add(
                EventKind::LeadConfirmed,
                "the store confirms the lead again",
            );
        } else {
            add(
                EventKind::LeadUnconfirmed,
                "lead unconfirmed: the store does not answer. Values are sent as before, shares stay as they are, and what may \
                 add refusals waits",
            );
        }
    }
}

/// The event of a controller that begins to lead. `last` is the kind of the last event of earlier processes; `None` without
/// any.
pub(crate) fn begun(
    brain: &Brain,
    membership: Option<&Membership>,
    last: Option<EventKind>,
) -> Event {
    let (kind, began) = match membership {
        Some(membership) => {
            let address = &membership.own.borrow().admin;
            (
                EventKind::LeadTaken,
                format!("controller {address} took the lead"),
            )
        }
        None => {
            let is_crash = last.is_some_and(|last| last != EventKind::ControllerStopped);
            let after = if is_crash {
                ", after it had ended without a shutdown"
            } else {
                ""
            };
            (
                EventKind::ControllerStarted,
                format!("controller started{after}"),
            )
        }
    };
    let (epoch, policy) = (brain.durable().epoch.0, brain.policy().hash());
    let text = format!("{began}: epoch {epoch} begins with policy {policy}");
    Event::new(kind, "controller", text)
}
