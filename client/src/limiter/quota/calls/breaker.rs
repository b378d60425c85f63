//! The circuit breaker before a store: after failures for a while no request waits for it until it answers again.

use std::time::Duration;

use plimsoll_core::quantity::MonoTime;

pub(crate) const FAILURES_MAX: u32 = 5;
/// Time without an answer that opens the breaker. In a shorter stall callers get less from a breaker than from the
/// store: requests that arrive near its end are answered in time.
pub(crate) const FAILS_FOR: Duration = Duration::from_millis(100);
/// Maximum wait before the first probe: a fraction of the stalls that open the breaker, so that it adds little to them.
pub(crate) const PROBE_FIRST: Duration = Duration::from_millis(40);
pub(crate) const PROBE_MAX: Duration = Duration::from_secs(5);
pub(crate) const PROBE_MIN: Duration = Duration::from_millis(20);

/// The failures of requests since the last answer. Requests pass a breaker while it is closed;
/// while it is open, only probes reach the store.
#[derive(Default)]
pub(super) struct Breaker {
    failures: u32,
    /// The time of the first.
    since: MonoTime,
    /// Probes since the last answer to a request.
    probes: u32,
}

impl Breaker {
    pub(super) fn answered(&mut self) {
        *self = Self::default();
    }

    /// Forgets the failures, because a probe was answered. A store that answers only probes, as one that cannot write, is
    /// asked less and less often.
    pub(super) fn probed(&mut self) {
        self.failures = 0;
    }

    /// Returns the wait before the next probe, spread over all of a span, which doubles with each probe, so that the
    /// instances of a fleet do not return together.
    pub(super) fn next_wait(&mut self, jitter: u32) -> Duration {
        let wait = wait(self.probes, jitter);
        self.probes = self.probes.saturating_add(1);
        wait
    }

    /// Counts a failure of a request, and returns true if it opens the breaker.
    pub(super) fn failed(&mut self, now: MonoTime) -> bool {
        if self.failures == 0 {
            self.since = now;
        }
        self.failures = self.failures.saturating_add(1);
        self.failures >= FAILURES_MAX && now.since(self.since) >= FAILS_FOR
    }
}

fn wait(probes: u32, jitter: u32) -> Duration {
    let span = PROBE_FIRST
        .saturating_mul(1 << probes.min(10))
        .min(PROBE_MAX);
    span.mul_f64(f64::from(jitter) / f64::from(u32::MAX))
        .max(PROBE_MIN)
}

#[cfg(test)]
#[cfg(not(feature = "loom"))]
mod tests {
    use super::*;

    fn at(millis: u64) -> MonoTime {
        MonoTime::from_micros(millis * 1_000)
    }

    #[test]
    fn failures_that_last_open_it() {
        let mut breaker = Breaker::default();
        for round in 0..3 {
            for millis in 0..99 {
                assert!(
                    !breaker.failed(at(round * 1_000 + millis)),
                    "a stall that may end"
                );
            }
            breaker.answered();
        }
        for millis in [5_000, 5_100, 5_100, 5_100] {
            assert!(!breaker.failed(at(millis)), "few");
        }
        assert!(breaker.failed(at(5_100)), "the last opens it");
    }

    #[test]
    fn answers_to_probes_alone_end_no_backoff() {
        let mut breaker = Breaker::default();
        let next = |breaker: &mut Breaker| breaker.next_wait(u32::MAX);
        for probes in 0..3 {
            assert_eq!(next(&mut breaker), PROBE_FIRST * (1 << probes));
            breaker.probed();
            assert!(!breaker.failed(at(0)), "the first failure after a probe");
        }
        breaker.answered();
        assert_eq!(next(&mut breaker), PROBE_FIRST);
    }

    #[test]
    fn breaker_waits_double_to_a_maximum() {
        for (probes, most) in [
            (0, PROBE_FIRST),
            (1, PROBE_FIRST * 2),
            (6, PROBE_FIRST * 64),
            (7, PROBE_MAX),
        ] {
            assert_eq!(
                (wait(probes, 0), wait(probes, u32::MAX)),
                (PROBE_MIN, most),
                "{probes}"
            );
            let half = wait(probes, u32::MAX / 2);
            assert!(
                half.abs_diff(most / 2) < Duration::from_millis(1),
                "{probes}: {half:?}"
            );
        }
        assert_eq!(wait(u32::MAX, u32::MAX), PROBE_MAX);
    }
}
