//! The answer of `/status`: the controller's view of the fleet.

mod catalogue;
mod grants;

pub(super) use catalogue::routes as catalogue_routes;
pub use catalogue::{CatalogueStatus, RowGrants};
pub use grants::TenantGrants;

use std::collections::BTreeMap;

use plimsoll_admin::kill_api::Claimed;
use plimsoll_admin::other_controllers::OtherController;
use plimsoll_admin::rejected_streams::RefusedChild;
use plimsoll_admin::security::SecurityStatus;
use plimsoll_core::decision::{Mode, Reason, ShownMode};
use plimsoll_core::names::{Bucket, Tenant};
use plimsoll_core::quantity::{DropRatio, MonoTime, Rate};
use plimsoll_core::report::Counts;
use plimsoll_core::stats::AdmissionFigures;
use plimsoll_policy::LimitSource;
use serde::{Deserialize, Serialize};

pub use super::aggregator_status::AggregatorStatus;
use super::quota_status::QuotaStatus;
use crate::brain::Brain;
use crate::bucket::{Listing, Share};
use crate::history::{self, LearningStatus};
use crate::members::MembersStatus;

/// The state of the fleet at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The controller's epoch.
    pub epoch: u64,
    /// The controller's process, as directives name it.
    pub instance: String,
    /// The controller that leads in place of this one, which then sends no values; null if this one leads.
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
    /// Kill generations that aggregators or clients hold without an order; they kill nothing elsewhere.
    pub kill_claims: Vec<Claimed>,
    /// Buckets without room, at most 64: they are unprotected, regardless of the policy.
    pub unprotected: Vec<Bucket>,
    /// The latest names of buckets that clients ask for and the policy does not cover, at most 64.
    pub unlisted: Vec<UnlistedStatus>,
    /// True once the controller sends its own rates; false during a takeover, and before the first traffic.
    pub leading: bool,
    /// The reason why the state differs from the state that the fleet knew, until an operator
    /// acknowledges it; null if it does not.
    pub state_lost: Option<String>,
    /// Connected clients, as their aggregators report them.
    pub clients: u32,
    /// Why the state cannot be saved; null if it can.
    pub state_unsaved: Option<String>,
    /// Every known bucket.
    pub buckets: BTreeMap<Bucket, BucketStatus>,
    /// Every aggregator that reported, is waited for, or has expired.
    pub aggregators: Vec<AggregatorStatus>,
}

/// The name of a bucket that clients ask for and the policy does not cover.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UnlistedStatus {
    /// The name.
    pub bucket: Bucket,
    /// The bucket of the policy with the most similar name.
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

/// One bucket.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BucketStatus {
    /// The matching entry of the policy; null if none matches.
    pub entry: Option<String>,
    /// The limit in requests/s over all zones; null without one.
    pub limit_rps: Option<f64>,
    /// The progress of learning its limit; null if the policy wants none learned.
    pub learned: Option<LearningStatus>,
    /// The answer of a Prometheus server for its limit; null before the first answer, and without a query.
    pub queried: Option<Queried>,
    /// The current mode; shadow while killed, and unknown if no entry matches.
    pub mode: ShownMode,
    /// True while it is killed, by its own kill or with the fleet.
    pub killed: bool,
    /// Connected clients that carry out less than this mode: clients that are killed locally, and
    /// clients with a kill that this controller does not know.
    pub clients_unapplied: u32,
    /// The mode in the policy file.
    pub file_mode: Option<Mode>,
    /// True if the gate out of canary compares no latency, because no instance reports it.
    pub latency_unreported: bool,
    /// The mode that waits for its gate.
    pub pending_mode: Option<Mode>,
    /// Unused requests of the limit, or requests above it if negative; 0 without a limit.
    pub balance: f64,
    /// Requests/s of the limit that belong to silent and expired aggregators and are divided among the others. Their
    /// clients may still admit as much beyond the limit.
    pub released_rps: f64,
    /// Requests/s that silent aggregators offered last and that are no part of the offered traffic any more.
    pub unheard_rps: f64,
    /// The exact quotas that its requests have to pass behind the coin.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub quotas: Vec<QuotaStatus>,
    /// Requests/s that quotas refuse behind the coin, smoothed over 5 s; 0 in shadow.
    pub quota_dropped_rps: f64,
    /// Requests/s that are refused before the coin, because a quota has refused their key until its reset, smoothed
    /// over 5 s. They are no part of the offered load.
    pub quota_repeated_rps: f64,
    /// The candidate limit, which is only evaluated; null without one.
    pub candidate: Option<CandidateStatus>,
    /// Admissions as counted in the last seconds.
    #[serde(flatten)]
    pub admissions: AdmissionFigures,
    /// The traffic of all tenants.
    #[serde(flatten)]
    pub traffic: Traffic,
    /// The traffic by listed tenant and class: `default`, and `%~NAME` for the other tenants of a plan.
    pub tenants: BTreeMap<Tenant, Traffic>,
    /// What the policy grants tenants with a plan, a limit or a quota of their own, and each tenant of a plan.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub grants: BTreeMap<Tenant, TenantGrants>,
}

