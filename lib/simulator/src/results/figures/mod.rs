//! The figures of one bucket in one run, as defined in `docs/reference/scenarios.md`. Sliding windows move by
//! one bin of 10 ms and lie within the judged span, except for those of `long_run_error` and `settle_s`, which
//! may lie anywhere in the run. Prefix sums make each figure O(n).

use std::iter::Sum;

use super::series::{BIN_S, Series, TENANT_BINS, Totals};

const SECOND: usize = 100;
/// Bins before and after an instant for the average of the offered load that shows overload.
const OVERLOAD: usize = 10 * SECOND;
/// Length of the trailing mean that must settle, in bins.
const SETTLING: usize = SECOND / 2;
/// Relative deviation that counts as settled.
const BAND: f64 = 0.05;
/// Bins that the mean must stay within the band.
const STAYS: usize = 3 * SECOND;

/// A figure is absent without a limit, or if the span is too short for it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Figures {
    pub(crate) offered_rps: f64,
    pub(crate) admitted_rps: f64,
    pub(crate) long_run_error: Option<f64>,
    pub(crate) worst_1s: Option<f64>,
    pub(crate) p99_1s: Option<f64>,
    pub(crate) worst_10s: Option<f64>,
    pub(crate) p99_10s: Option<f64>,
    pub(crate) error_60s: Option<f64>,
    pub(crate) goodput_lost: Option<f64>,
    pub(crate) requests: Requests,
    pub(crate) mean_ratio: Option<f64>,
    /// Infinite if the rate never settled.
    pub(crate) settle_s: Option<f64>,
    pub(crate) conformance_burst_s: Option<f64>,
    pub(crate) tenants: Vec<TenantFigures>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct TenantFigures {
    pub(crate) offered_rps: f64,
    pub(crate) admitted_rps: f64,
    pub(crate) requests: Requests,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Requests {
    pub(crate) offered: f64,
    /// Refused, or admitted although enforcement would refuse them.
    pub(crate) dropped: f64,
    /// Dropped, though one token bucket in one place would have admitted them.
    pub(crate) lost: f64,
    pub(crate) optimum: f64,
}

/// Span and limit for judging a bucket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct View {
    pub(crate) window_s: (f64, f64),
    /// Requests/s.
    pub(crate) limit: Option<f64>,
    /// True if requests count as admitted only if enforcement would admit them.
    pub(crate) v: bool,
    /// Time of the last scripted change of the load; `None` if it never stops changing.
    pub(crate) last_change_s: Option<f64>,
}

/// Prefix sums of one column.
struct Sums(Vec<u64>);

/// Both columns, and the judged span in bins.
struct Judged {
    offered: Sums,
    admitted: Sums,
    from: usize,
    to: usize,
}

impl Figures {
    pub(crate) fn of(series: &Series, view: &View) -> Self {
        let all = &series.all;
        let bins = all.offered.len();
        let bin = |s: f64| ((s / BIN_S).round() as usize).min(bins);
        let (from, to) = (bin(view.window_s.0), bin(view.window_s.1));
        let admitted = if view.v {
            Sums::of(
                all.admitted
                    .iter()
                    .zip(&all.would)
                    .map(|(admitted, would)| admitted - would),
            )
        } else {
            Sums::of(all.admitted.iter().copied())
        };
        let judged = Judged {
            offered: Sums::of(all.offered.iter().copied()),
            admitted,
            from,
            to,
        };
        let seconds = (to - from) as f64 * BIN_S;
        let offered = judged.offered.between(from, to) as f64;
        let admitted = judged.admitted.between(from, to) as f64;
        let mut figures = Self {
            offered_rps: offered / seconds,
            admitted_rps: admitted / seconds,
            requests: Requests::of(all, from, to),
            tenants: series
                .tenants
                .iter()
                .map(|tenant| TenantFigures::of(tenant, from, to, view.v))
                .collect(),
            ..Self::default()
        };
        // A limit of zero has no ratio.
        if let Some(limit) = view.limit.filter(|limit| *limit > 0.0) {
            judged.against(limit, &mut figures);
            figures.mean_ratio = Some(admitted / (limit * seconds));
            figures.settle_s = view
                .last_change_s
                .and_then(|change| judged.settled(limit, bin(change)));
        }
        figures
    }
}

impl TenantFigures {
    pub(crate) fn of(totals: &Totals, from: usize, to: usize, v: bool) -> Self {
        let (from, to) = (from / TENANT_BINS, to / TENANT_BINS);
        let seconds = (to - from) as f64 * BIN_S * TENANT_BINS as f64;
        let admitted =
            sum(&totals.admitted, from, to) - if v { sum(&totals.would, from, to) } else { 0.0 };
        let requests = Requests::of(totals, from, to);
        Self {
            offered_rps: requests.offered / seconds,
            admitted_rps: admitted / seconds,
            requests,
        }
    }
}

impl Requests {
    fn of(totals: &Totals, from: usize, to: usize) -> Self {
        let Totals {
            offered,
            admitted,
            would,
            lost,
            optimum,
        } = totals;
        let [offered, admitted, would, lost, optimum] =
            [offered, admitted, would, lost, optimum].map(|bins| sum(bins, from, to));
        Self {
            offered,
            dropped: offered - admitted + would,
            lost,
            optimum,
        }
    }

    /// Absent without any requests.
    pub(crate) fn drop_ratio(self) -> Option<f64> {
        (self.offered > 0.0).then(|| self.dropped / self.offered)
    }

    /// Absent without any requests.
    pub(crate) fn lost(self) -> Option<f64> {
        (self.offered > 0.0).then(|| self.lost / self.offered)
    }

