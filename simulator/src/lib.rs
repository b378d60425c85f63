//! Tries a policy before it is shipped: the real [limiter](plimsoll_client::Limiter),
//! [zone](plimsoll_aggregator::zone::Zone) and [brain](plimsoll_controller::brain::Brain) under a virtual clock, with
//! simulated links and scripted traffic and faults.
//!
//! A [`Scenario`] is a file; [`run`] runs it once for a seed, [`simulate`] for many; an [`Outcome`] sums the runs up,
//! and [`broken`] says which expectations were not met. There is no real time, no entropy and no socket in here: the
//! same scenario and seed give the same run to the last message, on any number of threads.
//!
//! ```no_run
//! use plimsoll_simulator::{Outcome, Scenario, broken, simulate};
//!
//! # fn main() -> Result<(), plimsoll_simulator::ScenarioError> {
//! let scenario = Scenario::read("simulator/scenarios/02-step-up.yaml")?;
//! let runs = simulate(&scenario, 0..20, 2, &|_| {});
//! let outcome = Outcome::of(&scenario, &runs);
//! println!("{:?}", outcome.buckets["api"].worst_1s);
//! assert!(broken(&scenario, &runs).is_empty());
//! # Ok(()) }
//! ```
#![forbid(unsafe_code)]

mod arrivals;
mod check;
mod clock;
mod draws;
mod engine;
mod entitlement;
mod error;
mod expect;
mod faults;
mod figures;
mod fleet;
mod inline;
mod link;
mod lives;
mod load;
mod many;
mod outcome;
pub mod plot;
mod queue;
pub mod reference;
mod retry;
mod scenario;
mod series;
mod shapes;
mod shares;
mod spec;
mod streams;
mod trace;
mod trace_file;
mod world;

pub use engine::{run, run_watched};
pub use error::{PlotError, ScenarioError};
pub use expect::{Broken, P95_SEEDS, broken};
pub use many::simulate;
pub use outcome::{BucketOutcome, Outcome, Settle, TenantOutcome};
pub use scenario::Scenario;
pub use series::{BIN_S, Run, TENANT_BINS};
pub use spec::Reference;
pub use trace::TraceHash;
