//! One bucket in `/status`: its mode, its limit, and what is offered, admitted and refused.

use std::collections::BTreeMap;

use plimsoll_core::decision::{Mode, Reason, ShownMode};
use plimsoll_core::names::{Bucket, Tenant};
use plimsoll_core::quantity::{DropRatio, MonoTime, Rate};
use plimsoll_core::report::Counts;
use plimsoll_core::stats::AdmissionFigures;
use plimsoll_policy::LimitSource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::TenantGrants;
use crate::admin::status::QuotaStatus;
use crate::brain::Brain;
use crate::bucket::{BucketState, LawRate, Listing, Refusals, Share};
use crate::history::{self, LearningStatus};

/// One bucket.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
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
    /// The mode of the file that waits for its gate.
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
    /// Requests/s that quotas refuse behind the coin, over the last 10 s; 0 in shadow.
    pub quota_dropped_rps: f64,
    /// Requests/s that are refused before the coin, because a quota has refused their key until its reset, over the
    /// last 10 s. They are no part of the offered load.
    pub quota_repeated_rps: f64,
    /// The requests of the last 10 s, and how many each reason refused.
    #[serde(default)]
    pub refusals_10_s: Refusals,
    /// The same of the last five minutes.
    #[serde(default)]
    pub refusals_5_min: Refusals,
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
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Queried {
    /// Requests/s, before they are clamped to the bounds of the policy.
    pub answer_rps: f64,
    /// Seconds since the answer, or since the start if the answer was saved before it.
    pub age_s: f64,
}

/// A candidate limit and its results. It is evaluated while the controller sends rates for the bucket's own
/// limit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Traffic {
    /// Requests/s offered at present. Of a class, without what its names offer above their tenant limit.
    pub offered_rps: f64,
    /// Requests/s allocated; 0 without a limit.
    pub allocated_rps: f64,
    /// The share that the law means to refuse, without guards; null without a limit, and before rates are sent.
    /// In shadow it is not carried out.
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
    /// The part of `offered` that callers marked as sent again, in total.
    #[serde(default)]
    pub retried: u64,
}

impl BucketStatus {
    /// Collects the status of a bucket. Its tenants and the totals of its keys are added later.
    pub(super) fn of(
        brain: &Brain,
        protected: &BucketState,
        unapplied: &BTreeMap<&Bucket, u32>,
        now: MonoTime,
    ) -> Self {
        let durable = brain.durable();
        let lately = protected.refusals.last_10_s();
        let stage = protected
            .entry
            .as_ref()
            .and_then(|entry| durable.stages.get(entry));
        let mut traffic = Traffic::default();
        for (_, share) in protected.shares() {
            traffic.add_share(share);
        }
        let mode = protected.mode(durable);
        let limit = protected.limit.per_second().map(Rate::per_second);
        Self {
            entry: protected.entry.clone(),
            limit_rps: limit,
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
            balance: limit.map_or(0.0, |_| protected.balance.tokens()),
            released_rps: limit.map_or(0.0, |_| {
                durable.expired.released(&protected.name) + protected.silent.released
            }),
            unheard_rps: protected.silent.unheard,
            quotas: QuotaStatus::list(&protected.terms.quotas),
            quota_dropped_rps: lately.per_second(lately.quota),
            quota_repeated_rps: lately.per_second(lately.quota_repeated),
            refusals_10_s: lately,
            refusals_5_min: protected.refusals.last_5_min(),
            candidate: protected.candidate.map(|candidate| CandidateStatus {
                limit_rps: candidate.limit.per_second(),
                drop_ratio: candidate.ratio,
                offered: candidate.offered as u64,
                would_dropped: candidate.would_dropped as u64,
            }),
            admissions: protected.admissions.figures(),
            traffic,
            ..Self::default()
        }
    }

    /// Adds the shares of tenants and what the policy grants them.
    pub(super) fn add_tenants(&mut self, brain: &Brain, protected: &BucketState) {
        let listed = brain.policy().tenants();
        self.tenants = listed
            .map(|(tenant, _)| (tenant.clone(), Traffic::default()))
            .collect();
        for (tenant, share) in protected.shares() {
            self.tenants
                .entry(class(brain, tenant))
                .or_default()
                .add_share(share);
        }
        self.grants = TenantGrants::list(brain.policy(), &protected.name);
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
        let mut mean = LawRate {
            offered_rps: self.offered_rps,
            ratio: self.law_ratio,
        };
        mean.add(share.offered, share.law_ratio());
        (self.offered_rps, self.law_ratio) = (mean.offered_rps, mean.ratio);
        self.allocated_rps += share.allocation;
        if share.ratio > Some(DropRatio::NONE) && self.drop_reason != Some(Reason::ClusterOverload)
        {
            let reason = if share.at_tenant_limit {
                Reason::TenantLimit
            } else {
                Reason::ClusterOverload
            };
            self.drop_reason = Some(reason);
        }
    }

    pub(super) fn add_counts(&mut self, counts: Counts) {
        self.offered += counts.offered;
        self.admitted += counts.admitted();
        self.dropped += counts.dropped;
        self.guard_dropped += counts.guard_dropped;
        self.would_dropped += counts.would_dropped;
        self.quota_dropped += counts.quota_dropped;
        self.would_quota_dropped += counts.would_quota_dropped;
        self.quota_repeated += counts.quota_repeated;
        self.retried += counts.retried;
    }
}

pub(super) fn class(brain: &Brain, tenant: &Tenant) -> Tenant {
    if brain.policy().is_listed(tenant) {
        tenant.clone()
    } else {
        Tenant::default_class()
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::law::{Balance, Parameters};
    use plimsoll_core::report::InstanceId;

    use super::*;
    use crate::admin::status::Status;
    use crate::state::DurableState;

    fn share(offered: f64, ratio: u32, at_tenant_limit: bool) -> Share {
        let mut share = Share::default();
        (share.offered, share.ratio) = (offered, DropRatio::new(ratio).ok());
        share.at_tenant_limit = at_tenant_limit;
        share
    }

    #[test]
    fn balance_ends_with_the_limit() {
        let limits = ["10", "unlimited"].map(|limit| {
            crate::brain::tests::policy(&format!("buckets: {{ api: {{ limit: {limit} }} }}\n"))
        });
        let now = MonoTime::ZERO;
        let durable = DurableState::first_start();
        let mut brain = Brain::new(
            now,
            InstanceId(1),
            durable,
            limits[0].clone(),
            Parameters::default(),
        );
        let api = Bucket::new("api").unwrap();
        for (policy, balance) in limits.into_iter().zip([-5.0, 0.0]) {
            brain.on_policy(policy);
            let bucket = brain.buckets.states.get_mut(&api).unwrap();
            bucket.balance = Balance::default();
            bucket.balance.add(-5.0);
            let status = Status::of(&brain, now);
            assert_eq!(status.buckets[&api].balance, balance);
        }
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
