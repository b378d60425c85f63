//! The commands of operators, the simulator, and the demo service.

pub(crate) mod apply;
pub(crate) mod check;
pub(crate) mod credentials;
pub(crate) mod kill;
pub(crate) mod quota;
pub(crate) mod records;
pub(crate) mod rollout;
pub(crate) mod service;
pub(crate) mod simulate;
pub(crate) mod state;
pub(crate) mod status;

use std::time::{SystemTime, UNIX_EPOCH};

/// The time of day in milliseconds since 1970.
pub(crate) fn unix_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    i64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(i64::MAX)
}

/// Unusable arguments, or files that they name: the same command fails again.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Unusable(String);

pub(crate) fn unusable(reason: impl ToString) -> anyhow::Error {
    Unusable(reason.to_string()).into()
}
