//! What a limit is learned from: one sample a minute, one peak a day, and the limit that follows. `docs/learned-limits.md`
//! tells it as a whole.
//!
//! With `p`, `days` and `headroom` as the policy says:
//!
//! ```text
//! peak of a day = percentile_p(offered rates of its clean minutes)         at least 60 of them
//! typical       = percentile_p(the last `days` peaks)                      at least 3 of them
//! target        = clamp(headroom * typical, min, max)
//! learned       = clamp(target, 0.8 * learned before, 1.2 * learned before)  once for each day that gives a peak
//! limit         = clamp(learned, min, max)
//! ```
//!
//! Minutes are mostly left out because much was offered. Where so many are that the percentile may lie among them, what is
//! left is only the quiet hours: such a day gives a peak where it is above `typical`, and else none.
//!
//! `percentile_p` of n values in ascending order x\[0\], .., x\[n-1\] lies at h = (n - 1) p / 100 and is interpolated:
//! x\[floor h\] + (h - floor h) (x\[floor h + 1\] - x\[floor h\]), method 7 of Hyndman and Fan, "Sample Quantiles in
//! Statistical Packages" (1996).

mod calendar;
mod day;
mod percentile;
#[cfg(test)]
mod tests;

pub use calendar::{Day, MINUTES_PER_DAY, Minute};
pub use day::{CLEAN_MINUTES_MIN, DayPeak, DaySamples, Sample};
pub use percentile::percentile;

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::Learned;
use plimsoll_core::quantity::Rate;

/// Peaks of at most so many days are remembered; a policy that asks for more is given these.
pub const DAYS_MAX: usize = 90;
/// A limit is learned from at least so many days' peaks.
pub const DAYS_MIN: usize = 3;
/// What a learned limit changes by at most from one day to the next, as a share of itself.
pub const STEP_MAX: f64 = 0.2;

/// What is known of the traffic of one bucket, and the limit that follows.
///
/// At most 10.5 KiB: 4 bytes for each clean minute of the present day and 16 for each peak, with the room they grow in.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Baseline {
    today: Option<(Day, DaySamples)>,
    closed: Closed,
}

/// What is known of the days before the present one: all that has to be kept besides the samples themselves.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Closed {
    /// The present day when this was taken: samples from then on are not contained.
    pub open: Option<Day>,
    peaks: VecDeque<Peak>,
    limit: Option<Step>,
}

/// The peak of one day.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Peak {
    /// Which day, by the wall clock of the time.
    pub day: Day,
    /// The percentile of its clean minutes, in requests/s.
    pub rate: Rate,
}

/// A limit that was learned.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Requests/s, before it is held between the bounds that the policy has now.
    pub limit: Rate,
    /// The day on which it took this value.
    pub since: Day,
}

/// What became of a day that was offered as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filed {
    /// Its peak is known now, and was not before.
    Added,
    /// Its peak took the place of the one that was known.
    Replaced,
    /// Its peak was known before, and stays.
    Kept,
    /// It has too few clean minutes to have a peak.
    TooFew,
    /// So many minutes were left out that its peak cannot be told.
    Cut,
    /// It is older than all that are remembered.
    TooOld,
}

// === impl Baseline ===

impl Baseline {
    /// Goes on from what was kept. The samples since then have to be added again.
    #[must_use]
    pub fn restore(mut closed: Closed) -> Self {
        let excess = closed.peaks.len().saturating_sub(DAYS_MAX);
        closed.peaks.drain(..excess);
        let today = closed.open.take().map(|day| (day, DaySamples::default()));
        Self { today, closed }
    }

    /// What has to be kept of it.
    #[must_use]
    pub fn closed(&self) -> Closed {
        Closed { open: self.today(), ..self.closed.clone() }
    }

    /// The time is now in `day`: whatever other day was the present one is over. `learned` is what the policy says, where
    /// it says that the limit is to be learned. True when another day has begun.
    ///
    /// Which day comes after which is no matter, so a clock that jumps costs at most what was counted on the day it jumps
    /// from. A day that comes again adds no second peak and moves the limit no second time.
    pub fn turn(&mut self, day: Day, learned: Option<&Learned>) -> bool {
        if self.today() == Some(day) {
            return false;
        }
        let over = self.today.replace((day, DaySamples::default()));
        let terms = terms(learned);
        if let Some((over, samples)) = over
            && let Ok(peak) = self.judge(over, &samples, false, &terms)
        {
            self.closed.peaks.push_back(peak);
            if self.closed.peaks.len() > DAYS_MAX {
                self.closed.peaks.pop_front();
            }
            if learned.is_some() {
                self.step(day, &terms);
            }
        }
        if learned.is_none() {
            // What is not followed any more is out of date by the time it is wanted again; the peaks are not.
            self.closed.limit = None;
        }
        self.learn(learned);
        true
    }

    /// Adds the sample of a minute of the present day, the one that [`turn`](Self::turn) was told last. The first sample
    /// of a minute holds.
    pub fn record(&mut self, minute: Minute, sample: Sample) {
        if let Some((day, samples)) = &mut self.today
            && *day == minute.day()
        {
            samples.record(minute, sample);
        }
    }

