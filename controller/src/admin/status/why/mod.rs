//! Why a tenant is refused in a bucket: since when, for which reasons, beside whom, and what would help. From counts of
//! the last 24 hours and from the law as it divides now.

mod remedies;
mod sentence;

pub use self::remedies::{Moved, Remedy};
pub(super) use self::sentence::on_store_error;

use axum::Json;
use axum::extract::State;
use axum::http::{Method, StatusCode};
use plimsoll_admin::access::Routes;
use plimsoll_admin::body::Parameters;
use plimsoll_core::decision::Mode;
use plimsoll_core::names::{Bucket, Tenant, split_class};
use plimsoll_core::quantity::Rate;
use plimsoll_policy::{LimitSource, Policy, UnixSeconds};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::remedies::Case;
use super::TenantGrants;
use crate::admin::status::QuotaStatus;
use crate::admin::{Answer, BrainState, Commands, refused};
use crate::brain::Brain;
use crate::bucket::{BucketState, Refusals, RefusalsOfBucket};

/// Other tenants in an answer, and names that the policy does not list: the busiest.
const OTHERS_MAX: usize = 10;

/// The answer to why a tenant is refused, or is not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Why {
    /// The answer in a sentence.
    pub summary: String,
    /// The tenant that was asked for.
    pub tenant: Tenant,
    /// The tenant that its requests count for: itself, or a class of names that the policy does not list.
    pub counted_as: Tenant,
    /// The bucket that was asked for, or where the tenant is refused most.
    pub bucket: Bucket,
    /// The end of the ten seconds that this is about, in seconds since 1970.
    pub at_s: i64,
    /// The first moment with an answer, in seconds since 1970.
    pub recorded_since_s: i64,
    /// The tenant's requests in these ten seconds; null if it is not recorded then: it had none, or less than others.
    pub requests: Option<Refusals>,
    /// All requests of the bucket in these ten seconds.
    pub of_bucket: Refusals,
    /// Since when the tenant is refused, in seconds since 1970; null if it is not, nor was in the minute before.
    pub refused_since_s: Option<i64>,
    /// True if that may have begun before the first moment with an answer.
    pub refused_before: bool,
    /// The limit of the bucket then, in requests/s; null without one.
    pub limit_rps: Option<f64>,
    /// What sets this limit now.
    pub limit_source: String,
    /// The mode of the bucket then; shadow while it was killed.
    pub mode: Mode,
    /// True if the bucket or the fleet is killed now.
    pub killed: bool,
    /// What the policy grants the tenant now.
    pub grants: TenantGrants,
    /// The factor on the weight now; null without a boost.
    pub boost: Option<f64>,
    /// Requests/s that the law lets pass now; null without a limit, and for a moment in the past.
    pub allocated_rps: Option<f64>,
    /// Requests/s that each of the tenants of a class may pass in a zone now; null if the law cuts none, and for a listed
    /// tenant or a moment in the past.
    pub level_rps: Option<f64>,
    /// The exact quotas of the bucket.
    pub quotas: Vec<QuotaStatus>,
    /// Other tenants in these ten seconds, at most ten, the busiest first.
    pub others: Vec<Other>,
    /// The busiest names now among those that count for the same class, at most ten; empty for a moment in the past, and
    /// for a listed tenant.
    pub callers: Vec<Caller>,
    /// Changes that would lower the refusals of now, at most three; none for a moment in the past.
    pub remedies: Vec<Remedy>,
    /// True if a saved policy is held back: nothing here takes it into account.
    pub policy_held: bool,
    /// Since when the present policy is in force, in seconds since 1970, if another one was for a part of these ten
    /// seconds, or for all; weights and limits in this answer are those of the present one.
    pub policy_since_s: Option<i64>,
}

/// Another tenant of the bucket.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Other {
    /// The tenant, or a class of names.
    pub tenant: Tenant,
    /// Its requests.
    pub requests: Refusals,
    /// Its weight in the policy.
    pub weight: f64,
}

/// A name that the policy does not list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Caller {
    /// The name, with its plan if it has one.
    pub tenant: Tenant,
    /// Its present requests/s.
    pub rps: f64,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unanswered {
    #[error("nothing is recorded yet: ask again in 10 s")]
    Nothing,
    #[error("that moment is not recorded: this controller can answer for {} to {}", UnixSeconds::from_secs(*.from_s), UnixSeconds::from_secs(*.to_s))]
    NotThen { from_s: i64, to_s: i64 },
    #[error(
        "{0} has had no requests in any bucket then, or fewer than others; name a bucket to see who has"
    )]
    NoRequests(Tenant),
    #[error("no bucket {0} had requests then; `plimsoll status --all` shows the buckets")]
    NoBucket(Bucket),
    /// It had requests then.
    #[error("bucket {0} is not known now: no policy names it, or it had no requests for long")]
    Dropped(Bucket),
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WhyQuery {
    tenant: Tenant,
    /// The one where the tenant is refused most if absent.
    bucket: Option<Bucket>,
    /// In seconds since 1970; now if absent.
    at: Option<i64>,
}

