//! The control law: offered rates in, allocations and drop ratios out. Pure, one concept per file.
//!
//! The steps, in order. The controller takes [`smoothed`] rates and the [`Balance`] of admitted requests and
//! computes a target. [`Division`] divides the target between tenants; a tenant's [`Burst`] credit may raise
//! its weight. [`Whole::part`] splits the allocation of each tenant between zones, [`SplitChild::headroom_part`]
//! what tenants leave. The fast loop of a zone's aggregator divides its room between keys ([`divide_room`]), turns
//! allocations into drop ratios ([`fast_ratio`]) with the recent counts in a [`Window`], adapts the [`Slack`]
//! of the guards and the [`LearnedDepth`] of headroom pools, and uses [`divide_hold`] while the controller is
//! silent. An aggregator with aggregators below it divides its part between them ([`Sharing`]).
//! `docs/control-law.md` describes the whole.

mod balance;
mod burst;
pub mod fairness;
mod fast_loop;
mod guard;
mod headroom;
pub mod parameters;
mod smoothing;
pub mod tail;
mod weight;
mod zones;

pub use balance::Balance;
pub use burst::Burst;
pub use fairness::{Claimant, Division, HeldPart, divide_hold};
pub use fast_loop::{Spread, Window, fast_ratio};
pub use guard::{Guard, SLACK_PERIOD, Slack, ZoneGuard, client_rate};
pub use headroom::{FirstExcess, Grants, LearnedDepth, ZoneClaimant, divide_room};
pub use parameters::Parameters;
pub use smoothing::smoothed;
pub use weight::Weight;
pub use zones::{Sharing, SplitChild, Whole, ZonePart, ZoneSharer, presence};
