//! The domain of Plimsoll, pure: validated types, messages between the tiers, and the control law.
//!
//! No module here reads a clock, draws randomness or opens a file or socket: time and random draws are
//! arguments. The same code therefore runs in a service, in an aggregator, in a controller and in the
//! simulator.
//!
//! Start with [`report`] (counts that a child sends to its parent), [`directive`] (drop ratios and rates that
//! a parent sends to its child) and [`law`] (how the controller computes the second from the first).
#![forbid(unsafe_code)]

pub mod decision;
pub mod directive;
pub mod exchange;
pub mod kill;
pub mod law;
pub mod names;
pub mod quantity;
pub mod quota;
pub mod report;
pub mod rollout;
pub mod stats;
