//! The tasks that run the brain: they give it the time, save its state and its history, reload the policy,
//! and log what changed.

pub(crate) mod events;
pub(crate) mod history;
pub(crate) mod kill_log;
pub(crate) mod policy;
pub(crate) mod rollout_log;
pub(crate) mod save;
pub(crate) mod tick;
