//! One tick of the law over one bucket: settles its balance, sets the weights of its tenants, divides the
//! target among them, and splits each allocation among zones.

use std::time::Duration;

use plimsoll_core::directive::Headroom;
use plimsoll_core::law::presence::{HELD, Presences};
use plimsoll_core::law::{Child, Claimant, Division, Parameters, Whole};
use plimsoll_core::names::KeyId;
use plimsoll_core::quantity::{DropRatio, Rate};
use plimsoll_policy::{Policy, Release};

use super::tails::ZoneTails;
use super::tenants::BucketTenant;
use super::{BucketState, Share, SilentShares};
use crate::aggregators::{Activity, Aggregator, Aggregators, Place};

#[derive(Debug)]
pub(crate) struct Tick<'a> {
    pub(crate) since_last: Duration,
    /// The time of day in seconds since 1970.
    pub(crate) unix_s: i64,
    pub(crate) aggregators: &'a Aggregators,
    pub(crate) policy: &'a Policy,
    pub(crate) parameters: &'a Parameters,
    pub(crate) leading: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Scratch {
    division: Division,
    holding: Division,
    claimants: Vec<Claimant>,
    counts: Vec<f64>,
    sent: Vec<Whole>,
    held: Vec<Whole>,
}

struct Served<'a> {
    place: &'a Place,
    aggregator: &'a Aggregator,
    /// The share of its traffic that counts: 0..=1.
    presence: f64,
    /// Requests/s offered through it, one per entry of the bucket's tenants.
    rates: Vec<f64>,
}

// === impl BucketState ===

impl BucketState {
    /// Applies the law. `divisible` is the rate in requests/s that may be divided now: the limit,
    /// unless this controller has just taken over. Costs O(Z K + K log K) for Z zones and K tenants
    /// with their own entry.
    pub(crate) fn on_tick(&mut self, tick: &Tick<'_>, divisible: f64, scratch: &mut Scratch) {
        self.quota_drops.on_tick(tick.since_last);
        self.quota_repeats.on_tick(tick.since_last);
        if tick.leading && self.is_divided() {
            self.apply_law(tick, divisible, scratch);
        } else if tick.leading && self.divided_limit().per_second().is_none() {
            self.observe(tick);
        }
    }

    fn observe(&mut self, tick: &Tick<'_>) {
        let mut served = self.served(tick.aggregators);
        for Served {
            aggregator, rates, ..
        } in &mut served
        {
            self.tenants.gather(|key| aggregator.rate(key), rates);
        }
        self.shares.clear();
        self.shares.resize(self.tenants.len(), Share::default());
        self.sum_offered(&served);
    }

