//! Refusals of a bucket by reason, from counts: the ratio of the law shows neither guards nor quotas.

use std::collections::VecDeque;
use std::time::Duration;

use plimsoll_core::names::Tenant;
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::report::Counts;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::BucketState;

const SECOND: Duration = Duration::from_secs(1);
/// Number of seconds kept, and of minutes' halves.
const SECONDS_MAX: usize = 10;
const HALVES_MAX: usize = 10;
/// The seconds that a half of a minute has.
const HALF: usize = 30;

/// The requests of one bucket over a time, and the reason of each refusal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Refusals {
    /// The time in seconds.
    pub span_s: f64,
    /// Requests that arrived, those refused before they were offered included.
    pub asked: u64,
    /// Requests that the coin refused because more is offered than the bucket's limit.
    pub cluster_overload: u64,
    /// Requests that the coin refused while their tenant was at its own limit.
    pub tenant_limit: u64,
    /// Requests that guards refused.
    pub burst_guard: u64,
    /// Requests that an exact quota refused, or its store that does not answer.
    pub quota: u64,
    /// Requests refused from the memory of a quota's refusal.
    pub quota_repeated: u64,
    /// Refusals decided but not carried out: in shadow, while killed, outside the canary.
    pub would_refuse: u64,
    /// Requests that their callers marked as sent again.
    #[serde(default)]
    pub retried: u64,
}

/// The refusals of the last 10 s in seconds, and of the last five minutes in halves of a minute. Empty without requests.
#[derive(Debug, Default)]
pub(crate) struct RefusalRecord {
    open: Refusals,
    began: Option<MonoTime>,
    /// Newest first.
    seconds: VecDeque<Refusals>,
    /// Newest first; the first one is not full yet.
    halves: VecDeque<Refusals>,
    /// Seconds in the first one.
    filled: usize,
}

// === impl Refusals ===

impl Refusals {
    /// A lower share is shown as no refusals: it would be rounded to 0.0 %.
    pub const SHOWN_MIN: f64 = 0.000_5;

    fn of(counts: Counts, at_tenant_limit: bool) -> Self {
        let (overload, limit) = match at_tenant_limit {
            true => (0, counts.dropped),
            false => (counts.dropped, 0),
        };
        Self {
            span_s: 0.0,
            asked: counts.asked(),
            cluster_overload: overload,
            tenant_limit: limit,
            burst_guard: counts.guard_dropped,
            quota: counts.quota_dropped,
            quota_repeated: counts.quota_repeated,
            would_refuse: counts.would_dropped + counts.would_quota_dropped,
            retried: counts.retried,
        }
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        let (own, others) = (self.counts(), other.counts());
        let sums = std::array::from_fn(|at| own[at] + others[at]);
        Self::new(self.span_s + other.span_s, sums)
    }

    /// The counts, in the order of the fields.
    pub(super) const fn counts(&self) -> [u64; 8] {
        [
            self.asked,
            self.cluster_overload,
            self.tenant_limit,
            self.burst_guard,
            self.quota,
            self.quota_repeated,
            self.would_refuse,
            self.retried,
        ]
    }

    pub(super) const fn new(span_s: f64, counts: [u64; 8]) -> Self {
        let [
            asked,
            cluster_overload,
            tenant_limit,
            burst_guard,
            quota,
            quota_repeated,
            would_refuse,
            retried,
        ] = counts;
        Self {
            span_s,
            asked,
            cluster_overload,
            tenant_limit,
            burst_guard,
            quota,
            quota_repeated,
            would_refuse,
            retried,
        }
    }

    /// Returns the reasons with their shares, the greatest first.
    pub fn reasons(&self) -> Vec<(&'static str, f64)> {
        let each = [
            ("overload", self.cluster_overload),
            ("tenant limit", self.tenant_limit),
            ("guard", self.burst_guard),
            ("quota", self.quota),
            ("repeated quota refusal", self.quota_repeated),
        ];
        let each = each.map(|(reason, count)| (reason, self.share(count)));
        let mut shares: Vec<_> = each
            .into_iter()
            .filter(|(_, share)| *share >= Self::SHOWN_MIN)
            .collect();
        shares.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        shares
    }

    /// Returns the requests that were refused, for any reason.
    pub const fn refused(&self) -> u64 {
        let of_coin = self.cluster_overload + self.tenant_limit;
        of_coin + self.burst_guard + self.quota + self.quota_repeated
    }

    /// Returns the share of the requests that were refused; 0 without requests, like the shares below.
    pub fn ratio(&self) -> f64 {
        self.share(self.refused())
    }

    /// Returns the share of the requests with a refusal that was not carried out.
    pub fn would_ratio(&self) -> f64 {
        self.share(self.would_refuse)
    }

    /// Returns the share of the requests that were sent again.
    pub fn retried_ratio(&self) -> f64 {
        self.share(self.retried)
    }

    /// Returns a count of these requests per second.
    pub fn per_second(&self, count: u64) -> f64 {
        if self.span_s > 0.0 {
            count as f64 / self.span_s
        } else {
            0.0
        }
    }

    fn share(&self, count: u64) -> f64 {
        count as f64 / self.asked.max(1) as f64
    }
}

// === impl RefusalRecord ===

