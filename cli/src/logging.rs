//! Logging to standard error: standard output only has the answer of a command.

use std::collections::HashMap;
use std::io::IsTerminal;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::ValueEnum;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt;
use tracing_subscriber::layer;
use tracing_subscriber::prelude::*;

use crate::output::Pipe;

/// Interval of warnings of one module of a library.
const WARNING_EVERY: Duration = Duration::from_secs(10);
/// Libraries that warn of a peer's behaviour for each of its connections.
const LIBRARIES: [&str; 3] = ["h2::", "hyper::", "tonic::"];

/// The format of the log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people
    Text,
    /// One JSON object for each line
    Json,
}

pub(crate) fn start(filter: &str, format: LogFormat) -> anyhow::Result<()> {
    let filter = targets(filter)?;
    let colours = std::io::stderr().is_terminal()
        && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let lines = fmt::layer()
        .with_writer(|| Pipe(std::io::stderr()))
        .with_ansi(colours);
    let log = tracing_subscriber::registry()
        .with(filter)
        .with(Warnings::default());
    match format {
        LogFormat::Text => log.with(lines).init(),
        LogFormat::Json => log.with(lines.json()).init(),
    }
    Ok(())
}

/// Reads levels and `TARGET=LEVEL`, between commas.
fn targets(filter: &str) -> anyhow::Result<Targets> {
    let invalid =
        || format!("invalid --log {filter}: give error, warn, info, debug, trace, or TARGET=LEVEL");
    // A misspelt level, a span or a field would pass as the name of a target, and match nothing.
    let is_sound = |part: &str| match part.split_once('=') {
        Some((target, _)) => !target.contains(['[', ' ']),
        None => part.parse::<LevelFilter>().is_ok(),
    };
    anyhow::ensure!(filter.split(',').all(is_sound), invalid());
    filter.parse().with_context(invalid)
}

/// Last warning of each module of a library, and number of suppressed ones since. A peer could fill
/// the disk with warnings.
#[derive(Debug, Default)]
struct Warnings {
    of_module: Mutex<HashMap<&'static str, (Instant, u64)>>,
}

impl Warnings {
    /// Returns the number of suppressed warnings before this one, or `None` if it is suppressed.
    fn admit(&self, module: &'static str, now: Instant) -> Option<u64> {
        let mut of_module = self
            .of_module
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        match of_module.get_mut(module) {
            Some((at, left_out)) if now.duration_since(*at) < WARNING_EVERY => {
                *left_out += 1;
                None
            }
            _ => Some(
                of_module
                    .insert(module, (now, 0))
                    .map_or(0, |(_, left_out)| left_out),
            ),
        }
    }
}

impl<S: Subscriber> layer::Layer<S> for Warnings {
    fn event_enabled(&self, event: &Event<'_>, _: layer::Context<'_, S>) -> bool {
        let (module, level) = (event.metadata().target(), event.metadata().level());
        if *level > Level::WARN || !LIBRARIES.iter().any(|library| module.starts_with(library)) {
            return true;
        }
        let admitted = self.admit(module, Instant::now());
        if let Some(left_out @ 1..) = admitted {
            tracing::warn!(module, left_out, "warnings of a library were not logged");
        }
        admitted.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_levels_are_refused() {
        for filter in ["info", "off", "warn,plimsoll_client=debug", "h2=off"] {
            assert!(targets(filter).is_ok(), "{filter}");
        }
        for filter in [
            "warning",
            "inof",
            "info, h2=warn",
            "h2",
            "[x]=info",
            "h2=inof",
        ] {
            let error = targets(filter).unwrap_err().to_string();
            assert!(error.contains("or TARGET=LEVEL"), "{filter}: {error}");
        }
    }

    #[test]
    fn repeated_warnings_are_counted_not_logged() {
        let (warnings, start) = (Warnings::default(), Instant::now());
        let admit = |module, millis| warnings.admit(module, start + Duration::from_millis(millis));
        assert_eq!(admit("h2::a", 0), Some(0));
        assert_eq!(
            (1..=5_000)
                .filter_map(|millis| admit("h2::a", millis))
                .count(),
            0
        );
        assert_eq!(admit("h2::b", 5_000), Some(0));
        assert_eq!(admit("h2::a", 10_000), Some(5_000));
        assert_eq!(admit("h2::a", 20_000), Some(0));
    }
}