/// The last good answer to a query for a limit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Queried {
    /// Requests/s, before they are clamped to the bounds of the policy.
    pub answer_rps: f64,
    /// Seconds since the answer, or since the start if the answer was saved before it.
    pub age_s: f64,
}

/// A candidate limit and its results. It is evaluated while the controller sends rates for the bucket's own
/// limit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CandidateStatus {
    /// Requests/s over all zones.
    pub limit_rps: f64,
    /// The share of requests that it would refuse now.
    pub drop_ratio: f64,
    /// Requests that it was evaluated for.
    pub offered: u64,
    /// Requests that it would have refused.
    pub would_dropped: u64,
}

/// Offered traffic and decisions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Traffic {
    /// Requests/s offered at present.
    pub offered_rps: f64,
    /// Requests/s allocated.
    pub allocated_rps: f64,
    /// The share that the law means to refuse, without guards; null without a limit. In shadow it is not carried out.
    pub law_ratio: Option<f64>,
    /// The reason of a ratio above 0: `tenant_limit` if every tenant refused is at its own limit.
    pub drop_reason: Option<Reason>,
    /// Requests in total.
    pub offered: u64,
    /// Admitted requests in total: neither coin nor guard nor a quota refused them.
    pub admitted: u64,
    /// Requests refused by drop ratio, in total.
    pub dropped: u64,
    /// Requests refused by guards, in total.
    pub guard_dropped: u64,
    /// Requests admitted that would have been refused in enforce.
    pub would_dropped: u64,
    /// Requests refused by exact quotas, after coin and guard had let them pass, in total.
    pub quota_dropped: u64,
    /// Requests admitted that exact quotas would have refused in enforce.
    pub would_quota_dropped: u64,
    /// Requests refused from the memory of a quota's refusal, in total. They are no part of `offered`.
    pub quota_repeated: u64,
}

impl Status {
    /// Collects the status. Linear in keys.
    pub fn of(brain: &Brain, now: MonoTime) -> Self {
        let durable = brain.durable();
        let unapplied = brain.downstream.sessions.unapplied();
        let mut buckets: BTreeMap<Bucket, BucketStatus> = BTreeMap::new();
        for protected in brain.buckets.states.values() {
            let stage = protected
                .entry
                .as_ref()
                .and_then(|entry| durable.stages.get(entry));
            let mut tenants: BTreeMap<Tenant, Traffic> = brain
                .policy()
                .tenants()
                .map(|(tenant, _)| (tenant.clone(), Traffic::default()))
                .collect();
            let mut traffic = Traffic::default();
            for (tenant, share) in protected.shares() {
                traffic.add_share(share);
                tenants
                    .entry(class(brain, tenant))
                    .or_default()
                    .add_share(share);
            }
            if protected.divided_limit().per_second().is_none() {
                tenants
                    .values_mut()
                    .chain([&mut traffic])
                    .for_each(|traffic| traffic.law_ratio = None);
            }
            let mode = protected.mode(durable);
            let status = BucketStatus {
                entry: protected.entry.clone(),
                limit_rps: protected.limit.per_second().map(Rate::per_second),
                learned: history::learned_policy(brain.policy(), &protected.name)
                    .map(|learned| brain.limits.history.status(&protected.name, learned)),
                queried: Queried::of(brain, &protected.name, now),
                mode: Some(mode)
                    .filter(|_| protected.listing != Listing::None)
                    .into(),
                killed: durable.kill_of(&protected.name).is_on(),
                clients_unapplied: unapplied.get(&protected.name).copied().unwrap_or_default(),
                file_mode: stage.map(|stage| stage.file),
                latency_unreported: protected
                    .entry
                    .as_ref()
                    .is_some_and(|entry| brain.rollouts.is_latency_unreported(entry)),
                pending_mode: stage.and_then(|stage| stage.pending),
                balance: protected.balance.tokens(),
                released_rps: protected.limit.per_second().map_or(0.0, |_| {
                    durable.expired.released(&protected.name) + protected.silent.released
                }),
                unheard_rps: protected.silent.unheard,
                quotas: QuotaStatus::list(&protected.terms.quotas),
                quota_dropped_rps: protected.quota_drops.per_second,
                quota_repeated_rps: protected.quota_repeats.per_second,
                candidate: protected.candidate.map(|candidate| CandidateStatus {
                    limit_rps: candidate.limit.per_second(),
                    drop_ratio: candidate.ratio,
                    offered: candidate.offered as u64,
                    would_dropped: candidate.would_dropped as u64,
                }),
                admissions: protected.admissions.figures(),
                traffic,
                tenants,
                grants: TenantGrants::list(brain.policy(), &protected.name),
            };
            buckets.insert(protected.name.clone(), status);
        }
        for (key, tally) in brain.keys.totals() {
            if let Some(bucket) = buckets.get_mut(&key.bucket) {
                bucket.traffic.add_counts(tally.counts);
                bucket
                    .tenants
                    .entry(class(brain, &key.tenant))
                    .or_default()
                    .add_counts(tally.counts);
            }
        }
        Self {
            epoch: durable.epoch.0,
            instance: format!("{:?}", brain.downstream.sessions.own()),
            lost_lead: brain.leadership.lost().map(|lost| {
                OtherController::new(lost.to, &lost.through, lost.to.epoch == durable.epoch)
            }),
            members: None,
            other_controllers: OtherController::list(&brain.leadership.others, now),
            refused_children: Vec::new(),
            security: SecurityStatus::default(),
            policy_hash: brain.policy().hash().to_string(),
            catalogue: CatalogueStatus::of(brain),
            kill_generation: durable.kill.0,
            killed: durable.kill.is_killed(),
            killed_locally: brain.killed_locally(),
            kill_claims: Claimed::list(brain.kill_claims()),
            unprotected: brain
                .buckets
                .no_room
                .iter()
                .map(|(bucket, _)| bucket.clone())
                .collect(),
            unlisted: UnlistedStatus::list(brain, now),
            leading: brain.downstream.takeover.leading,
            state_lost: durable.loss.clone(),
            clients: brain
                .downstream
                .sessions
                .connected()
                .map(|child| child.clients)
                .fold(0, u32::saturating_add),
            state_unsaved: brain.pending_saves.failure.clone(),
            buckets,
            aggregators: AggregatorStatus::list(brain, now),
        }
    }
}