pub(crate) fn routes() -> Routes<Commands> {
    Routes::new().viewer(Method::GET, "/why", why)
}

async fn why(
    State(brain): BrainState,
    Parameters(WhyQuery { tenant, bucket, at }): Parameters<WhyQuery>,
) -> Answer<Json<Why>> {
    let answer = brain.with(|brain, _| brain.why(&tenant, bucket.as_ref(), at));
    answer
        .map(Json)
        .map_err(|error| refused(StatusCode::NOT_FOUND, error))
}

impl Brain {
    /// Answers why a tenant is refused in a bucket, or in the one where it is refused most, at a moment in seconds since
    /// 1970, or now. Linear in the parts of the history.
    ///
    /// # Errors
    /// If nothing is recorded of that moment, or of the tenant or the bucket in it.
    pub(crate) fn why(
        &self,
        tenant: &Tenant,
        bucket: Option<&Bucket>,
        at_s: Option<i64>,
    ) -> Result<Why, Unanswered> {
        let history = &self.buckets.refusals;
        let recorded_since_s = history.since_s().ok_or(Unanswered::Nothing)?;
        let last = history.latest(1).last();
        let to_s = last.map_or(recorded_since_s, |part| part.at_s);
        let not_then = || Unanswered::NotThen {
            from_s: recorded_since_s,
            to_s,
        };
        let at = history.find(at_s).ok_or_else(not_then)?;
        let part = history.part(at).ok_or_else(not_then)?;
        let counted_as = counted_as(self.policy(), tenant);
        let bucket = bucket
            .or_else(|| part.worst(&counted_as))
            .ok_or_else(|| Unanswered::NoRequests(tenant.clone()))?;
        let shown = part.bucket(bucket);
        let shown = shown.ok_or_else(|| Unanswered::NoBucket(bucket.clone()))?;
        let state = self.buckets.states.get(bucket);
        let state = state.ok_or_else(|| Unanswered::Dropped(bucket.clone()))?;
        let share = state.share_of(&counted_as).filter(|_| at_s.is_none());
        let since = history.refused_since(bucket, &counted_as, at);
        let grants = TenantGrants::in_bucket(self.policy(), bucket, &counted_as);
        let (weight, boosted) = (grants.weight, self.weight_now(&counted_as));
        let mut why = Why {
            summary: String::new(),
            tenant: tenant.clone(),
            bucket: bucket.clone(),
            at_s: part.at_s,
            recorded_since_s,
            requests: shown.of_key(&counted_as),
            of_bucket: shown.all(),
            refused_since_s: since.map(|(since_s, _)| since_s),
            refused_before: since.is_some_and(|(_, before)| before),
            limit_rps: shown.limit_rps(),
            limit_source: self.limit_source(bucket),
            mode: shown.mode(),
            killed: self.durable().kill_of(bucket).is_on(),
            boost: (boosted != weight).then_some(boosted / weight),
            grants,
            allocated_rps: share
                .filter(|_| shown.limit_rps().is_some())
                .map(|share| share.allocation),
            level_rps: share.and_then(|share| {
                let aggregators = &self.downstream.aggregators;
                state.level(aggregators, &counted_as, share.allocation)
            }),
            quotas: QuotaStatus::list(&state.terms.quotas),
            others: others(self.policy(), &shown, &counted_as),
            callers: match at_s {
                None if counted_as.is_class() => self.callers(bucket, &counted_as),
                _ => Vec::new(),
            },
            remedies: match at_s {
                None => self.remedies(state, &shown, &counted_as, weight),
                Some(_) => Vec::new(),
            },
            policy_held: self.policies.held.is_some(),
            policy_since_s: self
                .policies
                .in_force_since_s
                .filter(|since_s| *since_s > part.since_s()),
            counted_as,
        };
        let is_store_down = self.clients().quota_store_down > 0;
        why.summary = sentence::summary(&why, is_store_down);
        Ok(why)
    }

    fn callers(&self, bucket: &Bucket, class: &Tenant) -> Vec<Caller> {
        let counts = |tenant: &Tenant| counted_as(self.policy(), tenant) == *class;
        let callers = self.downstream.aggregators.callers(bucket, counts);
        let callers = callers.into_iter().take(OTHERS_MAX);
        let callers = callers.map(|(tenant, rps)| Caller { tenant, rps });
        callers.collect()
    }

