//! The control law: offered rates in, and out of them what may pass. Pure, one concept a file.
//!
//! In the order in which a request's traces pass through it: [`smoothed`] rates and the [`Balance`] of what passed give
//! the controller a target; [`Division`] divides it between tenants, whose [`Burst`] may raise their weight, and
//! [`Whole::part`] splits each part between zones. A zone's fast loop turns its part into a ratio with the counts of
//! its [`Window`] ([`fast_ratio`]), keeps the [`Slack`] of its guards, and lives on [`divide_hold`] while the controller
//! is silent. Where aggregators stand below it, it divides what it has among them ([`Sharers`]). `docs/law.md` tells the whole of it.

mod among;
mod balance;
mod burst;
mod division;
mod fast;
mod guard;
mod hold;
mod parameters;
mod slack;
mod smoothing;
mod split;
mod window;

pub use among::{Sharer, Sharers};
pub use balance::Balance;
pub use burst::Burst;
pub use division::{Claimant, Class, Division};
pub use fast::fast_ratio;
pub use guard::{Guard, ZoneGuard, client_rate};
pub use hold::divide_hold;
pub use parameters::Parameters;
pub use slack::{SLACK_PERIOD, Slack};
pub use smoothing::smoothed;
pub use split::{Child, Part, Whole};
pub use window::{Spread, Window};
