//! The evidence of one entry's present stage: counts by cohort, in a queue of slots that covers the window of
//! the gate. Only ticks with requests count as time.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use plimsoll_core::decision::Mode;
use plimsoll_core::names::Bucket;
use plimsoll_core::quantity::Rate;
use plimsoll_core::report::{Outcomes, Side};
use plimsoll_core::rollout::gates::{LatencyBasis, Observed, Reading};
use plimsoll_core::stats::{Histogram, Quantile};

use super::tightening::DRIFT_MAX;
use crate::state::{CohortSums, Evidence, SavedSlot, SavedStageStats};

/// Slots into which a window is divided. The stats cover the window and less than two further slots. After
/// the policy changed the window, an old slot stays until newer ones cover the window.
const SLOTS: u32 = 24;

#[derive(Clone, Debug, Default)]
pub(super) struct StageStats {
    /// The number of the change that began the stage, or its evidence anew.
    pub(super) change: u64,
    /// Time with requests since then.
    with_data: Duration,
    /// True once an instance has reported a latency in the stage, also before the window or a restart.
    has_latencies: bool,
    /// Outcomes since the last tick.
    fresh: Cohorts,
    /// The slots that are full, the oldest first.
    full: VecDeque<Slot>,
    /// The sum of the full slots.
    sum: Cohorts,
    open: Slot,
    /// Limits that move by themselves, as requests were counted under them.
    limits: JudgedLimits,
}

#[derive(Clone, Debug, Default)]
struct Slot {
    time: Duration,
    cohorts: Cohorts,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Cohorts {
    canary: Outcomes,
    control: Outcomes,
}

/// The lowest limits that the evidence was counted under, for buckets with a limit that moves by itself.
///
/// A limit counts as judged once no higher one was active for a window of the gate. Else many small
/// steps would pass on the evidence of the first.
#[derive(Clone, Debug, Default)]
struct JudgedLimits {
    by_bucket: BTreeMap<Bucket, JudgedLimit>,
}

#[derive(Clone, Copy, Debug)]
struct JudgedLimit {
    /// The lowest limit judged so far; at first the limit when the evidence began.
    lowest: Rate,
    /// The highest limit in the present window.
    highest: Rate,
    /// The time with requests when the present window began.
    from: Duration,
}

// === impl StageStats ===

impl StageStats {
    pub(super) fn begin(change: u64) -> Self {
        Self {
            change,
            ..Self::default()
        }
    }

    pub(super) fn restored(saved: &SavedStageStats) -> Self {
        let slot = |(time, canary, control): &SavedSlot| {
            let cohorts = Cohorts {
                canary: restored(*canary),
                control: restored(*control),
            };
            Slot {
                time: Duration::from_millis(*time),
                cohorts,
            }
        };
        let with_data = Duration::from_millis(saved.with_data_ms);
        let mut stats = Self {
            with_data,
            has_latencies: saved.has_latencies,
            full: saved.slots.iter().map(slot).collect(),
            limits: JudgedLimits::restored(&saved.lowest_limits, with_data),
            ..Self::begin(saved.change)
        };
        stats.sum_up();
        stats
    }

    pub(super) fn saved(&self) -> SavedStageStats {
        let slots = self
            .full
            .iter()
            .chain([&self.open])
            .filter(|slot| !slot.time.is_zero());
        let saved = |Slot { time, cohorts }: &Slot| {
            (
                millis(*time),
                counts(&cohorts.canary),
                counts(&cohorts.control),
            )
        };
        SavedStageStats {
            change: self.change,
            with_data_ms: millis(self.with_data),
            slots: slots.map(saved).collect(),
            has_latencies: self.has_latencies,
            lowest_limits: self.limits.lowest(),
        }
    }

    /// Adds outcomes. Returns true if they have the first latency of the stage.
    pub(super) fn record(&mut self, cohort: Side, outcomes: &Outcomes) -> bool {
        self.fresh.of(cohort).add(outcomes);
        let had_latencies = self.has_latencies;
        self.has_latencies |= outcomes.latency.samples() > 0;
        self.has_latencies && !had_latencies
    }

