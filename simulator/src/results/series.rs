//! The requests of a run over time, counted in bins.

use super::token_bucket::TokenBucket;
use super::trace_hash::TraceHash;

/// The length of a bin, and of a step of the simulation, in seconds.
pub const BIN_S: f64 = 0.01;
/// The bins of [`BIN_S`] in one bin of a tenant, of which only mean rates are taken, no short windows.
pub const TENANT_BINS: usize = 10;

/// One run of a scenario.
#[derive(Clone, Debug)]
pub struct Run {
    /// The seed.
    pub seed: u64,
    /// The fingerprint of all messages and counts.
    pub trace: TraceHash,
    /// The streams that a parent rejected, with the reasons. A sound system has none.
    pub rejections: Vec<String>,
    /// The seconds of the run at whose end a tier said that a bucket admits too little, and the tier.
    pub underadmitting: Vec<(usize, &'static str)>,
    /// The counts by bucket, in the scenario's order.
    pub(crate) buckets: Vec<Series>,
}

/// The requests of one bucket, from the scenario's time zero on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Series {
    /// All requests, in bins of [`BIN_S`].
    pub(crate) all: Totals,
    /// The requests by tenant, in bins of [`TENANT_BINS`] times [`BIN_S`].
    pub(crate) tenants: Vec<Totals>,
    /// The room of the limit in one place; absent without a limit.
    single: Option<TokenBucket>,
}

/// Requests by bin.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) offered: Vec<u32>,
    /// Admitted requests, including those that enforcement would refuse.
    pub(crate) admitted: Vec<u32>,
    /// Admitted requests that enforcement would refuse.
    pub(crate) would: Vec<u32>,
    /// Requests refused, or that enforcement would refuse, though one token bucket in one place would have
    /// admitted them.
    pub(crate) lost: Vec<u32>,
}

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Admitted,
    /// Admitted, although enforcement would refuse it.
    WouldDropped,
    Refused,
}

impl Run {
    /// The requests of all buckets: offered, admitted, and admitted although enforcement would refuse them.
    #[must_use]
    pub fn totals(&self) -> (u64, u64, u64) {
        let sum = |bins: &[u32]| bins.iter().map(|count| u64::from(*count)).sum::<u64>();
        self.buckets.iter().fold((0, 0, 0), |(offered, admitted, would), Series { all, .. }| {
            (offered + sum(&all.offered), admitted + sum(&all.admitted), would + sum(&all.would))
        })
    }
}

impl Series {
    pub(crate) fn new(bins: usize, tenants: usize, limit: Option<f64>) -> Self {
        let of_tenant = Totals::new(bins.div_ceil(TENANT_BINS));
        let single = limit.map(TokenBucket::of);
        Self { all: Totals::new(bins), tenants: vec![of_tenant; tenants], single }
    }

    /// Counts one request.
    #[inline]
    pub(crate) fn count(&mut self, bin: usize, tenant: usize, answer: Answer) {
        let fits = self.single.as_mut().is_some_and(|single| single.take(bin));
        let lost = fits && answer != Answer::Admitted;
        self.all.count(bin, answer, lost);
        self.tenants[tenant].count(bin / TENANT_BINS, answer, lost);
    }
}

impl Totals {
    fn new(bins: usize) -> Self {
        let zeros = vec![0; bins];
        Self { offered: zeros.clone(), admitted: zeros.clone(), would: zeros.clone(), lost: zeros }
    }

    #[inline]
    fn count(&mut self, bin: usize, answer: Answer, lost: bool) {
        self.offered[bin] += 1;
        self.admitted[bin] += u32::from(answer != Answer::Refused);
        self.would[bin] += u32::from(answer == Answer::WouldDropped);
        self.lost[bin] += u32::from(lost);
    }
}