impl Queried {
    fn of(brain: &Brain, bucket: &Bucket, now: MonoTime) -> Option<Self> {
        let LimitSource::Prometheus(source) = &brain.policy().bucket(bucket)?.source else {
            return None;
        };
        let answer = brain
            .limits
            .answers
            .get(&(source.url.clone(), source.query.clone()))?;
        Some(Self {
            answer_rps: answer.rate.per_second(),
            age_s: now.since(answer.at).as_secs_f64(),
        })
    }
}

impl Traffic {
    /// Adds the share of a tenant; the ratio becomes the mean of all shares added.
    fn add_share(&mut self, share: &Share) {
        let refused = self.offered_rps * self.law_ratio.unwrap_or_default();
        let refused = refused + share.offered * share.ratio.as_f64();
        self.offered_rps += share.offered;
        self.allocated_rps += share.allocation;
        let mean = refused / self.offered_rps;
        self.law_ratio = Some(if mean.is_finite() {
            mean
        } else {
            share.ratio.as_f64()
        });
        if share.ratio > DropRatio::NONE && self.drop_reason != Some(Reason::ClusterOverload) {
            let reason = if share.at_tenant_limit {
                Reason::TenantLimit
            } else {
                Reason::ClusterOverload
            };
            self.drop_reason = Some(reason);
        }
    }

    fn add_counts(&mut self, counts: Counts) {
        self.offered += counts.offered;
        self.admitted += counts.admitted();
        self.dropped += counts.dropped;
        self.guard_dropped += counts.guard_dropped;
        self.would_dropped += counts.would_dropped;
        self.quota_dropped += counts.quota_dropped;
        self.would_quota_dropped += counts.would_quota_dropped;
        self.quota_repeated += counts.quota_repeated;
    }
}

fn class(brain: &Brain, tenant: &Tenant) -> Tenant {
    if brain.policy().is_listed(tenant) {
        tenant.clone()
    } else {
        Tenant::default_class()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(offered: f64, ratio: u32, at_tenant_limit: bool) -> Share {
        let mut share = Share::default();
        (share.offered, share.ratio) = (offered, DropRatio::new(ratio).unwrap());
        share.at_tenant_limit = at_tenant_limit;
        share
    }

    #[test]
    fn tenant_limit_reason_needs_all_refused_tenants() {
        let half = DropRatio::ONE / 2;
        let (free, stopped, overloaded) = (
            share(10.0, 0, false),
            share(10.0, half, true),
            share(20.0, half, false),
        );
        for (shares, reason) in [
            (vec![&free], None),
            (vec![&free, &stopped], Some(Reason::TenantLimit)),
            (vec![&stopped, &overloaded], Some(Reason::ClusterOverload)),
            (vec![&overloaded, &stopped], Some(Reason::ClusterOverload)),
        ] {
            let mut traffic = Traffic::default();
            shares
                .into_iter()
                .for_each(|share| traffic.add_share(share));
            assert_eq!(traffic.drop_reason, reason);
        }
    }
}
