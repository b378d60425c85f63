//! Admissions of one bucket in its last seconds, from its counts: the share that was refused, and
//! whether less passes than limit and load allow. The drop ratio of the law shows neither: a
//! guard may refuse in addition to it, and a rate that is given to tenants who send nothing is
//! lost.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::quantity::MonoTime;
use crate::report::Counts;
use crate::stats::metrics::{Metric, Series, Value, rows};

/// The least time that one slice covers.
const SLICE: Duration = Duration::from_secs(1);
/// Number of slices kept: ratios are computed over them.
const SLICES: usize = 10;
/// The newest slices that must show the shortfall by themselves, so that it ends soon after its cause.
const JUDGED: usize = 5;
/// The share of the requests due that has to pass.
const PASSED_MIN: f64 = 0.9;
/// Standard deviations of the requests due that chance may take away.
const DEVIATIONS: f64 = 3.0;

/// The decisions of one bucket over its last ten seconds.
#[derive(Clone, Debug, Default)]
pub struct AdmissionCheck {
    /// The counts of the slice that has not ended, and the time when it began.
    open: Counts,
    began: Option<MonoTime>,
    /// Newest first.
    slices: VecDeque<Slice>,
}

#[derive(Clone, Copy, Debug)]
struct Slice {
    span: Duration,
    offered: u64,
    refused: u64,
    would_refused: u64,
    /// The requests/s that may pass; `None` where nothing is judged.
    may_pass: Option<f64>,
}

/// The result for status pages and metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AdmissionFigures {
    /// Requests that coin and guards refused, over those offered; null without requests.
    pub refused_ratio: Option<f64>,
    /// Requests with a refusal that was decided and not carried out, over offered requests; null
    /// without requests.
    pub would_refused_ratio: Option<f64>,
    /// True if clearly less passes, or would pass, than limit and load allow; null without a judgement.
    pub underadmitting: Option<bool>,
    /// The share of what limit and load allow that does not pass; null without a judgement.
    pub underadmitted_ratio: Option<f64>,
}

/// The figures of each bucket by its name.
pub type BucketFigures = Vec<(String, AdmissionFigures)>;

/// The figures as metrics.
pub const ADMISSIONS: [Metric<BucketFigures>; 4] = [
    Metric::<BucketFigures>::gauge(
        "plimsoll_refused_ratio",
        &["bucket"],
        "Requests that coin and guards refused in the last 10 s over those offered; absent without requests. Refusals of exact \
         quotas are not part of it.",
        |figures| each(figures, |of| of.refused_ratio),
    )
    .first(),
    Metric::<BucketFigures>::gauge(
        "plimsoll_would_refused_ratio",
        &["bucket"],
        "The same of refusals that were decided and not carried out: in shadow, while killed, outside of the canary.",
        |figures| each(figures, |of| of.would_refused_ratio),
    ),
    Metric::<BucketFigures>::gauge(
        "plimsoll_underadmitting",
        &["bucket"],
        "1 while clearly less passes than limit and load allow, in the last 5 s and in the last 10 s; absent without a \
         judgement.",
        |figures| each(figures, |of| of.underadmitting),
    )
    .first(),
    Metric::<BucketFigures>::gauge(
        "plimsoll_underadmitted_ratio",
        &["bucket"],
        "Share of the requests that limit and load allow that did not pass in the last 5 s; absent without a judgement.",
        |figures| each(figures, |of| of.underadmitted_ratio),
    ),
];

fn each<V: Into<Value>>(
    figures: &[(String, AdmissionFigures)],
    value: fn(&AdmissionFigures) -> Option<V>,
) -> Vec<Series> {
    rows(
        figures
            .iter()
            .filter_map(|(bucket, of)| Some(([bucket], value(of)?))),
    )
}

impl AdmissionCheck {
    /// Adds decisions that were just reported.
    pub fn add(&mut self, counts: Counts) {
        self.open = self.open.plus(counts);
    }

    /// Ends a slice if one is due. `may_pass` is given the decisions of the slice. It returns the requests/s that may
    /// pass: infinite if all may, and `None` where no judgement is possible.
    pub fn on_tick(&mut self, now: MonoTime, may_pass: impl FnOnce(Counts) -> Option<f64>) {
        let span = now.since(*self.began.get_or_insert(now));
        if span < SLICE {
            return;
        }
        let counts = std::mem::take(&mut self.open);
        self.began = Some(now);
        self.slices.truncate(SLICES - 1);
        self.slices.push_front(Slice {
            span,
            offered: counts.offered,
            refused: counts.refused(),
            would_refused: counts.would_dropped,
            may_pass: may_pass(counts),
        });
    }

    /// Returns what the slices show.
    pub fn figures(&self) -> AdmissionFigures {
        let sum = |column: fn(&Slice) -> u64| self.slices.iter().map(column).sum::<u64>() as f64;
        let offered = sum(|slice| slice.offered);
        let of_offered = |count: f64| (offered > 0.0).then(|| count / offered);
        let newest = self.due_and_passed(JUDGED);
        // The excess of a surge above the limit is repaid in the seconds after it, so the longer
        // span must agree.
        let all = newest.zip(self.due_and_passed(SLICES));
        AdmissionFigures {
            refused_ratio: of_offered(sum(|slice| slice.refused)),
            would_refused_ratio: of_offered(sum(|slice| slice.would_refused)),
            underadmitting: all.map(|(newest, all)| is_short(newest) && is_short(all)),
            underadmitted_ratio: newest.map(|(due, passed)| (due - passed).max(0.0) / due.max(1.0)),
        }
    }

