//! One bucket that the controller knows: its limit, what is offered to it, what the law gives each tenant in
//! each zone, and the directives that follow.

mod active_rows;
mod candidate;
mod directive;
mod refusal_history;
mod refusals;
mod registry;
mod tails;
mod tenants;
mod tick;

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use plimsoll_core::decision::{Coin, Mode};
use plimsoll_core::directive::{Headroom, NewShare};
use plimsoll_core::law::presence::Presences;
use plimsoll_core::law::{Balance, Burst, ZonePart};
use plimsoll_core::names::{Bucket, Key, KeyId, Tenant};
use plimsoll_core::quantity::{DropRatio, Limit, MonoTime, Rate};
use plimsoll_core::quota::BucketQuotas;
use plimsoll_core::rollout::Cohort;
use plimsoll_core::stats::AdmissionCheck;
use plimsoll_policy::{BucketPolicy, Policy, Release};

use self::refusals::RefusalRecord;
use self::tenants::BucketTenants;
use crate::aggregators::{AggregatorKey, Aggregators};
use crate::rollout::MovingLimit;
use crate::state::DurableState;

pub(crate) use self::active_rows::{ActiveRows, RowChanges};
pub(crate) use self::candidate::Candidate;
pub(crate) use self::refusal_history::{RefusalHistory, RefusalsOfBucket};
pub use self::refusals::Refusals;
pub(crate) use self::registry::{Buckets, Listing};
pub(crate) use self::tick::{Scratch, Tick};

#[derive(Debug)]
pub(crate) struct BucketState {
    pub(crate) name: Bucket,
    /// The entry of the policy that covers it, if one does.
    pub(crate) entry: Option<String>,
    pub(crate) listing: Listing,
    /// The time of the latest search for idle buckets that found an aggregator subscribed to it; zero before.
    pub(crate) subscribed_at: MonoTime,
    pub(crate) limit: Limit,
    pub(crate) terms: PolicyTerms,
    pub(crate) tenants: BucketTenants,
    pub(crate) balance: Balance,
    pub(crate) candidate: Option<Candidate>,
    pub(crate) admissions: AdmissionCheck,
    pub(crate) refusals: RefusalRecord,
    /// Of tenants with a burst multiplier.
    bursts: HashMap<Tenant, Burst>,
    /// One per entry of `tenants`; none before rates are sent, and from a change of the tenants to the next tick.
    shares: Vec<Share>,
    /// By aggregator: in this module a zone is one aggregator.
    pub(crate) zones: BTreeMap<AggregatorKey, ZoneShare>,
    /// The number of aggregators that share the limit, silent ones in part.
    presences: Presences,
    pub(crate) silent: SilentShares,
}

/// The traffic of silent aggregators that does not count anymore; their clients may continue.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct SilentShares {
    /// Requests/s that they offered last, as far as those are no part of the offered traffic any more.
    pub(crate) unheard: f64,
    /// Requests/s of their parts of the limit that are divided among the others.
    pub(crate) released: f64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct PolicyTerms {
    /// True if the limit is learned or queried.
    has_moving_limit: bool,
    /// Maximum credit of the balance, in time of the limit.
    burst: Duration,
    release: Release,
    coin: Coin,
    cohort: Cohort,
    pub(crate) quotas: BucketQuotas,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Share {
    /// Requests/s offered over all zones, through silent ones in part. Of a class, without what its names offer above
    /// their tenant limit.
    pub(crate) offered: f64,
    /// Requests/s that may pass; 0 without a limit.
    pub(crate) allocation: f64,
    /// `None` without a limit.
    pub(crate) ratio: Option<DropRatio>,
    /// True if the tenant limit and not the bucket's limit stops it; never of a class.
    pub(crate) at_tenant_limit: bool,
    /// With boost and burst credit; 0 without a limit.
    weight: f64,
}

/// The offered requests/s of shares together, and the mean of their ratios; that of the latest share while none has
/// traffic, and `None` without a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct LawRate {
    pub(crate) offered_rps: f64,
    pub(crate) ratio: Option<f64>,
}

