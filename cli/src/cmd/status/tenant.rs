//! `plimsoll status --tenant`: what the policy grants one tenant in each bucket, and what it gets.

use std::collections::BTreeMap;
use std::io::{self, Write};

use plimsoll_controller::admin::status::{QuotaStatus, RowGrants, Status, TenantGrants, Traffic};
use plimsoll_core::names::{Bucket, Tenant};
use serde::Serialize;

use super::buckets;

/// A tenant in all buckets.
#[derive(Debug, Serialize)]
pub(super) struct ShownTenant<'a> {
    /// The line of its row in the catalogue.
    #[serde(skip_serializing_if = "Option::is_none")]
    catalogue_line: Option<u32>,
    #[serde(flatten)]
    buckets: BTreeMap<&'a Bucket, TenantInBucket<'a>>,
}

/// A tenant in one bucket.
#[derive(Debug, Serialize)]
pub(super) struct TenantInBucket<'a> {
    /// Absent if the bucket's own settings apply.
    grants: Option<&'a TenantGrants>,
    /// With the numbers of this tenant.
    quotas: Vec<&'a QuotaStatus>,
    /// Absent for a tenant that is counted for its class.
    traffic: Option<&'a Traffic>,
}

/// Returns the buckets where a listed tenant or a class has an entry, or a tenant has grants of its row.
pub(super) fn of<'a>(
    status: &'a Status,
    tenant: &Tenant,
    row: Option<&'a RowGrants>,
) -> ShownTenant<'a> {
    let each = status.buckets.iter().filter_map(|(name, bucket)| {
        let traffic = bucket.tenants.get(tenant);
        let of_row = row.and_then(|row| row.grants.get(name));
        let grants = bucket.grants.get(tenant).or(of_row);
        let own = |quota: &'a QuotaStatus| {
            let mut own = grants.into_iter().flat_map(|grants| &grants.quotas);
            own.find(|own| own.name == quota.name).unwrap_or(quota)
        };
        let of_bucket = TenantInBucket {
            grants,
            quotas: bucket.quotas.iter().map(own).collect(),
            traffic,
        };
        (traffic.is_some() || of_row.is_some()).then_some((name, of_bucket))
    });
    ShownTenant {
        catalogue_line: row.map(|row| row.line),
        buckets: each.collect(),
    }
}

pub(super) fn write(
    out: &mut dyn Write,
    tenant: &Tenant,
    shown: &ShownTenant<'_>,
) -> io::Result<()> {
    if let Some(line) = shown.catalogue_line {
        writeln!(out, "line {line} of the catalogue")?;
    }
    if shown.buckets.is_empty() {
        return writeln!(
            out,
            "the policy does not list {tenant}: it counts for the plan that its service names, which --tenant '%~PLAN' \
             shows, or else for the class `default`"
        );
    }
    for (bucket, of_bucket) in &shown.buckets {
        let TenantInBucket {
            grants,
            quotas,
            traffic,
        } = of_bucket;
        let mut parts = Vec::new();
        if let Some(traffic) = traffic {
            parts.push(format!("offered {:.0}/s", traffic.offered_rps));
            if traffic.law_ratio.is_some() {
                parts.push(format!("allocated {:.0}/s", traffic.allocated_rps));
            }
            parts.extend(buckets::law(traffic));
        }
        if let Some(grants) = grants {
            let plan = grants.plan.as_ref();
            parts.extend(plan.map(|plan| format!("plan {plan}")));
            parts.push(format!("weight {}", grants.weight));
            let limit = grants.limit_rps.zip(grants.limit_of.as_ref());
            parts.extend(limit.map(|(limit, of)| format!("limit {limit}/s of the {of}")));
        }
        writeln!(out, "bucket {bucket}: {}", parts.join(", "))?;
        for quota in quotas {
            buckets::write_quota(out, quota)?;
        }
    }
    Ok(())
}
