//! Tiers that are away, restart without their state, or exist twice, and other faults that metrics show.

mod conflict;
mod faults;
mod liveness;
mod lost_state;
mod store;
