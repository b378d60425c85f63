//! Reconnection backoff: exponential with full jitter, so that a fleet does not reconnect in one
//! moment.

use std::time::Duration;

/// The span of the first wait, which is drawn at random.
pub const FIRST: Duration = Duration::from_millis(500);
/// Maximum span of a wait, which is drawn at random. Every child has tried again 12 s after its
/// parent is back, regardless of the length of the outage, and a parent of ten thousand children
/// accepts them within 15 s. With a span of 30 s a quarter would not even have tried by then.
pub const LONGEST: Duration = Duration::from_secs(12);
/// Maximum span of a wait while no member of a group of controllers leads. It spreads a fleet, and still lets each child
/// find the leader soon after its election.
pub const ELECTION: Duration = Duration::from_secs(1);
/// Maximum wait that a parent may ask for.
pub const ASKED_MAX: Duration = Duration::from_secs(60);
/// Maximum span that is added to a wait that a parent asked for. A parent that answers is alive,
/// and it spreads the waits itself.
const SPAN_AFTER_ASKED: Duration = Duration::from_secs(2);

/// Counts consecutive failures. Pure: the draw is an argument.
#[derive(Clone, Copy, Debug, Default)]
pub struct Backoff {
    failures: u32,
}

impl Backoff {
    /// Returns the wait before the next attempt: uniform between 0 and a span that doubles from 0.5 s to 12
    /// s. `draw` is uniform over `u32`.
    pub fn next_wait(&mut self, draw: u32) -> Duration {
        self.jitter(LONGEST, draw)
    }

    /// Returns the wait before the next attempt at controllers of which none leads: uniform between 0 and a span of at
    /// most 1 s. Any number of them counts as one failure: the member that becomes the leader may answer nothing for a
    /// moment, and the next wait must not be the one of a long outage then.
    pub fn next_wait_in_election(&mut self, draw: u32) -> Duration {
        let wait = self.jitter(ELECTION, draw);
        self.failures = self.failures.min(1);
        wait
    }

    /// Returns the wait before the next attempt at a parent that asked to stay away for `asked`: that long, and
    /// a random time of at most 2 s more.
    pub fn next_wait_after(&mut self, asked: Duration, draw: u32) -> Duration {
        asked.min(ASKED_MAX) + self.jitter(SPAN_AFTER_ASKED, draw)
    }

    fn jitter(&mut self, span_max: Duration, draw: u32) -> Duration {
        let span = FIRST
            .saturating_mul(1 << self.failures.min(16))
            .min(span_max);
        self.failures = self.failures.saturating_add(1);
        span.mul_f64(f64::from(draw) / f64::from(u32::MAX))
    }

    /// Resets the backoff after a successful exchange.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_from_half_to_twelve_seconds() {
        let mut backoff = Backoff::default();
        let spans: Vec<f64> = (0..9)
            .map(|_| backoff.next_wait(u32::MAX).as_secs_f64())
            .collect();
        assert_eq!(spans, [0.5, 1.0, 2.0, 4.0, 8.0, 12.0, 12.0, 12.0, 12.0]);
        assert_eq!(backoff.next_wait(0), Duration::ZERO);
        backoff.reset();
        assert_eq!(backoff.next_wait(u32::MAX), FIRST);
    }

    #[test]
    fn election_is_awaited_for_a_second() {
        let mut backoff = Backoff::default();
        for span in [FIRST, ELECTION, ELECTION] {
            let mut lucky = backoff;
            assert_eq!(lucky.next_wait_in_election(0), Duration::ZERO);
            assert_eq!(backoff.next_wait_in_election(u32::MAX), span);
        }
        assert_eq!(backoff.next_wait(u32::MAX), ELECTION, "one failure");
    }

    #[test]
    fn requested_wait_is_kept_up_to_bounds() {
        let secs = Duration::from_secs;
        let mut backoff = Backoff::default();
        for span in [0.5, 1.0, 2.0, 2.0, 2.0] {
            let mut lucky = backoff;
            assert_eq!(lucky.next_wait_after(secs(7), 0), secs(7), "never earlier");
            assert_eq!(
                backoff.next_wait_after(secs(7), u32::MAX),
                secs(7) + Duration::from_secs_f64(span)
            );
        }
        assert_eq!(backoff.next_wait_after(Duration::MAX, 0), ASKED_MAX);
        backoff.reset();
        assert_eq!(backoff.next_wait_after(Duration::ZERO, u32::MAX), FIRST);
    }
}
