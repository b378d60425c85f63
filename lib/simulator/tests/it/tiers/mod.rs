//! Tiers at both ends of a stream without a scenario: clients, an aggregator and a controller, step by step.

mod background_jobs;
mod evidence;
mod pair;
mod starts;
mod sums;
mod tenant_limit;
