//! The circuit breaker before a store: after failures for a while no request waits for it until it answers again.

use std::time::Duration;

use plimsoll_core::quantity::MonoTime;

/// The consecutive failures that open the breaker, if they last.
pub(crate) const FAILURES_MAX: u32 = 5;
/// Time without an answer that opens the breaker. In a shorter stall callers get less from a breaker than from the store:
/// requests that arrive near its end are answered in time.
pub(crate) const FAILS_FOR: Duration = Duration::from_millis(100);
/// The longest wait before the first probe: a fraction of the stalls that open the breaker, so that it adds little to them.
pub(crate) const PROBE_FIRST: Duration = Duration::from_millis(40);
/// The longest wait before any probe.
pub(crate) const PROBE_MAX: Duration = Duration::from_secs(5);
/// The shortest wait before a probe.
pub(crate) const PROBE_MIN: Duration = Duration::from_millis(20);

/// The state of a breaker. Requests pass while it is closed; while it is open, probes alone reach the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Breaker {
    /// The store answers, but for this number of failures since its last answer.
    Closed {
        /// The failures.
        failures: u32,
        /// The time of the first.
        since: MonoTime,
    },
    /// The store does not answer.
    Open {
        /// The probes that failed.
        probes: u32,
        /// The time of the next probe.
        probe_at: MonoTime,
    },
    /// A probe is on its way.
    HalfOpen {
        /// The probes that failed before.
        probes: u32,
    },
}

impl Breaker {
    /// Makes a closed breaker.
    pub(crate) const fn new() -> Self {
        Self::Closed { failures: 0, since: MonoTime::ZERO }
    }

    /// Returns true if requests pass.
    pub(crate) const fn is_closed(self) -> bool {
        matches!(self, Self::Closed { .. })
    }

    /// Counts an answer to a request. Answers to requests from before it opened do not close the breaker: a probe does.
    pub(crate) const fn answered(&mut self) {
        if self.is_closed() {
            *self = Self::new();
        }
    }

    /// Counts a failure of a request, and returns true if the breaker opens by it. `jitter` is uniform over `u32`.
    pub(crate) fn failed(&mut self, now: MonoTime, jitter: u32) -> bool {
        let Self::Closed { failures, since } = self else { return false };
        if *failures == 0 {
            *since = now;
        }
        *failures = failures.saturating_add(1);
        *failures >= FAILURES_MAX && now.since(*since) >= FAILS_FOR && self.open(now, jitter)
    }

    /// Opens it at once, and returns true if it was closed. `jitter` is uniform over `u32`.
    pub(crate) fn open(&mut self, now: MonoTime, jitter: u32) -> bool {
        let is_closed = self.is_closed();
        if is_closed {
            *self = Self::Open { probes: 0, probe_at: now + wait(0, jitter) };
        }
        is_closed
    }

    /// Begins the probe if it is due.
    pub(crate) fn probe(&mut self, now: MonoTime) -> bool {
        match *self {
            Self::Open { probes, probe_at } if now >= probe_at => {
                *self = Self::HalfOpen { probes };
                true
            }
            _ => false,
        }
    }

    /// Returns the time until the next probe; `None` if none is needed.
    pub(crate) const fn probe_in(self, now: MonoTime) -> Option<Duration> {
        match self {
            Self::Open { probe_at, .. } => Some(probe_at.since(now)),
            _ => None,
        }
    }

    /// Takes the result of the probe.
    pub(crate) fn probed(&mut self, is_answered: bool, now: MonoTime, jitter: u32) {
        if let Self::HalfOpen { probes } = *self {
            let probes = probes.saturating_add(1);
            *self = match is_answered {
                true => Self::new(),
                false => Self::Open { probes, probe_at: now + wait(probes, jitter) },
            };
        }
    }
}

/// Returns a wait spread over all of the span, which doubles with each probe, so that the instances of a fleet do not
/// return at once.
fn wait(probes: u32, jitter: u32) -> Duration {
    let span = PROBE_FIRST.saturating_mul(1 << probes.min(10)).min(PROBE_MAX);
    span.mul_f64(f64::from(jitter) / f64::from(u32::MAX)).max(PROBE_MIN)
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
        let mut breaker = Breaker::new();
        for round in 0..3 {
            for millis in 0..99 {
                assert!(!breaker.failed(at(round * 1_000 + millis), 0), "a stall that may end");
            }
            breaker.answered();
            assert_eq!(breaker, Breaker::new());
        }
        for millis in [5_000, 5_100, 5_100, 5_100] {
            assert!(!breaker.failed(at(millis), 0), "few");
        }
        assert!(breaker.failed(at(5_100), 0), "the last opens it");
        assert!(!breaker.is_closed() && !breaker.failed(at(5_100), 0), "and it opens once");
    }

    #[test]
    fn only_a_probe_that_is_answered_closes_it() {
        let mut breaker = Breaker::Open { probes: 0, probe_at: at(50) };
        breaker.answered();
        assert!(!breaker.is_closed(), "an answer from before");
        assert_eq!(breaker.probe_in(at(20)), Some(Duration::from_millis(30)));
        assert!(
            !breaker.probe(at(49)) && breaker.probe(at(50)) && !breaker.probe(at(50)),
            "one probe at a time"
        );
        breaker.probed(false, at(60), u32::MAX);
        assert_eq!(breaker, Breaker::Open { probes: 1, probe_at: at(60) + PROBE_FIRST * 2 });
        assert!(breaker.probe(at(1_000)));
        breaker.probed(true, at(1_001), 7);
        assert_eq!(breaker, Breaker::new());
    }

    #[test]
    fn waits_are_spread_over_a_span_that_doubles_to_its_maximum() {
        for (probes, most) in [(0, PROBE_FIRST), (1, PROBE_FIRST * 2), (6, PROBE_FIRST * 64), (7, PROBE_MAX)]
        {
            assert_eq!((wait(probes, 0), wait(probes, u32::MAX)), (PROBE_MIN, most), "{probes}");
            let half = wait(probes, u32::MAX / 2);
            assert!(half.abs_diff(most / 2) < Duration::from_millis(1), "{probes}: {half:?}");
        }
        assert_eq!(wait(u32::MAX, u32::MAX), PROBE_MAX);
    }
}
