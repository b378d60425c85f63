//! The answer of `/status`: the controller's view of the fleet.

mod bucket;
pub(super) mod catalogue;
mod grants;
mod policies;
mod problems;
mod source;
pub mod why;

pub use bucket::{BucketStatus, CandidateStatus, Queried, Traffic};
pub(super) use catalogue::routes as catalogue_routes;
pub use catalogue::{CatalogueStatus, RowGrants};
pub use grants::{QuotaStatus, TenantGrants};
pub use policies::{HeldStatus, Policies};
pub(crate) use problems::counted;
pub use problems::{Problem, security_problems};
pub(crate) use source::StatusSource;

use std::collections::BTreeMap;

use plimsoll_admin::access::Role;
use plimsoll_admin::kill_api::{Claimed, KillStatus};
use plimsoll_admin::other_controllers::OtherController;
use plimsoll_admin::rejected_streams::RefusedChild;
use plimsoll_admin::security::SecurityStatus;
use plimsoll_core::names::Bucket;
use plimsoll_core::quantity::MonoTime;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use super::aggregators::AggregatorStatus;
use crate::brain::Brain;
pub use crate::bucket::Refusals;
use crate::members::MembersStatus;

/// The state of the fleet at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    /// `no problems` with the summary, or the number of problems with their subjects.
    #[serde(default)]
    pub verdict: String,
    /// Buckets, zones and clients, and what was refused in the last 10 s.
    #[serde(default)]
    pub summary: String,
    /// What is wrong, the worst first.
    #[serde(default)]
    pub problems: Vec<Problem>,
    /// The version of the controller.
    #[serde(default)]
    pub version: String,
    /// The role of the caller.
    #[serde(default)]
    pub role: Option<Role>,
    /// The controller's epoch.
    pub epoch: u64,
    /// The controller's process, as directives name it.
    pub instance: String,
    /// The controller that leads in place of this one, which then sends no values; null unless another one does.
    pub lost_lead: Option<OtherController>,
    /// The controllers of which this one leads; null without a store.
    #[serde(default)]
    pub members: Option<MembersStatus>,
    /// Other controllers that aggregators and clients name.
    pub other_controllers: Vec<OtherController>,
    /// Aggregators, and other processes, that are refused again and again.
    pub refused_children: Vec<RefusedChild>,
    /// The certificates and tokens of this controller.
    pub security: SecurityStatus,
    /// The hash of the current policy.
    pub policy_hash: String,
    /// The catalogue of tenants; null without one.
    #[serde(default)]
    pub catalogue: Option<CatalogueStatus>,
    /// The kill generation; odd means killed.
    pub kill_generation: u64,
    /// True while the kill switch is on: no client refuses.
    pub killed: bool,
    /// Connected clients that a kill file stops from refusing. A client of several
    /// aggregators counts at each of them.
    pub killed_locally: u32,
    /// Connected clients whose store of exact quotas does not answer, counted in the same way.
    #[serde(default)]
    pub quota_store_down: u32,
    /// Kill generations that aggregators or clients hold without an order; they kill nothing elsewhere.
    pub kill_claims: Vec<Claimed>,
    /// Buckets without room, at most 64: they are unprotected, regardless of the policy.
    pub unprotected: Vec<Bucket>,
    /// The latest names of buckets that clients ask for and the policy does not cover, at most 64.
    pub unlisted: Vec<UnlistedStatus>,
    /// True while the controller sends its own rates; false during a takeover, before the first traffic, and once the lead is
    /// lost.
    pub leading: bool,
    /// The reason why the state differs from the state that the fleet knew, until an operator
    /// acknowledges it; null if it does not.
    pub state_lost: Option<String>,
    /// Connected clients, as their aggregators report them.
    pub clients: u32,
    /// Why the state cannot be saved; null if it can.
    pub state_unsaved: Option<String>,
    /// True while the audit log cannot be written, so that whatever adds refusals is refused.
    #[serde(default)]
    pub audit_failing: bool,
    /// Every known bucket.
    pub buckets: BTreeMap<Bucket, BucketStatus>,
    /// Every aggregator that reported, is waited for, or has expired.
    pub aggregators: Vec<AggregatorStatus>,
}

