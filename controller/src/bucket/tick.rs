//! One tick of leading a bucket: settles its balance, weighs its tenants, divides the target, and splits it between zones.

use super::*;

impl Protected {
    pub(super) fn lead(&mut self, tick: &Tick<'_>, within: f64, scratch: &mut Scratch) {
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
        self.evaluate(tick, presences, &children, scratch);
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

    /// Holds what came against the candidate.
    fn evaluate(
        &mut self,
        tick: &Tick<'_>,
        presences: f64,
        children: &[(&Place, &Source, f64)],
        scratch: &mut Scratch,
    ) {
        let Some(candidate) = &mut self.candidate else { return };
        for (_, source, _) in children {
            // A gap says how much came, not how fast; the law's own balance has rules for it, and here nothing is owed.
            if let Beat::Counted { span, gap } = source.beat()
                && gap < tick.parameters.silent_after()
            {
                self.members.gather(|key| source.offered(key), &mut scratch.passed);
                candidate.count(scratch.passed.iter().sum(), span, presences);
            }
        }
        let offered = self.shares.iter().map(|share| share.offered).sum();
        candidate.decide(offered, self.terms.burst, tick.parameters);
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
