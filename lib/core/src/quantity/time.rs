//! Monotonic time as an argument, so that no state machine reads a clock.

use std::fmt;
use std::ops::Add;
use std::time::Duration;

/// A point on the monotonic clock of one process, in nanoseconds since an origin that the process chose.
///
/// Points of two processes must never be compared: of the points that a sender sends, only the *spans* between them
/// are used (see [`Pace`]). 64 bits of nanoseconds last 584 years.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MonoTime(u64);

impl MonoTime {
    /// The origin of the clock.
    pub const ZERO: Self = Self(0);

    /// The point `elapsed` after the origin; a span of more than 584 years is cut to that.
    pub fn from_elapsed(elapsed: Duration) -> Self {
        Self(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX))
    }

    /// The point `micros` microseconds after the origin, as it travels on the wire.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros.saturating_mul(1_000))
    }

    /// Whole microseconds since the origin.
    pub const fn as_micros(self) -> u64 {
        self.0 / 1_000
    }

    /// The span from `earlier` to here, zero when `earlier` is in fact later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for MonoTime {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        Self(
            self.0
                .saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)),
        )
    }
}

impl fmt::Debug for MonoTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.6}s", Duration::from_nanos(self.0).as_secs_f64())
    }
}

/// Time since a comparison of the two clocks began, by the one that shows more, until they are judged.
const JUDGED_AFTER: Duration = Duration::from_secs(10);
/// Time after which a comparison begins anew, so that a clock that was sound for a day is still checked afterwards.
const JUDGED_OVER: Duration = Duration::from_secs(60);
/// The tolerance for reports that the network bunches.
const SLACK: Duration = Duration::from_secs(2);

/// Measures the time between the reports of one sender, also from one stream to the next.
///
/// Reports bunched by the network must not look like a surge, so the span between two reports is taken from
/// the *sender's* monotonic clock. A wrong clock would distort every rate, so the sum of its spans is compared
/// with the receiver's clock: from 10 s after a comparison began (each minute one begins anew) it must lie between half
/// and twice the receiver's time, with a tolerance of 2 s. Otherwise arrival times are used for the rest of the stream.
#[derive(Clone, Debug)]
pub struct Pace {
    /// The start of the comparison by both clocks; `None` until the first report of a new stream.
    from: Option<(MonoTime, MonoTime)>,
    /// The latest times by the sender's clock and by the receiver's.
    last: (MonoTime, MonoTime),
    late: Duration,
    distrusted: bool,
}

impl Pace {
    /// Begins a stream with a report that carried the time `sender` and arrived at `arrival`.
    pub const fn new(sender: MonoTime, arrival: MonoTime) -> Self {
        Self {
            from: Some((sender, arrival)),
            last: (sender, arrival),
            late: Duration::ZERO,
            distrusted: false,
        }
    }

    /// Begins a new stream of the same sender. Its clock is compared afresh, because a machine that was
    /// suspended returns with a sound clock.
    pub const fn open(&mut self) {
        self.from = None;
        self.distrusted = false;
    }

    /// Returns the span since the previous report: by the sender's clock, zero if that did not advance; by arrival once
    /// that clock is distrusted.
    pub fn elapsed(&mut self, sender: MonoTime, arrival: MonoTime) -> Duration {
        let from = *self.from.get_or_insert((sender, arrival));
        let theirs = sender.since(from.0);
        let ours = arrival.since(from.1);
        if ours.max(theirs) >= JUDGED_AFTER
            && (theirs > ours * 2 + SLACK || theirs + SLACK < ours / 2)
        {
            self.distrusted = true;
        }
        let between = arrival.since(self.last.1);
        let span = if self.distrusted {
            between
        } else {
            sender.since(self.last.0)
        };
        // After a silence the first of several reports that arrive together is the latest one.
        self.late = if between > span * 2 {
            between - span
        } else if between * 2 < span {
            self.late.saturating_sub(span - between)
        } else {
            Duration::ZERO
        };
        self.last = (self.last.0.max(sender), self.last.1.max(arrival));
        if ours.max(theirs) >= JUDGED_OVER {
            self.from = Some(self.last);
        }
        span
    }

