//! The minutes of one day of one bucket, and the peak that follows.

use std::time::Duration;

use super::calendar::{MINUTES_PER_DAY, Minute};
use super::percentile::percentile;
use plimsoll_core::quantity::Rate;
use plimsoll_core::report::{Counts, Tally};

/// The fewest clean minutes of a day with a peak.
pub const CLEAN_MINUTES_MIN: usize = 60;
/// Maximum share of requests refused in a clean minute. A few refusals, such as those of a guard
/// that cuts a group of requests, say nothing about the demand: repeated, they raise it by this
/// share at most.
pub const REFUSED_MAX: f64 = 0.05;
/// The shortest and longest time that a sample of a minute may cover.
const SPAN: (Duration, Duration) = (Duration::from_secs(45), Duration::from_secs(90));

/// The offered rate of a bucket in one minute.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Requests/s offered over all zones; more than zero.
    pub offered: Rate,
    /// True if at most [`REFUSED_MAX`] was refused or would have been, and nothing was killed: the rate then
    /// shows the undisturbed demand. Other minutes are left out.
    pub clean: bool,
}

/// The samples of one day.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DaySamples {
    /// A bit for each minute of the day that has a sample.
    seen: [u64; MINUTES_PER_DAY.div_ceil(64)],
    /// Requests/s of the clean minutes, in arrival order: finite and more than zero.
    clean: Vec<f32>,
    left_out: usize,
}

/// The peak of one day.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DayPeak {
    /// The percentile of its clean minutes.
    pub rate: Rate,
    /// True if the minutes left out are too few to contain the percentile. Otherwise the peak was at least
    /// this high.
    pub is_whole: bool,
}

// === impl Sample ===

impl Sample {
    /// Builds a sample from the counts of `span`. `None` if that is not about a minute, and without requests: a
    /// bucket without traffic or reports shows nothing about its usual demand. Late counts have no time and are not
    /// part of the rate, nor are requests that were sent again: they show no demand.
    pub fn of(counted: Tally, span: Duration, killed: bool) -> Option<Self> {
        if span < SPAN.0 || span > SPAN.1 {
            return None;
        }
        let first = |counts: Counts| counts.offered.saturating_sub(counts.retried);
        let offered = first(counted.counts).saturating_sub(first(counted.late));
        let refused = counted
            .counts
            .refused()
            .saturating_add(counted.counts.would_dropped);
        let offered = Rate::over(offered, span).filter(|offered| *offered > Rate::ZERO)?;
        let is_undisturbed = refused as f64 <= REFUSED_MAX * counted.counts.offered as f64;
        Some(Self {
            offered,
            clean: is_undisturbed && !killed,
        })
    }
}

// === impl DaySamples ===

impl DaySamples {
    /// Adds the sample of a minute, of any day. The first sample of a minute is kept, and one of zero is
    /// ignored.
    pub fn record(&mut self, minute: Minute, sample: Sample) {
        // An `f32` holds 7 digits; larger rates are clamped to its range.
        let offered = (sample.offered.per_second() as f32).min(f32::MAX);
        let at = minute.of_day();
        let Some(seen) = self.seen.get_mut(at / 64) else {
            return;
        };
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
    pub const fn clean(&self) -> usize {
        self.clean.len()
    }

    /// Minutes left out.
    pub const fn left_out(&self) -> usize {
        self.left_out
    }

    /// The percentile `percent` of the clean minutes; `None` where they are fewer than [`CLEAN_MINUTES_MIN`].
    /// O(minutes).
    pub fn peak(&self, percent: f64) -> Option<DayPeak> {
        if self.clean.len() < CLEAN_MINUTES_MIN {
            return None;
        }
        let mut rates: Vec<f64> = self.clean.iter().map(|rate| f64::from(*rate)).collect();
        let rate = Rate::computed(percentile(&mut rates, percent)?)?;
        // Minutes are mostly left out because much was offered. Were they all above, would the percentile be
        // among them?
        let (left_out, all) = (
            self.left_out as f64,
            (self.clean.len() + self.left_out) as f64,
        );
        let is_whole = left_out * 100.0 <= all * (100.0 - percent);
        Some(DayPeak { rate, is_whole })
    }
}
