//! What was seen of one entry's stage, in a ring of slots that covers the window of its gate. Time is counted in cycles
//! that had data.

use std::collections::VecDeque;
use std::time::Duration;

use plimsoll_core::stats::{Histogram, Quantile};
use plimsoll_core::report::{Outcomes, Side};
use plimsoll_core::decision::Mode;
use plimsoll_core::rollout::gates::{Observed, Reading};
use serde::{Deserialize, Serialize};

use crate::state::{Exhibit, Sums};

/// Into how many slots a window is divided: what is judged covers the window and at most one slot more.
const SLOTS: u32 = 24;

/// One stage of one entry.
#[derive(Clone, Debug, Default)]
pub(super) struct Trial {
    /// The change that began it.
    change: u64,
    cycles: u64,
    tick: Duration,
    /// What came since the last cycle.
    fresh: Sides,
    /// The slots that are full, the oldest first, and all of them together.
    full: VecDeque<Slot>,
    sum: Sides,
    /// The slot that fills up.
    last: Slot,
}

/// What some cycles saw.
#[derive(Clone, Debug, Default)]
struct Slot {
    cycles: u64,
    sides: Sides,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Sides {
    canary: Outcomes,
    control: Outcomes,
}

/// What outlives a restart: all but latencies, which begin anew.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedTrial {
    /// The change that began the stage.
    pub change: u64,
    /// Cycles with data in the stage.
    pub cycles: u64,
    /// How long one is, in milliseconds.
    pub tick_ms: u64,
    /// For each slot its cycles, and what was offered, refused, would-dropped and failed, in the cohort and outside.
    pub slots: Vec<(u64, [u64; 4], [u64; 4])>,
}

impl Trial {
    pub(super) fn begin(change: u64) -> Self {
        Self { change, ..Self::default() }
    }

    pub(super) fn restored(saved: &SavedTrial) -> Self {
        let slot = |(cycles, canary, control): &(u64, [u64; 4], [u64; 4])| Slot {
            cycles: *cycles,
            sides: Sides { canary: restored(*canary), control: restored(*control) },
        };
        let mut trial = Self {
            cycles: saved.cycles,
            tick: Duration::from_millis(saved.tick_ms),
            full: saved.slots.iter().map(slot).collect(),
            ..Self::begin(saved.change)
        };
        trial.add_up();
        trial
    }

    pub(super) fn saved(&self) -> SavedTrial {
        let slots = self.full.iter().chain([&self.last]).filter(|slot| slot.cycles > 0);
        let saved = |slot: &Slot| (slot.cycles, counts(&slot.sides.canary), counts(&slot.sides.control));
        SavedTrial {
            change: self.change,
            cycles: self.cycles,
            tick_ms: u64::try_from(self.tick.as_millis()).unwrap_or(u64::MAX),
            slots: slots.map(saved).collect(),
        }
    }

    pub(super) const fn change(&self) -> u64 {
        self.change
    }

    pub(super) fn enter(&mut self, side: Side, outcomes: &Outcomes) {
        self.fresh.of(side).add(outcomes);
    }

    /// A cycle is over. One without data is none: in canary that is one in which nobody asked the cohort.
    pub(super) fn on_cycle(&mut self, stage: Mode, window: Duration, tick: Duration) {
        self.tick = tick;
        let in_cohort = self.fresh.canary.offered;
        let elsewhere = if stage == Mode::Canary { 0 } else { self.fresh.control.offered };
        let asked = in_cohort.saturating_add(elsewhere);
        let fresh = std::mem::take(&mut self.fresh);
        self.last.sides.add(&fresh);
        if asked == 0 {
            return;
        }
        self.cycles += 1;
        self.last.cycles += 1;
        let of_window = u64::try_from(window.as_nanos().div_ceil(tick.as_nanos().max(1))).unwrap_or(u64::MAX);
        if self.last.cycles >= of_window.div_ceil(u64::from(SLOTS)) {
            self.full.push_back(std::mem::take(&mut self.last));
            self.forget(of_window);
            self.add_up();
        }
    }

