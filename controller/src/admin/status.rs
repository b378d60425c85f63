//! What the controller knows, for people and for tables: the answer of `/status`.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_core::names::{Bucket, Tenant};
use plimsoll_policy::LimitSource;
use plimsoll_core::quantity::Limit;
use plimsoll_core::report::Counts;
use plimsoll_core::decision::Mode;
use plimsoll_core::quantity::MonoTime;
use serde::Serialize;

use crate::brain::Brain;
use crate::history::{self, Standing};
use crate::bucket::{Candidate, Share};

/// The whole picture at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Status {
    /// The controller's epoch.
    pub epoch: u64,
    /// The hash of the policy in force.
    pub policy_hash: String,
    /// The kill generation; odd means killed.
    pub kill_generation: u64,
    /// Whether every client only observes.
    pub killed: bool,
    /// Whether rates are being sent; false while zones live on what they brought, or have shown no traffic yet.
    pub leading: bool,
    /// Every bucket known.
    pub buckets: BTreeMap<Bucket, BucketStatus>,
    /// Every aggregator that counts.
    pub aggregators: Vec<AggregatorStatus>,
}

/// One bucket.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BucketStatus {
    /// The entry of the policy it falls under; null where none matches.
    pub entry: Option<String>,
    /// Requests/s over all zones; null where there is no limit.
    pub limit_rps: Option<f64>,
    /// How far its limit has been learned; null where the policy does not say that it is to be.
    pub learned: Option<Standing>,
    /// What a Prometheus server answered for its limit; null where there is no answer yet, or none is asked for.
    pub queried: Option<Queried>,
    /// What becomes of its refusals now; shadow while killed.
    pub mode: Mode,
    /// Whether it is killed, alone or with the fleet.
    pub killed: bool,
    /// What the policy file asks for.
    pub file_mode: Option<Mode>,
    /// What waits for its gates.
    pub pending_mode: Option<Mode>,
    /// Requests saved up, or owed when negative; 0 without a limit.
    pub balance: f64,
    /// A second limit that is only evaluated; null without one.
    pub candidate: Option<CandidateStatus>,
    /// All its traffic.
    #[serde(flatten)]
    pub traffic: Traffic,
    /// By tenant class.
    pub tenants: BTreeMap<Tenant, Traffic>,
}

/// The last good answer to a query for a limit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Queried {
    /// Requests/s, before they are held between the bounds of the policy.
    pub answer_rps: f64,
    /// Seconds since it came, or since this controller began with what was kept.
    pub age_s: f64,
}

/// A second limit, and what it would do. Evaluated while rates are sent for a limit of the bucket's own.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CandidateStatus {
    /// Requests/s over all zones.
    pub limit_rps: f64,
    /// The share of requests it would refuse now.
    pub drop_ratio: f64,
    /// Requests it was held against.
    pub offered: u64,
    /// Requests it would have refused.
    pub would_dropped: u64,
}

/// What is asked for, and what becomes of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Traffic {
    /// Requests/s offered now.
    pub offered_rps: f64,
    /// Requests/s that may pass.
    pub allocated_rps: f64,
    /// The drop ratio in force; null where there is none.
    pub drop_ratio: Option<f64>,
    /// Requests counted in all.
    pub offered: u64,
    /// Requests let through in all.
    pub admitted: u64,
    /// Requests refused in all by the coin.
    pub dropped: u64,
    /// Requests refused in all by guards.
    pub guard_dropped: u64,
    /// Refusals decided but not carried out.
    pub would_dropped: u64,
}

/// One aggregator.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AggregatorStatus {
    /// Its zone.
    pub zone: String,
    /// Its stable name.
    pub name: String,
    /// Whether it has a stream now.
    pub connected: bool,
    /// Seconds since this process of it first spoke here; 0 if it is no longer remembered.
    pub since_s: f64,
    /// Seconds for which it has been silent while others were heard.
    pub silent_s: f64,
}