    fn weight_now(&self, tenant: &Tenant) -> f64 {
        let unix_s = self.durable().ticked_s.unwrap_or_default();
        self.policy().tenant(tenant).weight_at(unix_s).get()
    }

    fn limit_source(&self, bucket: &Bucket) -> String {
        let Some(policy) = self.policy().bucket(bucket) else {
            return "no policy names the bucket".to_owned();
        };
        match &policy.source {
            LimitSource::Unlimited => "the policy sets none".to_owned(),
            LimitSource::PerSecond(_) => "the policy".to_owned(),
            LimitSource::Learned(learned) => format!(
                "learned, percentile {} of {} days times {}",
                learned.percentile, learned.days, learned.headroom
            ),
            LimitSource::Prometheus(source) => format!("a query to {}", source.url),
        }
    }

    /// The remedies for refusals by the law, from its claims of now. Their rates are means over the ten seconds that the
    /// answer is about, where those are recorded: a moment's rates promise what the next moment does not keep.
    fn remedies(
        &self,
        state: &BucketState,
        shown: &RefusalsOfBucket<'_>,
        counted_as: &Tenant,
        weight: f64,
    ) -> Vec<Remedy> {
        let Some(limit) = state.limit.per_second().map(Rate::per_second) else {
            return Vec::new();
        };
        let tenants: Vec<Tenant> = state.shares().map(|(tenant, _)| tenant.clone()).collect();
        let mut claimants = state.claimants(&self.downstream.aggregators, limit);
        for (tenant, claimant) in tenants.iter().zip(&mut claimants) {
            if let Some(requests) = shown.of_key(tenant) {
                claimant.offered = requests.per_second(requests.asked);
            }
        }
        let at = tenants.iter().position(|tenant| tenant == counted_as);
        let case = at.filter(|at| *at < claimants.len()).map(|at| Case {
            bucket: &state.name,
            limit,
            tenants: &tenants,
            claimants: &claimants,
            at,
            weight,
            owner: sentence::owner(counted_as),
        });
        case.map_or_else(Vec::new, |case| case.remedies())
    }
}

/// Returns the entry that counts for a tenant: its own, the plan in its name, or without one that of its row in the
/// catalogue, or `default`.
fn counted_as(policy: &Policy, tenant: &Tenant) -> Tenant {
    let (own, class) = split_class(tenant.as_str());
    let listed = |name| Tenant::new(name).ok().filter(|name| policy.is_listed(name));
    let of_row = || Some(policy.row(own)?.policy.class());
    listed(own)
        .or_else(|| match tenant.plan() {
            Some(_) => listed(class),
            None => of_row(),
        })
        .unwrap_or_else(Tenant::default_class)
}

fn others(policy: &Policy, shown: &RefusalsOfBucket<'_>, counted_as: &Tenant) -> Vec<Other> {
    let keys = shown.keys().filter(|(tenant, _)| *tenant != counted_as);
    let mut others: Vec<Other> = keys
        .map(|(tenant, requests)| Other {
            tenant: tenant.clone(),
            requests,
            weight: policy.tenant(tenant).weight.get(),
        })
        .collect();
    others.sort_by_key(|other| std::cmp::Reverse(other.requests.asked));
    others.truncate(OTHERS_MAX);
    others
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use plimsoll_core::law::Parameters;
    use plimsoll_core::quantity::MonoTime;
    use plimsoll_core::report::InstanceId;

    use super::*;
    use crate::brain::tests::policy;
    use crate::state::DurableState;

    #[test]
    fn dropped_bucket_is_told_from_one_without_requests() {
        let at = |s| MonoTime::from_elapsed(Duration::from_secs(s));
        let (durable, policy) = (DurableState::first_start(), policy("buckets: {}\n"));
        let mut brain = Brain::new(at(0), InstanceId(1), durable, policy, Parameters::default());
        let name = |name| Bucket::new(name).unwrap();
        let asked = Refusals {
            asked: 1,
            ..Refusals::default()
        };
        let class = Tenant::default_class();
        let history = &mut brain.buckets.refusals;
        history.add(&name("gone"), &class, asked);
        for s in [0, 10] {
            history.on_tick(at(s), s as i64, |_| (None, Mode::Shadow));
        }
        for (bucket, text) in [
            ("gone", "gone is not known now"),
            ("idle", "idle had requests"),
        ] {
            let error = brain.why(&class, Some(&name(bucket)), None).unwrap_err();
            assert!(error.to_string().contains(text), "{error}");
        }
    }
}
