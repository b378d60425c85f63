//! `plimsoll events`: what happened to the fleet, in one list.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use plimsoll_controller::events::{EVENTS, Event, EventPage, Severity};
use plimsoll_core::names::Text;
use plimsoll_policy::UnixSeconds;
use tokio::time::sleep;

use crate::admin_client::{ANSWER_TIMEOUT, AdminArgs, AdminError};
use crate::cmd::unix_ms;
use crate::output::{self, Format, counted};
use crate::shutdown;

const FOLLOW_EVERY: Duration = Duration::from_secs(1);

/// Show what happened to the fleet, oldest first: policies, kills, stages, aggregators, leads, limits, certificates
///
/// Each line has the time in UTC, how long ago that was, how urgent it is, and what happened; in brackets who did it, and
/// why. The controller keeps the last 10,000 events of 7 days, of several controllers the last 1,000 over a takeover.
///
/// Exit code 0: shown, also if there are none; 1: no controller answers; 2: invalid arguments.
#[derive(Debug, Args)]
pub(crate) struct EventsArgs {
    /// Show events since this long ago
    #[arg(long, env = "PLIMSOLL_SINCE", value_name = "TIME", default_value = "6h", value_parser = humantime::parse_duration)]
    since: Duration,
    /// Go on with events as they happen, over restarts of the controller and other leaders, until Ctrl-C
    #[arg(long, short, env = "PLIMSOLL_EVENTS_FOLLOW")]
    follow: bool,
    #[command(flatten)]
    admin: AdminArgs,
}

/// Asks for events, and remembers what was shown.
struct Reader<'a> {
    admin: &'a AdminArgs,
    since_ms: i64,
    /// Number of the last event that was shown; 0 before the first.
    after: u64,
}

pub(crate) fn run(args: &EventsArgs) -> anyhow::Result<ExitCode> {
    let since = i64::try_from(args.since.as_millis()).unwrap_or(i64::MAX);
    let mut reader = Reader {
        admin: &args.admin,
        since_ms: unix_ms().saturating_sub(since),
        after: 0,
    };
    let done = shutdown::runtime()?.block_on(async {
        let shown = reader.show().await?;
        if shown == 0 && !args.follow && args.admin.output.format == Format::Text {
            let since = humantime::format_duration(args.since);
            writeln!(output::stdout(), "no events in the last {since}")?;
        }
        if args.follow {
            reader.follow().await?;
        }
        anyhow::Ok(ExitCode::SUCCESS)
    });
    done.or_else(|error| match output::is_closed(&error) {
        true => Ok(ExitCode::SUCCESS),
        false => Err(error),
    })
}

// === impl Reader ===

impl Reader<'_> {
    /// Shows events as they happen. Ends only if it cannot ask at all, or an event finds its reader gone.
    async fn follow(&mut self) -> anyhow::Result<()> {
        let mut is_silent = false;
        loop {
            sleep(FOLLOW_EVERY).await;
            let said = match self.show().await {
                Ok(_) if std::mem::take(&mut is_silent) => {
                    "the controller answers again".to_owned()
                }
                Ok(_) => continue,
                Err(error) => match error.downcast_ref::<AdminError>() {
                    Some(failed) if failed.is_usage() => return Err(error),
                    None => return Err(error),
                    // It restarts, or another one takes the lead.
                    Some(_) if is_silent => continue,
                    Some(failed) => {
                        is_silent = true;
                        let failed = failed.to_string();
                        let cause = failed.lines().next().unwrap_or_default();
                        format!("waiting for the controller: {cause}")
                    }
                },
            };
            writeln!(output::stderr(), "{said}")?;
        }
    }

    /// Shows what has happened since the last call, and returns the number of events.
    async fn show(&mut self) -> anyhow::Result<usize> {
        let mut shown = 0;
        loop {
            // Of several controllers, another one may lead by now.
            let port = self.admin.controller.port()?;
            let route = format!("{EVENTS}?since={}&after={}", self.since_ms, self.after);
            let page: EventPage = port
                .answer(port.get(&route).timeout(ANSWER_TIMEOUT))
                .await?;
            for event in &page.events {
                let text = |out: &mut dyn Write| writeln!(out, "{}", line(event, unix_ms()));
                let out = &mut io::stdout().lock();
                self.admin.output.write(out, event, text)?;
                self.after = event.number;
            }
            shown += page.events.len();
            if !page.more || page.events.is_empty() {
                return Ok(shown);
            }
        }
    }
}

fn line(event: &Event, now_ms: i64) -> String {
    let time = UnixSeconds::from_secs(event.time_ms.div_euclid(1_000));
    let severity = match event.severity {
        Severity::Info => "",
        severity => severity.as_str(),
    };
    let ago = ago(now_ms.saturating_sub(event.time_ms) / 1_000);
    format!("{time}  {ago:>10}  {severity:<8}  {event}").replace(Text::is_unfit, "?")
}

/// A time in the past in one unit or two; a clock that differs from the controller's is no reason for a future.
fn ago(seconds: i64) -> String {
    match seconds.max(0) {
        s @ ..120 => format!("{s}s ago"),
        s @ ..7_200 => format!("{}m ago", s / 60),
        s @ ..172_800 => format!("{}h{:02}m ago", s / 3_600, s / 60 % 60),
        s => format!("{} ago", counted(s / 86_400, "day")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_says_when_how_urgent_and_what() {
        let event = serde_json::json!({
            "number": 1_796_000_000_123_u64, "time_ms": 1_796_000_000_123_u64, "kind": "kill_on", "severity": "critical",
            "subject": "fleet", "text": "kill switch on\u{1b}[2J", "by": "ann", "why": "too many refusals",
        });
        let event: Event = serde_json::from_value(event).unwrap();
        assert_eq!(
            line(&event, event.time_ms + 700_000),
            "2026-11-30T00:53:20Z     11m ago  critical  kill switch on?[2J (by ann: too many refusals)"
        );
    }

    #[test]
    fn past_has_few_digits() {
        for (seconds, text) in [
            (-5, "0s ago"),
            (119, "119s ago"),
            (120, "2m ago"),
            (7_260, "2h01m ago"),
            (172_800, "2 days ago"),
        ] {
            assert_eq!(ago(seconds), text);
        }
    }
}
