//! Liveness of a stream, judged by its own messages: each end expects reports or heartbeats of the other.
//!
//! Silence is measured in the progress of the process that waits. A process that was starved or suspended finds
//! itself late at its next check; that time is its own and counts as a single pause between two checks.

use std::time::Duration;

use crate::exchange::sessions::HEARTBEAT;
use crate::quantity::MonoTime;

/// The part of the maximum silence that does not depend on the report interval.
const SILENCE_BASE: Duration = Duration::from_secs(3);
/// The part that does, in report intervals.
const SILENCE_INTERVALS: u32 = 10;

/// The time from the end of a pause of a process to its next report: waiting requests are handled
/// first, or a report of only them would look like a surge.
pub const CATCH_UP: Duration = Duration::from_millis(100);

/// Returns the maximum silence of a live peer with this report interval.
pub fn silence_max(interval: Duration) -> Duration {
    SILENCE_BASE.saturating_add(interval.saturating_mul(SILENCE_INTERVALS))
}

/// Returns the longest time between two checks, and between two messages of a parent without changes.
pub fn pulse(interval: Duration) -> Duration {
    HEARTBEAT.max(interval)
}

/// Time that a process has waited, in its own progress.
#[derive(Clone, Copy, Debug)]
pub struct Waited {
    total: Duration,
    checked: MonoTime,
}

/// The clock of a process's own progress, read at its ticks. It stops while the process does not
/// run, so that a pause is no silence of its children.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    ran_until: MonoTime,
    ticked: MonoTime,
}

/// The silence of the peer of one stream.
#[derive(Clone, Copy, Debug)]
pub struct Liveness {
    silent: Waited,
}

impl Waited {
    /// Begins to wait.
    pub const fn new(now: MonoTime) -> Self {
        Self {
            total: Duration::ZERO,
            checked: now,
        }
    }

    /// Returns the time waited until now. To be called at least once in each [`pulse`]; more time since the last call
    /// counts as one pulse. The caller reads the messages that have arrived before it acts on the answer.
    pub fn until(&mut self, now: MonoTime, interval: Duration) -> Duration {
        let waited = now.since(self.checked).min(pulse(interval));
        self.total = self.total.saturating_add(waited);
        self.checked = now;
        self.total
    }
}

impl Progress {
    /// A tick that is later than this many ticks was late because the process did not run.
    const TICKS: u32 = 4;

    /// Begins at `now`.
    pub const fn new(now: MonoTime) -> Self {
        Self {
            ran_until: now,
            ticked: now,
        }
    }

    /// Advances to a tick and returns the running time since the last one: a longer pause counts as
    /// four ticks.
    pub fn on_tick(&mut self, now: MonoTime, tick: Duration) -> Duration {
        let ran = now.since(self.ticked).min(tick * Self::TICKS);
        *self = Self {
            ran_until: self.ran_until + ran,
            ticked: now,
        };
        ran
    }

    /// Returns the progress at the last tick.
    pub const fn now(self) -> MonoTime {
        self.ran_until
    }
}

impl Liveness {
    /// Begins with a peer that has just sent a message.
    pub const fn new(now: MonoTime) -> Self {
        Self {
            silent: Waited::new(now),
        }
    }

    /// Handles a message of the peer, or a part of one.
    pub fn on_message(&mut self, now: MonoTime) {
        *self = Self::new(now);
    }

    /// Returns true if the peer has been silent for too long. To be called as [`Waited::until`].
    pub fn is_dead(&mut self, now: MonoTime, interval: Duration) -> bool {
        self.silent.until(now, interval) > silence_max(interval)
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn at(ms: u64) -> MonoTime {
        MonoTime::from_elapsed(Duration::from_millis(ms))
    }

    /// The time when a peer that sends nothing is dead, checked with the given pauses in turn.
    fn death(interval: Duration, pauses: &[u64]) -> u64 {
        let mut liveness = Liveness::new(at(0));
        let mut now = 0;
        for pause in pauses.iter().cycle() {
            now += pause;
            if liveness.is_dead(at(now), interval) {
                break;
            }
        }
        now
    }

    #[test]
    fn silent_peer_dies_faster_at_short_intervals() {
        for (interval, earliest, latest) in [
            (100, 4_000, 5_000),
            (250, 5_500, 6_500),
            (500, 8_000, 9_000),
            (1_000, 13_000, 15_000),
        ] {
            let interval = Duration::from_millis(interval);
            let check = pulse(interval).as_millis() as u64;
            for pauses in [vec![check], vec![check - 1, 3], vec![10]] {
                let dead = death(interval, &pauses);
                assert!(
                    (earliest..=latest).contains(&dead),
                    "{interval:?} {pauses:?}: {dead} ms"
                );
            }
        }
    }

    #[test]
    fn paused_process_counts_its_pause_once() {
        let interval = Duration::from_millis(100);
        let mut liveness = Liveness::new(at(0));
        assert!(!liveness.is_dead(at(3_600_000), interval));
        assert!(!liveness.is_dead(at(7_200_000), interval));
        // From here on it runs in time, and the peer does not.
        let dead = (0..)
            .map(|check| 7_200_000 + check * 500)
            .find(|now| liveness.is_dead(at(*now), interval));
        assert_eq!(dead, Some(7_203_500));
    }

    #[test]
    fn longer_interval_immediately_extends_allowed_silence() {
        let mut liveness = Liveness::new(at(0));
        let (short, long) = (Duration::from_millis(100), Duration::from_secs(1));
        for now in (500..=4_000).step_by(500) {
            assert!(!liveness.is_dead(at(now), short));
        }
        assert!(!liveness.is_dead(at(4_500), long));
        assert!(liveness.is_dead(at(4_500), short));
    }

    #[test]
    fn progress_stands_still_during_a_pause() {
        let (tick, mut progress) = (Duration::from_millis(500), Progress::new(at(7)));
        for (now, ran) in [(507, 500), (1_507, 1_000), (301_507, 2_000), (302_007, 500)] {
            assert_eq!(
                progress.on_tick(at(now), tick),
                Duration::from_millis(ran),
                "{now}"
            );
        }
        assert_eq!(progress.now(), at(4_007));
    }

    proptest! {
        /// A peer lives if one of its messages arrives in every four checks, regardless of how late
        /// the checks are.
        #[test]
        fn late_checks_end_no_live_stream(
            lateness in vec((0_u64..100_000, 0_u32..4), 1..200),
            interval in 20_u64..2_000,
        ) {
            let interval = Duration::from_millis(interval);
            let mut liveness = Liveness::new(at(0));
            let mut now = 0;
            for (late, checks) in lateness {
                for _ in 0..checks {
                    now += pulse(interval).as_millis() as u64 + late;
                    prop_assert!(!liveness.is_dead(at(now), interval));
                }
                liveness.on_message(at(now));
            }
        }

        /// A dead peer is noticed after as many checks as fit into its longest silence, and one.
        #[test]
        fn silent_peer_dies_after_bounded_checks(
            pauses in vec(0_u64..10_000, 200),
            interval in 20_u64..2_000,
        ) {
            let interval = Duration::from_millis(interval);
            let check = pulse(interval).as_millis() as u64;
            let mut liveness = Liveness::new(at(0));
            let mut now = 0;
            let checks = pauses.iter().position(|late| {
                now += check + late;
                liveness.is_dead(at(now), interval)
            });
            let most = silence_max(interval).as_millis() as usize / check as usize + 1;
            prop_assert!(checks.is_some_and(|checks| checks < most), "{checks:?} of {most}");
        }
    }
}
