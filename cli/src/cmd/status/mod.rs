//! `plimsoll status`: first whether the fleet is healthy and what is wrong, which the controller decides, then what is out
//! of the ordinary.

mod buckets;
pub(crate) mod doctor;
mod members;
mod memory;
mod screen;
mod tenant;
pub(crate) mod top;
pub(crate) mod why;

pub(crate) use members::resign;
pub(crate) use memory::{ForgetArgs, acknowledge_loss, forget};

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use plimsoll_admin::security::SecurityStatus;
use plimsoll_controller::admin::status::{AggregatorStatus, CatalogueStatus, Status};
use plimsoll_core::names::Tenant;

use crate::admin_client::AdminArgs;
use crate::cmd::exit_code;

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// Show what the policy grants this tenant, and what it gets; `%~NAME` for the unlisted tenants of a plan
    #[arg(
        long,
        env = "PLIMSOLL_STATUS_TENANT",
        value_name = "NAME",
        conflicts_with_all = ["all", "watch"]
    )]
    tenant: Option<Tenant>,
    /// Show every bucket, tenant and aggregator
    #[arg(long, env = "PLIMSOLL_STATUS_ALL")]
    all: bool,
    /// Show it again every second until Ctrl-C; in a pipe, every 2 s
    #[arg(long, env = "PLIMSOLL_STATUS_WATCH")]
    watch: bool,
    #[command(flatten)]
    admin: AdminArgs,
}

pub(crate) fn run(args: &StatusArgs) -> anyhow::Result<ExitCode> {
    let admin = &args.admin;
    let look = || admin.get::<Status>("/status");
    if args.watch {
        return screen::watch(admin.output, look, |out, status| {
            write_status(out, status, args.all)
        });
    }
    let status = look()?;
    if let Some(tenant) = &args.tenant {
        show_tenant(admin, &status, tenant)?;
        return Ok(ExitCode::SUCCESS);
    }
    screen::print(admin.output, &status, |out| {
        write_status(out, &status, args.all)
    })?;
    Ok(exit_code(status.problems.is_empty()))
}

/// Escapes a name for a query. It may have escapes, and no other character that a query must escape.
fn in_query(name: &str) -> String {
    name.replace('%', "%25")
}

fn show_tenant(admin: &AdminArgs, status: &Status, tenant: &Tenant) -> anyhow::Result<()> {
    let row = match &status.catalogue {
        Some(_) => admin.get(&format!("/catalogue?name={}", in_query(tenant.as_str())))?,
        None => None,
    };
    let shown = tenant::of(status, tenant, row.as_ref());
    admin
        .output
        .print(&shown, |out| tenant::write(out, tenant, &shown))
}

fn write_status(out: &mut dyn Write, status: &Status, is_all: bool) -> io::Result<()> {
    writeln!(out, "{}", status.verdict)?;
    for problem in &status.problems {
        // The verdict has the text of a single one.
        if status.problems.len() > 1 {
            writeln!(out, "{}: {}", problem.severity.as_str(), problem.text)?;
        }
        writeln!(out, "  {}", problem.remedy)?;
    }
    if !status.problems.is_empty() {
        writeln!(out, "{}", status.summary)?;
    }
    buckets::write(out, status, is_all)?;
    if is_all {
        let mut aggregators = status.aggregators.iter();
        aggregators.try_for_each(|aggregator| write_aggregator(out, aggregator))?;
    }
    let more = if is_all { "" } else { "; all by --all" };
    writeln!(
        out,
        "controller: epoch {}, policy {}, version {}{more}",
        status.epoch, status.policy_hash, status.version
    )?;
    if let Some(others) = other_versions(status) {
        writeln!(out, "other versions: {others}")?;
    }
    if is_all {
        if let Some(catalogue) = &status.catalogue {
            let CatalogueStatus { rows, listed, .. } = catalogue;
            writeln!(
                out,
                "catalogue: {rows} rows, {listed} with terms of their own have requests"
            )?;
        }
        write_security(out, &status.security)?;
        if let Some(members) = &status.members {
            members::write(out, members)?;
        }
    }
    Ok(())
}

