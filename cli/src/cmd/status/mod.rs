//! `plimsoll status`: the fleet on one screen, its buckets and its aggregators; and the commands
//! that correct the controller's memory of it.

mod members;
mod tenant;

pub(crate) use members::resign;

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use plimsoll_admin::other_controllers::OtherController;
use plimsoll_admin::security::SecurityStatus;
use plimsoll_controller::admin::aggregator_routes::{FORGET, Forget, Forgotten};
use plimsoll_controller::admin::quota_status::QuotaStatus;
use plimsoll_controller::admin::rollout_routes::Policies;
use plimsoll_controller::admin::state_routes::{ACKNOWLEDGE_LOSS, Acknowledged};
use plimsoll_controller::admin::status::{
    AggregatorStatus, BucketStatus, CatalogueStatus, Status, Traffic,
};
use plimsoll_core::names::Tenant;
use plimsoll_core::quota::QuotaKey;
use plimsoll_core::stats::AdmissionFigures;

use crate::admin_client::AdminArgs;
use crate::cmd::kill::write_claims;
use crate::output::write_unless_saved;

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// Show what the policy grants this tenant, and what it gets; `%~NAME` for the unlisted tenants of a plan
    #[arg(long, env = "PLIMSOLL_STATUS_TENANT", value_name = "NAME")]
    tenant: Option<Tenant>,
    #[command(flatten)]
    admin: AdminArgs,
}