    /// Ends a tick. A tick without requests does not count as time; in canary, neither does a tick
    /// with requests only of the control cohort.
    pub(super) fn on_tick(&mut self, stage: Mode, window: Duration, tick: Duration) {
        let Cohorts { canary, control } = &self.fresh;
        let has_requests = canary.offered > 0 || stage != Mode::Canary && control.offered > 0;
        let fresh = std::mem::take(&mut self.fresh);
        self.open.cohorts.add(&fresh);
        if !has_requests {
            return;
        }
        self.with_data += tick;
        self.open.time += tick;
        if self.open.time * SLOTS >= window {
            self.full.push_back(std::mem::take(&mut self.open));
            self.evict(window);
            self.sum_up();
        }
    }

    /// Drops the oldest slots while the others cover the window. If the window has grown there are too many
    /// short slots: then it joins the oldest ones.
    fn evict(&mut self, window: Duration) {
        let mut covered: Duration = self.full.iter().map(|slot| slot.time).sum();
        while let Some(first) = self.full.front()
            && covered - first.time >= window
        {
            covered -= first.time;
            self.full.pop_front();
        }
        while self.full.len() > 2 * SLOTS as usize
            && let (Some(oldest), Some(next)) = (self.full.pop_front(), self.full.front_mut())
        {
            next.time += oldest.time;
            next.cohorts.add(&oldest.cohorts);
        }
    }

    /// Notes the present limit of a bucket with a limit that moves by itself. Returns the lowest
    /// limit judged so far, if the present one is too far below it for this evidence.
    pub(super) fn on_limit(
        &mut self,
        bucket: &Bucket,
        limit: Rate,
        window: Duration,
    ) -> Option<Rate> {
        self.limits.note(bucket, limit, self.with_data, window)
    }

    fn sum_up(&mut self) {
        self.sum = Cohorts::default();
        self.full
            .iter()
            .for_each(|slot| self.sum.add(&slot.cohorts));
    }

    fn total(&self) -> Cohorts {
        let mut total = self.sum.clone();
        total.add(&self.open.cohorts);
        total
    }

    pub(super) fn observed(&self, stage: Mode) -> Observed {
        let Cohorts { canary, control } = self.total();
        let drop_ratio = if stage == Mode::Shadow {
            let would_dropped = canary.would_dropped.saturating_add(control.would_dropped);
            Reading::share(
                would_dropped,
                canary.offered.saturating_add(control.offered),
            )
        } else {
            Reading::share(canary.refused, canary.offered)
        };
        Observed {
            with_data: self.with_data,
            drop_ratio,
            canary_p99: p99(&canary.latency, true),
            control_p99: p99(&control.latency, false),
            has_latencies: self.has_latencies,
            unobserved: self.unobserved(),
            ..Observed::default()
        }
    }

    pub(super) fn latency_basis(&self) -> LatencyBasis {
        let (has_latencies, unobserved) = (self.has_latencies, self.unobserved());
        Observed {
            has_latencies,
            unobserved,
            ..Observed::default()
        }
        .latency_basis()
    }

    const fn unobserved(&self) -> u64 {
        self.sum
            .unobserved()
            .saturating_add(self.open.cohorts.unobserved())
    }

    pub(super) fn evidence(&self) -> Evidence {
        let Cohorts { canary, control } = self.total();
        Evidence {
            with_data_ms: millis(self.with_data),
            canary: sums(&canary),
            control: sums(&control),
            latency_unreported: self.latency_basis() == LatencyBasis::NotReported,
            queries: Vec::new(),
        }
    }
}

// === impl Cohorts ===

impl Cohorts {
    fn of(&mut self, cohort: Side) -> &mut Outcomes {
        match cohort {
            Side::Canary => &mut self.canary,
            Side::Control => &mut self.control,
        }
    }

    const fn unobserved(&self) -> u64 {
        self.canary
            .unobserved
            .saturating_add(self.control.unobserved)
    }