fn write_security(out: &mut dyn Write, security: &SecurityStatus) -> io::Result<()> {
    if let Some(certificate) = &security.certificate {
        let left = Duration::from_secs(certificate.expires_in_s.max(0.0) as u64);
        writeln!(
            out,
            "  certificate of {}, expires in {}",
            certificate.identity,
            humantime::format_duration(left)
        )?;
    }
    if !security.plaintext.is_empty() {
        writeln!(
            out,
            "  plaintext beyond loopback, by --insecure: {}",
            security.plaintext.join(", ")
        )?;
    }
    Ok(())
}

/// Returns the versions that differ from that of the leader or are unknown, each with a process that has it; `None` without
/// any.
fn other_versions(status: &Status) -> Option<String> {
    let members = status.members.iter().flat_map(|it| &it.members);
    let members = members.map(|it| (it.member.version.as_str(), it.member.admin.to_string()));
    let aggregators = status.aggregators.iter().filter(|it| it.connected);
    let aggregators = aggregators.map(|it| {
        let version = it.version.as_deref().unwrap_or("unknown");
        (version, format!("aggregator {}/{}", it.zone, it.name))
    });
    let mut names = BTreeMap::<&str, Vec<String>>::new();
    for (version, name) in members.chain(aggregators) {
        if version != status.version {
            names.entry(version).or_default().push(name);
        }
    }
    let texts = names.iter().map(|(version, names)| match &names[..] {
        [first, more @ ..] if !more.is_empty() => {
            format!("{version} of {first} and {} more", more.len())
        }
        names => format!("{version} of {}", names.concat()),
    });
    let texts: Vec<String> = texts.collect();
    (!texts.is_empty()).then(|| texts.join(", "))
}

const fn state_of(aggregator: &AggregatorStatus) -> &'static str {
    match (aggregator.expired, aggregator.connected) {
        (true, _) => "expired",
        (false, true) => "connected",
        (false, false) => "disconnected",
    }
}

fn write_aggregator(out: &mut dyn Write, aggregator: &AggregatorStatus) -> io::Result<()> {
    let AggregatorStatus { zone, name, .. } = aggregator;
    let state = state_of(aggregator);
    let ago = Duration::from_secs(aggregator.last_report_s as u64);
    let ago =
        (!ago.is_zero()).then(|| format!(", last report {} ago", humantime::format_duration(ago)));
    writeln!(
        out,
        "aggregator {zone}/{name}: {state}, version {}{}",
        aggregator.version.as_deref().unwrap_or("unknown"),
        ago.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use plimsoll_controller::admin::status::Problem;
    use plimsoll_controller::events::Severity;

    use super::*;

    #[test]
    fn verdict_is_first_and_all_is_more() {
        let problem = Problem {
            severity: Severity::Critical,
            subject: "zone-a/n".to_owned(),
            text: "zone-a/n disconnected for 48 s".to_owned(),
            remedy: "start it again".to_owned(),
        };
        let aggregator = AggregatorStatus {
            zone: "zone-a".to_owned(),
            name: "n".to_owned(),
            last_report_s: 61.9,
            ..AggregatorStatus::default()
        };
        let older = |name: &str| AggregatorStatus {
            name: name.to_owned(),
            version: Some("1".to_owned()),
            connected: true,
            ..aggregator.clone()
        };
        let status = Status {
            version: "2".to_owned(),
            verdict: "2 problems: zone-a/n".to_owned(),
            summary: "no bucket".to_owned(),
            problems: vec![problem.clone(), problem],
            aggregators: vec![older("o"), older("p"), aggregator],
            ..Status::default()
        };
        let text = |is_all| {
            let mut out = Vec::new();
            write_status(&mut out, &status, is_all).unwrap();
            String::from_utf8(out).unwrap()
        };
        let first = "2 problems: zone-a/n\ncritical: zone-a/n disconnected for 48 s\n  start it again\n\
                     critical: zone-a/n disconnected for 48 s\n  start it again\nno bucket\n";
        let others = "other versions: 1 of aggregator zone-a/o and 1 more\n";
        assert_eq!(
            text(false),
            format!("{first}controller: epoch 0, policy , version 2; all by --all\n{others}")
        );
        assert_eq!(
            text(true),
            format!(
                "{first}aggregator zone-a/o: connected, version 1, last report 1m 1s ago\n\
                 aggregator zone-a/p: connected, version 1, last report 1m 1s ago\n\
                 aggregator zone-a/n: disconnected, version unknown, last report 1m 1s ago\n\
                 controller: epoch 0, policy , version 2\n{others}"
            )
        );
    }
}
