//! The recent counts of one key in bins of time, as the fast loop reads them.

use std::time::Duration;

use crate::law::parameters;
use crate::quantity::MonoTime;

/// The number of bins: the maximum window in the past, and the maximum spread of one report into
/// the future.
const BINS: usize = 48;

/// Counts of one key in bins as long as the fast loop's period.
///
/// A report carries the number of requests since the last one, not their times. The window spreads
/// them evenly over the report's interval, from its arrival on. Counted in one moment on arrival
/// they would alias with the loop that reads them when one client carries a zone. The spread needs
/// no history per client.
#[derive(Clone, Debug)]
pub struct Window {
    bins: [f32; BINS],
    /// The number of the current bin; all later ones are in the future.
    current: u64,
}

impl Default for Window {
    fn default() -> Self {
        Self {
            bins: [0.0; BINS],
            current: 0,
        }
    }
}

/// The spread of one report's requests over bins, the same for all its keys.
#[derive(Clone, Debug, Default)]
pub struct Spread {
    now: MonoTime,
    /// The number of the current bin.
    current: u64,
    /// The positions of bins, each with its part of the requests, 0 to 1.
    parts: Vec<(u8, f64)>,
}

impl Spread {
    /// Spreads requests that were gathered over `span` and arrive `now`, `late` after they were due. Fills at most 1.6 s
    /// from then on. What is older than the longest window is left out.
    pub fn new(now: MonoTime, late: Duration, span: Duration) -> Self {
        let current = bins_in(now.since(MonoTime::ZERO));
        let mut spread = Self {
            now,
            current,
            parts: Vec::with_capacity(BINS),
        };
        let due = now.since(MonoTime::ZERO).saturating_sub(late);
        spread.put(due.as_secs_f64(), 1.0, span);
        spread
    }

    /// Spreads the first requests of a client, gathered over `span` and arriving `now`: from now on as usual,
    /// and also before `now`, when they happened. Otherwise a new client would count one report interval
    /// late.
    pub fn first(now: MonoTime, span: Duration) -> Self {
        let mut spread = Self::new(now, Duration::ZERO, span);
        let seen = span.min(parameters::WINDOW);
        let began = now.since(MonoTime::ZERO).saturating_sub(seen);
        let part = if span > seen {
            seen.as_secs_f64() / span.as_secs_f64()
        } else {
            1.0
        };
        spread.put(began.as_secs_f64(), part, seen);
        spread
    }

    fn put(&mut self, begin: f64, part: f64, span: Duration) {
        let bin = parameters::FAST_PERIOD.as_secs_f64();
        let oldest = bins_in(parameters::WINDOW_FEW);
        let most =
            (BINS - (parameters::WINDOW_FEW.as_secs_f64() / bin).ceil() as usize).saturating_sub(2);
        let span = span.as_secs_f64().clamp(1e-6, most as f64 * bin);
        let end = begin + span;
        let mut at = (begin / bin) as u64;
        let mut from = begin;
        while from < end {
            let to = ((at + 1) as f64 * bin).min(end);
            if at + oldest >= self.current {
                self.parts.push((
                    (at as usize % BINS) as u8,
                    part * (to - from).max(0.0) / span,
                ));
            }
            // Rounding must not leave `at` on the bin before this point.
            (at, from) = (at + 1, to.max((at + 1) as f64 * bin));
        }
    }
}

impl Window {
    /// Adds `count` requests of a report with a known spread.
    #[inline]
    pub fn add_spread(&mut self, spread: &Spread, count: f64) {
        if self.current != spread.current {
            self.turn(spread.now);
        }
        for (bin, part) in &spread.parts {
            if let Some(held) = self.bins.get_mut(usize::from(*bin)) {
                *held += (count * part) as f32;
            }
        }
    }

    /// Returns the rate in requests/s over `WINDOW`, or over the last bin if that exceeds it by more than
    /// chance.
    pub fn rate(&mut self, now: MonoTime) -> f64 {
        self.turn(now);
        let bin = parameters::FAST_PERIOD.as_secs_f64();
        let steady = self.over(parameters::WINDOW);
        let latest = self.over(parameters::FAST_PERIOD);
        if latest > steady + parameters::SURGE_DEVIATIONS * (steady / bin).sqrt() {
            latest
        } else {
            steady
        }
    }

    /// Returns the rate in requests/s over the last `span` of whole bins.
    pub fn over(&self, span: Duration) -> f64 {
        let bin = parameters::FAST_PERIOD.as_secs_f64();
        let bins = ((span.as_secs_f64() / bin).round() as u64).max(1);
        let counted: f64 = (1..=bins.min(BINS as u64 / 2 + 8))
            .filter_map(|back| self.current.checked_sub(back))
            .map(|at| f64::from(self.bins[at as usize % BINS]))
            .sum();
        counted / (bins as f64 * bin)
    }

