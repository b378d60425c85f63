//! What came of it, for people and for scripts.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use plimsoll_core::bucket::Bucket;
use plimsoll_proto::switch::{Drilled, Order, Reached, Switch, Switches, Tier};
use serde::Serialize;

use crate::ask::{Asked, Output};

/// Says what a kill or its end has come to.
pub(super) fn turned(
    asked: &Asked<Switches>,
    output: Output,
    bucket: Option<&Bucket>,
    on: bool,
) -> anyhow::Result<ExitCode> {
    if output == Output::Json {
        return json(&asked.answer);
    }
    let switches = &asked.answer;
    let none = Switch::default();
    let switch = bucket.map_or(&switches.fleet, |bucket| switches.buckets.get(bucket).unwrap_or(&none));
    let what = bucket.map_or("the whole fleet".to_owned(), |bucket| format!("bucket {bucket}"));
    let mut text = String::new();
    match (on, switch.killed, switches.tier) {
        (true, _, Tier::Controller) => {
            writeln!(
                text,
                "killed: {what}, generation {}; nothing of it is refused any more",
                switch.generation.0
            )?;
        }
        (true, _, Tier::Aggregator) => {
            writeln!(
                text,
                "killed: {what}, generation {}, for whoever is below {}",
                switch.generation.0, asked.of
            )?;
            writeln!(text, "the controller and the other zones hear of it as soon as one is there")?;
        }
        (false, true, _) => {
            writeln!(
                text,
                "still killed: {what}, generation {}, because {}",
                switch.generation.0,
                cause(switch)
            )?;
            if switch.by_file {
                writeln!(text, "to end it, set kill_switch: false in the policy file and save")?;
            }
        }
        (false, false, _) if switch.generation.0 == 0 => writeln!(text, "not killed, and never was: {what}")?,
        (false, false, Tier::Controller) => {
            writeln!(
                text,
                "no longer killed: {what}, generation {}; it stays in shadow",
                switch.generation.0
            )?;
            let (each, name) = bucket.map_or(("for each bucket, ", "BUCKET"), |bucket| ("", bucket.as_str()));
            writeln!(
                text,
                "to refuse again: {each}`plimsoll rollout promote {name} --to enforce --force --reason TEXT`"
            )?;
        }
        (false, false, Tier::Aggregator) => {
            writeln!(
                text,
                "no longer killed: {what}, generation {}, for whoever is below {}; it stays in shadow",
                switch.generation.0, asked.of
            )?;
            writeln!(
                text,
                "a kill that was ordered at the controller, or that an aggregator above has heard of, goes on and is ended \
                 there; to refuse again, promote at the controller"
            )?;
        }
    }
    if on && bucket.is_some() && !switch.known {
        writeln!(
            text,
            "warning: nobody has heard of a bucket of this name; `plimsoll rollout status` lists the policy's"
        )?;
    }
    if on && switch.command.as_ref().is_some_and(|order| order.until_s.is_some()) {
        writeln!(text, "{}", switch.command.as_ref().map(order).unwrap_or_default())?;
    }
    if !switches.saved {
        writeln!(
            text,
            "warning: the controller could not write it down, and tells it all the same; look at its log"
        )?;
    }
    let others = others_killed(switches, bucket);
    if !on && !others.is_empty() {
        writeln!(text, "still killed: {others}")?;
    }
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn others_killed(switches: &Switches, but: Option<&Bucket>) -> String {
    let fleet = (but.is_some() && switches.fleet.killed).then(|| "the whole fleet".to_owned());
    let buckets = switches.buckets.iter().filter(|(bucket, switch)| switch.killed && Some(*bucket) != but);
    let all: Vec<String> =
        fleet.into_iter().chain(buckets.map(|(bucket, _)| format!("bucket {bucket}"))).collect();
    all.join(", ")
}

/// Says what is killed.
pub(super) fn status(asked: &Asked<Switches>, output: Output) -> anyhow::Result<ExitCode> {
    if output == Output::Json {
        return json(&asked.answer);
    }
    let switches = &asked.answer;
    let width = switches.buckets.keys().map(|bucket| bucket.as_str().len()).max().unwrap_or(0).max(5);
    let mut text = String::new();
    let buckets = switches.buckets.iter().map(|(bucket, switch)| (bucket.as_str(), switch));
    for (name, switch) in [("fleet", &switches.fleet)].into_iter().chain(buckets) {
        let word = match (switch.killed, switch.held_in_shadow) {
            (true, _) => "killed",
            (false, true) => "shadow",
            (false, false) => "off",
        };
        write!(text, "{name:width$}  {word:6}  generation {}", switch.generation.0)?;
        let because = match (switch.killed, switches.tier) {
            (true, Tier::Controller) => format!("  {}", cause(switch)),
            _ => String::new(),
        };
        writeln!(text, "{because}")?;
    }
    if switches.tier == Tier::Aggregator {
        writeln!(text, "an aggregator knows no reasons; ask the controller for them")?;
    }
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Who says so.
fn cause(switch: &Switch) -> String {
    let file = switch.by_file.then(|| "the policy file says so".to_owned());
    let command = switch.command.as_ref().map(order);
    let all: Vec<String> = file.into_iter().chain(command).collect();
    if all.is_empty() { "somebody else has said so".to_owned() } else { all.join(", and ") }
}

fn order(order: &Order) -> String {
    let mut text = match &order.reason {
        Some(reason) => format!("\"{reason}\""),
        None => "learned from an aggregator".to_owned(),
    };
    let now = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs());
    let now = now.unwrap_or(i64::MAX);
    let span = |seconds: i64| humantime::format_duration(Duration::from_secs(seconds.max(0).unsigned_abs()));
    if let Some(by) = &order.by {
        let _ = write!(text, " by {by}");
    }
    if let Some(since) = order.since_s {
        let _ = write!(text, ", {} ago", span(now.saturating_sub(since)));
    }
    if let Some(until) = order.until_s {
        let _ = write!(text, ", ends by itself in {}", span(until.saturating_sub(now)));
    }
    text
}

/// Says what a drill has shown; a failure unless everybody has answered.
pub(super) fn drilled(asked: &Asked<Drilled>, output: Output) -> anyhow::Result<ExitCode> {
    let drilled = &asked.answer;
    let code = if drilled.complete { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    if output == Output::Json {
        json(drilled)?;
        return Ok(code);
    }
    let width = drilled.zones.keys().map(|zone| zone.as_str().len()).max().unwrap_or(0).max(4);
    let mut text = format!(
        "{:width$}  {:>8}  {:>8}  {:>8}  {:>8}  {:>8}\n",
        "zone", "clients", "missing", "p50", "p99", "last"
    );
    let zones = drilled.zones.iter().map(|(zone, reached)| (zone.as_str(), reached));
    for (name, reached) in zones.chain([("all", &drilled.all)]) {
        let Reached { clients, missing, p50_ms, p99_ms, last_ms } = reached;
        write!(text, "{name:width$}  {clients:>8}  {missing:>8}")?;
        for figure in [p50_ms, p99_ms, last_ms] {
            let figure = figure.map_or("-".to_owned(), |ms| format!("{ms:.0} ms"));
            write!(text, "  {figure:>8}")?;
        }
        writeln!(text)?;
    }
    writeln!(text, "from the order until a client's answer was back: the way here is at most as long")?;
    if !drilled.complete {
        writeln!(
            text,
            "not all have answered: {} clients are missing, and {} aggregators have said nothing",
            drilled.all.missing, drilled.silent_aggregators
        )?;
    }
    print(&text)?;
    Ok(code)
}

fn json(answer: &impl Serialize) -> anyhow::Result<ExitCode> {
    print(&format!("{}\n", serde_json::to_string(answer)?))?;
    Ok(ExitCode::SUCCESS)
}

fn print(text: &str) -> anyhow::Result<()> {
    std::io::stdout().write_all(text.as_bytes()).context("the answer cannot be written")
}
