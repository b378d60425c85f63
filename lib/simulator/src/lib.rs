//! Runs the real [limiter](plimsoll_client::Limiter), [zone](plimsoll_aggregator::zone::Zone) and
//! [brain](plimsoll_controller::brain::Brain) under a virtual clock, with simulated links and scripted
//! traffic and faults, so that a policy can be tried before it is shipped.
//!
//! A [`Scenario`] is a file; [`run`] runs it once for a seed, [`simulate`] for many; an [`Outcome`]
//! summarises the runs, and [`broken`] returns the expectations that were not met. The simulator uses no real
//! time, no entropy and no socket: the same scenario and seed give the same run to the last message, on any
//! number of threads.
//!
//! ```no_run
//! use plimsoll_simulator::{Outcome, Scenario, broken, simulate};
//!
//! # fn main() -> Result<(), plimsoll_simulator::ScenarioError> {
//! for scenario in Scenario::read("lib/simulator/scenarios/02-step-up.yaml")? {
//!     let runs = simulate(&scenario, 0..20, 2, &|_| {});
//!     let outcome = Outcome::of(&scenario, &runs);
//!     println!("{:?}", outcome.buckets["api"].worst_1s);
//!     assert!(broken(&scenario, &runs).is_empty());
//! }
//! # Ok(()) }
//! ```
#![forbid(unsafe_code)]

mod engine;
mod error;
mod results;
mod rng;
mod scenario;
mod traffic;

pub use engine::{run, run_watched, simulate};
pub use error::{PlotError, ScenarioError};
pub use results::{
    BIN_S, BucketOutcome, Judgement, NameFigures, NamesOutcome, Outcome, P95_SEEDS, Run, Settle,
    TENANT_BINS, TenantOutcome, TraceHash, broken, judged, plot,
};
pub use scenario::Scenario;
