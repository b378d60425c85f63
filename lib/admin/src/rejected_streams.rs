//! The streams that a parent did not admit or closed for a cause, and the children whose reports or
//! certificates it refuses again and again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use plimsoll_core::exchange::{OnRejected, Rejection};
use plimsoll_core::stats::metrics::{Metric, one, rows};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A child counts as refused after this number of refusals. It returns within 12 s each time.
const REFUSED_AFTER: u64 = 3;
/// A child is not refused anymore after this time without a refusal. Also the time between log
/// lines about one.
const REFUSED_FOR: Duration = Duration::from_secs(60);
/// Maximum number of children that are remembered by name. Others are only counted, until one of these
/// has not been refused for a minute.
pub const REFUSED_MAX: usize = 256;

/// Streams closed since the process started, by reason, and refused children by name. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct RejectedStreams {
    shared: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    counts: BTreeMap<&'static str, u64>,
    /// Children whose report or certificate was refused, by role, zone, service and name.
    children: BTreeMap<String, Refused>,
}

#[derive(Debug)]
struct Refused {
    times: u64,
    cause: String,
    /// Time of the last refusal.
    at: Instant,
    logged_at: Option<Instant>,
}

/// A child with one refused stream after another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RefusedChild {
    /// Role, and `ZONE/SERVICE/NAME`.
    pub child: String,
    /// Refusals in a row, with at most a minute between two.
    pub times: u64,
    /// The latest cause.
    pub cause: String,
}

/// The metrics of a parent.
pub const METRICS: [Metric<RejectedStreams>; 2] = [
    Metric::counter(
        "plimsoll_streams_rejected_total",
        &["reason"],
        "Streams that this parent did not admit, or closed for a cause, by reason; absent before the first.",
        |streams| {
            let state = streams.state();
            let counts = state.counts.iter();
            rows(counts.map(|(reason, count)| ([*reason], *count)))
        },
    ),
    Metric::gauge(
        "plimsoll_children_refused",
        &[],
        "Children refused in the last minute, for the third time in a row or later.",
        |streams| one(streams.refused().len()),
    ),
];

impl RejectedStreams {
    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the children that are refused again and again.
    pub fn refused(&self) -> Vec<RefusedChild> {
        self.refused_at(Instant::now())
    }

    fn refused_at(&self, now: Instant) -> Vec<RefusedChild> {
        let state = self.state();
        let each = state
            .children
            .iter()
            .filter(|(_, refused)| refused.is_repeated(now));
        let each = each.map(|(child, refused)| RefusedChild {
            child: child.clone(),
            times: refused.times,
            cause: refused.cause.clone(),
        });
        each.collect()
    }

    fn note(&self, now: Instant, rejection: Rejection<'_>) {
        let mut state = self.state();
        *state.counts.entry(rejection.reason).or_default() += 1;
        let Some(child) = rejection.child else { return };
        state
            .children
            .retain(|_, refused| now.duration_since(refused.at) < REFUSED_FOR);
        let name = child.described();
        if state.children.len() >= REFUSED_MAX && !state.children.contains_key(&name) {
            return;
        }
        let new = Refused {
            times: 0,
            cause: String::new(),
            at: now,
            logged_at: None,
        };
        let refused = state.children.entry(name.clone()).or_insert(new);
        refused.times += 1;
        refused.at = now;
        rejection.cause.clone_into(&mut refused.cause);
        let is_logged = refused
            .logged_at
            .is_some_and(|at| now.duration_since(at) < REFUSED_FOR);
        if refused.is_repeated(now) && !is_logged {
            refused.logged_at = Some(now);
            tracing::error!(
                child = name,
                times = refused.times,
                cause = rejection.cause,
                "child refused again and again: it has no parent, and its requests are not counted"
            );
        }
    }
}

impl Refused {
    fn is_repeated(&self, now: Instant) -> bool {
        self.times >= REFUSED_AFTER && now.duration_since(self.at) < REFUSED_FOR
    }
}

impl OnRejected for RejectedStreams {
    fn on_rejected(&self, rejection: Rejection<'_>) {
        self.note(Instant::now(), rejection);
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::names::{Name, Zone};
    use plimsoll_core::report::{Identity, InstanceId, Role};

    use super::*;

    /// Refuses a child at `s`. Each start of the child has another instance.
    fn refuse(streams: &RejectedStreams, started: Instant, s: u64, name: &str) {
        let child = Identity {
            instance: InstanceId(s.into()),
            name: Name::new(name).unwrap(),
            service: Name::new("shop").unwrap(),
            zone: Zone::new("a").unwrap(),
            role: Role::Client,
        };
        let rejection = Rejection {
            reason: "broken",
            cause: "counts decreased",
            child: Some(&child),
        };
        streams.note(started + Duration::from_secs(s), rejection);
    }

    #[test]
    fn repeatedly_refused_child_is_named() {
        let (streams, started) = (RejectedStreams::default(), Instant::now());
        let shown = |s| streams.refused_at(started + Duration::from_secs(s));
        [0, 5]
            .iter()
            .for_each(|s| refuse(&streams, started, *s, "host"));
        assert_eq!(shown(5), []);
        refuse(&streams, started, 17, "host");
        let (child, cause) = (
            "client a/shop/host".to_owned(),
            "counts decreased".to_owned(),
        );
        assert_eq!(
            shown(76),
            [RefusedChild {
                child,
                times: 3,
                cause
            }]
        );
        assert_eq!(shown(77), []);
        refuse(&streams, started, 80, "host");
        assert_eq!(shown(80), [], "it was accepted meanwhile");
    }

    #[test]
    fn remembered_children_are_bounded() {
        let (streams, started) = (RejectedStreams::default(), Instant::now());
        for round in 0..3 {
            (0..1_000).for_each(|child| refuse(&streams, started, round, &format!("host-{child}")));
        }
        assert_eq!(
            streams.refused_at(started + Duration::from_secs(3)).len(),
            REFUSED_MAX
        );
    }
}
