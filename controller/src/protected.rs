//! One protected bucket: its limit, its law, what is offered to it, and the directives that follow.

mod directive;
mod terms;

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use plimsoll_core::bucket::{Bucket, KeyId, Tenant};
use plimsoll_core::directive::{BucketDirective, Entitlement, KeyDirective, Terms, Values};
use plimsoll_core::law::{Balance, Burst, Child, Claimant, Class, Division, Parameters, Part, Whole};
use plimsoll_core::policy::{BucketPolicy, LawName, Policy, Release, Weight};
use plimsoll_core::presence::{HELD, Presences};
use plimsoll_core::rate::{Limit, Rate};
use plimsoll_core::ratio::DropRatio;
use plimsoll_core::rollout::Mode;

use self::terms::PolicyTerms;
use crate::durable::Durable;
use crate::members::{Member, Members};
use crate::sources::{Beat, Place, Source, Sources};

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

    /// Whether a silent aggregator's share of it is never released.
    #[must_use]
    pub fn is_never_released(&self) -> bool {
        self.terms.release == Release::Never
    }

    /// How far enforcement has come, before a kill is considered.
    #[must_use]
    pub fn stage(&self, durable: &Durable) -> Mode {
        let stage = self.entry.as_ref().and_then(|entry| durable.stages.get(entry));
        stage.map_or(Mode::Shadow, |stage| stage.stage)
    }

    /// Takes up the policy. The tenants may have changed, so keys have to be added again; the balance stays.
    pub fn configure(&mut self, policy: &Policy) {
        let of_bucket = policy.bucket(&self.name);
        self.entry = policy.entry(&self.name);
        self.limit = of_bucket.map_or(Limit::Unknown, BucketPolicy::limit);
        self.terms = PolicyTerms::of(of_bucket, self.name.as_str());
        self.members = Members::new(policy);
        self.bursts.retain(|tenant, _| policy.is_listed(tenant));
        self.shares.clear();
        self.zones.values_mut().for_each(|zone| zone.parts.clear());
    }

    /// A key of the bucket has appeared.
    pub fn add_key(&mut self, key: KeyId, tenant: &Tenant) {
        self.members.add(key, tenant);
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

    fn lead(&mut self, tick: &Tick<'_>, within: f64, scratch: &mut Scratch) {
        let children: Vec<(&Place, &Source, f64)> = tick
            .sources
            .iter()
            .filter(|(_, source)| source.is_served())
            .map(|(place, source)| {
                let presence = if self.is_never_released() { 1.0 } else { source.presence() };
                (place, source, presence)
            })
            .collect();
        let total: f64 = children.iter().map(|(.., presence)| presence).sum();
        self.presences = Presences::sum([total].into_iter());
        let presences = total.max(1.0);

        if self.members.choose(|key| children.iter().map(|(_, source, f)| f * source.rate(key)).sum()) {
            self.shares.clear();
        }
        let mut rates: Vec<Vec<f64>> = vec![Vec::new(); children.len()];
        for ((_, source, _), rates) in children.iter().zip(&mut rates) {
            self.members.gather(|key| source.rate(key), rates);
        }
        self.shares.resize(self.members.len(), Share::default());
        for (at, share) in self.shares.iter_mut().enumerate() {
            let each = children.iter().zip(&rates).map(|((.., f), rates)| f * rates[at]);
            share.offered = each.sum();
        }
        self.settle(tick, within, presences, &children, &rates, scratch);
        self.weigh(tick, &children, scratch);
        let target = match self.terms.law {
            LawName::Balanced => self.balance.target(within, self.terms.burst, tick.parameters),
            LawName::Proportional => {
                // It remembers nothing, also not for a law that may come after it.
                self.balance = Balance::default();
                within
            }
        };
        self.divide(tick, target, within, scratch);
        for ((place, source, presence), rates) in children.iter().zip(&rates) {
            let child = Child { presence: *presence, presences };
            // One that is silent lives on what it was told last.
            let hold = self.zones.get(*place).and_then(|zone| zone.hold);
            self.split(place, child, rates, scratch, tick.parameters);
            if source.is_silent(tick.parameters)
                && let Some(zone) = self.zones.get_mut(*place)
            {
                zone.hold = hold.or(zone.hold);
            }
        }
    }

    /// Credits what each zone might have passed and debits what it did, or, while it is silent, what it is taken to.
    fn settle(
        &mut self,
        tick: &Tick<'_>,
        within: f64,
        presences: f64,
        children: &[(&Place, &Source, f64)],
        rates: &[Vec<f64>],
        scratch: &mut Scratch,
    ) {
        for ((place, source, presence), rates) in children.iter().zip(rates) {
            let zone = self.zones.entry((*place).clone()).or_default();
            match source.beat() {
                Beat::Idle => {}
                Beat::Counted { span, gap } => {
                    let assumed = zone.assumed.take();
                    let released = gap > HELD && self.terms.release == Release::Auto;
                    let unaccounted = gap >= tick.parameters.silent_after() && assumed.is_none();
                    if released || unaccounted {
                        continue;
                    }
                    self.members.gather(|key| source.passed(key), &mut scratch.passed);
                    let passed: f64 = scratch.passed.iter().sum();
                    let credit = within * span.as_secs_f64() / presences;
                    self.balance.add(credit - passed - assumed.unwrap_or_default());
                }
                Beat::Silent(span) => {
                    let offered: f64 = rates.iter().sum();
                    let passes = presence * zone.hold.map_or(offered, |hold| hold.min(offered));
                    let tokens = (presence * within / presences - passes) * span.as_secs_f64();
                    *zone.assumed.get_or_insert_default() += tokens;
                    self.balance.add(tokens);
                }
            }
        }
    }

    /// Works out each entry's weight of this moment, boosts included.
    fn weigh(&mut self, tick: &Tick<'_>, children: &[(&Place, &Source, f64)], scratch: &mut Scratch) {
        let limit = self.limit.per_second().map_or(0.0, Rate::per_second);
        let plain = |member: &Member| tick.policy.tenant(&member.tenant).weight().get();
        let sum_passed = |key: KeyId| children.iter().map(|(_, source, _)| source.passed(key)).sum();
        self.members.gather(sum_passed, &mut scratch.passed);
        // The class speaks for all that are not listed.
        let (mut class_offered, mut class_passed, mut active) = (0.0, 0.0, 0.0);
        for ((member, share), passed) in self.members.iter().zip(&self.shares).zip(&scratch.passed) {
            if member.class == Class::Listed {
                active += if share.offered > 0.0 { plain(member) } else { 0.0 };
            } else {
                class_offered += share.offered;
                class_passed += passed;
            }
        }
        let class = self.members.iter().find(|member| member.class == Class::Default).map_or(1.0, plain);
        active += if class_offered > 0.0 { class } else { 0.0 };
        for ((member, share), passed) in self.members.iter().zip(&mut self.shares).zip(&scratch.passed) {
            let tenant = tick.policy.tenant(&member.tenant);
            let weight = tenant.weight_at(tick.unix_s).get();
            let multiplier = tenant.burst_multiplier().get();
            share.weight = weight;
            if member.class == Class::Unlisted || multiplier <= 1.0 {
                continue;
            }
            let passed = if member.class == Class::Default { class_passed } else { *passed };
            // Where nobody asks for anything, all of it would be the tenant's.
            let fair = if active > 0.0 { tenant.weight().get() * limit / active } else { limit };
            let burst = self.bursts.entry(member.tenant.clone()).or_default();
            share.weight = weight
                * burst.on_tick(tick.since_last.as_secs_f64(), fair, passed, multiplier, tick.parameters);
        }
    }

    fn divide(&mut self, tick: &Tick<'_>, target: f64, within: f64, scratch: &mut Scratch) {
        let floor = match self.terms.law {
            LawName::Balanced => tick.policy.fairness().min_floor().per_second(),
            LawName::Proportional => 0.0,
        };
        let tenant_limit = self.terms.tenant_limit.map_or(f64::INFINITY, Rate::per_second);
        scratch.claimants.clear();
        scratch.claimants.extend(self.members.iter().zip(&self.shares).map(|(member, share)| Claimant {
            offered: share.offered,
            weight: share.weight,
            floor,
            tenant_limit,
            class: member.class,
        }));
        scratch.division.divide(self.terms.law, target, &scratch.claimants);
        scratch.holding.divide(self.terms.law, within, &scratch.claimants);
        for (share, allocation) in self.shares.iter_mut().zip(scratch.division.allocations()) {
            share.allocation = *allocation;
            // What is no number keeps the ratio that was.
            if let (Ok(offered), Ok(allowed)) = (Rate::new(share.offered), Rate::new(*allocation)) {
                share.ratio = DropRatio::of_excess(offered, allowed);
            }
        }
        for (wholes, division) in
            [(&mut scratch.led, &scratch.division), (&mut scratch.held, &scratch.holding)]
        {
            let given = division.allocations().iter().zip(division.rooms());
            wholes.clear();
            wholes.extend(self.shares.iter().zip(given).map(|(share, (allocation, room))| Whole {
                offered: share.offered,
                allocation: *allocation,
                room: *room,
            }));
        }
    }

    /// Gives one zone its part of what was divided.
    fn split(
        &mut self,
        place: &Place,
        child: Child,
        rates: &[f64],
        scratch: &Scratch,
        parameters: &Parameters,
    ) {
        let zone = self.zones.entry(place.clone()).or_default();
        let overloaded = scratch.holding.is_overloaded();
        let led = scratch.led.iter().zip(rates);
        let held = scratch.held.iter().zip(rates);
        zone.parts.clear();
        zone.parts.extend(led.map(|(whole, rate)| whole.part(child, *rate, parameters)));
        zone.hold = Some(held.map(|(whole, rate)| whole.hold(child, *rate, overloaded, parameters)).sum());
    }
}
