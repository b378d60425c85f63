//! `plimsoll rollout`: in which stage every bucket is and why, and taking it further or back.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::{Duration, UNIX_EPOCH};

use clap::{Args, Subcommand};
use plimsoll_controller::durable::{Change, Exhibit, QueryExhibit, Sums};
use plimsoll_controller::rollout_routes::{Abort, Done, EntryStatus, Promote};
use plimsoll_core::rollout::Mode;
use plimsoll_core::rollout::extra::Figure;
use plimsoll_core::text::Text;

use crate::ask::{AskArgs, Output, words};

/// Say in which stage every bucket is, and take it further or back. Exit code 0: done; 1: refused, or nobody is there; 2:
/// asked for something that cannot be.
#[derive(Debug, Args)]
pub(crate) struct RolloutArgs {
    #[command(subcommand)]
    act: Act,
}

#[derive(Debug, Subcommand)]
enum Act {
    /// Say in which stage every entry of the policy is, what its gate says and what was seen
    Status {
        #[command(flatten)]
        ask: AskArgs,
    },
    /// Take an entry one stage further, from shadow to canary or from canary to enforce, if its gate is passed
    Promote {
        /// A bucket, or a pattern, as it stands in the policy
        #[arg(env = "PLIMSOLL_BUCKET")]
        bucket: String,
        /// The stage it shall come to, canary or enforce; the next one unless given. To leave canary out takes --force
        #[arg(long, env = "PLIMSOLL_TO", value_name = "STAGE", value_parser = later)]
        to: Option<Mode>,
        /// Go past a gate that is not passed
        #[arg(long, env = "PLIMSOLL_FORCE", requires = "reason")]
        force: bool,
        /// Why: it is kept in the history
        #[arg(long, env = "PLIMSOLL_REASON", value_name = "TEXT", requires = "force", value_parser = words)]
        reason: Option<Text>,
        #[command(flatten)]
        ask: AskArgs,
    },
    /// Return an entry to shadow at once
    Abort {
        /// A bucket, or a pattern, as it stands in the policy
        #[arg(env = "PLIMSOLL_BUCKET")]
        bucket: String,
        /// Why: it is kept in the history
        #[arg(long, env = "PLIMSOLL_REASON", value_name = "TEXT", value_parser = words)]
        reason: Option<Text>,
        #[command(flatten)]
        ask: AskArgs,
    },
    /// Say what has changed, when, why, and what had been seen until then
    History {
        /// Only of this entry
        #[arg(env = "PLIMSOLL_BUCKET")]
        bucket: Option<String>,
        #[command(flatten)]
        ask: AskArgs,
    },
}

fn later(stage: &str) -> Result<Mode, String> {
    match stage {
        "canary" => Ok(Mode::Canary),
        "enforce" => Ok(Mode::Enforce),
        _ => Err("canary or enforce; `plimsoll rollout abort` returns to shadow".to_owned()),
    }
}

