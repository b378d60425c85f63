//! `plimsoll rollout resume`, and the same after `plimsoll kill off --resume`: shows what each entry would refuse, then
//! returns it to its stage before the kill.

use std::io::{self, Write};
use std::process::ExitCode;

use plimsoll_controller::admin::rollout_routes::{Resume, Resumed, Returning};
use plimsoll_core::names::Text;

use crate::admin_client::{AdminArgs, AdminPort};
use crate::cmd::exit_code;
use crate::output::{OutputArgs, percent, write_table, write_unless_saved};

const ROUTE: &str = "/rollout/resume";
/// Names that fit into the body of a request.
const NAMES_PER_REQUEST: usize = 20;

pub(super) fn run(
    buckets: &[String],
    all: bool,
    reason: Option<&Text>,
    admin: &AdminArgs,
) -> anyhow::Result<ExitCode> {
    let port = admin.controller.port()?;
    let mut returning: Vec<Returning> = port.ask(port.get(ROUTE))?;
    returning.retain(|row| all || buckets.contains(&row.entry));
    admin.output.print(&returning, |out| {
        write_plan(out, &returning)?;
        let is_known = |name: &&String| returning.iter().any(|row| row.entry == **name);
        let unknown = buckets.iter().filter(|name| !is_known(name));
        // With a reason the controller answers for each name.
        for name in unknown.filter(|_| reason.is_none()) {
            writeln!(
                out,
                "nothing to resume of {name}: no kill left an entry of this name in shadow"
            )?;
        }
        match reason {
            _ if returning.is_empty() && all => {
                writeln!(out, "nothing to resume: no kill left anything in shadow")
            }
            _ if returning.is_empty() => Ok(()),
            None if returning.iter().any(|row| row.killed) => writeln!(
                out,
                "nothing is changed yet: `plimsoll kill off --resume --reason TEXT` ends the kill and resumes what it put \
                 in shadow"
            ),
            None => writeln!(out, "nothing is changed yet: --reason TEXT resumes"),
            Some(_) => Ok(()),
        }
    })?;
    let Some(reason) = reason else {
        return Ok(ExitCode::SUCCESS);
    };
    let names: Vec<String> = match all {
        true => returning.into_iter().map(|row| row.entry).collect(),
        false => buckets.to_vec(),
    };
    let is_done = resume(&port, admin.output, &names, reason)?;
    Ok(exit_code(is_done))
}

/// The entries and buckets that the kill of this bucket, or of the fleet, put in shadow. Those of earlier kills are left out.
///
/// # Errors
/// The controller does not answer.
pub(crate) fn plan(port: &AdminPort, bucket: Option<&str>) -> anyhow::Result<Vec<Returning>> {
    let mut returning: Vec<Returning> = port.ask(port.get(ROUTE))?;
    returning.retain(|row| !row.ended && bucket.is_none_or(|bucket| row.entry == bucket));
    Ok(returning)
}

/// Resumes entries, and prints what became of each. Returns false if one is refused.
///
/// # Errors
/// The controller does not answer, or the answer cannot be printed.
pub(crate) fn resume(
    port: &AdminPort,
    output: OutputArgs,
    names: &[String],
    reason: &Text,
) -> anyhow::Result<bool> {
    let mut is_done = true;
    for names in names.chunks(NAMES_PER_REQUEST) {
        let order = Resume {
            entries: names.to_vec(),
            reason: reason.clone(),
        };
        let resumed: Resumed = port.ask(port.post(ROUTE, &order)?)?;
        output.print(&resumed, |out| write_resumed(out, &resumed))?;
        is_done &= resumed.refused.is_empty();
    }
    Ok(is_done)
}

pub(crate) fn write_plan(out: &mut dyn Write, returning: &[Returning]) -> io::Result<()> {
    if returning.is_empty() {
        return Ok(());
    }
    let rows = returning.iter().map(|row| {
        let to = row.to.map_or("-".to_owned(), |to| to.to_string());
        let refuses = match (&row.refused, row.would_refuse) {
            (Some(_), _) => "-".to_owned(),
            (None, Some(share)) => percent(share),
            (None, None) => "unknown: the law has no ratio".to_owned(),
        };
        let offered = format!("{:.0}", row.offered_rps);
        let state = if row.killed { "killed" } else { "shadow" };
        vec![row.entry.clone(), state.to_owned(), to, offered, refuses]
    });
    let headings = ["ENTRY", "NOW", "RETURNS TO", "OFFERED/S", "WOULD REFUSE"];
    write_table(out, &headings, rows)?;
    let refused = returning
        .iter()
        .filter_map(|row| Some((&row.entry, row.refused.as_ref()?)));
    for (entry, why) in refused {
        writeln!(out, "stays in shadow: {entry}: {why}")?;
    }
    Ok(())
}

fn write_resumed(out: &mut dyn Write, resumed: &Resumed) -> io::Result<()> {
    for change in &resumed.changes {
        writeln!(out, "resumed: {}: {}", change.entry, change.to)?;
    }
    for (entry, why) in &resumed.refused {
        writeln!(out, "not resumed: {entry}: {why}")?;
    }
    write_unless_saved(out, resumed.saved)
}