    /// Forgets slots as long as the others cover the window, and joins the oldest where there are too many because it
    /// was shorter before.
    fn forget(&mut self, of_window: u64) {
        let mut covered: u64 = self.full.iter().map(|slot| slot.cycles).sum();
        while let Some(first) = self.full.front()
            && covered - first.cycles >= of_window
        {
            covered -= first.cycles;
            self.full.pop_front();
        }
        while self.full.len() > 2 * SLOTS as usize {
            let Some(oldest) = self.full.pop_front() else { return };
            let Some(next) = self.full.front_mut() else { return };
            next.cycles += oldest.cycles;
            next.sides.add(&oldest.sides);
        }
    }

    fn add_up(&mut self) {
        self.sum = Sides::default();
        self.full.iter().for_each(|slot| self.sum.add(&slot.sides));
    }

    fn all(&self) -> Sides {
        let mut all = self.sum.clone();
        all.add(&self.last.sides);
        all
    }

    fn with_data(&self) -> Duration {
        let cycles = u32::try_from(self.cycles).unwrap_or(u32::MAX);
        self.tick.saturating_mul(cycles)
    }

    /// What the gate out of `stage` judges.
    pub(super) fn observed(&self, stage: Mode) -> Observed {
        let Sides { canary, control } = self.all();
        let drop_ratio = if stage == Mode::Shadow {
            let would_dropped = canary.would_dropped.saturating_add(control.would_dropped);
            Reading::share(would_dropped, canary.offered.saturating_add(control.offered))
        } else {
            Reading::share(canary.refused, canary.offered)
        };
        Observed {
            with_data: self.with_data(),
            drop_ratio,
            canary_p99: p99(&canary.latency, true),
            control_p99: p99(&control.latency, false),
            ..Observed::default()
        }
    }

    pub(super) fn exhibit(&self) -> Exhibit {
        let Sides { canary, control } = self.all();
        let with_data_ms = u64::try_from(self.with_data().as_millis()).unwrap_or(u64::MAX);
        Exhibit { with_data_ms, canary: sums(&canary), control: sums(&control), queries: Vec::new() }
    }
}

impl Sides {
    fn of(&mut self, side: Side) -> &mut Outcomes {
        match side {
            Side::Canary => &mut self.canary,
            Side::Control => &mut self.control,
        }
    }

    fn add(&mut self, other: &Self) {
        self.canary.add(&other.canary);
        self.control.add(&other.control);
    }
}

/// The 99th percentile in seconds. One that is too long to tell counts as the least it may be where that can only do harm
/// to who asks for more, and as unknown elsewhere.
fn p99(latency: &Histogram, at_least: bool) -> Reading {
    let value = match latency.quantile(0.99) {
        Some(Quantile::About(p99)) => Some(p99),
        Some(Quantile::AtLeast(p99)) => at_least.then_some(p99),
        None => None,
    };
    Reading { value: value.map(|p99| p99.as_secs_f64()), samples: latency.samples() }
}

fn sums(outcomes: &Outcomes) -> Sums {
    let Outcomes { offered, refused, would_dropped, failed, ref latency } = *outcomes;
    let p99 = latency.quantile(0.99).map(|p99| match p99 {
        Quantile::About(p99) | Quantile::AtLeast(p99) => p99.as_micros() as u64,
    });
    Sums { offered, refused, would_dropped, failed, p99_us: p99, samples: latency.samples() }
}

const fn counts(outcomes: &Outcomes) -> [u64; 4] {
    [outcomes.offered, outcomes.refused, outcomes.would_dropped, outcomes.failed]
}

