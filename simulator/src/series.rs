//! What happened to requests over time, in bins: all that is kept of a run.

use crate::trace::TraceHash;

/// The length of a bin, and of a step of the simulation, in seconds.
pub const BIN_S: f64 = 0.01;
/// How many bins a tenant's are long: a tenant's figures are rates, never windows of a second.
pub const TENANT_BINS: usize = 10;

/// One run of a scenario.
#[derive(Clone, Debug)]
pub struct Run {
    /// What it was drawn from.
    pub seed: u64,
    /// The fingerprint of everything that happened.
    pub trace: TraceHash,
    /// Streams that a parent closed because what came on them cannot be true, and why. In a sound system, none.
    pub refusals: Vec<String>,
    /// By bucket, in the scenario's order.
    pub(crate) buckets: Vec<Series>,
}

/// One bucket's requests in bins of [`BIN_S`], from the scenario's zero on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Series {
    pub(crate) offered: Vec<u32>,
    /// Let through, those that would be refused under enforcement included.
    pub(crate) admitted: Vec<u32>,
    /// Let through, though they would be refused under enforcement.
    pub(crate) would: Vec<u32>,
    /// By tenant, in bins of [`TENANT_BINS`] times [`BIN_S`].
    pub(crate) tenants: Vec<Totals>,
}

/// As [`Series`], without tenants.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) offered: Vec<u32>,
    pub(crate) admitted: Vec<u32>,
    pub(crate) would: Vec<u32>,
}

/// How one request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Admitted,
    /// Let through, though the coin or the guard said no.
    WouldDropped,
    Refused,
}

impl Run {
    /// Requests of all buckets: offered, let through, and let through though they would have been refused.
    #[must_use]
    pub fn totals(&self) -> (u64, u64, u64) {
        let sum = |bins: &[u32]| bins.iter().map(|count| u64::from(*count)).sum::<u64>();
        self.buckets.iter().fold((0, 0, 0), |(offered, admitted, would), series| {
            (offered + sum(&series.offered), admitted + sum(&series.admitted), would + sum(&series.would))
        })
    }
}

impl Series {
    pub(crate) fn new(bins: usize, tenants: usize) -> Self {
        let totals = || {
            let zeros = vec![0; bins.div_ceil(TENANT_BINS)];
            Totals { offered: zeros.clone(), admitted: zeros.clone(), would: zeros }
        };
        let zeros = vec![0; bins];
        Self {
            offered: zeros.clone(),
            admitted: zeros.clone(),
            would: zeros,
            tenants: (0..tenants).map(|_| totals()).collect(),
        }
    }

    /// Enters one request.
    #[inline]
    pub(crate) fn count(&mut self, bin: usize, tenant: usize, outcome: Answer) {
        let admitted = u32::from(outcome != Answer::Refused);
        let would = u32::from(outcome == Answer::WouldDropped);
        let add = |bins: &mut [u32], at: usize, more: u32| {
            if let Some(count) = bins.get_mut(at) {
                *count += more;
            }
        };
        add(&mut self.offered, bin, 1);
        add(&mut self.admitted, bin, admitted);
        add(&mut self.would, bin, would);
        if let Some(of_tenant) = self.tenants.get_mut(tenant) {
            let bin = bin / TENANT_BINS;
            add(&mut of_tenant.offered, bin, 1);
            add(&mut of_tenant.admitted, bin, admitted);
            add(&mut of_tenant.would, bin, would);
        }
    }
}
