//! When directives are sent to children: immediately after a decision, otherwise at most as often
//! as children report.

use std::time::Duration;

use plimsoll_core::directive::Epoch;
use plimsoll_core::exchange::sessions::Head;
use plimsoll_core::quantity::MonoTime;

/// For this long after a decision every message of the parent passes immediately. The controller
/// needs a tick or two until its rates follow from the decision.
const AFTER_DECISION: Duration = Duration::from_millis(1_100);
/// New directives are computed for a greeting only if clients have grown by more than this factor since the
/// last time.
const CLIENTS_GROWTH: f64 = 1.02;

#[derive(Debug, Default)]
pub(crate) struct PushSchedule {
    /// The time when directives were last computed, and the number of clients then.
    directed: Option<MonoTime>,
    clients: usize,
    /// The time of the latest decision.
    decided: Option<MonoTime>,
    /// The epoch of the latest message of the parent.
    epoch: Option<Epoch>,
    /// The state, with the version of all directives, that streams were last woken for.
    announced: Option<(Head, u64)>,
}

impl PushSchedule {
    pub(crate) fn on_direct(&mut self, now: MonoTime, clients: usize) {
        self.directed = Some(now);
        self.clients = clients;
    }

    pub(crate) fn on_decision(&mut self, now: MonoTime) {
        self.decided = Some(now);
    }

    /// Records the epoch of a message. Returns true if it is another one.
    pub(crate) fn is_new_epoch(&mut self, epoch: Option<Epoch>) -> bool {
        std::mem::replace(&mut self.epoch, epoch) != epoch
    }

    /// Returns true if directives are due, given an occasion every `period` and reports every `interval`.
    /// Always true while children report at least as often as there are occasions.
    pub(crate) fn is_due(&self, now: MonoTime, interval: Duration, period: Duration) -> bool {
        let Some(directed) = self.directed else {
            return true;
        };
        // Occasions come a little early or late. Half a period decides which one is meant.
        interval <= period || now.since(directed) + period / 2 >= interval
    }

    pub(crate) fn follows_decision(&self, now: MonoTime) -> bool {
        self.decided
            .is_some_and(|decided| now.since(decided) <= AFTER_DECISION)
    }

    pub(crate) fn is_outgrown_by(&self, clients: usize) -> bool {
        clients as f64 > self.clients as f64 * CLIENTS_GROWTH
    }

    /// Returns true if the state changed since the last call, so that streams have to be woken.
    pub(crate) fn has_changed(&mut self, head: Head, version: u64) -> bool {
        self.announced.replace((head, version)) != Some((head, version))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> MonoTime {
        MonoTime::from_elapsed(Duration::from_millis(ms))
    }

    #[test]
    fn decisions_overtake_the_push_interval() {
        let ms = Duration::from_millis;
        // (interval, now, due) for a fast loop of 100 ms whose directives were computed at 1,000 ms
        for (interval, now, due) in [
            (100, 1_001, true),
            (250, 1_100, false),
            (250, 1_199, false),
            (250, 1_200, true),
            (1_000, 1_900, false),
            (1_000, 1_950, true),
        ] {
            let mut pushes = PushSchedule::default();
            pushes.on_direct(at(1_000), 1);
            assert_eq!(
                pushes.is_due(at(now), ms(interval), ms(100)),
                due,
                "{interval} {now}"
            );
            assert!(!pushes.follows_decision(at(now)));
            pushes.on_decision(at(now));
            assert_eq!(
                pushes.is_due(at(now), ms(interval), ms(100)),
                due,
                "the fast loop keeps its pace"
            );
            assert!(pushes.follows_decision(at(now)) && pushes.follows_decision(at(now + 1_100)));
            assert!(!pushes.follows_decision(at(now + 1_101)));
        }
        assert!(
            PushSchedule::default().is_due(at(0), ms(1_000), ms(100)),
            "the first time"
        );
    }

    #[test]
    fn newcomer_is_directed_immediately_among_few() {
        let mut pushes = PushSchedule::default();
        for (directed, clients, outgrown) in [
            (0, 1, true),
            (1, 2, true),
            (49, 50, true),
            (50, 51, false),
            (1_000, 1_020, false),
            (1_000, 1_021, true),
        ] {
            pushes.on_direct(at(0), directed);
            assert_eq!(
                pushes.is_outgrown_by(clients),
                outgrown,
                "{clients} after {directed}"
            );
        }
    }

    #[test]
    fn streams_are_woken_once_per_change() {
        let mut pushes = PushSchedule::default();
        let head = Head::of(&plimsoll_core::kill::Kills::default());
        assert!(pushes.has_changed(head, 1));
        assert!(!pushes.has_changed(head, 1));
        assert!(pushes.has_changed(head, 2));
        let killed = Head { kills: 1, ..head };
        assert!(pushes.has_changed(killed, 2));
        assert!(!pushes.has_changed(killed, 2));
        assert!(pushes.is_new_epoch(Some(Epoch(1))) && !pushes.is_new_epoch(Some(Epoch(1))));
    }
}
