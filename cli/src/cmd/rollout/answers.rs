//! Stages, gates and evidence as text for operators.

use std::io::{self, Write};

use plimsoll_controller::admin::rollout_routes::{Done, EntryStatus};
use plimsoll_controller::state::{Change, CohortSums, Evidence, QueryEvidence};
use plimsoll_core::decision::Mode;
use plimsoll_core::rollout::query_gate::Figure;

use crate::output::{counted, write_unless_saved};

pub(super) fn write_status(out: &mut dyn Write, entry: &EntryStatus) -> io::Result<()> {
    let EntryStatus {
        entry: name,
        stage,
        killed,
        file,
        pending,
        next,
        gate,
        why,
        evidence,
        since,
        ..
    } = entry;
    write!(out, "{name}: {stage}")?;
    if *killed {
        write!(out, ", killed")?;
    }
    match pending {
        Some(pending) => writeln!(out, " (the policy file requests {pending})")?,
        None if file != stage => writeln!(out, " (the policy file has {file})")?,
        None => writeln!(out)?,
    }
    if let Some((next, gate)) = next.zip(gate.as_ref()) {
        writeln!(out, "  gate to {next}: {gate}")?;
        why.iter().try_for_each(|why| writeln!(out, "    {why}"))?;
    }
    if let Some(since) = since {
        write!(out, "  since {} ({})", since.at(), since.cause.as_str())?;
        if since.cause.is_renewal() {
            write!(out, ": {}", since.why.join(", "))?;
        }
        writeln!(out)?;
    }
    if entry.killed_locally > 0 {
        writeln!(
            out,
            "  killed locally: {} clients of the fleet, by a kill file; they refuse nothing",
            entry.killed_locally
        )?;
    }
    write_evidence(out, evidence, *stage)
}

pub(super) fn write_done(out: &mut dyn Write, bucket: &str, done: &Done) -> io::Result<()> {
    match &done.change {
        Some(change) => write_change(out, change)?,
        None => writeln!(out, "{bucket}: shadow, unchanged")?,
    }
    write_unless_saved(out, done.saved)
}

pub(super) fn write_change(out: &mut dyn Write, change: &Change) -> io::Result<()> {
    let at = change.at();
    let from = change
        .from
        .map_or("new".to_owned(), |from| from.to_string());
    writeln!(
        out,
        "{at}  {}: {from} -> {} ({})",
        change.entry,
        change.to,
        change.cause.as_str()
    )?;
    change
        .why
        .iter()
        .try_for_each(|why| writeln!(out, "    {why}"))?;
    match &change.evidence {
        Some(evidence) => write_evidence(out, evidence, change.from.unwrap_or_default()),
        None => Ok(()),
    }
}

fn write_evidence(out: &mut dyn Write, evidence: &Evidence, stage: Mode) -> io::Result<()> {
    let Evidence {
        with_data_ms,
        canary,
        control,
        queries,
        latency_unreported: _,
    } = evidence;
    writeln!(
        out,
        "  observed in {stage}: {:.1} s with data",
        *with_data_ms as f64 / 1e3
    )?;
    for (cohort, sums) in [("canary", canary), ("control", control)] {
        if *sums != CohortSums::default() {
            write_sums(out, cohort, sums)?;
        }
    }
    queries.iter().try_for_each(|query| write_query(out, query))
}

fn write_query(out: &mut dyn Write, query: &QueryEvidence) -> io::Result<()> {
    let QueryEvidence {
        name,
        value,
        max,
        min,
        age_ms,
        unknown,
    } = query;
    let Some(value) = value else {
        return writeln!(
            out,
            "    {name} {}",
            unknown.as_deref().unwrap_or("is unknown")
        );
    };
    let bound =
        |what, bound: &Option<f64>| bound.map(|bound| format!(", {what} {}", Figure(bound)));
    let age = age_ms.map(|age| format!(" (answered {:.0} s earlier)", age as f64 / 1e3));
    let more: String = [bound("maximum", max), bound("minimum", min), age]
        .into_iter()
        .flatten()
        .collect();
    writeln!(out, "    {name} is {}{more}", Figure(*value))
}

fn write_sums(out: &mut dyn Write, cohort: &str, sums: &CohortSums) -> io::Result<()> {
    let CohortSums {
        offered,
        refused,
        would_dropped,
        failed,
        unobserved,
        p99_us,
        samples,
        instances,
    } = sums;
    let instances = counted(*instances, "instance");
    write!(
        out,
        "    {cohort:<8} {instances}, offered {offered}, refused {refused}, would-dropped {would_dropped}"
    )?;
    match p99_us {
        Some(p99) => {
            let digits = if *p99 < 10_000 { 2 } else { 0 };
            let p99 = *p99 as f64 / 1e3;
            write!(
                out,
                ", p99 {p99:.digits$} ms of {samples} responses, {failed} failed"
            )?;
        }
        None => write!(out, ", no responses measured")?,
    }
    match unobserved {
        0 => writeln!(out),
        _ => writeln!(out, ", {unobserved} responses not observable"),
    }
}
