//! The tasks that run the brain: they give it the time, save its state and its history, and reload the policy.

pub(crate) mod history;
pub(crate) mod policy;
pub(crate) mod save;
pub(crate) mod tick;
