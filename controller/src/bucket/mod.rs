//! One protected bucket: its limit, its law, what is offered to it, and the directives that follow.

mod candidate;
mod directive;
mod tenants;
mod terms;
mod tick;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use plimsoll_core::names::{Bucket, KeyId, Tenant};
use plimsoll_core::directive::{BucketDirective, Entitlement, KeyDirective, Terms, Values};
use plimsoll_core::law::{Balance, Burst, Child, Claimant, Class, Division, Parameters, Part, Whole};
use plimsoll_core::decision::Coin;
use plimsoll_core::law::{LawName, Weight};
use plimsoll_policy::{Policy, Release};
use plimsoll_core::law::presence::{HELD, Presences};
use plimsoll_core::quantity::{Limit, Rate};
use plimsoll_core::quantity::DropRatio;
use plimsoll_core::decision::Mode;

pub use self::candidate::Candidate;
use self::terms::PolicyTerms;
use crate::state::Durable;
use self::tenants::{Member, Members};
use crate::aggregators::{Beat, Place, Source, Sources};

/// A bucket that the controller knows.
#[derive(Debug)]
pub struct Protected {
    name: Bucket,
    /// The entry of the policy it falls under, if any.
    entry: Option<String>,
    limit: Limit,
    terms: PolicyTerms,
    members: Members,
    balance: Balance,
    candidate: Option<Candidate>,
    /// What tenants have saved up whose weight may burst.
    bursts: HashMap<Tenant, Burst>,
    /// By member; empty until the law was first applied.
    shares: Vec<Share>,
    zones: BTreeMap<Place, ZoneShare>,
    presences: Presences,
}

/// What one tenant asks of the bucket and gets.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Share {
    /// Requests/s offered over all zones.
    pub offered: f64,
    /// Requests/s that may pass.
    pub allocation: f64,
    /// The probability of refusal that follows.
    pub ratio: DropRatio,
    weight: f64,
}

/// What one zone has of the bucket.
#[derive(Debug, Default)]
struct ZoneShare {
    /// By member.
    parts: Vec<Part>,
    /// Its part of the limit while this controller is silent, once it was told one.
    hold: Option<f64>,
    /// What the balance was credited or charged for it while it was silent; `None` while nothing was.
    assumed: Option<f64>,
}

/// What a tick knows besides the bucket itself.
#[derive(Debug)]
pub struct Tick<'a> {
    /// Time since the last one.
    pub since_last: Duration,
    /// Seconds since 1970.
    pub unix_s: i64,
    /// Who reports.
    pub sources: &'a Sources,
    /// What is in force.
    pub policy: &'a Policy,
    /// What the law is tuned by.
    pub parameters: &'a Parameters,
    /// Rates are being sent.
    pub leading: bool,
}

/// Scratch that all buckets share.
#[derive(Debug, Default)]
pub struct Scratch {
    division: Division,
    holding: Division,
    claimants: Vec<Claimant>,
    passed: Vec<f64>,
    /// What each member gets in all while the zones are led, and while they are not.
    led: Vec<Whole>,
    held: Vec<Whole>,
}

impl Protected {
    /// A bucket nothing is known of.
    #[must_use]
    pub fn new(name: Bucket) -> Self {
        Self {
            name,
            entry: None,
            limit: Limit::Unknown,
            terms: PolicyTerms::of(None, ""),
            members: Members::default(),
            balance: Balance::default(),
            candidate: None,
            bursts: HashMap::new(),
            shares: Vec::new(),
            zones: BTreeMap::new(),
            presences: Presences::ONE,
        }
    }

    /// Its name.
    #[must_use]
    pub const fn name(&self) -> &Bucket {
        &self.name
    }

    /// The entry of the policy it falls under.
    #[must_use]
    pub fn entry(&self) -> Option<&str> {
        self.entry.as_deref()
    }

    /// What it may admit over all zones.
    #[must_use]
    pub const fn limit(&self) -> Limit {
        self.limit
    }

    /// What the law has given each tenant that is told apart; nothing while there is no limit or the controller does
    /// not lead.
    pub fn shares(&self) -> impl Iterator<Item = (&Tenant, &Share)> {
        self.members.iter().map(|member| &member.tenant).zip(&self.shares)
    }

    /// Requests saved up, or owed when negative.
    #[must_use]
    pub const fn balance(&self) -> Balance {
        self.balance
    }

    /// The second limit that is only evaluated.
    #[must_use]
    pub const fn candidate(&self) -> Option<&Candidate> {
        self.candidate.as_ref()
    }