pub(crate) fn run(StatusArgs { tenant, admin }: &StatusArgs) -> anyhow::Result<ExitCode> {
    let status: Status = admin.get("/status")?;
    if let Some(tenant) = tenant {
        let row = match &status.catalogue {
            // A name may have escapes, and no other character that a query must escape.
            Some(_) => admin.get(&format!(
                "/catalogue?name={}",
                tenant.as_str().replace('%', "%25")
            ))?,
            None => None,
        };
        let shown = tenant::of(&status, tenant, row.as_ref());
        admin
            .output
            .print(&shown, |out| tenant::write(out, tenant, &shown))?;
        return Ok(ExitCode::SUCCESS);
    }
    let policies: Policies = admin.get("/policy")?;
    admin.output.print(&status, |out| {
        write_status(out, &status)?;
        write_waiting(out, &policies)
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Forget an aggregator that is gone and does not return
///
/// Its share is free at once, and status, metrics and alerts no longer show it. An aggregator that connects
/// again is known again. Exit code 0: forgotten; 1: it is connected, or no controller answers; 2: no
/// such aggregator is known.
#[derive(Debug, Args)]
pub(crate) struct ForgetArgs {
    /// Zone and name of the aggregator, as `plimsoll status` shows them
    #[arg(env = "PLIMSOLL_FORGET", value_name = "ZONE/NAME")]
    aggregator: String,
    #[command(flatten)]
    admin: AdminArgs,
}

pub(crate) fn forget(ForgetArgs { aggregator, admin }: &ForgetArgs) -> anyhow::Result<ExitCode> {
    let forgotten: Forgotten = admin.post(
        FORGET,
        &Forget {
            aggregator: aggregator.clone(),
        },
    )?;
    admin.output.print(&forgotten, |out| {
        writeln!(
            out,
            "forgotten: {aggregator}; its share of every limit is free"
        )?;
        write_unless_saved(out, forgotten.saved)
    })?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn acknowledge_loss(admin: &AdminArgs) -> anyhow::Result<ExitCode> {
    let acknowledged: Acknowledged = admin.post(ACKNOWLEDGE_LOSS, &())?;
    admin.output.print(&acknowledged, |out| {
        match &acknowledged.loss {
            Some(loss) => writeln!(out, "acknowledged: {loss}")?,
            None => writeln!(out, "nothing to acknowledge: the state was not lost")?,
        }
        write_unless_saved(out, acknowledged.saved)
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Writes whether the files on disk have a policy that is not applied.
fn write_waiting(out: &mut dyn Write, policies: &Policies) -> io::Result<()> {
    if let Some(held) = &policies.held {
        writeln!(
            out,
            "policy {} is held back; `plimsoll diff` shows why",
            held.hash
        )?;
    }
    if policies.refused.is_some() {
        writeln!(
            out,
            "the policy files are refused as they are now; `plimsoll diff` shows why"
        )?;
    }
    Ok(())
}

fn write_catalogue(out: &mut dyn Write, catalogue: &CatalogueStatus) -> io::Result<()> {
    let CatalogueStatus {
        rows,
        listed,
        no_room,
    } = catalogue;
    write!(
        out,
        "catalogue: {rows} rows, {listed} with terms of their own have requests"
    )?;
    if *no_room > 0 {
        write!(
            out,
            ", {no_room} times one found no room and has the terms of its plan"
        )?;
    }
    writeln!(out)
}

fn write_status(out: &mut dyn Write, status: &Status) -> io::Result<()> {
    write!(
        out,
        "controller: epoch {}, policy {}",
        status.epoch, status.policy_hash
    )?;
    writeln!(
        out,
        "{}",
        if status.leading {
            ""
        } else {
            ", sends no rates yet"
        }
    )?;
    if let Some(catalogue) = &status.catalogue {
        write_catalogue(out, catalogue)?;
    }
    write_security(out, &status.security)?;
    if let Some(members) = &status.members {
        members::write(out, members, &status.policy_hash)?;
    }
    write_controllers(out, status)?;
    for refused in &status.refused_children {
        writeln!(
            out,
            "  refuses {} again and again, {} times: {}",
            refused.child, refused.times, refused.cause
        )?;
    }
    if !status.unprotected.is_empty() {
        let names: Vec<String> = status.unprotected.iter().map(ToString::to_string).collect();
        writeln!(out, "unprotected, for lack of room: {}", names.join(", "))?;
    }
    for unlisted in &status.unlisted {
        let meant = unlisted
            .nearest
            .as_ref()
            .map(|nearest| format!(": did the service mean `{nearest}`?"));
        let (bucket, meant) = (&unlisted.bucket, meant.unwrap_or_default());
        writeln!(
            out,
            "bucket {bucket}: no policy names it, so nothing limits it{meant}"
        )?;
    }
    if let Some(reason) = &status.state_lost {
        writeln!(out, "  state lost: {reason}")?;
        writeln!(
            out,
            "  compare `plimsoll rollout status` with what should be enforced, then `plimsoll acknowledge-loss`"
        )?;
    }
    if let Some(reason) = &status.state_unsaved {
        writeln!(out, "  state not saved: {reason}")?;
        writeln!(
            out,
            "  epoch, kills and stages would be lost with a restart"
        )?;
    }
    if status.killed {
        writeln!(
            out,
            "  killed: the whole fleet, generation {}",
            status.kill_generation
        )?;
    }
    if status.killed_locally > 0 {
        writeln!(
            out,
            "  killed locally: {} clients, by a kill file; they refuse nothing",
            status.killed_locally
        )?;
    }
    write_claims(out, &status.kill_claims)?;
    for (name, bucket) in &status.buckets {
        write_bucket(out, name.as_str(), bucket, status.clients)?;
    }
    status
        .aggregators
        .iter()
        .try_for_each(|aggregator| write_aggregator(out, aggregator))?;
    if status.aggregators.is_empty() {
        writeln!(out, "no aggregator is known")?;
    }
    Ok(())
}

/// Writes the validity of the certificate, and the faults of the files of certificates and tokens.
fn write_security(out: &mut dyn Write, security: &SecurityStatus) -> io::Result<()> {
    if let Some(certificate) = &security.certificate {
        let left = Duration::from_secs(certificate.expires_in_s.abs() as u64);
        let left = humantime::format_duration(left);
        if certificate.expires_in_s > 0.0 {
            writeln!(
                out,
                "  certificate of {}, expires in {left}",
                certificate.identity
            )?;
        } else {
            writeln!(
                out,
                "  certificate of {} expired {left} ago: renew it",
                certificate.identity
            )?;
        }
        if certificate.untrusted {
            writeln!(
                out,
                "  no authority of ca.crt signs it, peers refuse it: issue one of a new authority"
            )?;
        }
        if let Some(reason) = &certificate.refused {
            writeln!(
                out,
                "  certificate files refused, the earlier ones are in use: {reason}"
            )?;
        }
    }
    if let Some(reason) = security
        .tokens
        .as_ref()
        .and_then(|tokens| tokens.refused.as_ref())
    {
        writeln!(
            out,
            "  tokens file refused, the earlier tokens are accepted: {reason}"
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

/// Writes the controllers that are in conflict with this one, and the epochs that are claimed
/// without effect.
fn write_controllers(out: &mut dyn Write, status: &Status) -> io::Result<()> {
    let named = |other: &OtherController| {
        let OtherController {
            instance,
            epoch,
            through,
            ..
        } = other;
        format!(
            "{} at epoch {epoch}, as {through} reports",
            instance.as_deref().unwrap_or("unknown")
        )
    };
    if let Some(lost) = &status.lost_lead {
        writeln!(
            out,
            "  does not lead, sends no values: another controller leads, {}",
            named(lost)
        )?;
    }
    for other in &status.other_controllers {
        let what = if other.same_epoch {
            "a second controller runs"
        } else {
            "epoch claimed without effect"
        };
        writeln!(out, "  {what}: {}", named(other))?;
    }
    if status.lost_lead.is_some()
        || status
            .other_controllers
            .iter()
            .any(|other| other.same_epoch)
    {
        writeln!(
            out,
            "  stop one of the two controllers, then restart the other; this one is {}",
            status.instance
        )?;
    }
    Ok(())
}

fn write_bucket(
    out: &mut dyn Write,
    name: &str,
    bucket: &BucketStatus,
    clients: u32,
) -> io::Result<()> {
    let BucketStatus {
        traffic,
        admissions,
        ..
    } = bucket;
    let percent = |what: &str, ratio: Option<f64>| {
        ratio.map(|ratio| format!("{what} {:.1} % in 10 s", ratio * 100.0))
    };
    let admitted = match admitted_rps(traffic, admissions, bucket.quota_dropped_rps) {
        Some(admitted) => Some(format!("admitted {admitted:.0}/s")),
        None => {
            (traffic.offered_rps >= 0.5).then(|| "admitted unknown: no counts arrive".to_owned())
        }
    };
    let unheard = Some(bucket.unheard_rps).filter(|rps| *rps >= 0.5);
    let unheard = unheard.map(|rps| format!(" and {rps:.0}/s last heard of silent aggregators"));
    let parts = [
        Some(bucket.mode.to_string()),
        (bucket.clients_unapplied > 0).then(|| {
            format!(
                "{} of {clients} clients do not carry it out",
                bucket.clients_unapplied
            )
        }),
        bucket.killed.then(|| "killed".to_owned()),
        Some(
            bucket
                .limit_rps
                .map_or("no limit".to_owned(), |limit| format!("limit {limit:.0}/s")),
        ),
        Some(format!(
            "offered {:.0}/s{}",
            traffic.offered_rps,
            unheard.unwrap_or_default()
        )),
        admitted,
        percent("refused", admissions.refused_ratio),
        percent(
            "would refuse",
            admissions.would_refused_ratio.filter(|would| *would > 0.0),
        ),
        law(traffic),
    ];
    writeln!(
        out,
        "bucket {name}: {}",
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    )?;
    if let (Some(true), Some(missing)) = (admissions.underadmitting, admissions.underadmitted_ratio)
    {
        writeln!(
            out,
            "  underadmitting: {:.1} % of what limit and load allow does not pass; the runbook has the causes",
            missing * 100.0
        )?;
    }
    for quota in &bucket.quotas {
        write_quota(out, quota)?;
    }
    let (dropped, repeated) = (bucket.quota_dropped_rps, bucket.quota_repeated_rps);
    if dropped + repeated > 0.0 {
        // A repeated refusal is not a part of the offered load.
        writeln!(
            out,
            "  refused by quotas: {:.1}/s, {repeated:.1}/s of them by a refusal that is remembered; `plimsoll quota top` \
             has their keys",
            dropped + repeated
        )?;
    }
    for (tenant, traffic) in bucket
        .tenants
        .iter()
        .filter(|(_, traffic)| traffic.drop_reason.is_some())
    {
        let law = law(traffic)
            .map(|law| format!(", {law}"))
            .unwrap_or_default();
        writeln!(
            out,
            "  tenant {tenant}: offered {:.0}/s{law}",
            traffic.offered_rps
        )?;
    }
    if bucket.released_rps > 0.0 {
        writeln!(
            out,
            "  {:.0}/s of silent aggregators are released to the others; their clients may admit as much beyond the limit",
            bucket.released_rps
        )?;
    }
    Ok(())
}

/// Returns the requests/s that neither coin nor guard nor a quota refused; `None` without counts of
/// the last seconds.
fn admitted_rps(
    traffic: &Traffic,
    admissions: &AdmissionFigures,
    quota_dropped_rps: f64,
) -> Option<f64> {
    let passed = 1.0 - admissions.refused_ratio?;
    Some((traffic.offered_rps * passed - quota_dropped_rps).max(0.0))
}

fn write_quota(out: &mut dyn Write, quota: &QuotaStatus) -> io::Result<()> {
    let key = match quota.key {
        QuotaKey::Tenant => "for each tenant",
        QuotaKey::Global => "for all tenants together",
    };
    writeln!(
        out,
        "  quota {}: {} {key}, {} more every {}",
        quota.name, quota.max, quota.refill, quota.every
    )
}

fn law(traffic: &Traffic) -> Option<String> {
    let reason = traffic
        .drop_reason
        .map(|reason| format!(" ({})", reason.as_str()))
        .unwrap_or_default();
    traffic
        .law_ratio
        .map(|ratio| format!("law {:.1} %{reason}", ratio * 100.0))
}

fn write_aggregator(out: &mut dyn Write, aggregator: &AggregatorStatus) -> io::Result<()> {
    let AggregatorStatus {
        zone,
        name,
        last_report_s,
        ..
    } = aggregator;
    let ago = humantime::format_duration(Duration::from_secs(*last_report_s as u64));
    let (state, remedy) = if aggregator.expired {
        let remedy =
            format!("start it again; or, if it is lost, run `plimsoll forget {zone}/{name}`");
        (
            format!("expired, last report {ago} ago; its share is released to the others"),
            Some(remedy),
        )
    } else if !aggregator.connected {
        let stale = if aggregator.stale {
            "stale"
        } else {
            "disconnected"
        };
        let share = if aggregator.released > 0.0 {
            format!(
                "{:.0} % of its share is released to the others",
                aggregator.released * 100.0
            )
        } else {
            "its share is held for now".to_owned()
        };
        let remedy =
            "its clients go on by their last directives, and their requests are not counted";
        (
            format!("{stale}, last report {ago} ago; {share}"),
            Some(remedy.to_owned()),
        )
    } else if aggregator.stale {
        (format!("stale, connected, last report {ago} ago"), None)
    } else {
        ("connected".to_owned(), None)
    };
    writeln!(out, "aggregator {zone}/{name}: {state}")?;
    let conflict =
        "two processes with this zone and name replace each other: give each its own --name";
    let conflict = aggregator.name_conflict.then(|| conflict.to_owned());
    remedy
        .into_iter()
        .chain(conflict)
        .try_for_each(|line| writeln!(out, "  {line}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_controller::admin::rollout_routes::HeldStatus;

    #[test]
    fn admitted_is_offered_less_all_refusals() {
        let traffic = Traffic {
            offered_rps: 200.0,
            ..Traffic::default()
        };
        for (refused_ratio, by_quotas, admitted) in [
            (None, 0.0, None),
            (Some(0.25), 0.0, Some(150.0)),
            (Some(0.25), 50.0, Some(100.0)),
            (Some(1.0), 9.0, Some(0.0)),
        ] {
            let admissions = AdmissionFigures {
                refused_ratio,
                ..AdmissionFigures::default()
            };
            assert_eq!(admitted_rps(&traffic, &admissions, by_quotas), admitted);
        }
    }

    #[test]
    fn inactive_policy_is_named() {
        let policies = |held: Option<&str>, refused: Option<&str>| Policies {
            in_force: "a".to_owned(),
            held: held.map(|hash| HeldStatus {
                hash: hash.to_owned(),
                reasons: vec![],
                differences: vec![],
            }),
            refused: refused.map(str::to_owned),
        };
        let text = |policies: Policies| {
            let mut out = Vec::new();
            write_waiting(&mut out, &policies).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(text(policies(None, None)), "");
        assert!(text(policies(Some("0d69"), None)).starts_with("policy 0d69 is held back;"));
        assert!(text(policies(None, Some("line 3"))).starts_with("the policy files are refused"));
    }

    #[test]
    fn every_aggregator_state_has_its_line() {
        let connected = AggregatorStatus {
            zone: "a".to_owned(),
            name: "n".to_owned(),
            connected: true,
            since_s: 1.0,
            last_report_s: 0.0,
            silent_s: 0.0,
            killed_locally: 0,
            counts_cut: 0,
            released: 0.0,
            stale: false,
            expired: false,
            name_conflict: false,
        };
        let text = |aggregator: AggregatorStatus| {
            let mut out = Vec::new();
            write_aggregator(&mut out, &aggregator).unwrap();
            String::from_utf8(out).unwrap()
        };
        let away = AggregatorStatus {
            connected: false,
            last_report_s: 61.9,
            ..connected.clone()
        };
        assert_eq!(text(connected.clone()), "aggregator a/n: connected\n");
        assert_eq!(
            text(away.clone()),
            "aggregator a/n: disconnected, last report 1m 1s ago; its share is held for now\n  \
             its clients go on by their last directives, and their requests are not counted\n"
        );
        assert!(
            text(AggregatorStatus {
                stale: true,
                ..away.clone()
            })
            .contains("a/n: stale, last report 1m 1s ago;")
        );
        assert!(
            text(AggregatorStatus {
                released: 0.4,
                ..away.clone()
            })
            .contains("1m 1s ago; 40 % of its share is released to the others\n")
        );
        let expired = text(AggregatorStatus {
            stale: true,
            expired: true,
            ..away
        });
        assert!(
            expired.starts_with("aggregator a/n: expired, last report 1m 1s ago;"),
            "{expired}"
        );
        assert!(expired.contains("`plimsoll forget a/n`"), "{expired}");
        let twice = text(AggregatorStatus {
            name_conflict: true,
            ..connected
        });
        assert!(
            twice.contains("two processes with this zone and name"),
            "{twice}"
        );
    }
}
