//! Operators on real processes: policies, rollouts, kills, limits from history, the events and the audit log.

mod audit;
mod commands;
mod console;
mod doctor;
mod events;
mod guardrails;
mod history;
pub(crate) mod kill;
mod resume;
pub(crate) mod rollout;
mod situations;
