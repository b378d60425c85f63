//! The answers of the kill switch as text for operators.

use std::io::{self, Write};
use std::time::Duration;

use plimsoll_admin::kill_api::{
    Claimed, DrillLatency, DrillReport, KillEnded, KillOrder, KillState, KillStatus, Tier,
};
use plimsoll_core::names::Bucket;

use crate::cmd::unix_ms;
use crate::output::write_table;

/// Maximum number of claims, and of disconnected aggregators, that are named.
const NAMED_MAX: usize = 8;

pub(super) fn write_on(
    out: &mut dyn Write,
    status: &KillStatus,
    bucket: Option<&Bucket>,
) -> io::Result<()> {
    let clients = match status.tier {
        Tier::Controller => "clients refuse none of its requests",
        Tier::Aggregator => {
            "for the clients below now, and for all zones as soon as a controller learns of it"
        }
    };
    let generation = switch_of(status, bucket).generation.0;
    writeln!(
        out,
        "killed: {}, generation {generation}; {clients}",
        scope(bucket)
    )?;
    write_status(out, status)
}

/// Returns true if nothing in the scope of `kill off` is killed by any switch.
pub(super) fn has_ended(status: &KillStatus, bucket: Option<&Bucket>) -> bool {
    let by_another = match bucket {
        Some(_) => status.fleet.killed,
        None => status.buckets.values().any(|switch| switch.killed),
    };
    !switch_of(status, bucket).killed && !by_another
}

pub(super) fn write_off(
    out: &mut dyn Write,
    answer: &KillEnded,
    bucket: Option<&Bucket>,
    resumed: &[String],
) -> io::Result<()> {
    let KillEnded {
        ended,
        passed,
        status,
    } = answer;
    let (switch, scope) = (switch_of(status, bucket), scope(bucket));
    match (switch.killed, *ended, *passed) {
        (true, ..) if switch.by_file => writeln!(
            out,
            "still killed: {scope}; to end it, set kill_switch: false in the policy file and save"
        )?,
        (true, ..) => writeln!(out, "still killed: {scope}")?,
        (false, true, _) if resumed.is_empty() => {
            writeln!(out, "no longer killed: {scope}; it stays in shadow")?;
        }
        (false, true, _) => writeln!(out, "no longer killed: {scope}")?,
        (false, false, true) => {
            writeln!(
                out,
                "not killed: {scope}; processes that claimed a kill follow the controller again"
            )?;
        }
        (false, false, false) => writeln!(out, "nothing to end: {scope} is not killed")?,
    }
    if status.tier == Tier::Aggregator {
        writeln!(
            out,
            "a kill that the controller or an aggregator above holds stays: end it there"
        )?;
    }
    let mut status = status.clone();
    status.in_shadow.retain(|entry| !resumed.contains(entry));
    write_status(out, &status)
}

pub(super) fn write_status(out: &mut dyn Write, status: &KillStatus) -> io::Result<()> {
    let buckets = status
        .buckets
        .iter()
        .map(|(bucket, switch)| (bucket.as_str(), switch));
    let rows = std::iter::once(("fleet", &status.fleet))
        .chain(buckets)
        .map(|(name, switch)| {
            let (state, cause) = match (switch.killed, switch.held_in_shadow) {
                (true, _) => ("killed", causes(switch)),
                (false, true) => ("shadow", String::new()),
                (false, false) => ("off", String::new()),
            };
            vec![
                name.to_owned(),
                state.to_owned(),
                switch.generation.0.to_string(),
                cause,
            ]
        });
    write_table(out, &["SCOPE", "STATE", "GENERATION", "CAUSE"], rows)?;
    let away = status
        .away
        .iter()
        .take(NAMED_MAX)
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(", ");
    let more = match status.away.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let is_killed = status.fleet.killed || status.buckets.values().any(|switch| switch.killed);
    if is_killed && !away.is_empty() {
        writeln!(
            out,
            "not reached: {away}{more}, not connected; clients there may go on refusing: kill them at that aggregator, or \
             each service by its kill file"
        )?;
    } else if !away.is_empty() {
        writeln!(
            out,
            "not connected: {away}{more}; a kill that was ordered there is not known here, and puts its buckets in shadow once \
             they are back"
        )?;
    }
    if !status.in_shadow.is_empty() {
        writeln!(
            out,
            "in shadow since a kill: {}; `plimsoll rollout resume --all` shows the stages before it, and returns to them with \
             --reason TEXT",
            status.in_shadow.join(", ")
        )?;
    }
    if status.killed_locally > 0 {
        writeln!(
            out,
            "killed locally: {} clients, by a kill file; `/status` of an aggregator lists them",
            status.killed_locally
        )?;
    }
    write_claims(out, &status.claims)?;
    if !status.saved && status.tier == Tier::Controller {
        writeln!(
            out,
            "warning: the controller could not save this to its disk, and sends it to the clients anyway; see its log"
        )?;
    }
    Ok(())
}