#[derive(Debug, Default)]
pub(crate) struct ZoneShare {
    /// One per entry of `tenants`.
    parts: Vec<ZonePart>,
    /// Its part of the headroom that all tenants share, once it was sent one.
    headroom: Option<Headroom>,
    /// Its part of the traffic of new names, one per class of `tenants`; `None` for a class whose names it does not cut.
    new_shares: Vec<Option<NewShare>>,
    /// Its part of the limit in requests/s while this controller is silent, once it was sent one; `None` while it
    /// keeps a hold that it brought.
    hold: Option<f64>,
    /// What the balance has gained, or lost if negative, by assumptions since it fell silent; its next counts take
    /// their place. `None` while it is not silent.
    assumed: Option<f64>,
}

impl LawRate {
    pub(crate) fn add(&mut self, offered_rps: f64, ratio: Option<f64>) {
        let refused = |offered: f64, ratio: Option<f64>| offered * ratio.unwrap_or_default();
        let refused = refused(self.offered_rps, self.ratio) + refused(offered_rps, ratio);
        self.offered_rps += offered_rps;
        if let Some(of_latest) = ratio.or(self.ratio) {
            let mean = refused / self.offered_rps;
            self.ratio = Some(if mean.is_finite() { mean } else { of_latest });
        }
    }
}

impl Share {
    /// Returns the share of the requests that the law means to refuse; `None` without a limit.
    pub(crate) fn law_ratio(&self) -> Option<f64> {
        self.ratio.map(DropRatio::as_f64)
    }
}

// === impl BucketState ===

impl BucketState {
    pub(crate) fn new(name: Bucket, listing: Listing) -> Self {
        Self {
            name,
            entry: None,
            listing,
            subscribed_at: MonoTime::ZERO,
            limit: Limit::Unknown,
            terms: PolicyTerms::default(),
            tenants: BucketTenants::default(),
            balance: Balance::default(),
            candidate: None,
            admissions: AdmissionCheck::default(),
            refusals: RefusalRecord::default(),
            bursts: HashMap::new(),
            shares: Vec::new(),
            zones: BTreeMap::new(),
            presences: Presences::ONE,
            silent: SilentShares::default(),
        }
    }

    /// The share of each tenant: of a bucket without a limit what is offered. None before the first tick.
    pub(crate) fn shares(&self) -> impl Iterator<Item = (&Tenant, &Share)> {
        self.tenants
            .iter()
            .map(|tenant| &tenant.name)
            .zip(&self.shares)
    }

    /// The share of a tenant, or of the class `default` that one without an entry counts for.
    pub(crate) fn share_of(&self, tenant: &Tenant) -> Option<&Share> {
        self.shares.get(self.tenants.entry_of(tenant))
    }

    /// The listed tenants that have a limit of their own, of their plan or of the bucket, with it.
    pub(crate) fn tenants_with_limits(&self) -> impl Iterator<Item = (&Tenant, Rate, &Share)> {
        let tenants = self.tenants.iter().zip(&self.shares);
        tenants
            .filter(|(tenant, _)| !tenant.name.is_class())
            .filter_map(|(tenant, share)| Some((&tenant.name, tenant.limit?, share)))
    }

    /// Returns true if the share of a silent aggregator is never released.
    pub(crate) fn is_never_released(&self) -> bool {
        self.terms.release == Release::Never
    }

