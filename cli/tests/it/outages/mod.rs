//! Tiers that are away, restart without their state, or exist twice.

mod conflict;
mod liveness;
mod lost_state;