/// The name of a bucket that clients ask for and the policy does not cover.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UnlistedStatus {
    /// The name.
    pub bucket: Bucket,
    /// The bucket of the policy with the most similar name; null if none is similar, and before the search.
    pub nearest: Option<String>,
    /// Number of requests of aggregators for it.
    pub times: u64,
    /// Seconds since the latest of these times.
    pub age_s: f64,
}

impl UnlistedStatus {
    fn list(brain: &Brain, now: MonoTime) -> Vec<Self> {
        let each = brain.buckets.unlisted.iter().map(|(bucket, asked)| Self {
            bucket: bucket.clone(),
            nearest: asked
                .nearest
                .and_then(|unlisted| unlisted.nearest().map(str::to_owned)),
            times: asked.times,
            age_s: now.since(asked.at).as_secs_f64(),
        });
        each.collect()
    }
}

impl Status {
    /// Collects the status. Linear in keys.
    pub fn of(brain: &Brain, now: MonoTime) -> Self {
        let mut status = Self::of_buckets(brain, now);
        for protected in brain.buckets.states.values() {
            if let Some(bucket) = status.buckets.get_mut(&protected.name) {
                bucket.add_tenants(brain, protected);
            }
        }
        for (key, tally) in brain.keys.totals() {
            if let Some(bucket) = status.buckets.get_mut(&key.bucket) {
                bucket.traffic.add_counts(tally.counts);
                bucket
                    .tenants
                    .entry(bucket::class(brain, &key.tenant))
                    .or_default()
                    .add_counts(tally.counts);
            }
        }
        status
    }

    /// Collects the status without tenants and without totals of requests: for the console, every second.
    pub(crate) fn of_buckets(brain: &Brain, now: MonoTime) -> Self {
        let durable = brain.durable();
        let unapplied = brain.downstream.sessions.unapplied();
        let buckets = brain.buckets.states.values().map(|protected| {
            let status = BucketStatus::of(brain, protected, &unapplied, now);
            (protected.name.clone(), status)
        });
        let buckets = buckets.collect();
        let clients = brain.clients();
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            epoch: durable.epoch.0,
            instance: format!("{:?}", brain.downstream.sessions.own()),
            lost_lead: brain.leadership.lost().map(|lost| {
                OtherController::new(lost.to, &lost.through, lost.to.epoch == durable.epoch)
            }),
            other_controllers: OtherController::list(&brain.leadership.others, now),
            policy_hash: brain.policy().hash().to_string(),
            catalogue: CatalogueStatus::of(brain),
            kill_generation: durable.kill.0,
            killed: durable.kill.is_killed(),
            killed_locally: clients.killed_locally,
            quota_store_down: clients.quota_store_down,
            kill_claims: Claimed::list(brain.kill_claims()),
            unprotected: brain
                .buckets
                .no_room
                .iter()
                .map(|(bucket, _)| bucket.clone())
                .collect(),
            unlisted: UnlistedStatus::list(brain, now),
            leading: brain.downstream.takeover.leading && brain.leadership.lost().is_none(),
            state_lost: durable.loss.clone(),
            clients: clients.connected,
            state_unsaved: brain.pending_saves.failure.clone(),
            buckets,
            aggregators: AggregatorStatus::list(brain, now),
            // What the state machine does not know is added by `StatusSource`.
            ..Self::default()
        }
    }

    /// Adds the problems, the summary and the verdict.
    pub(super) fn judged(mut self, policies: &Policies, kills: &KillStatus) -> Self {
        self.problems = problems::list(&self, policies, kills);
        self.summary = problems::summary(&self);
        self.verdict = problems::verdict(&self.problems, &self.summary);
        self
    }
}
