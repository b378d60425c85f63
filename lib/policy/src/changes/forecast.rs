//! The forecast of a change for operators: the share of requests that each bucket and tenant is refused now and would be
//! refused then, gains beside losses.

use plimsoll_core::names::{Bucket, Tenant};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::effect::{Effect, Offered, Regime, effects};

/// Maximum number of buckets, of tenants refused more, and of tenants refused less that a forecast names.
pub const FORECAST_MAX: usize = 20;
/// Changes of a share that are not named: sums of rates are not exact, and less is no reason to act.
const SHARE_MIN: f64 = 0.0005;

/// The share of the requests that are refused before and after a change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Shift {
    /// The bucket.
    pub bucket: Bucket,
    /// The tenant, or the class of all tenants without an entry; null: the bucket as a whole.
    pub tenant: Option<Tenant>,
    /// Requests/s offered, the mean of the moments judged.
    pub offered_rps: f64,
    /// The share refused before: 0 to 1.
    pub before: f64,
    /// The share refused after.
    pub after: f64,
}

/// Some of many shifts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Shifts {
    /// The largest ones, at most [`FORECAST_MAX`].
    pub largest: Vec<Shift>,
    /// The number of others.
    pub more: usize,
}

/// The effect of a change on the traffic of the last minutes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Forecast {
    /// All buckets with traffic, changed or not.
    pub buckets: Shifts,
    /// Tenants refused more than before.
    pub refused_more: Shifts,
    /// Tenants refused less than before.
    pub refused_less: Shifts,
}

impl Shift {
    fn new(bucket: &Bucket, tenant: Option<&Tenant>, effect: &Effect, moments: f64) -> Self {
        let [before, after] = effect.shares();
        Self {
            bucket: bucket.clone(),
            tenant: tenant.cloned(),
            offered_rps: effect.offered / moments,
            before,
            after,
        }
    }

    fn change(&self) -> f64 {
        self.after - self.before
    }
}

impl From<Vec<Shift>> for Shifts {
    fn from(mut shifts: Vec<Shift>) -> Self {
        shifts.sort_by(|one, other| other.change().abs().total_cmp(&one.change().abs()));
        let more = shifts.len().saturating_sub(FORECAST_MAX);
        shifts.truncate(FORECAST_MAX);
        Self {
            largest: shifts,
            more,
        }
    }
}

/// Returns the effect of `after` in place of `before` on what was offered at several moments of the last minutes, by the
/// judgement that guardrails use.
pub fn forecast<'t>(
    before: &Regime<'_>,
    after: &Regime<'_>,
    traffic: impl IntoIterator<Item = &'t Offered>,
    unix_s: i64,
) -> Forecast {
    let mut moments = 0.0;
    let traffic = traffic.into_iter().filter(|offered| !offered.is_empty());
    let effects = effects(before, after, traffic.inspect(|_| moments += 1.0), unix_s);
    let (mut buckets, mut tenants) = (Vec::new(), Vec::new());
    for (bucket, effect) in &effects {
        buckets.push(Shift::new(bucket, None, &effect.all, moments));
        // One tenant alone is the bucket.
        if effect.tenants.len() > 1 {
            let offering = effect.tenants.iter().filter(|(_, of)| of.offered > 0.0);
            tenants
                .extend(offering.map(|(tenant, of)| Shift::new(bucket, Some(tenant), of, moments)));
        }
    }
    let refused = |sign: f64| -> Vec<Shift> {
        let changed = |shift: &&Shift| sign * shift.change() >= SHARE_MIN;
        tenants.iter().filter(changed).cloned().collect()
    };
    Forecast {
        refused_more: refused(1.0).into(),
        refused_less: refused(-1.0).into(),
        buckets: buckets.into(),
    }
}
