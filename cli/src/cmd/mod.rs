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

use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

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

/// Returns 0 for a command that has done everything, and 1 otherwise.
pub(crate) fn exit_code(is_done: bool) -> ExitCode {
    ExitCode::from(u8::from(!is_done))
}

/// Parses a time that fits. `example` is how to write one, and `bounds` says what fits.
pub(crate) fn parse_time(
    text: &str,
    example: &str,
    fits: impl Fn(&Duration) -> bool,
    bounds: &str,
) -> Result<Duration, String> {
    let time = humantime::parse_duration(text);
    let time = time.map_err(|error| format!("{error}; write it as {example}"))?;
    Some(time).filter(fits).ok_or_else(|| bounds.to_owned())
}
