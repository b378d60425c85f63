//! The requests of a run over time, counted in bins.

use std::ops::Range;

use super::token_bucket::OneBucket;
use super::trace_hash::TraceHash;
use crate::scenario::TargetBucket;

/// Length of a bin, and of a step of the simulation, in seconds.
pub const BIN_S: f64 = 0.01;
/// Number of bins of [`BIN_S`] in one bin of a tenant, which only has mean rates, no short windows.
pub const TENANT_BINS: usize = 10;

/// Bins of [`BIN_S`] in one slot of a name: five seconds.
pub(crate) const NAME_BINS: usize = 500;

/// One run of a scenario.
#[derive(Clone, Debug)]
pub struct Run {
    /// Seed of the run.
    pub seed: u64,
    /// Fingerprint of all messages and counts.
    pub trace: TraceHash,
    /// Streams that a parent rejected, and processes that could not start, with the reasons. A sound
    /// system has none.
    pub rejections: Vec<String>,
    /// Seconds of the run with a report of underadmission at their end, and the reporting tier.
    pub underadmitting: Vec<(usize, &'static str)>,
    pub(crate) buckets: Vec<Series>,
}

/// Requests of one bucket, from the scenario's time zero on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Series {
    /// In bins of [`BIN_S`].
    pub(crate) all: Totals,
    /// By tenant, in bins of [`TENANT_BINS`] times [`BIN_S`].
    pub(crate) tenants: Vec<Totals>,
    /// By tenant: the counts of its names; empty if they are not counted.
    pub(crate) names: Vec<NameCounts>,
    /// Absent if the limit is not a number.
    single: Option<OneBucket>,
}

/// Requests by bin, each as many times as its cost.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) offered: Vec<u32>,
    /// Includes requests that enforcement would refuse.
    pub(crate) admitted: Vec<u32>,
    /// Admitted requests that enforcement would refuse.
    pub(crate) would: Vec<u32>,
    /// Requests refused, or that enforcement would refuse, though one token bucket in one place
    /// would have admitted them.
    pub(crate) lost: Vec<u32>,
    /// Requests that this token bucket would have admitted.
    pub(crate) optimum: Vec<u32>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct NameCounts {
    names: usize,
    /// Offered requests, and requests that pass or would pass under enforcement, by slot and in it
    /// by name.
    counts: Vec<[u32; 2]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Admitted,
    /// Admitted, although enforcement would refuse it.
    WouldDropped,
    Refused,
}

impl Run {
    /// Returns the requests of all buckets: offered, admitted, and admitted although enforcement
    /// would refuse them.
    #[must_use]
    pub fn totals(&self) -> (u64, u64, u64) {
        let sum = |bins: &[u32]| bins.iter().map(|count| u64::from(*count)).sum::<u64>();
        self.buckets.iter().fold(
            (0, 0, 0),
            |(offered, admitted, would), Series { all, .. }| {
                (
                    offered + sum(&all.offered),
                    admitted + sum(&all.admitted),
                    would + sum(&all.would),
                )
            },
        )
    }
}

impl Series {
    pub(crate) fn new(bins: usize, bucket: &TargetBucket) -> Self {
        let of_tenant = Totals::new(bins.div_ceil(TENANT_BINS));
        let slots = bins.div_ceil(NAME_BINS);
        let names = |names: &usize| NameCounts {
            names: *names,
            counts: vec![[0; 2]; *names * slots],
        };
        Self {
            all: Totals::new(bins),
            tenants: vec![of_tenant; bucket.tenants.len()],
            names: bucket.names.iter().map(names).collect(),
            single: bucket.limit.map(OneBucket::of),
        }
    }

    pub(crate) fn change_limit(&mut self, bin: usize, limit: f64) {
        if let Some(single) = &mut self.single {
            single.change(bin, limit);
        }
    }

    #[inline]
    pub(crate) fn count(
        &mut self,
        bin: usize,
        tenant: usize,
        name: Option<u32>,
        answer: Answer,
        cost: u32,
    ) {
        let fits = self
            .single
            .as_mut()
            .is_some_and(|single| single.take(bin, cost));
        self.all.count(bin, answer, fits, cost);
        self.tenants[tenant].count(bin / TENANT_BINS, answer, fits, cost);
        let names = &mut self.names[tenant];
        if let Some(name) = name.map(|name| name as usize)
            && name < names.names
            && let Some([offered, admitted]) =
                names.counts.get_mut(bin / NAME_BINS * names.names + name)
        {
            *offered += cost;
            *admitted += if answer == Answer::Admitted { cost } else { 0 };
        }
    }
}

impl NameCounts {
    /// Returns the offered and passed requests of each name in some slots.
    pub(crate) fn between(&self, slots: &Range<usize>) -> Vec<[f64; 2]> {
        let mut sums = vec![[0.0; 2]; self.names];
        let counts = self
            .counts
            .get(slots.start * self.names..slots.end * self.names)
            .unwrap_or_default();
        for (at, [offered, admitted]) in counts.iter().enumerate() {
            let sum = &mut sums[at % self.names];
            sum[0] += f64::from(*offered);
            sum[1] += f64::from(*admitted);
        }
        sums
    }
}

impl Totals {
    fn new(bins: usize) -> Self {
        let zeros = vec![0; bins];
        Self {
            offered: zeros.clone(),
            admitted: zeros.clone(),
            would: zeros.clone(),
            lost: zeros.clone(),
            optimum: zeros,
        }
    }

    #[inline]
    fn count(&mut self, bin: usize, answer: Answer, fits: bool, cost: u32) {
        let if_so = |so: bool| if so { cost } else { 0 };
        self.offered[bin] += cost;
        self.admitted[bin] += if_so(answer != Answer::Refused);
        self.would[bin] += if_so(answer == Answer::WouldDropped);
        self.lost[bin] += if_so(fits && answer != Answer::Admitted);
        self.optimum[bin] += if_so(fits);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_beyond_the_counted_ones_is_not_counted() {
        let mut series = Series {
            all: Totals::new(2 * NAME_BINS),
            tenants: vec![Totals::new(2 * NAME_BINS / TENANT_BINS)],
            names: vec![NameCounts {
                names: 2,
                counts: vec![[0; 2]; 4],
            }],
            single: None,
        };
        for name in [1, 2] {
            series.count(0, 0, Some(name), Answer::Admitted, 1);
        }
        let names = &series.names[0];
        assert_eq!(names.between(&(0..1)), [[0.0; 2], [1.0; 2]]);
        assert_eq!(names.between(&(1..2)), [[0.0; 2]; 2]);
    }
}
