//! Learned limits: one sample a minute, one peak a day, and the limit that follows.
//! `docs/guides/learned-limits.md` describes the whole.
//!
//! With `p`, `days` and `headroom` of the policy:
//!
//! ```text
//! peak of a day = percentile_p(offered rates of its clean minutes)         at least 60 of them
//! typical       = percentile_p(the last `days` peaks)                      at least 3 of them
//! target        = clamp(headroom * typical, min, max)
//! learned       = clamp(target, 0.8 * learned before, 1.2 * learned before)  once for each day that gives a peak
//! limit         = clamp(learned, min, max)
//! ```
//!
//! Minutes are mostly left out because much was offered. Where so many are that the percentile may lie among
//! them, what is left is only the quiet hours: such a day gives a peak where it is above `typical`, and else
//! none.
//!
//! `percentile_p` of n values in ascending order x\[0\], .., x\[n-1\] lies at h = (n - 1) p / 100 and is
//! interpolated: x\[floor h\] + (h - floor h) (x\[floor h + 1\] - x\[floor h\]), method 7 of Hyndman and Fan,
//! "Sample Quantiles in Statistical Packages" (1996).

mod calendar;
mod day;
mod percentile;
#[cfg(test)]
mod tests;

pub use calendar::{Day, MINUTES_PER_DAY, Minute};
pub use day::{CLEAN_MINUTES_MIN, DayPeak, DaySamples, REFUSED_MAX, Sample};
pub use percentile::percentile;

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::Learned;
use plimsoll_core::quantity::Rate;

/// Maximum number of daily peaks remembered; a policy with more days uses these.
pub const DAYS_MAX: usize = 90;
/// The fewest daily peaks for a learned limit.
pub const DAYS_MIN: usize = 3;
/// Maximum change of a learned limit from one day to the next, as a share of the limit.
pub const STEP_MAX: f64 = 0.2;

/// The traffic history of one bucket, and the limit that follows.
///
/// At most 10.5 KiB: 4 bytes for each clean minute of the present day and 16 for each peak, spare capacity
/// included.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Baseline {
    today: Option<(Day, DaySamples)>,
    closed: Closed,
}

/// The history of the closed days: stored together with the samples of the present day.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Closed {
    /// The present day when this was taken; its samples are not included.
    pub open: Option<Day>,
    peaks: VecDeque<Peak>,
    limit: Option<Step>,
}

/// The peak of one day.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Peak {
    /// The day, by the wall clock at the time.
    pub day: Day,
    /// The percentile of its clean minutes, in requests/s.
    pub rate: Rate,
}

/// A learned limit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// The limit in requests/s, before the bounds of the present policy.
    pub limit: Rate,
    /// Day of its latest change.
    pub since: Day,
}

/// The result of importing a whole day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filed {
    /// Its peak was added.
    Added,
    /// Its peak replaced the known one.
    Replaced,
    /// The known peak was kept.
    Kept,
    /// It has too few clean minutes to have a peak.
    TooFew,
    /// Too many minutes were left out to determine its peak.
    Cut,
    /// It is older than all remembered days.
    TooOld,
}

// === impl Baseline ===

impl Baseline {
    /// Restores the history. The samples of the present day have to be added again.
    pub fn restore(mut closed: Closed) -> Self {
        drop_oldest(&mut closed.peaks);
        let today = closed.open.take().map(|day| (day, DaySamples::default()));
        Self { today, closed }
    }

    /// The state to be stored.
    pub fn closed(&self) -> Closed {
        Closed {
            open: self.today(),
            ..self.closed.clone()
        }
    }

    /// Advances to `day` and closes the day before. `learned` are the settings if the limit is learned.
    /// Returns true if another day has begun.
    ///
    /// Days may arrive in any order, so a clock that jumps costs at most the samples of the day it
    /// jumps from. A day that arrives twice adds one peak and moves the limit once.
    pub fn turn(&mut self, day: Day, learned: Option<&Learned>) -> bool {
        if self.today() == Some(day) {
            return false;
        }
        let over = self.today.replace((day, DaySamples::default()));
        // Peaks are also recorded for a bucket without a learned limit, so that it can be learned later.
        let terms = learned.cloned().unwrap_or_default();
        if let Some((over, samples)) = over
            && let Ok(peak) = self.judge(over, &samples, false, &terms)
        {
            self.closed.peaks.push_back(peak);
            drop_oldest(&mut self.closed.peaks);
            if learned.is_some() {
                self.step(day, &terms);
            }
        }
        if learned.is_none() {
            // A limit that is not learned anymore is dropped, since it would be stale later; the
            // peaks are kept.
            self.closed.limit = None;
        }
        self.learn(learned);
        true
    }

    /// Adds the sample of a minute of the present day, set by [`turn`](Self::turn). The first sample of a
    /// minute is kept.
    pub fn record(&mut self, minute: Minute, sample: Sample) {
        if let Some((day, samples)) = &mut self.today
            && *day == minute.day()
        {
            samples.record(minute, sample);
        }
    }

