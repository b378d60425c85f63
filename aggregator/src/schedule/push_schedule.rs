//! When clients are pushed to: at once when something was decided, and otherwise no more often than they report.

use std::time::Duration;

use plimsoll_core::directive::Epoch;
use plimsoll_core::exchange::sessions::Head;
use plimsoll_core::quantity::MonoTime;

/// For so long after a decision everything that comes from above passes at once: the controller needs a tick or two to
/// divide by it.
const WAKE: Duration = Duration::from_millis(1_100);
/// Clients may be more than were told by this factor before a new one is worth working everything out again.
const CROWD: f64 = 1.02;

/// What was last worked out and told.
#[derive(Debug, Default)]
pub(crate) struct PushSchedule {
    directed: Option<MonoTime>,
    /// The clients that it was worked out for.
    clients: usize,
    decided: Option<MonoTime>,
    epoch: Option<Epoch>,
    /// What those who listen have been woken for.
    rung: Option<(Head, u64)>,
}

impl PushSchedule {
    /// Everything is worked out now, for so many clients.
    pub(crate) fn on_direct(&mut self, now: MonoTime, clients: usize) {
        self.directed = Some(now);
        self.clients = clients;
    }

    /// Something was decided above.
    pub(crate) fn on_decision(&mut self, now: MonoTime) {
        self.decided = Some(now);
    }

    /// Whether an epoch has not been heard before.
    pub(crate) fn is_first(&mut self, epoch: Option<Epoch>) -> bool {
        std::mem::replace(&mut self.epoch, epoch) != epoch
    }

    /// Whether it is time to work everything out again, where the occasion comes every `period` and clients report every
    /// `interval`. While they report as often, always.
    pub(crate) fn is_due(&self, now: MonoTime, interval: Duration, period: Duration) -> bool {
        let Some(directed) = self.directed else { return true };
        // Occasions come a little early or late; half a period tells which of them is meant.
        interval <= period || now.since(directed) + period / 2 >= interval
    }

    /// Whether what comes from above follows from a decision.
    pub(crate) fn is_in_wake(&self, now: MonoTime) -> bool {
        self.decided.is_some_and(|decided| now.since(decided) <= WAKE)
    }

    /// Whether so many clients are noticeably more than those it was worked out for.
    pub(crate) fn are_for_fewer(&self, clients: usize) -> bool {
        clients as f64 > self.clients as f64 * CROWD
    }

    /// Whether there is something to hear since this was last asked.
    pub(crate) fn has_news(&mut self, head: Head, version: u64) -> bool {
        self.rung.replace((head, version)) != Some((head, version))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> MonoTime {
        MonoTime::from_elapsed(Duration::from_millis(ms))
    }

    #[test]
    fn pushes_keep_the_interval_and_a_decision_does_not_wait() {
        let ms = Duration::from_millis;
        // (interval, now) and whether it is time, by a fast loop of 100 ms, when all was worked out at 1,000 ms
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
            assert_eq!(pushes.is_due(at(now), ms(interval), ms(100)), due, "{interval} {now}");
            assert!(!pushes.is_in_wake(at(now)));
            pushes.on_decision(at(now));
            assert_eq!(pushes.is_due(at(now), ms(interval), ms(100)), due, "the fast loop keeps its pace");
            assert!(pushes.is_in_wake(at(now)) && pushes.is_in_wake(at(now + 1_100)));
            assert!(!pushes.is_in_wake(at(now + 1_101)));
        }
        assert!(PushSchedule::default().is_due(at(0), ms(1_000), ms(100)), "the first time");
    }

    #[test]
    fn a_newcomer_counts_at_once_among_few_and_with_others_among_many() {
        let mut pushes = PushSchedule::default();
        for (told, clients, fewer) in [
            (0, 1, true),
            (1, 2, true),
            (49, 50, true),
            (50, 51, false),
            (1_000, 1_020, false),
            (1_000, 1_021, true),
        ] {
            pushes.on_direct(at(0), told);
            assert_eq!(pushes.are_for_fewer(clients), fewer, "{clients} after {told}");
        }
    }

    #[test]
    fn nobody_is_woken_twice_for_the_same() {
        let mut pushes = PushSchedule::default();
        let head = Head::of(&plimsoll_core::kill::Kills::default());
        assert!(pushes.has_news(head, 1));
        assert!(!pushes.has_news(head, 1));
        assert!(pushes.has_news(head, 2));
        let killed = Head { kill: plimsoll_core::kill::KillGeneration(1), ..head };
        assert!(pushes.has_news(killed, 2));
        assert!(!pushes.has_news(killed, 2));
        assert!(pushes.is_first(Some(Epoch(1))) && !pushes.is_first(Some(Epoch(1))));
    }
}
