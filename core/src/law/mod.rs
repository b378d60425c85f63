//! The control law: offered rates in, and out of them what may pass. Pure, one concept a file.
//!
//! In the order in which a request's traces pass through it: [`smoothed`] rates and the [`Balance`] of what passed give
//! the controller a target; [`Division`] divides it between tenants, whose [`Burst`] may raise their weight, and
//! [`Whole::part`] splits each part between zones. A zone's fast loop turns its part into a ratio with the counts of
//! its [`Window`] ([`fast_ratio`]), keeps the [`Slack`] of its guards, and lives on [`divide_hold`] while the controller
//! is silent. Where aggregators stand below it, it divides what it has among them ([`Sharing`]). `docs/law.md` tells the whole of it.

mod balance;
mod burst;
pub mod fairness;
mod fast_loop;
mod guard;
mod parameters;
mod smoothing;
mod weight;
mod zones;

pub use balance::Balance;
pub use burst::Burst;
pub use fairness::{Claimant, Class, Division, divide_hold};
pub use fast_loop::{Spread, Window, fast_ratio};
pub use guard::{Guard, SLACK_PERIOD, Slack, ZoneGuard, client_rate};
pub use parameters::Parameters;
pub use smoothing::smoothed;
pub use weight::{InvalidWeight, Weight};
pub use zones::{Child, Part, Share, Sharing, Whole, presence};

use serde::Deserialize;

/// Which control law sets the ratios.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LawName {
    /// Remembers overshoot and repays it; divides fairly between tenants. The default.
    #[default]
    Balanced,
    /// `(offered - limit) / offered`, alike for every tenant.
    Proportional,
}
