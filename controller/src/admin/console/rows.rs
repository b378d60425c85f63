//! The lines of the console: a bucket in a list, the bucket that a viewer looks at, and its tenants. Names are those of
//! `/status`.

use plimsoll_admin::kill_api::KillState;
use plimsoll_core::decision::{Mode, ShownMode};
use plimsoll_core::kill::Scope;
use plimsoll_core::names::{Bucket, Tenant};
use plimsoll_core::quantity::MonoTime;
use serde::Serialize;

use super::view::{Page, View};
use crate::admin::kill_routes::kill_state;
use crate::admin::rollout_routes::EntryStatus;
use crate::admin::status::{BucketStatus, TenantGrants};
use crate::brain::Brain;
use crate::bucket::{Refusals, Share};

/// Maximum number of points in the past of a bucket, each of 10 s.
const POINTS_MAX: usize = 60;

/// A point: its time in seconds since 1970, requests/s that arrived and that were admitted, and the limit.
pub(super) type Point = (i64, f64, f64, Option<f64>);

/// A bucket in a list.
#[derive(Clone, Debug, Serialize)]
pub(super) struct BucketRow {
    pub(super) name: Bucket,
    entry: Option<String>,
    mode: ShownMode,
    pending_mode: Option<Mode>,
    /// The result of the gate to the next stage.
    gate: Option<String>,
    killed: bool,
    limit_rps: Option<f64>,
    /// Of the last 3 s, like the others.
    pub(super) offered_rps: f64,
    admitted_rps: f64,
    would_refuse_rps: f64,
    /// The last ten minutes; absent where the viewer has them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    history: Vec<Point>,
}

/// The bucket that a viewer looks at.
#[derive(Debug, Serialize)]
pub(super) struct BucketDetail {
    row: BucketRow,
    status: BucketStatus,
    /// The stage, the gate and its evidence; null for a bucket without an entry.
    rollout: Option<EntryStatus>,
    kill: KillState,
    tenants: Page<TenantRow>,
}

/// A tenant of that bucket.
#[derive(Debug, Serialize)]
pub(super) struct TenantRow {
    tenant: Tenant,
    offered_rps: f64,
    /// Its share of the limit; 0 without one, like the ratio.
    allocated_rps: f64,
    law_ratio: f64,
    at_tenant_limit: bool,
    grants: TenantGrants,
}

// === impl BucketRow ===

impl BucketRow {
    pub(super) fn of(name: &Bucket, status: &BucketStatus, recent: &Refusals) -> Self {
        Self {
            name: name.clone(),
            entry: status.entry.clone(),
            mode: status.mode,
            pending_mode: status.pending_mode,
            gate: None,
            killed: status.killed,
            limit_rps: status.limit_rps,
            offered_rps: recent.per_second(recent.asked),
            admitted_rps: admitted(recent),
            would_refuse_rps: recent.per_second(recent.would_refuse),
            history: Vec::new(),
        }
    }

    /// The order of the worst buckets, greater for a worse one: killed ones, then by refused requests/s.
    pub(super) fn badness(&self) -> (bool, u64) {
        (
            self.killed,
            (self.offered_rps - self.admitted_rps).max(0.0) as u64,
        )
    }

    /// Adds what is only read for the rows that are shown.
    pub(super) fn complete(mut self, brain: &Brain, now: MonoTime, with_history: bool) -> Self {
        self.gate = entry_status(brain, now, &self.name).and_then(|entry| entry.gate);
        if with_history {
            let parts = brain.buckets.refusals.latest(POINTS_MAX);
            let point = parts.map(|part| match part.bucket(&self.name) {
                Some(of) => {
                    let all = of.all();
                    let offered = all.per_second(all.asked);
                    (part.at_s, offered, admitted(&all), of.limit_rps())
                }
                None => (part.at_s, 0.0, 0.0, None),
            });
            self.history = point.collect();
        }
        self
    }
}

// === impl BucketDetail ===

impl BucketDetail {
    /// Returns `None` for a bucket that is not known.
    pub(super) fn of(
        brain: &Brain,
        now: MonoTime,
        view: &View,
        (row, status): (BucketRow, BucketStatus),
    ) -> Option<Self> {
        let state = brain.buckets.states.get(&row.name)?;
        let total = state.shares().count();
        let mut found: Vec<(&Tenant, &Share)> = state
            .shares()
            .filter(|(tenant, _)| tenant.as_str().contains(&view.tenant))
            .collect();
        // By refused requests/s, and those without by what they offer.
        let order = |share: &Share| share.offered * (share.law_ratio().unwrap_or_default() + 1e-9);
        found.sort_by(|(_, one), (_, other)| order(other).total_cmp(&order(one)));
        let tenants = Page::cut(total, found, view.tenant_page, |(tenant, share)| {
            TenantRow {
                tenant: tenant.clone(),
                offered_rps: share.offered,
                allocated_rps: share.allocation,
                law_ratio: share.law_ratio().unwrap_or_default(),
                at_tenant_limit: share.at_tenant_limit,
                grants: TenantGrants::in_bucket(brain.policy(), &row.name, tenant),
            }
        });
        Some(Self {
            rollout: entry_status(brain, now, &row.name),
            kill: kill_state(brain, &Scope::Bucket(row.name.clone())),
            row,
            status,
            tenants,
        })
    }
}

fn admitted(of: &Refusals) -> f64 {
    of.per_second(of.asked.saturating_sub(of.refused()))
}

fn entry_status(brain: &Brain, now: MonoTime, bucket: &Bucket) -> Option<EntryStatus> {
    let entry = brain.buckets.states.get(bucket)?.entry.as_deref()?;
    EntryStatus::of(brain, now, entry, brain.policy().bucket(bucket)?)
}