/// Writes the kill generations that no order explains.
fn write_claims(out: &mut dyn Write, claims: &[Claimed]) -> io::Result<()> {
    for Claimed {
        bucket,
        generation,
        zone,
        service,
        name,
    } in claims.iter().take(NAMED_MAX)
    {
        let flag = bucket
            .as_ref()
            .map(|bucket| format!(" --bucket {bucket}"))
            .unwrap_or_default();
        writeln!(
            out,
            "kill generation {} of {}, without an order: ignored; held by {service} {zone}/{name}, which stays in \
             shadow until `plimsoll kill off{flag}`",
            generation.0,
            scope(bucket.as_ref()),
        )?;
    }
    match claims.len().saturating_sub(NAMED_MAX) {
        0 => Ok(()),
        more => writeln!(out, "and {more} more kill generations without an order"),
    }
}

/// Writes how fast a drill reached the clients.
pub(super) fn write_drill(out: &mut dyn Write, drilled: &DrillReport) -> io::Result<()> {
    let zones = drilled
        .zones
        .iter()
        .map(|(zone, reached)| (zone.as_str(), reached));
    let rows = zones.chain([("all", &drilled.all)]).map(|(name, reached)| {
        let DrillLatency {
            clients,
            missing,
            p50_ms,
            p99_ms,
            last_ms,
        } = *reached;
        let ms = |ms: Option<f64>| ms.map_or("-".to_owned(), |ms| format!("{ms:.0} ms"));
        let counts = [name.to_owned(), clients.to_string(), missing.to_string()];
        counts
            .into_iter()
            .chain([p50_ms, p99_ms, last_ms].map(ms))
            .collect()
    });
    write_table(
        out,
        &["ZONE", "CLIENTS", "MISSING", "P50", "P99", "LAST"],
        rows,
    )?;
    writeln!(
        out,
        "from the command to the acknowledgement of a client; a kill takes at most as long to reach it"
    )?;
    if drilled.complete {
        return Ok(());
    }
    let (missing, silent) = (drilled.all.missing, drilled.silent_aggregators);
    writeln!(
        out,
        "incomplete: {missing} clients are missing, and {silent} aggregators did not answer"
    )
}

fn switch_of(status: &KillStatus, bucket: Option<&Bucket>) -> KillState {
    let switch = bucket.map_or(Some(&status.fleet), |bucket| status.buckets.get(bucket));
    switch.cloned().unwrap_or_default()
}

fn scope(bucket: Option<&Bucket>) -> String {
    bucket.map_or("the whole fleet".to_owned(), |bucket| {
        format!("bucket {bucket}")
    })
}

/// Names the causes of a switch: the policy file, a command, or both, or else the tier that ordered it.
fn causes(switch: &KillState) -> String {
    let file = switch
        .by_file
        .then(|| "kill_switch is on in the policy file".to_owned());
    let causes: Vec<String> = file
        .into_iter()
        .chain(switch.command.as_ref().map(ordered))
        .collect();
    if causes.is_empty() && switch.ordered_below {
        return "an aggregator below orders it: end it there, or at the controller once that is back"
            .to_owned();
    }
    if causes.is_empty() {
        "ordered at an aggregator, whose log has the reason, or above".to_owned()
    } else {
        causes.join(", and ")
    }
}

fn ordered(
    KillOrder {
        reason,
        by,
        since_s,
        until_s,
    }: &KillOrder,
) -> String {
    let now = unix_ms() / 1_000;
    let span = |seconds: i64| {
        humantime::format_duration(Duration::from_secs(seconds.max(0).unsigned_abs()))
    };
    let parts = [
        Some(
            reason
                .as_ref()
                .map_or("learned from an aggregator".to_owned(), |reason| {
                    format!("\"{reason}\"")
                }),
        ),
        by.as_ref().map(|by| format!(" by {by}")),
        since_s.map(|since| format!(", {} ago", span(now.saturating_sub(since)))),
        until_s.map(|until| format!(", ends in {}", span(until.saturating_sub(now)))),
    ];
    parts.into_iter().flatten().collect()
}
