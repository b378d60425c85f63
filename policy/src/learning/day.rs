//! The minutes of one day of one bucket, and the peak that follows.

use std::time::Duration;

use super::calendar::{MINUTES_PER_DAY, Minute};
use super::percentile::percentile;
use plimsoll_core::quantity::Rate;
use plimsoll_core::report::Tally;

/// A day with fewer clean minutes has no peak.
pub const CLEAN_MINUTES_MIN: usize = 60;
/// A sample covers a minute: what was counted over a shorter or longer time is none.
const SPAN: (Duration, Duration) = (Duration::from_secs(45), Duration::from_secs(90));

/// What was offered to a bucket in one minute.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Requests/s offered over all zones; more than zero.
    pub offered: Rate,
    /// Nothing was refused, nothing would have been, and nothing was killed: it says what the bucket is asked for when all
    /// is well. Any other minute is left out.
    pub clean: bool,
}

/// The samples of one day.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DaySamples {
    /// A bit for each minute of the day that has a sample.
    seen: [u64; MINUTES_PER_DAY.div_ceil(64)],
    /// Requests/s of the clean ones, in the order in which they came: finite and more than zero.
    clean: Vec<f32>,
    left_out: usize,
}

/// The peak of one day.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DayPeak {
    /// The percentile of its clean minutes.
    pub rate: Rate,
    /// The minutes left out are too few to hold the percentile. Else the peak was at least this high.
    pub is_whole: bool,
}

// === impl Sample ===

impl Sample {
    /// What was counted in `span`. `None` where nothing was: a bucket that nobody asks, or of which nobody reports, says
    /// nothing about what it is usually asked for. Counts that came late say how much, not how fast, and are not part of
    /// the rate.
    #[must_use]
    pub fn of(counted: Tally, span: Duration, killed: bool) -> Option<Self> {
        if span < SPAN.0 || span > SPAN.1 {
            return None;
        }
        let offered = counted.counts.offered.saturating_sub(counted.late.offered);
        let refused = counted.counts.refused().saturating_add(counted.counts.would_dropped);
        let offered = Rate::over(offered, span).filter(|offered| *offered > Rate::ZERO)?;
        Some(Self { offered, clean: refused == 0 && !killed })
    }
}

// === impl DaySamples ===

impl DaySamples {
    /// Adds the sample of a minute, whichever day it is of; the first one of a minute of the day holds, and one of zero is
    /// none.
    pub fn record(&mut self, minute: Minute, sample: Sample) {
        // Four bytes hold it to 7 digits; what is beyond their range is held at its end.
        let offered = (sample.offered.per_second() as f32).min(f32::MAX);
        let at = minute.of_day();
        let Some(seen) = self.seen.get_mut(at / 64) else { return };
        if *seen & (1 << (at % 64)) != 0 || offered <= 0.0 {
            return;
        }
        *seen |= 1 << (at % 64);
        if sample.clean {
            self.clean.push(offered);
        } else {
            self.left_out += 1;
        }
    }

    /// Clean minutes.
    #[must_use]
    pub const fn clean(&self) -> usize {
        self.clean.len()
    }

    /// Minutes left out.
    #[must_use]
    pub const fn left_out(&self) -> usize {
        self.left_out
    }

    /// The percentile `percent` of the clean minutes; `None` where they are fewer than [`CLEAN_MINUTES_MIN`]. O(minutes).
    #[must_use]
    pub fn peak(&self, percent: f64) -> Option<DayPeak> {
        if self.clean.len() < CLEAN_MINUTES_MIN {
            return None;
        }
        let mut rates: Vec<f64> = self.clean.iter().map(|rate| f64::from(*rate)).collect();
        let rate = Rate::new(percentile(&mut rates, percent)?).ok()?;
        // Minutes are mostly left out because much was offered. Were they all above, would the percentile be among them?
        let (left_out, all) = (self.left_out as f64, (self.clean.len() + self.left_out) as f64);
        let is_whole = left_out * 100.0 <= all * (100.0 - percent);
        Some(DayPeak { rate, is_whole })
    }
}
