//! The load of the demo: several times the limit for each bucket, and less than the limit for a
//! bucket with quotas.

use anyhow::Context;
use http::HeaderValue;
use plimsoll_controller::admin::status::Status;

use super::fleet::Fleet;
use crate::load::{Demand, Schedule};

/// Load of a bucket, as a multiple of its limit.
const OVERLOAD: f64 = 3.5;
/// Load of a bucket with exact quotas, as a multiple of its limit: the quotas refuse, and not the
/// limit.
const BELOW_LIMIT: f64 = 0.4;
/// Load of a bucket without a limit, in requests/s.
const UNLIMITED_RPS: f64 = 300.0;
/// Minimum load of a bucket, in requests/s, so that a limit of zero shows refusals.
const RPS_MIN: f64 = 10.0;
/// Maximum total load, in requests/s, so that the machine is not the bottleneck.
const TOTAL_RPS_MAX: f64 = 8_000.0;
/// Tenants and their shares of the load. The last two have no entry in the example policy.
const TENANTS: [(&str, f64); 4] = [
    ("enterprise_acme", 0.4),
    ("free_tier", 0.3),
    ("corner-shop", 0.2),
    ("book-club", 0.1),
];

/// Returns the load of each service, by bucket and tenant.
pub(super) fn demands(fleet: &Fleet, status: &Status) -> anyhow::Result<Vec<Demand>> {
    let rate = |bucket: &String| {
        let status = status.buckets.get(bucket.as_str());
        let has_quotas = status.is_some_and(|bucket| !bucket.quotas.is_empty());
        let load = if has_quotas { BELOW_LIMIT } else { OVERLOAD };
        let limit = status.and_then(|bucket| bucket.limit_rps);
        limit.map_or(UNLIMITED_RPS, |limit| (limit * load).max(RPS_MIN))
    };
    let total: f64 = fleet.buckets.iter().map(&rate).sum();
    let scale = (TOTAL_RPS_MAX / total).min(1.0);
    let mut demands = Vec::new();
    for (service, share) in &fleet.services {
        for bucket in &fleet.buckets {
            let uri: http::Uri = format!("http://{service}/{bucket}")
                .parse()
                .with_context(|| format!("bucket {bucket}"))?;
            for (tenant, tenant_share) in TENANTS {
                let rates = Schedule::constant(rate(bucket) * scale * share * tenant_share);
                demands.push(Demand {
                    uri: uri.clone(),
                    tenant: HeaderValue::from_static(tenant),
                    plan: None,
                    names: None,
                    rates,
                });
            }
        }
    }
    Ok(demands)
}
