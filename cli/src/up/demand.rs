//! What the demo asks of the fleet: of every limited bucket several times what it may admit.

use anyhow::Context;
use http::HeaderValue;

use super::fleet::Fleet;
use crate::load::{Demand, Schedule};

/// How much more than its limit is asked of a bucket.
const OVERLOAD: f64 = 3.5;
/// What is asked of a bucket without a limit, in requests/s.
const UNLIMITED_RPS: f64 = 300.0;
/// What is asked of a bucket at least, in requests/s: a limit of zero refuses something visible.
const RPS_MIN: f64 = 10.0;
/// What is asked of everything together at most, in requests/s: the machine should not be the limit.
const TOTAL_RPS_MAX: f64 = 8_000.0;
/// Who asks, and their share of the requests. The last two have no entry in the example policy.
const TENANTS: [(&str, f64); 4] =
    [("enterprise_acme", 0.4), ("free_tier", 0.3), ("corner-shop", 0.2), ("book-club", 0.1)];

/// The demands on every service of the fleet.
pub(super) fn demands(fleet: &Fleet) -> anyhow::Result<Vec<Demand>> {
    let buckets = rates(fleet);
    let total: f64 = buckets.iter().map(|(_, rps)| rps).sum();
    let scale = (TOTAL_RPS_MAX / total).min(1.0);
    let mut demands = Vec::new();
    for (service, share) in fleet.services() {
        for (bucket, rps) in &buckets {
            let uri: http::Uri =
                format!("http://{service}/{bucket}").parse().with_context(|| format!("bucket {bucket}"))?;
            for (tenant, of_requests) in TENANTS {
                let rates = Schedule::constant(rps * scale * share * of_requests);
                demands.push(Demand { uri: uri.clone(), tenant: HeaderValue::from_static(tenant), rates });
            }
        }
    }
    Ok(demands)
}

/// What to ask of each bucket, in requests/s, before the machine is considered.
fn rates(fleet: &Fleet) -> Vec<(String, f64)> {
    let status = fleet.status();
    let rate = |bucket: &String| {
        let limit = status.buckets.get(bucket.as_str()).and_then(|bucket| bucket.limit_rps);
        limit.map_or(UNLIMITED_RPS, |limit| (limit * OVERLOAD).max(RPS_MIN))
    };
    fleet.buckets().iter().map(|bucket| (bucket.clone(), rate(bucket))).collect()
}
