//! The buckets in `plimsoll status`: those that refuse come first, and only what is out of the ordinary is shown unless
//! all is asked for.

use std::cmp::Reverse;
use std::io::{self, Write};

use plimsoll_controller::admin::status::{BucketStatus, QuotaStatus, Refusals, Status, Traffic};
use plimsoll_core::decision::ShownMode;
use plimsoll_core::names::{Bucket, Tenant};
use plimsoll_core::quota::QuotaKey;
use plimsoll_core::stats::AdmissionFigures;

use crate::output::percent;

/// Maximum number of buckets, and of tenants of a bucket, that are shown unless all are.
const BUCKETS_MAX: usize = 20;
const TENANTS_MAX: usize = 5;

/// Writes the buckets that are out of the ordinary, or all, those that refuse most first.
pub(super) fn write(out: &mut dyn Write, status: &Status, is_all: bool) -> io::Result<()> {
    let mut buckets: Vec<(&Bucket, &BucketStatus)> = status
        .buckets
        .iter()
        .filter(|(_, bucket)| is_all || is_notable(bucket))
        .collect();
    let shown = if is_all { buckets.len() } else { BUCKETS_MAX };
    buckets.sort_by_key(|(_, bucket)| {
        let per_mille = |share: f64| (share * 1_000.0) as u32;
        let lately = &bucket.refusals_10_s;
        Reverse((per_mille(lately.ratio()), per_mille(lately.would_ratio())))
    });
    for (name, bucket) in buckets.iter().take(shown) {
        write_bucket(out, name, bucket, status, is_all)?;
    }
    match buckets.len().saturating_sub(shown) {
        0 => Ok(()),
        more => writeln!(out, "and {more} more buckets"),
    }
}

/// Returns true if a bucket refuses or would refuse, is not in the mode of the policy file, or has clients that do not
/// carry its mode out.
fn is_notable(bucket: &BucketStatus) -> bool {
    let lately = &bucket.refusals_10_s;
    let refuses =
        lately.ratio() >= Refusals::SHOWN_MIN || lately.would_ratio() >= Refusals::SHOWN_MIN;
    refuses || bucket.clients_unapplied > 0 || differs(bucket)
}

/// Returns true if a bucket is in another mode than the policy file says, and not because it is killed.
fn differs(bucket: &BucketStatus) -> bool {
    let file = ShownMode::from(bucket.file_mode);
    bucket.file_mode.is_some() && file != bucket.mode && !bucket.killed
}