    /// The limit, with the entry of the policy that covers the bucket, if it is learned or queried.
    pub(crate) fn moving_limit(&self) -> Option<MovingLimit<'_>> {
        let limit = self
            .limit
            .per_second()
            .filter(|_| self.terms.has_moving_limit)?;
        Some(MovingLimit {
            entry: self.entry.as_deref()?,
            bucket: &self.name,
            limit,
        })
    }

    /// The limit that the law divides; with only a tenant limit, the largest rate.
    pub(crate) fn divided_limit(&self) -> Limit {
        match self.limit {
            Limit::Unlimited | Limit::Unknown if self.tenants.have_limits() => {
                Limit::PerSecond(Rate::MAX)
            }
            limit => limit,
        }
    }

    pub(crate) fn is_divided(&self) -> bool {
        self.divided_limit()
            .per_second()
            .is_some_and(|limit| limit > Rate::ZERO)
    }

    /// The current mode: the stage of its entry, lowered by kills; shadow without an entry.
    pub(crate) fn mode(&self, durable: &DurableState) -> Mode {
        let stage = self
            .entry
            .as_ref()
            .and_then(|entry| durable.stages.get(entry));
        durable.mode_of(&self.name, stage.map_or(Mode::Shadow, |stage| stage.stage))
    }

    /// Sets the limit, and returns true if it differs from the one before. Allocations follow with the next
    /// tick.
    pub(crate) fn set_limit(&mut self, limit: Limit) -> bool {
        std::mem::replace(&mut self.limit, limit) != limit
    }

    /// Applies a policy, and the limit that follows from it. The listed tenants may differ, so every key has
    /// to be added again. The balance stays.
    pub(crate) fn configure(&mut self, policy: &Policy, limit: Limit) {
        let of_bucket = policy.bucket(&self.name);
        self.entry = policy.entry(&self.name);
        self.listing = Listing::of(policy, &self.name);
        self.limit = limit;
        self.terms = PolicyTerms::of(of_bucket, self.name.as_str());
        self.candidate = Candidate::configured(self.candidate, of_bucket);
        self.tenants = BucketTenants::new(policy, &self.name);
        self.bursts.retain(|tenant, _| policy.is_listed(tenant));
        self.clear_allocations();
    }

    /// Lists rows of the catalogue, and ends others. Allocations follow with the next tick.
    pub(crate) fn relist(
        &mut self,
        policy: &Policy,
        changes: &RowChanges,
        known: impl Fn(&Key) -> Option<KeyId>,
    ) {
        self.tenants.relist(policy, &self.name, changes, known);
        self.bursts.retain(|tenant, _| policy.is_listed(tenant));
        self.clear_allocations();
    }

    /// The name of the bucket, and the part of its limit that an aggregator was sent to live on.
    pub(crate) fn hold_of(&self, place: &AggregatorKey) -> Option<(Bucket, Rate)> {
        let hold = Rate::computed(self.zones.get(place)?.hold?)?;
        (hold > Rate::ZERO).then(|| (self.name.clone(), hold))
    }

    /// Drops what was assumed of an aggregator in silence: its new process cannot report what the old one
    /// passed.
    pub(crate) fn on_replaced(&mut self, place: &AggregatorKey) {
        if let Some(zone) = self.zones.get_mut(place) {
            zone.assumed = None;
        }
    }

    /// Gives every aggregator that is not sent rates a hold: an even part of the limit among `expected`
    /// aggregators, unless it brought a hold. A limit of zero denies all requests instead. Without a limit all shares
    /// and parts go.
    pub(crate) fn assign_holds(&mut self, aggregators: &Aggregators, expected: usize) {
        let Some(limit) = self.divided_limit().per_second().map(Rate::per_second) else {
            self.shares.clear();
            self.zones.clear();
            return;
        };
        if limit == 0.0 {
            self.deny_all(aggregators);
            return;
        }
        if !aggregators.iter().any(|(_, aggregator)| aggregator.served) {
            self.presences = Presences::sum([expected as f64].into_iter());
        }
        for (place, aggregator) in aggregators.iter().filter(|(_, it)| !it.served) {
            let zone = self.zones.entry(place.clone()).or_default();
            let has_hold = aggregator.holds.contains_key(&self.name);
            // A new process lives on what the process before it brought.
            let first_hold = aggregator.first_holds.get(&self.name);
            let even = limit / expected.max(1) as f64;
            zone.hold = (!has_hold).then(|| first_hold.map_or(even, |hold| hold.per_second()));
        }
    }

    fn deny_all(&mut self, aggregators: &Aggregators) {
        let share = Share {
            ratio: Some(DropRatio::ALL),
            ..Share::default()
        };
        self.shares.clear();
        self.shares.resize(self.tenants.len(), share);
        for (place, _) in aggregators.iter() {
            // No hold: a hold of zero would outlive the limit of zero, if the limit is raised while no
            // controller runs.
            let zone = ZoneShare {
                parts: vec![ZonePart::default(); self.tenants.len()],
                ..ZoneShare::default()
            };
            self.zones.insert(place.clone(), zone);
        }
    }

    fn clear_allocations(&mut self) {
        self.shares.clear();
        self.zones.values_mut().for_each(|zone| zone.parts.clear());
    }
}

// === impl PolicyTerms ===

impl PolicyTerms {
    /// The settings of a bucket of this name; the defaults for a bucket outside of the policy.
    fn of(bucket: Option<&BucketPolicy>, name: &str) -> Self {
        bucket.map_or_else(Self::default, |bucket| Self {
            has_moving_limit: bucket.limit() == Limit::Unknown,
            burst: bucket.burst,
            release: bucket.release,
            coin: bucket.coin,
            cohort: Cohort {
                percent: bucket.rollout.canary_percent,
                salt: Cohort::salt_of(name),
            },
            quotas: bucket.quotas.clone(),
        })
    }
}
