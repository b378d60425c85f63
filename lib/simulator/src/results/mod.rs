//! The results of a run: counts in bins, their figures, and the comparison with expectations.

mod entitlement;
mod figures;
mod judge;
mod names;
mod outcome;
pub mod plot;
mod series;
mod token_bucket;
mod trace_hash;

pub use judge::{Judgement, P95_SEEDS, broken, judged};
pub use names::{NameFigures, NamesOutcome};
pub use outcome::{BucketOutcome, Outcome, Settle, TenantOutcome};
pub use series::{BIN_S, Run, TENANT_BINS};
pub use trace_hash::TraceHash;

pub(crate) use series::{Answer, Series};
