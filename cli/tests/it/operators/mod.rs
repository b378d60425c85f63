//! What operators do on real processes: policies, rollouts, kills, limits from history, and the record of it.

mod audit;
mod commands;
mod guardrails;
mod history;
pub(crate) mod kill;
pub(crate) mod rollout;
