//! How long a caller waits before another attempt. Callers that were refused together must not return together.

use std::time::Duration;

/// Doublings of the base, beyond which only the cap limits a wait.
const DOUBLINGS_MAX: u32 = 16;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    pub(crate) base: Duration,
    pub(crate) cap: Duration,
}

impl Backoff {
    /// Returns the wait before a retry, the first being number 0: a random share of the backoff, and if a time was asked,
    /// that time and a random share of the longer of the two. `draw` is uniform from 0 to 1.
    ///
    /// Returns `None` if more than half of the cap was asked: at the cap itself, all would return together.
    pub(crate) fn wait(self, asked: Option<Duration>, retry: u32, draw: f64) -> Option<Duration> {
        let step = self.base.saturating_mul(1 << retry.min(DOUBLINGS_MAX));
        match asked {
            None => Some(step.min(self.cap).mul_f64(draw)),
            Some(asked) if asked <= self.cap / 2 => {
                Some(asked + step.min(self.cap / 2).max(asked).mul_f64(draw))
            }
            Some(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKOFF: Backoff = Backoff {
        base: Duration::from_millis(50),
        cap: Duration::from_secs(10),
    };

    #[test]
    fn waits_double_and_honour_the_asked() {
        let wait = |asked: Option<u64>, retry, draw| {
            let wait = BACKOFF.wait(asked.map(Duration::from_millis), retry, draw);
            wait.map(|wait| wait.as_millis())
        };
        for (asked, retry, range) in [
            (None, 0, Some((0, 50))),
            (None, 2, Some((0, 200))),
            (None, u32::MAX, Some((0, 10_000))),
            (Some(0), 1, Some((0, 100))),
            (Some(2_000), 0, Some((2_000, 4_000))),
            (Some(1_000), 9, Some((1_000, 6_000))),
            (Some(5_000), 0, Some((5_000, 10_000))),
            (Some(5_001), 0, None),
            (Some(u64::MAX), 0, None),
        ] {
            let found = wait(asked, retry, 0.0).zip(wait(asked, retry, 1.0));
            assert_eq!(found, range, "{asked:?} {retry}");
        }
    }

    #[test]
    fn refused_together_return_apart() {
        // 10,000 callers, refused within a second with `Retry-After: 1`.
        let mut random = fastrand::Rng::with_seed(7);
        let mut bins = [0_u32; 40];
        for caller in 0..10_000_u64 {
            let refused = Duration::from_micros(caller * 100);
            let wait = BACKOFF.wait(Some(Duration::from_secs(1)), 0, random.f64());
            bins[((refused + wait.unwrap()).as_millis() / 100) as usize] += 1;
        }
        let returning = bins.iter().filter(|bin| **bin > 0).count() as u32;
        let worst = *bins.iter().max().unwrap();
        assert!(
            worst < 2 * 10_000 / returning,
            "{worst} of {returning} bins: {bins:?}"
        );
    }
}