    /// Returns the time by which the last report came late, because it waited with others.
    pub const fn late(&self) -> Duration {
        self.late
    }

    /// Returns true if the sender's clock failed the comparison, so that arrival times are used.
    pub const fn distrusted(&self) -> bool {
        self.distrusted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: f64) -> MonoTime {
        MonoTime::from_elapsed(Duration::from_secs_f64(s))
    }

    #[test]
    fn bunched_reports_keep_the_senders_spans() {
        let mut pace = Pace::new(at(100.0), at(5.0));
        // Reports half a second apart arrive within a millisecond after a silence, and then in time.
        for (sender, arrival, late_ms) in [
            (100.5, 6.501, 1_001),
            (101.0, 6.501, 501),
            (101.5, 6.502, 2),
            (102.0, 7.0, 0),
        ] {
            let span = pace.elapsed(at(sender), at(arrival));
            assert_eq!(span, Duration::from_millis(500));
            assert_eq!(pace.late(), Duration::from_millis(late_ms), "{arrival}");
        }
        assert!(!pace.distrusted());
    }

    #[test]
    fn sender_that_was_suspended_is_late_once() {
        let mut pace = Pace::new(at(100.0), at(5.0));
        for (sender, arrival, late_s) in [(100.5, 10.5, 5), (101.0, 11.0, 0)] {
            pace.elapsed(at(sender), at(arrival));
            assert_eq!(pace.late(), Duration::from_secs(late_s));
        }
    }

    #[test]
    fn wrong_clock_yields_to_arrival_times() {
        for factor in [0.0, 0.2, 3.0] {
            let mut pace = Pace::new(at(0.0), at(0.0));
            let mut span = Duration::ZERO;
            for tick in 1..=60 {
                let arrival = f64::from(tick) * 0.5;
                span = pace.elapsed(at(arrival * factor), at(arrival));
            }
            assert!(pace.distrusted(), "factor {factor}");
            assert_eq!(span, Duration::from_millis(500), "factor {factor}");
        }
    }

    #[test]
    fn clock_failure_is_detected_within_two_minutes() {
        for factor in [0.0, 0.2, 3.0] {
            let mut pace = Pace::new(at(0.0), at(0.0));
            let day = 86_400.0;
            for minute in 1..=1_440 {
                let sound = at(f64::from(minute) * 60.0);
                assert_eq!(pace.elapsed(sound, sound), Duration::from_secs(60));
            }
            for tick in 1..=240 {
                let run = f64::from(tick) * 0.5;
                pace.elapsed(at(day + run * factor), at(day + run));
            }
            assert!(pace.distrusted(), "factor {factor}");
        }
    }

    #[test]
    fn new_stream_measures_the_absence_of_senders() {
        let mut pace = Pace::new(at(0.0), at(0.0));
        pace.elapsed(at(100.0), at(20.0));
        assert!(pace.distrusted());
        pace.open();
        assert!(!pace.distrusted());
        assert_eq!(pace.elapsed(at(107.0), at(90.0)), Duration::from_secs(7));
        assert_eq!(pace.elapsed(at(118.0), at(101.0)), Duration::from_secs(11));
        assert!(!pace.distrusted());
    }

    #[test]
    fn a_clock_within_bounds_is_used() {
        for factor in [0.6, 1.0, 1.9] {
            let mut pace = Pace::new(at(0.0), at(0.0));
            for tick in 1..=240 {
                let arrival = f64::from(tick) * 0.5;
                pace.elapsed(at(arrival * factor), at(arrival));
            }
            assert!(!pace.distrusted(), "factor {factor}");
        }
    }
}