    /// The requests of the newest `slices` that limit and load allow, and requests that passed;
    /// `None` unless all are judged. The limit of each is the lowest of all: traffic follows a
    /// higher one after a while.
    fn due_and_passed(&self, slices: usize) -> Option<(f64, f64)> {
        let judged = self
            .slices
            .get(slices - 1)
            .map(|_| self.slices.iter().take(slices))?;
        let may_pass = judged.clone().try_fold(f64::INFINITY, |least, slice| {
            Some(least.min(slice.may_pass?))
        })?;
        Some(judged.fold((0.0, 0.0), |(due, passed), slice| {
            let offered = slice.offered as f64;
            let refused = slice.refused.saturating_add(slice.would_refused) as f64;
            (
                due + offered.min(may_pass * slice.span.as_secs_f64()),
                passed + (offered - refused).max(0.0),
            )
        }))
    }
}

fn is_short((due, passed): (f64, f64)) -> bool {
    passed + DEVIATIONS * due.sqrt() < PASSED_MIN * due
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rates of one second: requests/s that may pass, offered, refused by the coin, and refused by the guard in shadow.
    type Second = (Option<f64>, u64, u64, u64);

    fn figures(seconds: impl IntoIterator<Item = Second>) -> AdmissionFigures {
        let mut check = AdmissionCheck::default();
        check.on_tick(MonoTime::ZERO, |_| None);
        for (number, (may_pass, offered, dropped, would_dropped)) in (1..).zip(seconds) {
            check.add(Counts {
                offered,
                dropped,
                would_dropped,
                ..Counts::ZERO
            });
            let now = |ms| MonoTime::from_elapsed(Duration::from_millis(ms));
            check.on_tick(now(number * 1_000 - 500), |_| None);
            check.on_tick(now(number * 1_000), |_| may_pass);
        }
        check.figures()
    }

    #[test]
    fn shortfall_is_told_from_chance_and_change() {
        let limit = Some(100.0);
        let steady = |second: Second, seconds| vec![second; seconds];
        let after = |first: Vec<Second>, then: Vec<Second>| [first, then].concat();
        for (case, seconds, expected) in [
            ("a few pass", steady((limit, 165, 160, 0), 10), Some(true)),
            ("in shadow", steady((limit, 165, 0, 160), 10), Some(true)),
            (
                "below the limit a third is refused",
                steady((limit, 90, 30, 0), 10),
                Some(true),
            ),
            (
                "below the limit nothing is refused",
                steady((limit, 90, 0, 0), 10),
                Some(false),
            ),
            (
                "the limit passes",
                steady((limit, 1_000, 900, 0), 10),
                Some(false),
            ),
            (
                "0.85 of it, within chance",
                steady((limit, 1_000, 915, 0), 10),
                Some(false),
            ),
            (
                "0.85 of ten thousand",
                steady((Some(10_000.0), 100_000, 91_500, 0), 10),
                Some(true),
            ),
            (
                "all of a small limit is refused",
                steady((Some(0.5), 3, 3, 0), 10),
                Some(false),
            ),
            ("no traffic", steady((limit, 0, 0, 0), 10), Some(false)),
            (
                "all may pass, guards refuse",
                steady((Some(f64::INFINITY), 100, 38, 0), 10),
                Some(true),
            ),
            ("too short", steady((limit, 165, 160, 0), 9), None),
            ("no limit", steady((None, 165, 160, 0), 10), None),
            (
                "one second without a judgement",
                after(
                    steady((limit, 165, 160, 0), 9),
                    steady((None, 165, 160, 0), 1),
                ),
                None,
            ),
            (
                "surge that is repaid",
                after(
                    steady((limit, 1_000, 800, 0), 5),
                    steady((limit, 1_000, 950, 0), 5),
                ),
                Some(false),
            ),
            (
                "fault that is over",
                after(
                    steady((limit, 165, 160, 0), 5),
                    steady((limit, 165, 65, 0), 5),
                ),
                Some(false),
            ),
            (
                "raised limit",
                after(
                    steady((limit, 1_000, 900, 0), 8),
                    steady((Some(1_000.0), 1_000, 800, 0), 2),
                ),
                Some(false),
            ),
            (
                "one second of ten has all the traffic",
                after(
                    steady((limit, 0, 0, 0), 9),
                    steady((limit, 1_000, 900, 0), 1),
                ),
                Some(false),
            ),
        ] {
            assert_eq!(figures(seconds).underadmitting, expected, "{case}");
        }
    }

    #[test]
    fn ratios_are_of_counts_of_ten_seconds() {
        assert_eq!(figures([]), AdmissionFigures::default());
        assert_eq!(figures([(None, 0, 0, 0)]).refused_ratio, None);
        let old = [(None, 1_000, 1_000, 0); 5];
        let recent = [(Some(100.0), 200, 76, 20); 10];
        let figures = figures(old.into_iter().chain(recent));
        assert_eq!(
            (figures.refused_ratio, figures.would_refused_ratio),
            (Some(0.38), Some(0.1))
        );
        assert_eq!(figures.underadmitted_ratio, Some(0.0));
    }
}