    fn sum_offered(&mut self, served: &[Served<'_>]) {
        for (at, share) in self.shares.iter_mut().enumerate() {
            share.offered = served
                .iter()
                .map(|served| served.presence * served.rates[at])
                .sum();
        }
    }

    fn apply_law(&mut self, tick: &Tick<'_>, divisible: f64, scratch: &mut Scratch) {
        let mut served = self.served(tick.aggregators);
        let total: f64 = served.iter().map(|served| served.presence).sum();
        self.presences = Presences::sum([total].into_iter());
        let presences = total.max(1.0);

        let zones = served
            .iter()
            .map(|served| (served.aggregator.tails.get(&self.name), served.presence));
        let tenant_limit = self
            .terms
            .tenant_limit
            .map_or(f64::INFINITY, Rate::per_second);
        let tails = ZoneTails::new(
            zones,
            tick.policy.fairness().min_floor.per_second(),
            tenant_limit,
        );
        for (
            at,
            Served {
                aggregator, rates, ..
            },
        ) in served.iter_mut().enumerate()
        {
            self.tenants.gather(|key| aggregator.rate(key), rates);
            // Requests above the tenant limits of unlisted names are refused in any case.
            if let Some(rate) = rates.get_mut(self.tenants.class()) {
                *rate *= tails.within(at);
            }
        }
        self.shares.resize(self.tenants.len(), Share::default());
        self.sum_offered(&served);
        self.silent = self.silent_shares(&served);
        self.settle_balance(tick, divisible, presences, &served, scratch);
        self.evaluate_candidate(tick, presences, &served, scratch);
        self.set_weights(tick, &served, scratch);
        let target = self
            .balance
            .target(divisible, self.terms.burst, tick.parameters);
        self.divide(tick, target, divisible, &tails, scratch);
        let class = self.shares.get(self.tenants.class());
        let sent = class.filter(|class| class.offered > class.allocation);
        let of_class = sent.and_then(|class| tails.shares(class.allocation));
        for (at, served) in served.iter().enumerate() {
            let of_class = of_class.as_ref().and_then(|shares| shares.get(at)).copied();
            self.split(served, presences, of_class, scratch, tick.parameters);
            if let Some(zone) = self.zones.get_mut(served.place) {
                zone.new_share = tails.new_share(at);
            }
        }
    }

    fn served<'a>(&self, aggregators: &'a Aggregators) -> Vec<Served<'a>> {
        let served = aggregators
            .iter()
            .filter(|(_, aggregator)| aggregator.served);
        let served = served.map(|(place, aggregator)| {
            let presence = if self.is_never_released() {
                1.0
            } else {
                aggregator.presence()
            };
            Served {
                place,
                aggregator,
                presence,
                rates: Vec::new(),
            }
        });
        served.collect()
    }

    fn silent_shares(&self, served: &[Served<'_>]) -> SilentShares {
        let mut silent = SilentShares::default();
        for Served {
            place,
            presence,
            rates,
            ..
        } in served
        {
            let hold = self
                .zones
                .get(*place)
                .and_then(|zone| zone.hold)
                .unwrap_or_default();
            silent.unheard += (1.0 - presence) * rates.iter().sum::<f64>();
            silent.released += (1.0 - presence) * hold;
        }
        silent
    }

    /// Credits the balance with each zone's even part, and debits it with what the zone passed, or for a
    /// silent zone with what its last hold lets pass.
    fn settle_balance(
        &mut self,
        tick: &Tick<'_>,
        divisible: f64,
        presences: f64,
        served: &[Served<'_>],
        scratch: &mut Scratch,
    ) {
        for Served {
            place,
            aggregator,
            presence,
            rates,
        } in served
        {
            let zone = self.zones.entry((*place).clone()).or_default();
            match aggregator.activity {
                Activity::Idle => {}
                Activity::Counted { span, gap } => {
                    let assumed = zone.assumed.take();
                    let released = gap > HELD && self.terms.release == Release::Auto;
                    let unaccounted = gap >= tick.parameters.silent_after() && assumed.is_none();
                    if released || unaccounted {
                        continue;
                    }
                    self.tenants
                        .gather(|key| aggregator.passed(key), &mut scratch.counts);
                    let passed: f64 = scratch.counts.iter().sum();
                    let credit = divisible * span.as_secs_f64() / presences;
                    // The counts replace what was assumed meanwhile.
                    self.balance
                        .add(credit - passed - assumed.unwrap_or_default());
                }
                Activity::Silent(span) => {
                    let offered: f64 = rates.iter().sum();
                    let passes = presence * zone.hold.map_or(offered, |hold| hold.min(offered));
                    let tokens = (presence * divisible / presences - passes) * span.as_secs_f64();
                    *zone.assumed.get_or_insert_default() += tokens;
                    self.balance.add(tokens);
                }
            }
        }
    }

    fn evaluate_candidate(
        &mut self,
        tick: &Tick<'_>,
        presences: f64,
        served: &[Served<'_>],
        scratch: &mut Scratch,
    ) {
        let Some(candidate) = &mut self.candidate else {
            return;
        };
        for Served { aggregator, .. } in served {
            // Counts after a gap tell how much was offered, not how fast. The candidate owes nothing, so it
            // skips them.
            if let Activity::Counted { span, gap } = aggregator.activity
                && gap < tick.parameters.silent_after()
            {
                self.tenants
                    .gather(|key| aggregator.offered(key), &mut scratch.counts);
                candidate.count(scratch.counts.iter().sum(), span, presences);
            }
        }
        let offered = self.shares.iter().map(|share| share.offered).sum();
        candidate.decide(offered, self.terms.burst, tick.parameters);
    }

    /// Sets the weight of each tenant for this tick: its weight in the policy, its boost, and its burst
    /// credit.
    fn set_weights(&mut self, tick: &Tick<'_>, served: &[Served<'_>], scratch: &mut Scratch) {
        let limit = self
            .divided_limit()
            .per_second()
            .map_or(0.0, Rate::per_second);
        let plain = |tenant: &BucketTenant| tick.policy.tenant(&tenant.name).weight.get();
        let sum_passed = |key: KeyId| {
            served
                .iter()
                .map(|served| served.aggregator.passed(key))
                .sum()
        };
        self.tenants.gather(sum_passed, &mut scratch.counts);
        let active = self
            .tenants
            .iter()
            .zip(&self.shares)
            .filter(|(_, share)| share.offered > 0.0);
        let active: f64 = active.map(|(tenant, _)| plain(tenant)).sum();
        for ((entry, share), passed) in self
            .tenants
            .iter()
            .zip(&mut self.shares)
            .zip(&scratch.counts)
        {
            let tenant = tick.policy.tenant(&entry.name);
            let weight = tenant.weight_at(tick.unix_s).get();
            let multiplier = tenant.burst_multiplier.get();
            share.weight = weight;
            if multiplier <= 1.0 {
                continue;
            }
            // Without any active tenant the whole limit would be the fair part of this one.
            let fair = if active > 0.0 {
                tenant.weight.get() * limit / active
            } else {
                limit
            };
            let burst = self.bursts.entry(entry.name.clone()).or_default();
            share.weight =
                weight * burst.on_tick(tick.since_last.as_secs_f64(), fair, *passed, multiplier);
        }
    }

    fn divide(
        &mut self,
        tick: &Tick<'_>,
        target: f64,
        divisible: f64,
        tails: &ZoneTails<'_>,
        scratch: &mut Scratch,
    ) {
        let floor = tick.policy.fairness().min_floor.per_second();
        let tenant_limit = self
            .terms
            .tenant_limit
            .map_or(f64::INFINITY, Rate::per_second);
        scratch.claimants.clear();
        scratch
            .claimants
            .extend(self.shares.iter().map(|share| Claimant {
                offered: share.offered,
                weight: share.weight,
                floor,
                tenant_limit,
            }));
        if let Some(class) = scratch.claimants.get_mut(self.tenants.class()) {
            // The tenant limit is of each name. So is the floor, but names that a caller invents must leave half to the
            // tenants that the policy lists.
            class.tenant_limit = f64::INFINITY;
            class.floor = floor.max(tails.floors().min(target / 2.0));
        }
        scratch
            .division
            .divide(target, divisible, &scratch.claimants);
        scratch
            .holding
            .divide(divisible, divisible, &scratch.claimants);
        let given = scratch.claimants.iter().zip(&scratch.division.allocations);
        for (share, (claimant, allocation)) in self.shares.iter_mut().zip(given) {
            share.allocation = *allocation;
            share.at_tenant_limit = claimant.is_stopped(*allocation);
            // A rate that is not a number keeps the ratio of the last tick.
            if let (Some(offered), Some(allowed)) =
                (Rate::computed(share.offered), Rate::computed(*allocation))
            {
                share.ratio = DropRatio::of_excess(offered, allowed);
            }
        }
        for (wholes, division) in [
            (&mut scratch.sent, &scratch.division),
            (&mut scratch.held, &scratch.holding),
        ] {
            let given = division.allocations.iter().zip(&division.rooms);
            wholes.clear();
            wholes.extend(
                self.shares
                    .iter()
                    .zip(given)
                    .map(|(share, (allocation, room))| Whole {
                        offered: share.offered,
                        allocation: *allocation,
                        room: *room,
                    }),
            );
        }
    }

    /// Gives one zone its part of every allocation. `of_class` is its part of the allocation of the class `default`, if
    /// known. A silent zone keeps the hold that it was sent last.
    fn split(
        &mut self,
        served: &Served<'_>,
        presences: f64,
        of_class: Option<f64>,
        scratch: &Scratch,
        parameters: &Parameters,
    ) {
        let class = self.tenants.class();
        let share_of = |at: usize| of_class.filter(|_| at == class);
        let Served {
            place,
            aggregator,
            presence,
            rates,
        } = served;
        let Some(zone) = self.zones.get_mut(*place) else {
            debug_assert!(
                false,
                "settling the balance adds every zone that is sent rates"
            );
            return;
        };
        debug_assert_eq!(scratch.sent.len(), rates.len(), "one rate for each tenant");
        let child = Child {
            presence: *presence,
            presences,
        };
        zone.parts.clear();
        zone.parts.extend(
            scratch
                .sent
                .iter()
                .zip(rates)
                .enumerate()
                .map(|(at, (whole, rate))| whole.part(child, *rate, share_of(at))),
        );
        let offered: f64 = scratch.sent.iter().map(|whole| whole.offered).sum();
        let of_headroom = child.headroom_part(offered, rates.iter().sum());
        zone.headroom = Some(match scratch.division.headroom {
            None => Headroom::None,
            Some(headroom) => {
                Headroom::Shared(Rate::computed(headroom * of_headroom).unwrap_or_default())
            }
        });
        if aggregator.is_silent(parameters) && zone.hold.is_some() {
            return;
        }
        let headroom = scratch.holding.headroom;
        let held = scratch.held.iter().zip(rates);
        let of_keys: f64 = held
            .map(|(whole, rate)| whole.hold(child, *rate, headroom.is_none()))
            .sum();
        zone.hold = Some(of_keys + headroom.unwrap_or_default() * of_headroom);
    }
}
