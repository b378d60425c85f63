//! One tick of the law over one bucket: settles its balance, sets the weights of its tenants, divides the
//! target among them, and splits each allocation among zones.

use std::time::Duration;

use plimsoll_core::directive::Headroom;
use plimsoll_core::law::presence::{HELD, Presences};
use plimsoll_core::law::{Claimant, Division, Parameters, SplitChild, Whole};
use plimsoll_core::names::{Key, KeyId, Tenant};
use plimsoll_core::quantity::{DropRatio, Rate};
use plimsoll_policy::{Policy, Release};

use super::tails::ZoneTails;
use super::tenants::BucketTenant;
use super::{BucketState, Share, SilentShares};
use crate::aggregators::{Activity, Aggregator, AggregatorKey, Aggregators};

#[derive(Debug)]
pub(crate) struct Tick<'a> {
    pub(crate) since_last: Duration,
    /// The time of day in seconds since 1970.
    pub(crate) unix_s: i64,
    pub(crate) aggregators: &'a Aggregators,
    pub(crate) policy: &'a Policy,
    pub(crate) parameters: &'a Parameters,
    /// True once rates are sent: see [`Takeover`](crate::aggregators::takeover::Takeover).
    pub(crate) leading: bool,
}

/// Buffers that buckets use in turn.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// Of the target.
    division: Division,
    /// Of the divisible rate: the holds.
    holding: Division,
    claimants: Vec<Claimant>,
    counts: Vec<f64>,
    /// Of `division` and of `holding`, for each tenant.
    sent: Vec<Whole>,
    held: Vec<Whole>,
}

/// An aggregator that is sent rates.
struct Served<'a> {
    place: &'a AggregatorKey,
    aggregator: &'a Aggregator,
    /// The share of its traffic that counts: 0..=1.
    presence: f64,
    /// Requests/s offered through it, one per entry of the bucket's tenants; empty before they are gathered.
    rates: Vec<f64>,
}

// === impl BucketState ===

impl BucketState {
    /// Applies the law. `divisible` is the rate in requests/s that may be divided now: the limit,
    /// unless this controller has just taken over. Costs O(Z K + K log K) for Z zones and K tenants
    /// with their own entry.
    pub(crate) fn on_tick(&mut self, tick: &Tick<'_>, divisible: f64, scratch: &mut Scratch) {
        if !tick.leading {
            return;
        }
        if self.is_divided() {
            self.apply_law(tick, divisible, scratch);
        } else {
            self.observe(tick);
        }
    }

    /// Notes what is offered to a bucket that divides nothing: [`assign_holds`](Self::assign_holds) has cleared its
    /// shares, or denies all for a limit of zero.
    fn observe(&mut self, tick: &Tick<'_>) {
        let mut served = self.served(tick.aggregators);
        for of in &mut served {
            self.tenants
                .gather(|key| of.aggregator.rate(key), &mut of.rates);
        }
        self.shares.resize(self.tenants.len(), Share::default());
        self.sum_offered(&served);
        self.silent = self.silent_shares(&served);
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

        let classes = self.class_tails(&served);
        for (at, of) in served.iter_mut().enumerate() {
            self.tenants
                .gather(|key| of.aggregator.rate(key), &mut of.rates);
            // Requests above the tenant limits of unlisted names are refused in any case.
            for (class, tails) in &classes {
                if let Some(rate) = of.rates.get_mut(*class) {
                    *rate *= tails.within(at);
                }
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
        self.divide(target, divisible, &classes, scratch);
        let in_zones = classes.iter().map(|(at, tails)| {
            let class = self.shares.get(*at);
            let sent = class.filter(|class| class.offered > class.allocation);
            (*at, sent.and_then(|class| tails.shares(class.allocation)))
        });
        let in_zones: Vec<(usize, Option<Vec<f64>>)> = in_zones.collect();
        for (at, served) in served.iter().enumerate() {
            let share_of = |tenant: usize| {
                let (_, zones) = in_zones.iter().find(|(class, _)| *class == tenant)?;
                zones.as_ref()?.get(at).copied()
            };
            self.split(served, presences, share_of, scratch, tick.parameters);
            if let Some(zone) = self.zones.get_mut(served.place) {
                let new_shares = classes.iter().map(|(_, tails)| tails.new_share(at));
                zone.new_shares = new_shares.collect();
            }
        }
    }

    fn class_tails<'a>(&self, served: &[Served<'a>]) -> Vec<(usize, ZoneTails<'a>)> {
        let classes = self.tenants.classes().map(|(at, class)| {
            let key = Key {
                bucket: self.name.clone(),
                tenant: class.name.clone(),
            };
            let zones = served
                .iter()
                .map(|served| (served.aggregator.tails.get(&key), served.presence));
            (at, ZoneTails::new(zones, class))
        });
        classes.collect()
    }

    /// Returns the requests/s that each tenant of a class may pass in a zone, if the law cuts any at this allocation of the
    /// class.
    pub(crate) fn level(
        &self,
        aggregators: &Aggregators,
        class: &Tenant,
        allocation: f64,
    ) -> Option<f64> {
        let (at, _) = self.tenants.classes().find(|(_, it)| it.name == *class)?;
        let tails = self.class_tails(&self.served(aggregators));
        let (_, tails) = tails.into_iter().find(|(of, _)| *of == at)?;
        tails.level(allocation)
    }