    fn add(&mut self, other: &Self) {
        self.canary.add(&other.canary);
        self.control.add(&other.control);
    }
}

// === impl JudgedLimits ===

impl JudgedLimits {
    /// Restores the lowest limits. The present window begins anew.
    fn restored(lowest: &BTreeMap<Bucket, Rate>, with_data: Duration) -> Self {
        let limits = lowest
            .iter()
            .map(|(bucket, lowest)| (bucket.clone(), JudgedLimit::new(*lowest, with_data)));
        Self {
            by_bucket: limits.collect(),
        }
    }

    fn lowest(&self) -> BTreeMap<Bucket, Rate> {
        self.by_bucket
            .iter()
            .map(|(bucket, limit)| (bucket.clone(), limit.lowest))
            .collect()
    }

    /// Notes the present limit of a bucket after so much time with requests. Returns the lowest limit judged
    /// so far, if the present one is too far below it for this evidence.
    fn note(
        &mut self,
        bucket: &Bucket,
        limit: Rate,
        with_data: Duration,
        window: Duration,
    ) -> Option<Rate> {
        let begun = JudgedLimit::new(limit, with_data);
        let Some(judged) = self.by_bucket.get_mut(bucket) else {
            self.by_bucket.insert(bucket.clone(), begun);
            return None;
        };
        judged.highest = judged.highest.max(limit);
        if with_data.saturating_sub(judged.from) >= window {
            *judged = JudgedLimit {
                lowest: judged.lowest.min(judged.highest),
                ..begun
            };
        }
        let is_far = limit.per_second() < judged.lowest.per_second() * (1.0 - DRIFT_MAX);
        is_far.then_some(judged.lowest)
    }
}

impl JudgedLimit {
    const fn new(limit: Rate, from: Duration) -> Self {
        Self {
            lowest: limit,
            highest: limit,
            from,
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The 99th percentile in seconds.
///
/// Beyond the range of the histogram only a lower bound of it is known. For the canary cohort the
/// `lower_bound` is taken, so that a very slow canary fails its gate. For the control cohort the percentile
/// counts as unknown, so that a very slow control cohort cannot excuse a slow canary.
fn p99(latency: &Histogram, lower_bound: bool) -> Reading {
    let value = match latency.quantile(0.99) {
        Some(Quantile::About(p99)) => Some(p99),
        Some(Quantile::AtLeast(p99)) => lower_bound.then_some(p99),
        None => None,
    };
    Reading {
        value: value.map(|p99| p99.as_secs_f64()),
        samples: latency.samples(),
    }
}

fn sums(outcomes: &Outcomes) -> CohortSums {
    let Outcomes {
        offered,
        refused,
        would_dropped,
        failed,
        unobserved,
        ref latency,
        instances,
    } = *outcomes;
    let p99 = latency.quantile(0.99).map(|p99| match p99 {
        Quantile::About(p99) | Quantile::AtLeast(p99) => p99.as_micros() as u64,
    });
    let samples = latency.samples();
    CohortSums {
        offered,
        refused,
        would_dropped,
        failed,
        unobserved,
        p99_us: p99,
        samples,
        instances,
    }
}

const fn counts(outcomes: &Outcomes) -> [u64; 6] {
    [
        outcomes.offered,
        outcomes.refused,
        outcomes.would_dropped,
        outcomes.failed,
        outcomes.unobserved,
        outcomes.instances as u64,
    ]
}

fn restored(
    [
        offered,
        refused,
        would_dropped,
        failed,
        unobserved,
        instances,
    ]: [u64; 6],
) -> Outcomes {
    let instances = u32::try_from(instances).unwrap_or(u32::MAX);
    Outcomes {
        offered,
        refused,
        would_dropped,
        failed,
        unobserved,
        instances,
        ..Outcomes::default()
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::stats::Bin;

    use super::*;

    const TICK: Duration = Duration::from_millis(500);
    const MINUTE: Duration = Duration::from_secs(60);

    fn asked(offered: u64, would_dropped: u64) -> Outcomes {
        Outcomes {
            offered,
            would_dropped,
            ..Outcomes::default()
        }
    }

    fn pass(stats: &mut StageStats, ticks: u64, offered: u64, would_dropped: u64) {
        for _ in 0..ticks {
            stats.record(Side::Control, &asked(offered, would_dropped));
            stats.on_tick(Mode::Shadow, MINUTE, TICK);
        }
    }

    #[test]
    fn time_counts_only_ticks_with_requests() {
        let mut stats = StageStats::begin(1);
        pass(&mut stats, 10, 5, 0);
        (0..1_000).for_each(|_| stats.on_tick(Mode::Shadow, MINUTE, TICK));
        assert_eq!(stats.observed(Mode::Shadow).with_data, TICK * 10);
        // In canary only requests of the canary cohort count.
        stats.record(Side::Control, &asked(5, 0));
        stats.on_tick(Mode::Canary, MINUTE, TICK);
        assert_eq!(stats.with_data, TICK * 10);
        stats.record(Side::Canary, &asked(5, 0));
        stats.on_tick(Mode::Canary, MINUTE, TICK);
        assert_eq!(stats.with_data, TICK * 11);
    }

    #[test]
    fn counts_older_than_the_window_leave() {
        let mut stats = StageStats::begin(1);
        pass(&mut stats, 120, 1, 1);
        for younger in 1..=500 {
            pass(&mut stats, 1, 1, 0);
            let bad = stats.observed(Mode::Shadow).drop_ratio;
            let bad = (bad.value.unwrap() * bad.samples as f64).round() as u64;
            let (least, most) = (
                120_u64.saturating_sub(younger),
                126_u64.saturating_sub(younger).min(120),
            );
            assert!((least..=most).contains(&bad), "{bad} after {younger}");
            assert!(stats.full.len() <= 25);
        }
    }

    #[test]
    fn resized_window_keeps_slots_bounded() {
        let mut stats = StageStats::begin(1);
        for window in [MINUTE, MINUTE * 2, MINUTE * 60, MINUTE * 7_000] {
            for _ in 0..2_000 {
                stats.record(Side::Canary, &asked(1, 0));
                stats.on_tick(Mode::Shadow, window, TICK);
                assert!(stats.full.len() <= 2 * SLOTS as usize);
            }
        }
        for _ in 0..121 {
            stats.record(Side::Canary, &asked(1, 0));
            stats.on_tick(Mode::Shadow, MINUTE, TICK);
        }
        // An old slot stays whole until the slots after it cover the window.
        pass(&mut stats, 121, 1, 0);
        assert!(stats.observed(Mode::Shadow).drop_ratio.samples <= 126);
        assert_eq!(stats.with_data, TICK * 8_242);
    }

    #[test]
    fn tick_counts_with_its_own_length() {
        let mut stats = StageStats::begin(1);
        for tick in [TICK, TICK / 2, TICK * 4] {
            for _ in 0..4 {
                stats.record(Side::Canary, &asked(1, 0));
                stats.on_tick(Mode::Shadow, MINUTE, tick);
            }
        }
        assert_eq!(stats.with_data, TICK * 22);
    }

    #[test]
    fn restart_keeps_all_counts_but_latencies() {
        let mut stats = StageStats::begin(7);
        pass(&mut stats, 77, 3, 1);
        let mut canary = Outcomes {
            offered: 9,
            refused: 2,
            failed: 1,
            ..Outcomes::default()
        };
        canary.latency.add(Bin::of(TICK), 1);
        stats.record(Side::Canary, &canary);
        stats.on_tick(Mode::Shadow, MINUTE, TICK);
        let saved = stats.saved();
        let text = serde_json::to_string(&saved).unwrap();
        let back = StageStats::restored(&serde_json::from_str(&text).unwrap());
        assert_eq!((back.saved(), back.change), (saved, 7));
        let (before, after) = (stats.observed(Mode::Shadow), back.observed(Mode::Shadow));
        assert_eq!(
            (before.with_data, before.drop_ratio),
            (after.with_data, after.drop_ratio)
        );
        assert_eq!(
            (before.canary_p99.samples, after.canary_p99.samples),
            (1, 0)
        );
        assert_eq!(stats.evidence().canary.p99_us, Some(500_736));
    }
}
