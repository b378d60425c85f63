//! The rates of each bucket over the last seconds of a run, from cumulative counts, for the tables and the result of
//! `plimsoll up`.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use plimsoll_controller::admin::status::{BucketStatus, Traffic};
use plimsoll_core::decision::{Mode, Reason, ShownMode};
use plimsoll_core::names::Bucket;
use serde::Serialize;

use crate::load::Figures;

/// Controller's bucket statuses of the last seconds.
#[derive(Debug)]
pub(super) struct Window {
    /// Maximum span of a summary.
    span: Duration,
    /// By time since the start, ascending.
    statuses: VecDeque<(Duration, BTreeMap<Bucket, BucketStatus>)>,
}

/// Result of `plimsoll up`.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Summary {
    /// Length of the run in seconds.
    pub(super) duration_s: f64,
    /// Seconds that the rates are averaged over.
    pub(super) window_s: f64,
    pub(super) buckets: BTreeMap<String, Line>,
    /// Outcomes of the requests of the whole run; null without a demo.
    pub(super) load: Option<Figures>,
}

/// Rates of a bucket, or of one of its tenants.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Line {
    /// Mean of the limit over the window, in requests/s; null if there was none at some time, and for a
    /// tenant.
    pub(super) limit_rps: Option<f64>,
    /// Requests/s offered, including requests that were refused from memory of a quota's refusal.
    pub(super) offered_rps: f64,
    pub(super) admitted_rps: f64,
    /// Requests/s that exact quotas refused.
    pub(super) quota_refused_rps: f64,
    /// Refused requests over offered ones, including refusals that were only counted, as in canary; null without a
    /// limit, and in shadow.
    pub(super) drop_ratio: Option<f64>,
    /// In shadow, requests that would have been refused over offered ones; null without a limit.
    pub(super) would_drop_ratio: Option<f64>,
    /// Reasons of refusals, the limit's first.
    pub(super) reasons: Vec<Reason>,
    pub(super) mode: ShownMode,
    /// Rates by tenant class; absent for a tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tenants: Option<BTreeMap<String, Line>>,
}

impl Window {
    pub(super) const fn new(span: Duration) -> Self {
        Self {
            span,
            statuses: VecDeque::new(),
        }
    }

    /// Adds a status. Keeps the newest one that is older than the span, so that the span is covered.
    pub(super) fn push(&mut self, at: Duration, buckets: &BTreeMap<Bucket, BucketStatus>) {
        self.statuses.push_back((at, buckets.clone()));
        while self
            .statuses
            .get(1)
            .is_some_and(|(second, _)| at.saturating_sub(*second) > self.span)
        {
            self.statuses.pop_front();
        }
    }

    /// Returns the seconds of the average and the average rates over the last `span`, or over the
    /// whole run if it is shorter.
    fn lines(&self, span: Duration) -> (f64, BTreeMap<String, Line>) {
        let Some(newest @ (end, last)) = self.statuses.back() else {
            return (0.0, BTreeMap::new());
        };
        let off = |at: &Duration| end.saturating_sub(*at).abs_diff(span);
        let (begin, first) = self
            .statuses
            .iter()
            .min_by_key(|(at, _)| off(at))
            .unwrap_or(newest);
        let seconds = (*end - *begin).as_secs_f64();
        let buckets = last.iter().map(|(name, bucket)| {
            let before = first.get(name);
            let tenants = bucket.tenants.iter().map(|(tenant, traffic)| {
                let before = before.and_then(|before| before.tenants.get(tenant));
                (
                    tenant.to_string(),
                    average(bucket, traffic, before, seconds),
                )
            });
            let tenants = Some(tenants.collect());
            let line = average(
                bucket,
                &bucket.traffic,
                before.map(|before| &before.traffic),
                seconds,
            );
            (name.to_string(), Line { tenants, ..line })
        });
        (seconds, buckets.collect())
    }

    /// Returns the mean of a bucket's limits, because earlier requests were admitted under earlier
    /// limits. `None` if it had none at some time of the last `window_s` seconds.
    fn mean_limit(&self, bucket: &str, window_s: f64) -> Option<f64> {
        let (end, last) = self.statuses.back()?;
        let last_rps = last.get(bucket)?.limit_rps?;
        let of_window = self
            .statuses
            .iter()
            .filter(|(at, _)| (*end - *at).as_secs_f64() <= window_s);
        let ends = of_window.clone().skip(1).map(|(at, _)| *at).chain([*end]);
        // Sums differences, so that the mean of a limit that never changed is exact.
        let (mut above, mut seconds) = (0.0, 0.0);
        for ((at, buckets), until) in of_window.zip(ends) {
            let span = (until - *at).as_secs_f64();
            above += (buckets.get(bucket)?.limit_rps? - last_rps) * span;
            seconds += span;
        }
        (seconds > 0.0).then(|| last_rps + above / seconds)
    }

    /// Returns the result of a run, over its last `span`.
    pub(super) fn summary(&self, ran: Duration, span: Duration, load: Option<Figures>) -> Summary {
        let (window_s, mut buckets) = self.lines(span);
        for (name, line) in &mut buckets {
            line.limit_rps = self.mean_limit(name, window_s);
        }
        Summary {
            duration_s: ran.as_secs_f64(),
            window_s,
            buckets,
            load,
        }
    }
}