impl RefusalRecord {
    /// Adds requests that were just reported.
    pub(crate) fn add(&mut self, refusals: Refusals) {
        self.open = self.open.plus(refusals);
    }

    /// Ends a second if one is over.
    pub(super) fn on_tick(&mut self, now: MonoTime) {
        let span = now.since(*self.began.get_or_insert(now));
        if span < SECOND {
            return;
        }
        self.began = Some(now);
        let second = Refusals {
            span_s: span.as_secs_f64(),
            ..std::mem::take(&mut self.open)
        };
        if second.asked == 0 && self.last_5_min().asked == 0 {
            (self.seconds, self.halves, self.filled) = Default::default();
            return;
        }
        self.seconds.truncate(SECONDS_MAX - 1);
        self.seconds.push_front(second);
        match self.halves.front_mut().filter(|_| self.filled < HALF) {
            Some(half) => *half = half.plus(second),
            None => {
                self.halves.truncate(HALVES_MAX - 1);
                self.halves.push_front(second);
                self.filled = 0;
            }
        }
        self.filled += 1;
    }

    /// Returns the refusals of the last 3 s: as soon as people look for them, and over several reports.
    pub(crate) fn last_3_s(&self) -> Refusals {
        sum(self.seconds.iter().take(3))
    }

    /// Returns the refusals of the last 10 s.
    pub(crate) fn last_10_s(&self) -> Refusals {
        sum(self.seconds.iter())
    }

    /// Returns the refusals of the last five minutes, half a minute less where it has just ended one.
    pub(crate) fn last_5_min(&self) -> Refusals {
        sum(self.halves.iter())
    }
}

fn sum<'a>(parts: impl Iterator<Item = &'a Refusals>) -> Refusals {
    parts.fold(Refusals::default(), |sum, part| sum.plus(*part))
}

// === impl BucketState ===

impl BucketState {
    /// Judges the last seconds: whether the fleet admits what the limit of the bucket allows, from the counts of all
    /// zones. Ends a second of the refusals, too. `divisible` is the rate that is divided between zones, `None` while
    /// not all of them live on rates and report, and while the bucket is killed. Counts do not distinguish refusals of
    /// a tenant limit, so a bucket with a tenant limit is not judged.
    pub(crate) fn check_admissions(&mut self, now: MonoTime, divisible: Option<f64>) {
        let is_judged = !self.tenants.have_limits();
        self.admissions
            .on_tick(now, |_| divisible.filter(|rate| is_judged && *rate > 0.0));
        self.refusals.on_tick(now);
    }

    /// Adds the requests of a tenant that were just reported, and returns them by reason.
    pub(crate) fn note_refusals(&mut self, tenant: &Tenant, counts: Counts) -> Refusals {
        let is_at_limit = counts.dropped > 0
            && self
                .share_of(tenant)
                .is_some_and(|share| share.at_tenant_limit);
        let refusals = Refusals::of(counts, is_at_limit);
        self.refusals.add(refusals);
        refusals
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: u64) -> MonoTime {
        MonoTime::from_elapsed(Duration::from_secs(s))
    }

    fn guarded(guard_dropped: u64) -> Counts {
        Counts {
            offered: 100,
            guard_dropped,
            ..Counts::ZERO
        }
    }

    #[test]
    fn two_windows_tell_now_from_before() {
        let mut record = RefusalRecord::default();
        record.on_tick(at(0));
        for s in 1..=200 {
            record.add(Refusals::of(guarded(if s <= 190 { 10 } else { 38 }), false));
            record.on_tick(at(s));
        }
        assert_eq!(record.last_10_s().ratio(), 0.38);
        assert_eq!(record.last_10_s().span_s, 10.0);
        assert_eq!(record.last_10_s().per_second(380), 38.0);
        assert_eq!(record.last_5_min().ratio(), 0.114);
        (201..=1_000).for_each(|s| record.on_tick(at(s)));
        assert_eq!(record.last_5_min(), Refusals::default());
        assert!(record.seconds.is_empty() && record.halves.is_empty());
    }

    #[test]
    fn long_window_is_bounded() {
        let mut record = RefusalRecord::default();
        record.on_tick(at(0));
        for s in 1..=1_000 {
            record.add(Refusals::of(guarded(1), false));
            record.on_tick(at(s));
        }
        let span_s = record.last_5_min().span_s;
        assert!((271.0..=300.0).contains(&span_s), "{span_s}");
    }

    #[test]
    fn every_reason_has_its_share() {
        let mut record = RefusalRecord::default();
        record.on_tick(at(0));
        let counts = Counts {
            offered: 90,
            dropped: 10,
            guard_dropped: 20,
            quota_dropped: 5,
            quota_repeated: 10,
            would_dropped: 25,
            ..Counts::ZERO
        };
        record.add(Refusals::of(counts, false));
        record.add(Refusals::of(counts, true));
        record.on_tick(at(1));
        let expected = [
            ("guard", 0.2),
            ("repeated quota refusal", 0.1),
            ("overload", 0.05),
            ("tenant limit", 0.05),
            ("quota", 0.05),
        ];
        assert_eq!(record.last_10_s().reasons(), expected);
        assert_eq!(record.last_10_s().ratio(), 0.45);
        assert_eq!(record.last_10_s().would_ratio(), 0.25);
    }
}