    /// Requests that passed, or would have, relative to the admissions of the token bucket; absent
    /// if it would have admitted none.
    pub(crate) fn optimum_ratio(self) -> Option<f64> {
        (self.optimum > 0.0).then(|| (self.offered - self.dropped) / self.optimum)
    }
}

impl Sum for Requests {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            offered: sum.offered + one.offered,
            dropped: sum.dropped + one.dropped,
            lost: sum.lost + one.lost,
            optimum: sum.optimum + one.optimum,
        })
    }
}

fn sum(bins: &[u32], from: usize, to: usize) -> f64 {
    bins.get(from..to)
        .unwrap_or_default()
        .iter()
        .map(|count| f64::from(*count))
        .sum()
}

impl Sums {
    fn of(counts: impl Iterator<Item = u32>) -> Self {
        let mut sum = 0;
        let sums = counts.map(|count| {
            sum += u64::from(count);
            sum
        });
        Self(std::iter::once(0).chain(sums).collect())
    }

    fn between(&self, from: usize, to: usize) -> u64 {
        self.0[to] - self.0[from]
    }

    fn bins(&self) -> usize {
        self.0.len() - 1
    }
}

impl Judged {
    /// Returns the first bins of all windows of this length.
    fn starts(&self, length: usize) -> std::ops::Range<usize> {
        self.from..(self.to + 1).saturating_sub(length).max(self.from)
    }

    /// Returns the admitted rate in every window of this length, as a ratio to the limit.
    fn ratios(&self, limit: f64, length: usize) -> Vec<f64> {
        let full = limit * length as f64 * BIN_S;
        self.starts(length)
            .map(|at| self.admitted.between(at, at + length) as f64 / full)
            .collect()
    }

    fn against(&self, limit: f64, figures: &mut Figures) {
        (figures.worst_1s, figures.p99_1s) = tail(self.ratios(limit, SECOND));
        (figures.worst_10s, figures.p99_10s) = tail(self.ratios(limit, 10 * SECOND));
        let minutes = self
            .ratios(limit, 60 * SECOND)
            .into_iter()
            .map(|ratio| ratio - 1.0);
        figures.error_60s = minutes.max_by(|a, b| a.abs().total_cmp(&b.abs()));
        figures.long_run_error = self.long_run_error(limit);
        figures.goodput_lost = self.goodput_lost(limit);
        figures.conformance_burst_s = Some(self.conformance_burst(limit) / limit);
    }

    /// Returns the error over the bins with more than the limit offered on average, both in the 10
    /// s before and in the 10 s after.
    fn long_run_error(&self, limit: f64) -> Option<f64> {
        let over = |from: usize, to: usize| {
            to > from && self.offered.between(from, to) as f64 > limit * (to - from) as f64 * BIN_S
        };
        let end = self.offered.bins();
        let (mut admitted, mut bins) = (0, 0_u64);
        for at in self.from..self.to {
            // The bin of an instant belongs to both sides.
            let before = over(at.saturating_sub(OVERLOAD - 1), at + 1);
            if before && over(at, (at + OVERLOAD).min(end)) {
                admitted += self.admitted.between(at, at + 1);
                bins += 1;
            }
        }
        (bins > 0).then(|| admitted as f64 / (limit * bins as f64 * BIN_S) - 1.0)
    }

    fn goodput_lost(&self, limit: f64) -> Option<f64> {
        let (mut lost, mut due) = (0.0, 0.0);
        for at in self.starts(SECOND) {
            let could = (self.offered.between(at, at + SECOND) as f64).min(limit);
            due += could;
            lost += (could - self.admitted.between(at, at + SECOND) as f64).max(0.0);
        }
        (due > 0.0).then(|| lost / due)
    }

    /// Returns the largest excess over the limit in any interval, in requests (Kadane's maximal
    /// subarray).
    fn conformance_burst(&self, limit: f64) -> f64 {
        let (mut ending_here, mut worst) = (0.0_f64, 0.0_f64);
        for at in self.from..self.to {
            let excess = self.admitted.between(at, at + 1) as f64 - limit * BIN_S;
            ending_here = (ending_here + excess).max(0.0);
            worst = worst.max(ending_here);
        }
        worst
    }

    /// Returns the seconds from `change` until the trailing mean stays within the band; infinite if
    /// it never does, `None` if the run ends too soon after `change`.
    fn settled(&self, limit: f64, change: usize) -> Option<f64> {
        let bins = self.offered.bins();
        if change + STAYS > bins {
            return None;
        }
        let mut since = None;
        for end in change.max(SETTLING)..=bins {
            let from = end - SETTLING;
            let could =
                (self.offered.between(from, end) as f64).min(limit * SETTLING as f64 * BIN_S);
            let admitted = self.admitted.between(from, end) as f64;
            if (admitted - could).abs() > BAND * could {
                since = None;
                continue;
            }
            let since = *since.get_or_insert(end);
            if end - since >= STAYS {
                return Some((since - change) as f64 * BIN_S);
            }
        }
        Some(f64::INFINITY)
    }
}

/// Returns the maximum and the 99th percentile (nearest rank) of all windows.
fn tail(mut ratios: Vec<f64>) -> (Option<f64>, Option<f64>) {
    let Some(rank) = (ratios.len() * 99).div_ceil(100).checked_sub(1) else {
        return (None, None);
    };
    let (_, p99, above) = ratios.select_nth_unstable_by(rank, f64::total_cmp);
    let p99 = *p99;
    (
        above.iter().copied().chain([p99]).max_by(f64::total_cmp),
        Some(p99),
    )
}

#[cfg(test)]
mod tests;