fn write_bucket(
    out: &mut dyn Write,
    name: &Bucket,
    bucket: &BucketStatus,
    status: &Status,
    is_all: bool,
) -> io::Result<()> {
    let clients = status.clients;
    let traffic = &bucket.traffic;
    let mode = match bucket.file_mode.filter(|_| differs(bucket)) {
        Some(file) => format!("{} (the policy file has {file})", bucket.mode),
        None => bucket.mode.to_string(),
    };
    let admitted = match admitted_rps(traffic, &bucket.admissions, bucket.quota_dropped_rps) {
        Some(admitted) => Some(format!("admitted {admitted:.0}/s")),
        None => {
            (traffic.offered_rps >= 0.5).then(|| "admitted unknown: no counts arrive".to_owned())
        }
    };
    let unheard = Some(bucket.unheard_rps).filter(|rps| *rps >= 0.5);
    let unheard = unheard.map(|rps| format!(" and {rps:.0}/s last heard of silent aggregators"));
    let unapplied = bucket.clients_unapplied;
    let refused = refused(bucket);
    let parts = [
        Some(mode),
        (unapplied > 0).then(|| format!("{unapplied} of {clients} clients do not carry it out")),
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
        law(traffic).filter(|_| refused.is_none()),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    writeln!(out, "bucket {name}: {}", parts.join(", "))?;
    if let Some(refused) = refused {
        writeln!(out, "  {refused}")?;
    }
    if bucket.quota_dropped_rps + bucket.quota_repeated_rps > 0.0 && status.quota_store_down == 0 {
        writeln!(
            out,
            "  `plimsoll quota top` has the keys that quotas refuse"
        )?;
    }
    if is_all {
        for quota in &bucket.quotas {
            write_quota(out, quota)?;
        }
    }
    write_tenants(out, bucket, is_all)?;
    if bucket.released_rps > 0.0 {
        writeln!(
            out,
            "  {:.0}/s of silent aggregators are released to the others; their clients may admit as much beyond the limit",
            bucket.released_rps
        )?;
    }
    Ok(())
}

/// Returns what counts and the law say of refusals and retries; `None` without any.
fn refused(bucket: &BucketStatus) -> Option<String> {
    let (lately, before) = (&bucket.refusals_10_s, &bucket.refusals_5_min);
    let refused = (lately.ratio().max(before.ratio()) >= Refusals::SHOWN_MIN).then(|| {
        let (now, before) = (percent(lately.ratio()), percent(before.ratio()));
        format!(
            "refused {now} in 10 s{}, {before} in 5 min",
            reasons(lately)
        )
    });
    let would = (lately.would_ratio() >= Refusals::SHOWN_MIN)
        .then(|| format!("would refuse {} in 10 s", percent(lately.would_ratio())));
    let retried = (lately.retried_ratio() >= Refusals::SHOWN_MIN)
        .then(|| format!("retries {} in 10 s", percent(lately.retried_ratio())));
    let said: Vec<String> = refused.into_iter().chain(would).chain(retried).collect();
    let law = bucket.traffic.law_ratio;
    let law = law.map(|ratio| format!("; law {}", percent(ratio)));
    (!said.is_empty()).then(|| format!("{}{}", said.join(", "), law.unwrap_or_default()))
}

fn reasons(lately: &Refusals) -> String {
    let each = match &lately.reasons()[..] {
        [] => return String::new(),
        [(reason, _)] => (*reason).to_owned(),
        several => {
            let each = several
                .iter()
                .map(|(reason, share)| format!("{reason} {}", percent(*share)));
            each.collect::<Vec<_>>().join(", ")
        }
    };
    format!(" ({each})")
}

/// Writes the tenants that the law refuses, those that lose most first.
fn write_tenants(out: &mut dyn Write, bucket: &BucketStatus, is_all: bool) -> io::Result<()> {
    let refused = bucket.tenants.iter();
    let mut refused: Vec<(&Tenant, &Traffic)> = refused
        .filter(|(_, traffic)| traffic.drop_reason.is_some())
        .collect();
    let lost = |traffic: &Traffic| traffic.offered_rps * traffic.law_ratio.unwrap_or_default();
    refused.sort_by(|(_, one), (_, other)| lost(other).total_cmp(&lost(one)));
    let shown = if is_all { refused.len() } else { TENANTS_MAX };
    for (tenant, traffic) in refused.iter().take(shown) {
        let law = law(traffic).map(|law| format!(", {law}"));
        writeln!(
            out,
            "  tenant {tenant}: offered {:.0}/s{}",
            traffic.offered_rps,
            law.unwrap_or_default()
        )?;
    }
    match refused.len().saturating_sub(shown) {
        0 => Ok(()),
        more => writeln!(out, "  and {more} more"),
    }
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

pub(super) fn write_quota(out: &mut dyn Write, quota: &QuotaStatus) -> io::Result<()> {
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

/// Returns the share that the law refuses, with its reason; `None` if the law has no ratio.
pub(super) fn law(traffic: &Traffic) -> Option<String> {
    let reason = traffic.drop_reason;
    let reason = reason.map(|reason| format!(" ({})", reason.as_str()));
    let ratio = percent(traffic.law_ratio?);
    Some(format!("law {ratio}{}", reason.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

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

    fn shown(status: &Status, is_all: bool) -> String {
        let mut out = Vec::new();
        write(&mut out, status, is_all).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn guarded(percent: u64) -> BucketStatus {
        let refusals = |burst_guard, cluster_overload| Refusals {
            span_s: 10.0,
            asked: 1_000,
            burst_guard,
            cluster_overload,
            ..Refusals::default()
        };
        let mut bucket = BucketStatus {
            mode: ShownMode::Enforce,
            limit_rps: Some(100.0),
            refusals_10_s: refusals(percent * 10, 3 * u64::from(percent > 0)),
            refusals_5_min: refusals(120 * u64::from(percent > 0), 0),
            ..BucketStatus::default()
        };
        bucket.traffic.law_ratio = Some(0.0);
        bucket
    }

    #[test]
    fn counts_stand_beside_the_law() {
        let mut status = Status::default();
        let (api, idle) = (Bucket::new("api").unwrap(), Bucket::new("idle").unwrap());
        status.buckets = [(api, guarded(38)), (idle, guarded(0))].into();
        let refusing = "bucket api: enforce, limit 100/s, offered 0/s\n  refused 38.3 % in 10 s (guard 38.0 %, \
                        overload 0.3 %), 12.0 % in 5 min; law 0.0 %\n";
        assert_eq!(shown(&status, false), refusing);
        let all = format!("{refusing}bucket idle: enforce, limit 100/s, offered 0/s, law 0.0 %\n");
        assert_eq!(shown(&status, true), all);
    }

    #[test]
    fn large_fleet_is_a_screen() {
        let mut status = Status::default();
        let number = |number: u64| Bucket::new(&format!("b{number}")).unwrap();
        status.buckets = (0..90).map(|at| (number(at), guarded(at))).collect();
        let mut most = guarded(89);
        for at in 0..17_u32 {
            let mut traffic = Traffic {
                offered_rps: f64::from(at),
                ..Traffic::default()
            };
            traffic.law_ratio = Some(0.5);
            traffic.drop_reason = Some(plimsoll_core::decision::Reason::ClusterOverload);
            most.tenants
                .insert(Tenant::new(&format!("t{at}")).unwrap(), traffic);
        }
        status.buckets.insert(number(89), most);
        let text = shown(&status, false);
        assert!(text.starts_with("bucket b89: "), "{text}");
        assert!(
            text.contains(
                "  tenant t16: offered 16/s, law 50.0 % (cluster_overload)\n  tenant t15"
            )
        );
        assert!(text.contains(
            "  tenant t12: offered 12/s, law 50.0 % (cluster_overload)\n  and 12 more\n"
        ));
        assert!(text.ends_with("and 69 more buckets\n"), "{text}");
        assert_eq!(text.matches("bucket ").count(), BUCKETS_MAX);
        assert_eq!(shown(&status, true).matches("\nbucket ").count(), 89);
    }

    #[test]
    fn mode_beside_the_file_is_notable() {
        let mut bucket = guarded(0);
        bucket.file_mode = Some(plimsoll_core::decision::Mode::Enforce);
        assert!(!is_notable(&bucket));
        bucket.mode = ShownMode::Shadow;
        assert!(is_notable(&bucket));
        let status = Status {
            buckets: [(Bucket::new("api").unwrap(), bucket)].into(),
            ..Status::default()
        };
        assert!(
            shown(&status, false)
                .starts_with("bucket api: shadow (the policy file has enforce), limit")
        );
    }
}
