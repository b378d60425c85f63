//! Check that the zone admits as much of each bucket as it may, from the counts of its children.

use std::time::Duration;

use plimsoll_core::directive::Posted;
use plimsoll_core::names::{Bucket, DEFAULT_TENANT, Key, KeyId, Tenant};
use plimsoll_core::quantity::{MonoTime, Rate};
use plimsoll_core::report::Counts;
use plimsoll_core::stats::{AdmissionCheck, AdmissionFigures};

use super::Zone;
use crate::key_counts::KeyCounts;

const EVERY: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Admissions {
    /// One check for each bucket, by the bucket's number in `KeyCounts`.
    checks: Vec<AdmissionCheck>,
    checked: MonoTime,
}

impl Admissions {
    pub(super) fn add(&mut self, keys: &KeyCounts, entries: impl Iterator<Item = (KeyId, Counts)>) {
        for (id, counts) in entries {
            let bucket = keys.bucket_of(id);
            if self.checks.len() <= bucket {
                self.checks.resize_with(bucket + 1, AdmissionCheck::default);
            }
            self.checks[bucket].add(counts);
        }
    }
}

impl Zone {
    pub(super) fn check_admissions(&mut self, now: MonoTime) {
        if now.since(self.admissions.checked) < EVERY {
            return;
        }
        self.admissions.checked = now;
        let withholds = self.warmup.withholds();
        let mut may_pass_by_place = vec![None; self.admissions.checks.len()];
        for (bucket, posted) in self.board.iter() {
            let place = self.keys.bucket_place(bucket);
            let is_judged = !withholds && !self.kills.kills().of(bucket).is_on();
            if let Some(most) = place.and_then(|place| may_pass_by_place.get_mut(place)) {
                *most = is_judged.then(|| may_pass(posted)).flatten();
            }
        }
        // Also of buckets without directives: their counts are of no later second.
        let checks = self.admissions.checks.iter_mut();
        for (check, most) in checks.zip(may_pass_by_place) {
            check.on_tick(now, |_| most);
        }
    }

    /// The share of a bucket's requests that directives tell clients to refuse, without guards; `None` without a ratio.
    pub(crate) fn law_ratio(&self, bucket: &Bucket) -> Option<f64> {
        let posted = self.downstream.client_board.get(bucket)?;
        // The posted ratio of a class is for names that clients do not know; `tails` holds the ratio of the whole class.
        let of_class = |tenant: &Tenant| {
            let class = Key {
                bucket: bucket.clone(),
                tenant: Some(tenant).filter(|tenant| tenant.is_class())?.clone(),
            };
            self.fast_loop.tails.ratio(self.keys.line(&class)?)
        };
        // Names near their limit are in the counts of their class.
        let listed = self.board.get(bucket);
        let is_listed =
            |tenant: &Tenant| listed.is_some_and(|it| it.own(tenant.as_str()).is_some());
        let keys = posted.keys().filter(|(tenant, _)| is_listed(tenant));
        let keys = keys.filter_map(|(tenant, values)| {
            let ratio = of_class(tenant).or(values.ratio)?;
            Some((values.offered?.per_second(), ratio))
        });
        let (offered, refused) = keys.fold((0.0, 0.0), |(offered, refused), (rate, ratio)| {
            (offered + rate, refused + rate * ratio.as_f64())
        });
        let default = || Some(posted.own(DEFAULT_TENANT)?.ratio?.as_f64());
        if offered > 0.0 {
            Some(refused / offered)
        } else {
            default()
        }
    }

    /// Returns what the counts of the last seconds show of a bucket.
    pub fn admission_figures(&self, bucket: &Bucket) -> AdmissionFigures {
        let check = self
            .keys
            .bucket_place(bucket)
            .and_then(|place| self.admissions.checks.get(place));
        check.map(AdmissionCheck::figures).unwrap_or_default()
    }
}

/// The zone's part of the limit, which the controller sends with its rates. The sum of the rates is
/// more: keys without traffic have rates, too. `None` without a part, and for a bucket with a
/// tenant limit: counts do not distinguish its refusals.
fn may_pass(posted: &Posted) -> Option<f64> {
    let terms = posted.terms();
    terms
        .limit
        .per_second()
        .filter(|limit| *limit > Rate::ZERO)?;
    if posted.keys().any(|(_, values)| {
        values
            .entitlement
            .is_some_and(|of| of.tenant_limit.is_some())
    }) {
        return None;
    }
    terms.hold.map(Rate::per_second)
}
