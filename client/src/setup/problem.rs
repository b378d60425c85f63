//! One setup problem: what is wrong, where, and what to do.

use std::time::Duration;

use super::wiring::TRIAL;

/// The time after the start by which an aggregator should have answered.
pub(crate) const FIRST_ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// A fault in the wiring of a limiter. The limiter decides anyway, so a fault would otherwise show
/// only as protection that is missing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SetupProblem {
    /// No policy names a bucket of this service.
    #[error(
        "no policy names the bucket `{bucket}`: its requests are counted and all admitted; {}",
        add_or_correct(nearest.as_deref())
    )]
    UnknownBucket {
        /// The bucket as the service names it.
        bucket: String,
        /// The most similar name in the policy.
        nearest: Option<String>,
    },
    /// The feed was dropped, or is not run.
    #[error(
        "the feed of this limiter is not running: no directive arrives and no count leaves; run the Feed of \
         LimiterBuilder::build_detached, or call LimiterBuilder::build"
    )]
    FeedNotRun,
    /// The runtime of the feed ended, or its task was aborted.
    #[error(
        "the feed of this limiter has stopped without a shutdown: the directives held stay in force and no count leaves; \
         keep its tokio runtime alive, and end the feed with FeedHandle::shutdown"
    )]
    FeedStopped,
    /// The limiter has no aggregator.
    #[error(
        "this limiter has no aggregator: it decides by no policy; give LimiterBuilder::aggregator an address, or set \
         PLIMSOLL_AGGREGATOR for Limiter::from_env"
    )]
    NoAggregator,
    /// No aggregator has answered since the start.
    #[error(
        "no aggregator has answered since the start, {} s or more ago, and {meanwhile}: check that one runs at \
         {addresses}, that this process can reach it, and in the log why connections fail",
        FIRST_ANSWER_WITHIN.as_secs()
    )]
    NeverConnected {
        /// The addresses, with commas between.
        addresses: String,
        /// The rule for decisions until one answers.
        meanwhile: String,
    },
    /// No request had a tenant.
    #[error(
        "none of the first {TRIAL} requests had a tenant by `{tenant_by}`, and all of them counted for the class `default`: \
         {remedy}"
    )]
    NoTenant {
        /// The source of tenants.
        tenant_by: String,
        /// The likely causes, and what to do about them.
        remedy: String,
    },
    /// No request matched a rule with a bucket.
    #[error(
        "none of the first {TRIAL} requests matched a rule with a bucket, in the rules that begin with {rule}: they are \
         admitted without a limit; the path of one is `{path}`, as the rules see it: compare it with theirs (has a router or \
         a proxy removed a prefix?), and the methods; a last rule without conditions limits or exempts the rest \
         (Rule::otherwise, Rule::unlimited)"
    )]
    NoRuleMatches {
        /// The first of the rules.
        rule: String,
        /// The path of a request, escaped and cut.
        path: String,
    },
    /// The policy does not have the plan of a tenant.
    #[error(
        "the policy does not have the plan `{plan}`: tenants with it count for the class `default`; add it to `plans` in \
         tenants.yaml, or correct the plan that the service gives"
    )]
    UnknownPlan {
        /// The plan as the service names it.
        plan: String,
    },
    /// The aggregator belongs to another zone.
    #[error(
        "this service names the zone `{zone}` and its aggregator the zone `{aggregator_zone}`, whose limits it shares: set \
         PLIMSOLL_ZONE or LimiterBuilder::zone, or connect it to an aggregator of its zone"
    )]
    ForeignZone {
        /// The zone that the service names.
        zone: String,
        /// The zone of the aggregator.
        aggregator_zone: String,
    },
    /// An aggregator takes connections and sends no directives.
    #[error(
        "the aggregator `{address}` takes the connection and sends no directives: check that the address and port are those \
         that an aggregator listens on for clients (`--listen`), and not its admin port or another server"
    )]
    SilentAggregator {
        /// The address, as `HOST:PORT`.
        address: String,
    },
    /// Two layers decide about the same request for the same bucket.
    #[error(
        "a request passes two layers that decide for the bucket `{bucket}`: it is counted once; remove one of the two \
         PlimsollLayers from the stack"
    )]
    LayerTwice {
        /// The bucket that both layers decide for.
        bucket: String,
    },
    /// A bucket has exact quotas, and the limiter has no store that decides them.
    #[error(
        "the bucket `{bucket}` has exact quotas, which are not enforced here: this limiter has no store; give \
         LimiterBuilder::quota_store the address of the quota server or of Redis, or set PLIMSOLL_QUOTA_STORE for \
         Limiter::from_env"
    )]
    QuotasWithoutStore {
        /// The bucket.
        bucket: String,
    },
    /// Requests of a bucket with exact quotas are decided without waiting for their store.
    #[error(
        "the bucket `{bucket}` has exact quotas, and the service asks about it by Limiter::check, which does not wait for \
         their store: leases and on_store_error decide; use Limiter::check_async, or PlimsollLayer with the feature `quota`"
    )]
    QuotasInMemory {
        /// The bucket.
        bucket: String,
    },
    /// A request of several keys has another one of several among them.
    #[error(
        "a request of several keys has another one of several among them, whose keys admit it uncounted: give \
         Request::all the keys of both in one list"
    )]
    NestedRequest,
    /// The limiter has no room for a bucket.
    #[error(
        "no room for the bucket `{bucket}`: its requests are admitted and not counted, because LimiterBuilder::{setting} is \
         {max}; raise it, or name fewer buckets"
    )]
    BucketsFull {
        /// The bucket without room.
        bucket: String,
        /// The method of the builder that sets the reached limit: `buckets_max` or `keys_max`.
        setting: &'static str,
        /// That limit.
        max: usize,
    },
}