/// Returns the rates of the traffic of a bucket, or of one of its tenants, since `before`.
fn average(bucket: &BucketStatus, now: &Traffic, before: Option<&Traffic>, seconds: f64) -> Line {
    let before = before.copied().unwrap_or_default();
    let rate = |now: u64, before: u64| {
        if seconds > 0.0 {
            now.saturating_sub(before) as f64 / seconds
        } else {
            0.0
        }
    };
    let offered_rps = rate(asked(now), asked(&before));
    let by_limit = rate(
        now.dropped + now.guard_dropped,
        before.dropped + before.guard_dropped,
    );
    let by_quotas = rate(by_quotas(now), by_quotas(&before));
    let refused = rate(refused(now), refused(&before));
    let share = if offered_rps > 0.0 {
        refused / offered_rps
    } else {
        0.0
    };
    let share = bucket.limit_rps.map(|_| share);
    let is_shadow = bucket.mode == Mode::Shadow;
    Line {
        limit_rps: None,
        offered_rps,
        admitted_rps: rate(now.admitted, before.admitted),
        quota_refused_rps: by_quotas,
        drop_ratio: share.filter(|_| !is_shadow),
        would_drop_ratio: share.filter(|_| is_shadow),
        reasons: [
            now.drop_reason
                .or(Some(Reason::ClusterOverload))
                .filter(|_| by_limit > 0.0),
            Some(Reason::TenantQuotaExceeded).filter(|_| by_quotas > 0.0),
        ]
        .into_iter()
        .flatten()
        .collect(),
        mode: bucket.mode,
        tenants: None,
    }
}

/// Includes requests that were refused from memory.
const fn asked(traffic: &Traffic) -> u64 {
    traffic.offered + traffic.quota_repeated
}

const fn by_quotas(traffic: &Traffic) -> u64 {
    traffic.quota_dropped + traffic.quota_repeated
}

/// Includes requests that would have been refused in enforce.
const fn refused(traffic: &Traffic) -> u64 {
    traffic.dropped
        + traffic.guard_dropped
        + traffic.would_dropped
        + by_quotas(traffic)
        + traffic.would_quota_dropped
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes an enforced bucket with a limit of 100, and these counts.
    fn bucket(counts: &[(&str, u64)]) -> BucketStatus {
        let mut status = serde_json::json!({
            "entry": "b", "limit_rps": 100.0, "learned": null, "queried": null, "mode": "enforce", "killed": false,
            "file_mode": "enforce", "pending_mode": null, "balance": 0.0, "released_rps": 0.0, "candidate": null,
            "clients_unapplied": 0, "latency_unreported": false, "unheard_rps": 0.0, "quota_dropped_rps": 0.0,
            "quota_repeated_rps": 0.0, "quota_dropped": 0, "would_quota_dropped": 0, "quota_repeated": 0,
            "tenants": {}, "offered_rps": 0.0, "allocated_rps": 0.0, "law_ratio": null, "drop_reason": null, "offered": 0, "admitted": 0, "dropped": 0, "guard_dropped": 0, "would_dropped": 0,
        });
        for (name, count) in counts {
            status[name] = (*count).into();
        }
        serde_json::from_value(status).unwrap()
    }

    #[test]
    fn summary_judges_by_the_limits_then_current() {
        let mut window = Window::new(Duration::from_secs(20));
        for (at_s, admitted, limit_rps) in [
            (0, 0, Some(300.0)),
            (1, 300, Some(300.0)),
            (2, 600, Some(100.0)),
            (3, 700, Some(100.0)),
            (4, 800, Some(100.0)),
        ] {
            let status = BucketStatus {
                limit_rps,
                ..bucket(&[("admitted", admitted)])
            };
            window.push(
                Duration::from_secs(at_s),
                &[(Bucket::new("b").unwrap(), status)].into(),
            );
        }
        let line = |window: &Window| {
            window
                .summary(Duration::from_secs(9), window.span, None)
                .buckets["b"]
                .clone()
        };
        assert_eq!(
            (line(&window).admitted_rps, line(&window).limit_rps),
            (200.0, Some(200.0))
        );
        window.push(
            Duration::from_secs(5),
            &[(
                Bucket::new("b").unwrap(),
                BucketStatus {
                    limit_rps: None,
                    ..bucket(&[])
                },
            )]
            .into(),
        );
        assert_eq!(line(&window).limit_rps, None);
    }

    #[test]
    fn refusals_show_the_reason_of_their_layer() {
        let (limit, quota) = (Reason::ClusterOverload, Reason::TenantQuotaExceeded);
        for (counts, offered, by_quotas, drop_ratio, reasons) in [
            (
                &[("offered", 100), ("admitted", 100)][..],
                10.0,
                0.0,
                0.0,
                vec![],
            ),
            (
                &[("offered", 100), ("admitted", 60), ("dropped", 40)],
                10.0,
                0.0,
                0.4,
                vec![limit],
            ),
            (
                &[("offered", 100), ("admitted", 62), ("guard_dropped", 38)],
                10.0,
                0.0,
                0.38,
                vec![limit],
            ),
            (
                &[("offered", 100), ("admitted", 70), ("quota_dropped", 30)],
                10.0,
                3.0,
                0.3,
                vec![quota],
            ),
            (
                &[
                    ("offered", 50),
                    ("admitted", 40),
                    ("dropped", 10),
                    ("quota_repeated", 50),
                ],
                10.0,
                5.0,
                0.6,
                vec![limit, quota],
            ),
        ] {
            let bucket = bucket(counts);
            let line = average(&bucket, &bucket.traffic, None, 10.0);
            assert_eq!(
                (line.offered_rps, line.quota_refused_rps),
                (offered, by_quotas),
                "{counts:?}"
            );
            assert_eq!(
                (line.drop_ratio, line.reasons),
                (Some(drop_ratio), reasons),
                "{counts:?}"
            );
        }
    }
}
