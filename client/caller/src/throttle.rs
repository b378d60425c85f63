//! Adaptive throttling: a caller whose target refuses most of its requests sends fewer ("Handling Overload" in Google's
//! book on site reliability engineering), which also saves the target the cost of refusing.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Maximum number of targets; requests to others are not throttled.
pub(crate) const TARGETS_MAX: usize = 1_024;
/// Requests that are sent for each one that is accepted, before some are held back: K.
const SENT_PER_ACCEPTED: f64 = 2.0;
/// Time after which a count weighs 1/e of a new one.
const MEMORY: Duration = Duration::from_secs(30);
/// Maximum share of requests that are held back: the others find out when the target has recovered.
const HELD_BACK_MAX: f64 = 0.9;

#[derive(Debug, Default)]
pub(crate) struct Throttle {
    targets: HashMap<Box<str>, History>,
}

#[derive(Clone, Copy, Debug)]
struct History {
    /// The time of the last update, which the counts are weighted for.
    at: Instant,
    /// Attempts, those that were held back among them.
    requests: f64,
    accepted: f64,
}

impl History {
    fn new(at: Instant) -> Self {
        Self {
            at,
            requests: 0.0,
            accepted: 0.0,
        }
    }
}

impl Throttle {
    /// Counts an attempt and returns true if it may be sent. `draw` is uniform from 0 to 1.
    pub(crate) fn admits(&mut self, target: &str, now: Instant, draw: f64) -> bool {
        if !self.targets.contains_key(target) {
            if self.targets.len() >= TARGETS_MAX {
                self.targets
                    .retain(|_, history| now.saturating_duration_since(history.at) < 2 * MEMORY);
            }
            if self.targets.len() < TARGETS_MAX {
                self.targets.insert(target.into(), History::new(now));
            }
        }
        let Some(history) = self.history(target, now) else {
            return true;
        };
        let excess = history.requests - SENT_PER_ACCEPTED * history.accepted;
        let held_back = (excess / (history.requests + 1.0)).min(HELD_BACK_MAX);
        history.requests += 1.0;
        draw >= held_back
    }

    /// Counts an attempt whose answer asks for no retry: an error of the service and a refusal for good count, too.
    pub(crate) fn accepted(&mut self, target: &str, now: Instant) {
        if let Some(history) = self.history(target, now) {
            history.accepted += 1.0;
        }
    }

    /// Returns the history of a target, with the weights of `now`.
    fn history(&mut self, target: &str, now: Instant) -> Option<&mut History> {
        let history = self.targets.get_mut(target)?;
        let passed = now.saturating_duration_since(history.at);
        let weight = (-passed.as_secs_f64() / MEMORY.as_secs_f64()).exp();
        history.at = now;
        history.requests *= weight;
        history.accepted *= weight;
        Some(history)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends 100 requests/s for a time, a share of which is accepted; returns the share that was sent in its second
    /// half.
    fn sent(throttle: &mut Throttle, from: Instant, seconds: u32, accepted: f64) -> f64 {
        let mut random = fastrand::Rng::with_seed(7);
        let mut sent = 0;
        for request in 0..seconds * 100 {
            let now = from + Duration::from_millis(10) * request;
            let is_sent = throttle.admits("shop", now, random.f64());
            if is_sent && random.f64() < accepted {
                throttle.accepted("shop", now);
            }
            sent += u32::from(is_sent && request >= seconds * 50);
        }
        f64::from(sent) / f64::from(seconds * 50)
    }

    #[test]
    fn healthy_target_gets_all_requests() {
        for accepted in [1.0, 0.6] {
            let sent = sent(&mut Throttle::default(), Instant::now(), 60, accepted);
            assert!(sent > 0.99, "{sent} with {accepted} accepted");
        }
    }

    #[test]
    fn refusing_target_gets_few_until_it_recovers() {
        let (mut throttle, start) = (Throttle::default(), Instant::now());
        let dead = sent(&mut throttle, start, 120, 0.0);
        assert!((0.09..0.11).contains(&dead), "{dead}");
        let after = sent(&mut throttle, start + Duration::from_secs(120), 300, 1.0);
        assert!(after > 0.99, "{after}");
    }

    #[test]
    fn targets_are_bounded_and_forgotten() {
        let (mut throttle, start) = (Throttle::default(), Instant::now());
        for target in 0..2 * TARGETS_MAX {
            assert!(throttle.admits(&target.to_string(), start, 0.0));
        }
        assert_eq!(throttle.targets.len(), TARGETS_MAX);
        throttle.admits("shop", start + 3 * MEMORY, 0.0);
        assert_eq!(throttle.targets.len(), 1);
    }
}
