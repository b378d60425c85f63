//! Trust between real processes: certificates that rotate under load, and certificates that expire.

mod admin;
mod alerts;
mod expired;
mod rotation;
mod tiers;
mod unfinished;