    /// What the tenants claim of `limit` requests/s at the last tick, one for each entry of the tenants; empty before it.
    pub(crate) fn claimants(&self, aggregators: &Aggregators, limit: f64) -> Vec<Claimant> {
        let classes = self.class_tails(&self.served(aggregators));
        let mut claimants = Vec::new();
        self.claim(limit, &classes, &mut claimants);
        claimants
    }

    fn served<'a>(&self, aggregators: &'a Aggregators) -> Vec<Served<'a>> {
        let served = aggregators.iter().filter(|(_, it)| it.served);
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
                    // A part that others had meanwhile, and a time for which nothing was assumed, move nothing.
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

    fn claim(
        &self,
        target: f64,
        classes: &[(usize, ZoneTails<'_>)],
        claimants: &mut Vec<Claimant>,
    ) {
        let tenants = self.tenants.iter().zip(&self.shares);
        claimants.clear();
        claimants.extend(tenants.map(|(tenant, share)| Claimant {
            offered: share.offered,
            weight: share.weight,
            floor: tenant.floor.per_second(),
            tenant_limit: tenant.limit.map_or(f64::INFINITY, Rate::per_second),
        }));
        let floors: f64 = classes.iter().map(|(_, tails)| tails.floors()).sum();
        for (at, tails) in classes {
            if let Some(class) = claimants.get_mut(*at) {
                // The tenant limit is of each name. So is the floor, but names that a caller invents must leave half to
                // the tenants that the policy lists.
                class.tenant_limit = f64::INFINITY;
                let fitting = tails.floors() * (target / 2.0 / floors).min(1.0);
                class.floor = class.floor.max(fitting);
            }
        }
    }

    fn divide(
        &mut self,
        target: f64,
        divisible: f64,
        classes: &[(usize, ZoneTails<'_>)],
        scratch: &mut Scratch,
    ) {
        self.claim(target, classes, &mut scratch.claimants);
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
                share.ratio = Some(DropRatio::of_excess(offered, allowed));
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

    /// Gives one zone its part of every allocation. `share_of` returns its part of the allocation of a class, if known.
    /// A silent zone keeps the hold that it was sent last.
    fn split(
        &mut self,
        served: &Served<'_>,
        presences: f64,
        share_of: impl Fn(usize) -> Option<f64>,
        scratch: &Scratch,
        parameters: &Parameters,
    ) {
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
        let child = SplitChild {
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use plimsoll_core::names::{Bucket, Name, Zone};
    use plimsoll_core::quantity::{Limit, MonoTime};
    use plimsoll_core::report::{Counts, Entered, Entry, InstanceId, Origin, Report, Tally};

    use super::*;
    use crate::brain::tests::policy;
    use crate::bucket::Listing;

    #[test]
    fn bucket_that_divides_nothing_shows_its_traffic() {
        let place = (Zone::new("a").unwrap(), Name::new("one").unwrap());
        let mut aggregators = Aggregators::default();
        aggregators.greet(
            MonoTime::ZERO,
            place.clone(),
            InstanceId(1),
            BTreeMap::new(),
        );
        let counts = Counts {
            offered: 200,
            ..Counts::ZERO
        };
        let late = Counts::ZERO;
        let entered = Entered {
            span: Some(Duration::from_secs(1)),
            entries: vec![Entry {
                own: Some(KeyId(0)),
                delta: Tally { counts, late },
                origin: Origin::Observed,
            }],
            ..Entered::default()
        };
        aggregators.enter(&place, &Report::default(), &entered);
        let parameters = Parameters::default();
        aggregators.on_tick(parameters.tick, &parameters);
        aggregators.by_place.get_mut(&place).unwrap().served = true;
        let policy = policy("buckets: { api: { limit: 1 } }\n");
        let tick = Tick {
            since_last: parameters.tick,
            unix_s: 0,
            aggregators: &aggregators,
            policy: &policy,
            parameters: &parameters,
            leading: true,
        };
        for (limit, ratio) in [
            (Limit::Unlimited, None),
            (Limit::PerSecond(Rate::ZERO), Some(1.0)),
        ] {
            let mut bucket = BucketState::new(Bucket::new("api").unwrap(), Listing::Exact);
            bucket.configure(&policy, limit);
            bucket.tenants.add(KeyId(0), &Tenant::default_class());
            // From a time with another limit.
            bucket.silent.unheard = 7.0;
            bucket.assign_holds(&aggregators, 1);
            bucket.on_tick(&tick, 0.0, &mut Scratch::default());
            let shares: Vec<_> = bucket.shares().collect();
            let [(_, share)] = shares[..] else {
                panic!("{shares:?}")
            };
            assert_eq!(
                (share.offered, share.law_ratio()),
                (200.0, ratio),
                "{limit:?}"
            );
            assert_eq!(bucket.silent, SilentShares::default(), "{limit:?}");
        }
    }
}