/// Does what is asked for.
///
/// # Errors
/// When the controller refuses or cannot be reached, or what it says cannot be written.
pub(crate) fn run(args: &RolloutArgs) -> anyhow::Result<ExitCode> {
    let mut out = io::stdout().lock();
    match &args.act {
        Act::Status { ask } => {
            let all: Vec<EntryStatus> = ask.get("/rollout")?;
            say(ask, &mut out, &all, |out| all.iter().try_for_each(|entry| status(out, entry)))?;
        }
        Act::Promote { bucket, to, reason, ask, .. } => {
            let promote = Promote { entry: bucket.clone(), to: *to, force: reason.clone() };
            let done: Done = ask.post("/rollout/promote", &promote)?;
            say(ask, &mut out, &done, |out| write_done(out, bucket, &done))?;
        }
        Act::Abort { bucket, reason, ask } => {
            let done: Done =
                ask.post("/rollout/abort", &Abort { entry: bucket.clone(), reason: reason.clone() })?;
            say(ask, &mut out, &done, |out| write_done(out, bucket, &done))?;
        }
        Act::History { bucket, ask } => {
            let mut all: Vec<Change> = ask.get("/rollout/history")?;
            all.retain(|change| bucket.as_ref().is_none_or(|bucket| change.entry == *bucket));
            say(ask, &mut out, &all, |out| all.iter().try_for_each(|change| write_change(out, change)))?;
        }
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Writes an answer as it was asked for.
pub(crate) fn say<W: Write>(
    ask: &AskArgs,
    out: &mut W,
    answer: &impl serde::Serialize,
    text: impl FnOnce(&mut W) -> io::Result<()>,
) -> anyhow::Result<()> {
    if ask.output == Output::Json {
        serde_json::to_writer_pretty(&mut *out, answer)?;
        writeln!(out)?;
    } else {
        text(out)?;
    }
    Ok(())
}

fn status(out: &mut impl Write, entry: &EntryStatus) -> io::Result<()> {
    let EntryStatus { entry: name, stage, killed, file, pending, next, gate, why, evidence, .. } = entry;
    write!(out, "{name}: {stage}")?;
    if *killed {
        write!(out, ", killed")?;
    }
    match pending {
        Some(pending) => writeln!(out, " (the file asks for {pending})")?,
        None if file != stage => writeln!(out, " (the file says {file})")?,
        None => writeln!(out)?,
    }
    if let Some((next, gate)) = next.zip(gate.as_ref()) {
        writeln!(out, "  gate to {next}: {gate}")?;
        why.iter().try_for_each(|why| writeln!(out, "    {why}"))?;
    }
    write_exhibit(out, evidence, *stage)
}

fn write_done(out: &mut impl Write, bucket: &str, done: &Done) -> io::Result<()> {
    match &done.change {
        Some(change) => write_change(out, change)?,
        None => writeln!(out, "{bucket}: shadow, as it was")?,
    }
    if !done.saved {
        writeln!(out, "  warning: the controller could not write it down; look at its log")?;
    }
    Ok(())
}

fn write_change(out: &mut impl Write, change: &Change) -> io::Result<()> {
    let since_1970 = change.at_s.and_then(|at| u64::try_from(at).ok()).map(Duration::from_secs);
    let at = since_1970.and_then(|since| UNIX_EPOCH.checked_add(since));
    let at = at.map_or("just now".to_owned(), |at| humantime::format_rfc3339_seconds(at).to_string());
    let from = change.from.map_or("new".to_owned(), |from| from.to_string());
    writeln!(out, "{at}  {}: {from} -> {} ({})", change.entry, change.to, change.cause.as_str())?;
    change.why.iter().try_for_each(|why| writeln!(out, "    {why}"))?;
    match &change.evidence {
        Some(evidence) => write_exhibit(out, evidence, change.from.unwrap_or_default()),
        None => Ok(()),
    }
}

fn write_exhibit(out: &mut impl Write, evidence: &Exhibit, stage: Mode) -> io::Result<()> {
    let Exhibit { with_data_ms, canary, control, queries } = evidence;
    writeln!(out, "  seen in {stage}: {:.1} s with data", *with_data_ms as f64 / 1e3)?;
    for (side, sums) in [("canary", canary), ("control", control)] {
        if *sums != Sums::default() {
            write_sums(out, side, sums)?;
        }
    }
    queries.iter().try_for_each(|query| write_query(out, query))
}

fn write_query(out: &mut impl Write, query: &QueryExhibit) -> io::Result<()> {
    let QueryExhibit { name, value, max, min, age_ms, unknown } = query;
    let Some(value) = value else {
        return writeln!(out, "    {name} {}", unknown.as_deref().unwrap_or("is not known"));
    };
    write!(out, "    {name} is {}", Figure(*value))?;
    if let Some(most) = max {
        write!(out, ", at most {} may be", Figure(*most))?;
    }
    if let Some(least) = min {
        write!(out, ", at least {} must be", Figure(*least))?;
    }
    match age_ms {
        Some(age) => writeln!(out, " (answered {:.0} s before)", *age as f64 / 1e3),
        None => writeln!(out),
    }
}

fn write_sums(out: &mut impl Write, side: &str, sums: &Sums) -> io::Result<()> {
    let Sums { offered, refused, would_dropped, failed, p99_us, samples } = sums;
    write!(out, "    {side:<8} offered {offered}, refused {refused}, would-dropped {would_dropped}")?;
    match p99_us {
        Some(p99) => {
            let digits = if *p99 < 10_000 { 2 } else { 0 };
            let p99 = *p99 as f64 / 1e3;
            writeln!(out, ", p99 {p99:.digits$} ms of {samples} responses, {failed} failed")
        }
        None => writeln!(out, ", no response watched"),
    }
}
