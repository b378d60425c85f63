//! Trust between real processes: certificates that rotate under load, and certificates that expire.

mod admin;
mod certs;
mod expired;
mod flags;
mod rotation;
mod tiers;
mod unfinished;