    /// Advances the window to `now`: bins that have left the longest window are cleared and become the
    /// future.
    pub fn turn(&mut self, now: MonoTime) {
        let current = bins_in(now.since(MonoTime::ZERO));
        let behind = bins_in(parameters::WINDOW_FEW);
        let turned = current.saturating_sub(self.current).min(BINS as u64);
        // Each step clears the bin that was `behind` bins old and makes it the furthest future bin.
        for step in 1..=turned {
            let now = current - turned + step;
            if let Some(old) = now.checked_sub(behind + 1) {
                self.bins[old as usize % BINS] = 0.0;
            }
        }
        if turned == BINS as u64 {
            self.bins = [0.0; BINS];
        }
        self.current = self.current.max(current);
    }
}

fn bins_in(span: Duration) -> u64 {
    (span.as_nanos() / parameters::FAST_PERIOD.as_nanos().max(1)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Window {
        pub(in crate::law::fast_loop) fn add(&mut self, now: MonoTime, count: f64, span: Duration) {
            self.add_spread(&Spread::new(now, Duration::ZERO, span), count);
        }

        fn add_first(&mut self, now: MonoTime, count: f64, span: Duration) {
            self.add_spread(&Spread::first(now, span), count);
        }
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn at(millis: u64) -> MonoTime {
        MonoTime::from_elapsed(ms(millis))
    }

    #[test]
    fn steady_stream_reads_steady_always() {
        for (phase, interval) in [
            (0, 100),
            (3, 100),
            (50, 100),
            (99, 100),
            (20, 250),
            (7, 500),
            (0, 1_000),
        ] {
            let mut window = Window::default();
            for now in 0..10_000_u64 {
                if now >= phase && (now - phase) % interval == 0 {
                    window.add(at(now), interval as f64, ms(interval));
                }
                if now % 100 == 0 && now > 5_000 {
                    let rate = window.rate(at(now));
                    assert!(
                        (rate - 1_000.0).abs() < 1.0,
                        "{phase}/{interval} at {now}: {rate}"
                    );
                    let long = window.over(parameters::WINDOW_FEW);
                    assert!(
                        (long - 1_000.0).abs() < 1.0,
                        "{phase}/{interval} at {now}: {long} over 3 s"
                    );
                }
            }
        }
    }

    #[test]
    fn reports_that_waited_count_when_they_were_due() {
        for silence in [200, 1_000, 2_000, 5_000, 60_000] {
            let mut window = Window::default();
            for now in (2_000..4_000).step_by(100) {
                window.add(at(now), 100.0, ms(100));
            }
            let now = 4_000 + silence;
            for due in (4_000..=now).step_by(100) {
                let spread = Spread::new(at(now), ms(now - due), ms(100));
                window.add_spread(&spread, 100.0);
            }
            for then in [now, now + 100] {
                let rate = window.rate(at(then));
                assert!((rate - 1_000.0).abs() < 1.0, "{silence}: {rate}");
                let long = window.over(parameters::WINDOW_FEW);
                let since_start = 1_000.0 * ((then - 2_000) as f64 / 3_000.0).min(1.0);
                assert!((long - since_start).abs() < 35.0, "{silence}: {long}");
                window.add(at(now + 100), 100.0, ms(100));
            }
        }
    }

    #[test]
    fn new_clients_count_from_their_first_report() {
        for span in [20, 50, 100, 500, 1_000] {
            let mut window = Window::default();
            window.add_first(at(2_000), span as f64, ms(span));
            let seen = span.min(300) as f64 / 0.3;
            let rate = window.over(parameters::WINDOW);
            assert!(
                (rate - seen).abs() < 1.0,
                "after {span} ms: {rate} of {seen}"
            );
            // From then on they count like clients that were always connected.
            for now in (2_000 + span..8_000).step_by(span as usize) {
                window.add(at(now), span as f64, ms(span));
            }
            let rate = window.rate(at(8_000));
            assert!(
                (rate - 1_000.0).abs() < 1.0,
                "reporting every {span} ms: {rate}"
            );
        }
    }

    #[test]
    fn surge_shows_in_the_last_bin() {
        let mut window = Window::default();
        for tick in 0..20 {
            window.add(at(tick * 100), 100.0, ms(100));
        }
        window.add(at(2_000), 130.0, ms(100));
        let noisy = window.rate(at(2_100));
        assert!(
            (noisy - 1_100.0).abs() < 1.0,
            "within three deviations: {noisy}"
        );
        window.add(at(2_100), 1_000.0, ms(100));
        let surged = window.rate(at(2_200));
        assert!((surged - 10_000.0).abs() < 1.0, "{surged}");
    }

    #[test]
    fn old_counts_clear_after_long_pauses() {
        for pause in [3_200, 4_700, 4_800, 5_000, 60_000] {
            let mut window = Window::default();
            for tick in 0..100 {
                window.add(at(tick * 100), 100.0, ms(100));
            }
            let now = at(10_000 + pause);
            assert_eq!(window.rate(now), 0.0, "{pause}");
            assert_eq!(window.over(parameters::WINDOW_FEW), 0.0, "{pause}");
        }
    }
}