    /// Applies a policy: learns the first limit from the known peaks, if there are enough. Returns true if a
    /// limit was learned that was absent before.
    pub fn learn(&mut self, learned: Option<&Learned>) -> bool {
        let (Some(learned), None, Some(day)) = (learned, self.closed.limit, self.today()) else {
            return false;
        };
        self.step(day, learned);
        self.closed.limit.is_some()
    }

    /// Imports a closed day. Its peak is inserted by date; the current limit follows with the next
    /// day that ends, by a step as usual. `replace` decides which peak is kept if the day is known.
    pub fn file(
        &mut self,
        day: Day,
        samples: &DaySamples,
        replace: bool,
        learned: &Learned,
    ) -> Filed {
        let peak = match self.judge(day, samples, replace, learned) {
            Ok(peak) => peak,
            Err(filed) => return filed,
        };
        let peaks = &mut self.closed.peaks;
        if let Some(known) = peaks.iter_mut().find(|known| known.day == day) {
            *known = peak;
            return Filed::Replaced;
        }
        let at = peaks
            .iter()
            .position(|known| known.day > day)
            .unwrap_or(peaks.len());
        if at == 0 && peaks.len() >= DAYS_MAX {
            return Filed::TooOld;
        }
        peaks.insert(at, peak);
        drop_oldest(peaks);
        Filed::Added
    }

    /// Returns the peak of a closed day, or the reason why it has none.
    fn judge(
        &self,
        day: Day,
        samples: &DaySamples,
        replace: bool,
        learned: &Learned,
    ) -> Result<Peak, Filed> {
        if !replace && self.closed.peaks.iter().any(|peak| peak.day == day) {
            return Err(Filed::Kept);
        }
        let peak = samples.peak(learned.percentile).ok_or(Filed::TooFew)?;
        // The minutes left out may be all the busy hours. The others then show only a lower bound of the
        // peak.
        if !peak.is_whole
            && self
                .typical(learned)
                .is_none_or(|typical| peak.rate < typical)
        {
            return Err(Filed::Cut);
        }
        Ok(Peak {
            day,
            rate: peak.rate,
        })
    }

    /// Returns the current limit, within the bounds of the policy; `None` before one was learned.
    pub fn limit(&self, learned: &Learned) -> Option<Step> {
        let step = self.closed.limit?;
        Some(Step {
            limit: learned.bounds.clamp(step.limit),
            ..step
        })
    }

    /// Returns the typical peak in requests/s: the percentile of the last days' peaks, in the order in which
    /// the days ended. `None` before there are enough.
    pub fn typical(&self, learned: &Learned) -> Option<Rate> {
        if self.closed.peaks.len() < DAYS_MIN {
            return None;
        }
        let last = self.closed.peaks.iter().rev().take(window(learned));
        let mut rates: Vec<f64> = last.map(|peak| peak.rate.per_second()).collect();
        Rate::computed(percentile(&mut rates, learned.percentile)?)
    }

    /// The peaks remembered, oldest first.
    pub fn peaks(&self) -> impl ExactSizeIterator<Item = &Peak> {
        self.closed.peaks.iter()
    }

    /// The present day, once a time was given.
    pub fn today(&self) -> Option<Day> {
        self.today.as_ref().map(|(day, _)| *day)
    }

    /// The clean minutes of the present day, and those left out.
    pub fn minutes(&self) -> (usize, usize) {
        self.today
            .as_ref()
            .map_or((0, 0), |(_, samples)| (samples.clean(), samples.left_out()))
    }

    fn step(&mut self, day: Day, learned: &Learned) {
        let Some(typical) = self.typical(learned) else {
            return;
        };
        let Some(asked) = Rate::computed(learned.headroom * typical.per_second()) else {
            return;
        };
        let target = learned.bounds.clamp(asked);
        let before = self.closed.limit.map(|step| step.limit);
        let limit = match before {
            // A fifth of zero would keep the limit at zero forever.
            None | Some(Rate::ZERO) => target,
            Some(before) => {
                let before = before.per_second();
                let (least, most) = (before * (1.0 - STEP_MAX), before * (1.0 + STEP_MAX));
                Rate::computed(target.per_second().clamp(least, most)).unwrap_or(target)
            }
        };
        if before != Some(limit) {
            self.closed.limit = Some(Step { limit, since: day });
        }
    }
}

/// Returns the number of peaks for a limit: `days` of the policy, 1..=[`DAYS_MAX`].
pub fn window(learned: &Learned) -> usize {
    usize::try_from(learned.days)
        .unwrap_or(DAYS_MAX)
        .clamp(1, DAYS_MAX)
}

fn drop_oldest(peaks: &mut VecDeque<Peak>) {
    peaks.drain(..peaks.len().saturating_sub(DAYS_MAX));
}
