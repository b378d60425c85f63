//! The checks of a policy for legal values with an effect that an operator may not expect.

use plimsoll_core::decision::Mode;
use plimsoll_core::quantity::{Limit, Rate};

use super::{Warning, gates};
use crate::buckets::{BucketPolicy, Buckets, LimitSource};
use crate::learning::DAYS_MAX;
use crate::tenants::TenantPolicy;
use crate::yaml::Field;

pub(crate) fn of_policy(root: &Field<'_>) -> Option<Warning> {
    let buckets = root.then("buckets");
    let message = "no bucket is protected: everything is admitted and counted";
    buckets
        .entries()
        .next()
        .is_none()
        .then(|| Warning::of(&buckets, message.to_owned()))
}

pub(crate) fn of_bucket(
    root: &Field<'_>,
    field: &Field<'_>,
    bucket: &BucketPolicy,
) -> Vec<Warning> {
    let mut warnings = gates::of_bucket(root, field, bucket);
    if bucket.limit() == Limit::PerSecond(Rate::ZERO) && bucket.mode == Mode::Enforce {
        let message = "a limit of 0 in mode enforce denies everything".to_owned();
        warnings.push(Warning::of(&field.then("limit"), message));
    }
    if let LimitSource::Learned(learned) = &bucket.source
        && learned.days > DAYS_MAX as u64
    {
        let message =
            format!("at most {DAYS_MAX} days are remembered, so {DAYS_MAX} days are used");
        warnings.push(Warning::of(
            &field.then("limit").then("learned").then("days"),
            message,
        ));
    }
    warnings
}

pub(crate) fn of_tenant(field: &Field<'_>, tenant: &TenantPolicy) -> Option<Warning> {
    let boost = tenant.boost.as_ref()?;
    let message = format!("the boost has ended: the weight is {}", tenant.weight.get());
    Some(Warning {
        since: Some(boost.until),
        ..Warning::of(&field.then("boost_until"), message)
    })
}

pub(crate) struct Floor {
    place: Warning,
    rps: f64,
    tenants: usize,
}

impl Floor {
    pub(crate) fn new(field: &Field<'_>, min: Rate, tenants: usize) -> Self {
        let place = Warning::of(&field.then("min_floor_rps"), String::new());
        Self {
            place,
            rps: min.per_second(),
            tenants,
        }
    }

    pub(crate) fn above_limits(self, buckets: &Buckets) -> Option<Warning> {
        let sum = self.rps * self.tenants as f64;
        let limits = buckets
            .iter()
            .filter_map(|(name, bucket)| Some((name, bucket.highest_limit()?.per_second())));
        let mut below: Vec<(String, f64)> = limits
            .filter(|(_, limit)| *limit > 0.0 && *limit < sum)
            .collect();
        below.sort_by(|(_, one), (_, other)| one.total_cmp(other));
        let (name, limit) = below.first()?;
        let (rps, tenants) = (self.rps, self.tenants);
        let others = if below.len() > 1 {
            format!(" and {} more", below.len() - 1)
        } else {
            String::new()
        };
        let message = format!(
            "{rps} requests/s for each of {tenants} tenants is {sum}, above the limit of {limit} of {name}{others}: \
             if all of them ask, the floors are not met but divided by weight"
        );
        Some(Warning {
            message,
            ..self.place
        })
    }
}