impl Status {
    /// Takes the picture. Linear in keys.
    #[must_use]
    pub fn of(brain: &Brain, now: MonoTime) -> Self {
        let durable = brain.durable();
        let killed = durable.kill.is_killed();
        let mut buckets: BTreeMap<Bucket, BucketStatus> = BTreeMap::new();
        for protected in brain.buckets() {
            let stage = protected.entry().and_then(|entry| durable.stages.get(entry));
            let mut tenants: BTreeMap<Tenant, Traffic> =
                brain.policy().tenants().map(|(tenant, _)| (tenant.clone(), Traffic::default())).collect();
            let mut traffic = Traffic::default();
            for (tenant, share) in protected.shares() {
                traffic.ask(share);
                tenants.entry(class(brain, tenant)).or_default().ask(share);
            }
            let status = BucketStatus {
                entry: protected.entry().map(ToOwned::to_owned),
                limit_rps: match protected.limit() {
                    Limit::PerSecond(rate) => Some(rate.per_second()),
                    Limit::Unlimited | Limit::Unknown => None,
                },
                learned: history::learned(brain.policy(), protected.name())
                    .map(|learned| brain.history().standing(protected.name(), learned)),
                queried: Queried::of(brain, protected.name(), now),
                mode: protected.stage(durable),
                killed: durable.kill_of(protected.name()).is_on(),
                file_mode: stage.map(|stage| stage.file),
                pending_mode: stage.and_then(|stage| stage.pending),
                balance: protected.balance().tokens(),
                candidate: protected.candidate().map(CandidateStatus::of),
                traffic,
                tenants,
            };
            buckets.insert(protected.name().clone(), status);
        }
        for (key, tally) in brain.totals() {
            if let Some(bucket) = buckets.get_mut(&key.bucket) {
                bucket.traffic.count(tally.counts);
                bucket.tenants.entry(class(brain, &key.tenant)).or_default().count(tally.counts);
            }
        }
        Self {
            epoch: durable.epoch.0,
            policy_hash: brain.policy().hash().to_string(),
            kill_generation: durable.kill.0,
            killed,
            leading: brain.is_leading(),
            buckets,
            aggregators: aggregators(brain, now),
        }
    }
}

impl Queried {
    fn of(brain: &Brain, bucket: &Bucket, now: MonoTime) -> Option<Self> {
        let LimitSource::Prometheus(source) = brain.policy().bucket(bucket)?.source() else { return None };
        let answer = brain.answers().get(&(source.url.clone(), source.query.clone()))?;
        Some(Self { answer_rps: answer.rate.per_second(), age_s: now.since(answer.at).as_secs_f64() })
    }
}

impl CandidateStatus {
    fn of(candidate: &Candidate) -> Self {
        Self {
            limit_rps: candidate.limit().per_second(),
            drop_ratio: candidate.ratio(),
            offered: candidate.offered(),
            would_dropped: candidate.would_dropped(),
        }
    }
}

impl Traffic {
    /// Adds what a tenant asks for and gets; the ratio becomes that of all added so far.
    fn ask(&mut self, share: &Share) {
        let refused = self.offered_rps * self.drop_ratio.unwrap_or_default();
        let refused = refused + share.offered * share.ratio.as_f64();
        self.offered_rps += share.offered;
        self.allocated_rps += share.allocation;
        let mean = refused / self.offered_rps;
        self.drop_ratio = Some(if mean.is_finite() { mean } else { share.ratio.as_f64() });
    }

    fn count(&mut self, counts: Counts) {
        self.offered += counts.offered;
        self.admitted += counts.admitted();
        self.dropped += counts.dropped;
        self.guard_dropped += counts.guard_dropped;
        self.would_dropped += counts.would_dropped;
    }
}

/// The tenant itself where policy lists it, else the class of all others.
fn class(brain: &Brain, tenant: &Tenant) -> Tenant {
    if brain.policy().is_listed(tenant) { tenant.clone() } else { Tenant::default_class() }
}

fn aggregators(brain: &Brain, now: MonoTime) -> Vec<AggregatorStatus> {
    let status = |((zone, name), source): (&(_, _), &crate::aggregators::Source)| {
        let child =
            brain.roster().iter().find(|child| child.identity.zone == *zone && child.identity.name == *name);
        let silent: Duration = source.silent_for();
        AggregatorStatus {
            zone: ToString::to_string(zone),
            name: ToString::to_string(name),
            connected: child.is_some_and(|child| child.stream.is_some()),
            since_s: child.map_or(0.0, |child| now.since(child.since).as_secs_f64()),
            silent_s: silent.as_secs_f64(),
        }
    };
    brain.sources().iter().map(status).collect()
}
