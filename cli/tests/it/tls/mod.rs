//! Trust between real processes: certificates that rotate under load, wrong ones at every hop, ones that expire, and
//! files that break.

mod admin;
mod alerts;
mod expired;
mod files;
mod impostors;
mod proxy;
mod refused;
mod rotation;
mod tiers;
mod unfinished;
