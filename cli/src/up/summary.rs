//! The rates of each bucket over the last seconds of a run, from cumulative counts.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use plimsoll_controller::admin::status::{BucketStatus, Status, Traffic};
use plimsoll_core::decision::{Mode, ShownMode};
use serde::Serialize;

use crate::load::Figures;

/// The controller's statuses of the last seconds.
#[derive(Debug)]
pub(super) struct Window {
    span: Duration,
    /// By time since the start, ascending.
    statuses: VecDeque<(Duration, Status)>,
}

/// The result of `plimsoll up`.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Summary {
    /// Length of the run in seconds.
    pub(super) duration_s: f64,
    /// Seconds that the rates are averaged over.
    pub(super) window_s: f64,
    /// Rates by bucket.
    pub(super) buckets: BTreeMap<String, Line>,
    /// Outcomes of the requests of the whole run; null without a demo.
    pub(super) load: Option<Figures>,
}

/// The rates of a bucket, or of one tenant of it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Line {
    /// Limit in requests/s; null without a limit, and for a tenant.
    pub(super) limit_rps: Option<f64>,
    /// Requests/s offered.
    pub(super) offered_rps: f64,
    /// Requests/s admitted.
    pub(super) admitted_rps: f64,
    /// Refused requests over offered ones; null without a limit, and in shadow.
    pub(super) drop_ratio: Option<f64>,
    /// In shadow, requests that would have been refused over offered ones; null without a limit.
    pub(super) would_drop_ratio: Option<f64>,
    /// Mode in force.
    pub(super) mode: ShownMode,
    /// Rates by tenant class; absent for a tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tenants: Option<BTreeMap<String, Line>>,
}

impl Window {
    pub(super) const fn new(span: Duration) -> Self {
        Self { span, statuses: VecDeque::new() }
    }

    /// Adds a status, and drops those that are older than the span.
    pub(super) fn push(&mut self, at: Duration, status: &Status) {
        self.statuses.push_back((at, status.clone()));
        while self.statuses.get(1).is_some_and(|(second, _)| at.saturating_sub(*second) > self.span) {
            self.statuses.pop_front();
        }
    }

    /// The average rates over the last `span`, or over the whole run if it is shorter; and the seconds
    /// averaged over.
    pub(super) fn lines(&self, span: Duration) -> (f64, BTreeMap<String, Line>) {
        let Some(newest @ (end, last)) = self.statuses.back() else { return (0.0, BTreeMap::new()) };
        let off = |at: &Duration| end.saturating_sub(*at).abs_diff(span);
        let (begin, first) = self.statuses.iter().min_by_key(|(at, _)| off(at)).unwrap_or(newest);
        let seconds = (*end - *begin).as_secs_f64();
        let buckets = last.buckets.iter().map(|(name, bucket)| {
            let before = first.buckets.get(name);
            let tenants = bucket.tenants.iter().map(|(tenant, traffic)| {
                let before = before.and_then(|before| before.tenants.get(tenant));
                (tenant.to_string(), average(bucket, traffic, before, seconds))
            });
            let tenants = Some(tenants.collect());
            let line = average(bucket, &bucket.traffic, before.map(|before| &before.traffic), seconds);
            (name.to_string(), Line { limit_rps: bucket.limit_rps, tenants, ..line })
        });
        (seconds, buckets.collect())
    }

    /// The result of a run.
    pub(super) fn summary(&self, ran: Duration, load: Option<Figures>) -> Summary {
        let (window_s, buckets) = self.lines(self.span);
        Summary { duration_s: ran.as_secs_f64(), window_s, buckets, load }
    }
}

/// The rates of the traffic of a bucket, or of one tenant of it, since `before`.
fn average(bucket: &BucketStatus, now: &Traffic, before: Option<&Traffic>, seconds: f64) -> Line {
    let before = before.copied().unwrap_or_default();
    let rate =
        |now: u64, before: u64| if seconds > 0.0 { now.saturating_sub(before) as f64 / seconds } else { 0.0 };
    let offered_rps = rate(now.offered, before.offered);
    let refused = rate(now.dropped + now.would_dropped, before.dropped + before.would_dropped);
    let share = if offered_rps > 0.0 { refused / offered_rps } else { 0.0 };
    Line {
        limit_rps: None,
        offered_rps,
        admitted_rps: rate(now.admitted, before.admitted),
        drop_ratio: bucket.limit_rps.filter(|_| bucket.mode != Mode::Shadow).map(|_| share),
        would_drop_ratio: bucket.limit_rps.filter(|_| bucket.mode == Mode::Shadow).map(|_| share),
        mode: bucket.mode,
        tenants: None,
    }
}