    /// A policy is in force: takes the first limit from the peaks that are known, if there are enough and it is to be
    /// learned. True when there is one now that was not there before.
    pub fn learn(&mut self, learned: Option<&Learned>) -> bool {
        let (Some(learned), None, Some(day)) = (learned, self.closed.limit, self.today()) else {
            return false;
        };
        self.step(day, learned);
        self.closed.limit.is_some()
    }

    /// Adds a day that is over, from elsewhere. Its peak goes where it belongs by date; the limit that is in force follows
    /// with the next day that ends, by a step as always. `replace` says what happens when the day's peak is known.
    pub fn file(&mut self, day: Day, samples: &DaySamples, replace: bool, learned: &Learned) -> Filed {
        let peak = match self.judge(day, samples, replace, learned) {
            Ok(peak) => peak,
            Err(filed) => return filed,
        };
        let peaks = &mut self.closed.peaks;
        if let Some(known) = peaks.iter_mut().find(|known| known.day == day) {
            *known = peak;
            return Filed::Replaced;
        }
        let at = peaks.iter().position(|known| known.day > day).unwrap_or(peaks.len());
        if peaks.len() < DAYS_MAX {
            peaks.insert(at, peak);
        } else if at == 0 {
            return Filed::TooOld;
        } else {
            peaks.insert(at, peak);
            peaks.pop_front();
        }
        Filed::Added
    }

    /// The peak of a day that is over, or why it gives none.
    fn judge(&self, day: Day, samples: &DaySamples, replace: bool, learned: &Learned) -> Result<Peak, Filed> {
        if !replace && self.closed.peaks.iter().any(|peak| peak.day == day) {
            return Err(Filed::Kept);
        }
        let peak = samples.peak(learned.percentile).ok_or(Filed::TooFew)?;
        // What was left out may be all the busy hours. Then what is left says only how high the peak was at least.
        if !peak.is_whole && self.typical(learned).is_none_or(|typical| peak.rate < typical) {
            return Err(Filed::Cut);
        }
        Ok(Peak { day, rate: peak.rate })
    }

    /// The limit in force, held between the bounds of the policy; `None` as long as none was learned.
    #[must_use]
    pub fn limit(&self, learned: &Learned) -> Option<Step> {
        let step = self.closed.limit?;
        Some(Step { limit: learned.bounds.clamp(step.limit), ..step })
    }

    /// Requests/s that a usual day's peak reaches: the percentile of the last days' peaks, in the order in which the days
    /// ended. `None` before there are enough.
    #[must_use]
    pub fn typical(&self, learned: &Learned) -> Option<Rate> {
        if self.closed.peaks.len() < DAYS_MIN {
            return None;
        }
        let last = self.closed.peaks.iter().rev().take(window(learned));
        let mut rates: Vec<f64> = last.map(|peak| peak.rate.per_second()).collect();
        Rate::new(percentile(&mut rates, learned.percentile)?).ok()
    }

    /// The peaks remembered, oldest first.
    pub fn peaks(&self) -> impl ExactSizeIterator<Item = &Peak> {
        self.closed.peaks.iter()
    }

    /// The present day, once a time was told.
    #[must_use]
    pub fn today(&self) -> Option<Day> {
        self.today.as_ref().map(|(day, _)| *day)
    }

    /// Clean minutes of the present day, and those left out.
    #[must_use]
    pub fn minutes(&self) -> (usize, usize) {
        self.today.as_ref().map_or((0, 0), |(_, samples)| (samples.clean(), samples.left_out()))
    }

    /// The limit goes towards what the peaks ask for.
    fn step(&mut self, day: Day, learned: &Learned) {
        let Some(typical) = self.typical(learned) else { return };
        let asked = (learned.headroom * typical.per_second()).min(f64::MAX);
        let Ok(asked) = Rate::new(asked) else { return };
        let target = learned.bounds.clamp(asked);
        let before = self.closed.limit.map(|step| step.limit);
        let limit = match before {
            // A fifth of nothing would be nothing for ever.
            None | Some(Rate::ZERO) => target,
            Some(before) => {
                let before = before.per_second();
                let (least, most) = (before * (1.0 - STEP_MAX), (before * (1.0 + STEP_MAX)).min(f64::MAX));
                Rate::new(target.per_second().clamp(least, most)).unwrap_or(target)
            }
        };
        if before != Some(limit) {
            self.closed.limit = Some(Step { limit, since: day });
        }
    }
}

/// How many peaks a limit is taken over: `days` of the policy, cut to whole days, 1..=[`DAYS_MAX`].
#[must_use]
pub fn window(learned: &Learned) -> usize {
    // What is no whole number of days is cut; the cast keeps to the range of its type.
    (learned.days as usize).clamp(1, DAYS_MAX)
}

/// Peaks are also taken of a bucket whose limit is not learned, so that it can be later.
fn terms(learned: Option<&Learned>) -> Learned {
    learned.cloned().unwrap_or_default()
}
