//! Scripted traffic: the rate over time, its division between clients, Poisson arrivals and retries.

mod arrivals;
mod groups;
mod load;
mod retry;
mod shares;

pub(crate) use arrivals::Arrivals;
pub(crate) use groups::{Groups, Phase};
pub(crate) use load::{Load, Pareto, ParetoSource, Per, Trace};
pub(crate) use retry::{PendingRetries, Retry};
pub(crate) use shares::{Share, parts, zones_of};