    /// Whether a silent aggregator's share of it is never released.
    #[must_use]
    pub fn is_never_released(&self) -> bool {
        self.terms.release == Release::Never
    }

    /// How far enforcement has come, as far as kills allow.
    #[must_use]
    pub fn stage(&self, durable: &Durable) -> Mode {
        let stage = self.entry.as_ref().and_then(|entry| durable.stages.get(entry));
        durable.mode_of(&self.name, stage.map_or(Mode::Shadow, |stage| stage.stage))
    }

    /// Every key of it that has had traffic.
    pub fn keys(&self) -> impl Iterator<Item = KeyId> {
        self.members.keys()
    }

    /// Another limit is in force than before, from where the policy says; true if it is another. What has been divided
    /// stays until the law is applied.
    pub fn set_limit(&mut self, limit: Limit) -> bool {
        let before = std::mem::replace(&mut self.limit, limit);
        before != limit
    }

    /// Takes up the policy, with the limit that follows from it now. The tenants may have changed, so keys have to be added
    /// again; the balance stays.
    pub fn configure(&mut self, policy: &Policy, limit: Limit) {
        let of_bucket = policy.bucket(&self.name);
        self.entry = policy.entry(&self.name);
        self.limit = limit;
        self.terms = PolicyTerms::of(of_bucket, self.name.as_str());
        self.candidate = Candidate::configured(self.candidate, of_bucket);
        self.members = Members::new(policy);
        self.bursts.retain(|tenant, _| policy.is_listed(tenant));
        self.shares.clear();
        self.zones.values_mut().for_each(|zone| zone.parts.clear());
    }

    /// A key of the bucket has appeared.
    pub fn add_key(&mut self, key: KeyId, tenant: &Tenant) {
        self.members.add(key, tenant);
    }

    /// Keys of tenants that policy does not list are gone.
    pub fn remove_keys(&mut self, keys: &HashSet<KeyId>) {
        if self.members.remove(keys) {
            self.shares.clear();
            self.zones.values_mut().for_each(|zone| zone.parts.clear());
        }
    }

    /// An aggregator is gone for good.
    pub fn forget(&mut self, place: &Place) {
        self.zones.remove(place);
    }

    /// A new process speaks for this place: what its predecessor passed in silence will never be known.
    pub fn replace(&mut self, place: &Place) {
        if let Some(zone) = self.zones.get_mut(place) {
            zone.assumed = None;
        }
    }

    /// Gives every aggregator that is not sent rates something to live on: an even part of the limit, unless it came
    /// with a hold; and where the limit is zero, nothing.
    pub fn welcome(&mut self, sources: &Sources, expected: usize) {
        let Some(limit) = self.limit.per_second().map(Rate::per_second) else {
            self.shares.clear();
            self.zones.clear();
            return;
        };
        if limit == 0.0 {
            self.deny(sources);
            return;
        }
        if !sources.iter().any(|(_, source)| source.is_served()) {
            self.presences = Presences::sum([expected as f64].into_iter());
        }
        for (place, source) in sources.iter().filter(|(_, source)| !source.is_served()) {
            let zone = self.zones.entry(place.clone()).or_default();
            let brought = source.holds().contains_key(&self.name);
            // A new process in a zone's place lives on what the one before it did.
            let lived_on = source.lived_on().get(&self.name).map(|hold| hold.per_second());
            zone.hold = (!brought).then(|| lived_on.unwrap_or(limit / expected.max(1) as f64));
        }
    }

    fn deny(&mut self, sources: &Sources) {
        let share = Share { ratio: DropRatio::ALL, ..Share::default() };
        self.shares.clear();
        self.shares.resize(self.members.len(), share);
        for (place, _) in sources.iter() {
            let parts = vec![Part::default(); self.members.len()];
            // No hold: one of nothing would outlive the limit of zero, should it be raised while this controller is away.
            self.zones.insert(place.clone(), ZoneShare { parts, ..ZoneShare::default() });
        }
    }

    /// Applies the law. `within` is what may be divided now in requests/s, the limit unless this controller has just
    /// taken over. O(Z K + K log K) for Z zones and K tenants told apart.
    pub fn on_tick(&mut self, tick: &Tick<'_>, within: f64, scratch: &mut Scratch) {
        if tick.leading && self.limit.per_second().is_some_and(|limit| limit > Rate::ZERO) {
            self.lead(tick, within, scratch);
        }
    }
}
