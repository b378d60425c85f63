//! Scripted traffic: the rate over time, its division between clients and names, Poisson arrivals and retries.

mod arrivals;
mod groups;
mod load;
mod names;
mod retry;
mod shares;

pub(crate) use arrivals::Arrivals;
pub(crate) use groups::{Groups, Phase};
pub(crate) use load::{Load, Pareto, ParetoSource, Per, Trace};
pub(crate) use names::{NameSource, Names, NamesSpec};
pub(crate) use retry::{Planned, Retry};
pub(crate) use shares::{Share, parts, zones_of};
