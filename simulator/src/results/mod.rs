//! The results of a run: counts in bins, the figures taken from them, and their comparison with expectations.

mod entitlement;
mod figures;
mod judge;
mod outcome;
pub mod plot;
mod series;
mod trace_hash;

pub use judge::{P95_SEEDS, UnmetExpectation, broken};
pub use outcome::{BucketOutcome, Outcome, Settle, TenantOutcome};
pub use series::{BIN_S, Run, TENANT_BINS};
pub use trace_hash::TraceHash;

pub(crate) use series::{Answer, Series};