impl SetupProblem {
    /// Returns the value of the metric label `problem`.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::UnknownBucket { .. } => "unknown_bucket",
            Self::FeedNotRun => "feed_not_run",
            Self::FeedStopped => "feed_stopped",
            Self::NoAggregator => "no_aggregator",
            Self::NeverConnected { .. } => "never_connected",
            Self::NoTenant { .. } => "no_tenant",
            Self::NoRuleMatches { .. } => "no_rule_matches",
            Self::UnknownPlan { .. } => "unknown_plan",
            Self::ForeignZone { .. } => "foreign_zone",
            Self::SilentAggregator { .. } => "silent_aggregator",
            Self::LayerTwice { .. } => "layer_twice",
            Self::QuotasWithoutStore { .. } => "quotas_without_store",
            Self::QuotasInMemory { .. } => "quotas_in_memory",
            Self::NestedRequest => "nested_request",
            Self::BucketsFull { .. } => "buckets_full",
        }
    }

    /// Returns the bucket, plan, zone, address, rule or source of tenants at fault; empty where the limiter as a whole is.
    pub fn subject(&self) -> &str {
        match self {
            Self::UnknownBucket { bucket, .. }
            | Self::LayerTwice { bucket }
            | Self::QuotasWithoutStore { bucket }
            | Self::QuotasInMemory { bucket }
            | Self::BucketsFull { bucket, .. } => bucket,
            Self::ForeignZone {
                aggregator_zone, ..
            } => aggregator_zone,
            Self::SilentAggregator { address } => address,
            Self::NeverConnected { addresses, .. } => addresses,
            Self::NoTenant { tenant_by, .. } => tenant_by,
            Self::NoRuleMatches { rule, .. } => rule,
            Self::UnknownPlan { plan } => plan,
            Self::FeedNotRun | Self::FeedStopped | Self::NoAggregator | Self::NestedRequest => "",
        }
    }

    /// Returns true for the same kind and subject.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.kind() == other.kind() && self.subject() == other.subject()
    }
}

fn add_or_correct(nearest: Option<&str>) -> String {
    match nearest {
        Some(nearest) => {
            format!(
                "did you mean `{nearest}`? correct the name in the service, or add the bucket to the policy"
            )
        }
        None => "add it to the policy, or correct its name in the service".to_owned(),
    }
}