fn restored([offered, refused, would_dropped, failed]: [u64; 4]) -> Outcomes {
    Outcomes { offered, refused, would_dropped, failed, latency: Histogram::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_millis(500);
    const MINUTE: Duration = Duration::from_secs(60);

    fn asked(offered: u64, would_dropped: u64) -> Outcomes {
        Outcomes { offered, would_dropped, ..Outcomes::default() }
    }

    fn pass(trial: &mut Trial, cycles: u64, offered: u64, would_dropped: u64) {
        for _ in 0..cycles {
            trial.enter(Side::Control, &asked(offered, would_dropped));
            trial.on_cycle(Mode::Shadow, MINUTE, TICK);
        }
    }

    #[test]
    fn time_counts_in_cycles_that_had_data() {
        let mut trial = Trial::begin(1);
        pass(&mut trial, 10, 5, 0);
        (0..1_000).for_each(|_| trial.on_cycle(Mode::Shadow, MINUTE, TICK));
        assert_eq!(trial.observed(Mode::Shadow).with_data, TICK * 10);
        // In canary only the cohort's data are any.
        trial.enter(Side::Control, &asked(5, 0));
        trial.on_cycle(Mode::Canary, MINUTE, TICK);
        assert_eq!(trial.cycles, 10);
        trial.enter(Side::Canary, &asked(5, 0));
        trial.on_cycle(Mode::Canary, MINUTE, TICK);
        assert_eq!(trial.cycles, 11);
    }

    #[test]
    fn what_is_older_than_the_window_is_forgotten_and_nothing_younger() {
        let mut trial = Trial::begin(1);
        pass(&mut trial, 120, 1, 1);
        for younger in 1..=500 {
            pass(&mut trial, 1, 1, 0);
            let bad = trial.observed(Mode::Shadow).drop_ratio;
            let bad = (bad.value.unwrap() * bad.samples as f64).round() as u64;
            let (least, most) = (120_u64.saturating_sub(younger), 126_u64.saturating_sub(younger).min(120));
            assert!((least..=most).contains(&bad), "{bad} after {younger}");
            assert!(trial.full.len() <= 25);
        }
    }

    #[test]
    fn a_window_that_grows_keeps_a_bound_and_one_that_shrinks_forgets() {
        let mut trial = Trial::begin(1);
        for window in [MINUTE, MINUTE * 2, MINUTE * 60, MINUTE * 7_000] {
            for _ in 0..2_000 {
                trial.enter(Side::Canary, &asked(1, 0));
                trial.on_cycle(Mode::Shadow, window, TICK);
                assert!(trial.full.len() <= 2 * SLOTS as usize);
            }
        }
        for _ in 0..121 {
            trial.enter(Side::Canary, &asked(1, 0));
            trial.on_cycle(Mode::Shadow, MINUTE, TICK);
        }
        // What was one slot before stays whole until those after it cover the window.
        pass(&mut trial, 121, 1, 0);
        assert!(trial.observed(Mode::Shadow).drop_ratio.samples <= 126);
        assert_eq!(trial.cycles, 8_242);
    }

    #[test]
    fn a_restart_keeps_all_but_latencies() {
        let mut trial = Trial::begin(7);
        pass(&mut trial, 77, 3, 1);
        trial.enter(
            Side::Canary,
            &Outcomes {
                offered: 9,
                refused: 2,
                failed: 1,
                latency: [TICK].into_iter().collect(),
                ..Outcomes::default()
            },
        );
        trial.on_cycle(Mode::Shadow, MINUTE, TICK);
        let saved = trial.saved();
        let text = serde_json::to_string(&saved).unwrap();
        let back = Trial::restored(&serde_json::from_str(&text).unwrap());
        assert_eq!((back.saved(), back.change()), (saved, 7));
        let (before, after) = (trial.observed(Mode::Shadow), back.observed(Mode::Shadow));
        assert_eq!((before.with_data, before.drop_ratio), (after.with_data, after.drop_ratio));
        assert_eq!((before.canary_p99.samples, after.canary_p99.samples), (1, 0));
        assert_eq!(trial.exhibit().canary.p99_us, Some(500_736));
    }
}
