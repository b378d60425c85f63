//! A class of unlisted names over all zones: what they ask for, and how the allocation of the class is divided between
//! zones. A name is cut at the same level, the rate that it may pass, in every zone.

use plimsoll_core::directive::NewShare;
use plimsoll_core::law::tail::{Spread, Tail};
use plimsoll_core::quantity::Rate;

use super::tenants::BucketTenant;

#[derive(Debug)]
pub(super) struct ZoneTails<'a> {
    /// The tail of each zone, and its presence; `None` for a zone that cuts no names.
    zones: Vec<Option<(&'a Tail, f64)>>,
    floor: f64,
    tenant_limit: f64,
}

impl<'a> ZoneTails<'a> {
    /// The tails of zones with their presence.
    pub(super) fn new(
        zones: impl Iterator<Item = (Option<&'a Tail>, f64)>,
        class: &BucketTenant,
    ) -> Self {
        let zones = zones
            .map(|(tail, presence)| tail.map(|tail| (tail, presence)))
            .collect();
        Self {
            zones,
            floor: class.floor.per_second(),
            tenant_limit: class.limit.map_or(f64::INFINITY, Rate::per_second),
        }
    }

    /// The part of the traffic of a zone's class that no tenant limit refuses, 0 to 1.
    pub(super) fn within(&self, zone: usize) -> f64 {
        let tail = self.zones.get(zone).copied().flatten();
        tail.map_or(1.0, |(tail, _)| tail.part_within(self.tenant_limit))
    }

    /// The sum of the floors of established names in all zones, as far as they ask for it.
    pub(super) fn floors(&self) -> f64 {
        self.each()
            .map(|(tail, presence)| presence * tail.established.passes(self.floor))
            .sum()
    }

    /// `None` for a zone that cuts no names.
    pub(super) fn new_share(&self, zone: usize) -> Option<NewShare> {
        let (tail, presence) = self.zones.get(zone).copied().flatten()?;
        Some(NewShare::of(self.new_part(tail, presence)))
    }

    /// The zone's part of the traffic of new names in all zones.
    fn new_part(&self, tail: &Tail, presence: f64) -> f64 {
        let all: f64 = self
            .each()
            .map(|(tail, presence)| presence * tail.new.total())
            .sum();
        let part = presence * tail.new.total() / all;
        if part.is_finite() {
            part
        } else {
            presence / self.zones.len() as f64
        }
    }

    /// The part of each zone in the class's `allocation` in requests/s, by one level in all zones; `None` while one of
    /// them does not show its tail, or nothing passes.
    pub(super) fn shares(&self, allocation: f64) -> Option<Vec<f64>> {
        let spreads = self.spreads()?;
        let level = Tail::common_level(spreads.iter().copied(), allocation);
        let floors = self.floors();
        let passes = |(tail, spread, presence): (&Tail, Spread, f64)| {
            if level < self.floor && floors <= allocation {
                presence * tail.established.passes(self.floor)
                    + spread.new_share * (allocation - floors)
            } else {
                presence * tail.passes(level, &spread)
            }
        };
        let passed: Vec<f64> = spreads.into_iter().map(passes).collect();
        let all: f64 = passed.iter().sum();
        (all > 0.0).then(|| passed.into_iter().map(|passes| passes / all).collect())
    }

    /// The rate that each name may pass in a zone at this `allocation` of the class in requests/s; `None` if all pass, or
    /// a zone does not show its tail.
    pub(super) fn level(&self, allocation: f64) -> Option<f64> {
        let level = Tail::common_level(self.spreads()?.into_iter(), allocation);
        Some(level).filter(|level| level.is_finite())
    }

    /// The tail of each zone, with its spread and its presence; `None` while one of them shows none.
    fn spreads(&self) -> Option<Vec<(&'a Tail, Spread, f64)>> {
        let spread = |tail: &Tail, presence| Spread {
            new_share: self.new_part(tail, presence),
            floor: self.floor,
            tenant_limit: self.tenant_limit,
        };
        let zones = self.zones.iter().copied();
        let each = zones.map(|zone| {
            let (tail, presence) = zone?;
            Some((tail, spread(tail, presence), presence))
        });
        each.collect()
    }

    fn each(&self) -> impl Iterator<Item = (&'a Tail, f64)> {
        self.zones.iter().copied().flatten()
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::law::tail::{Bin, Demand};

    use super::*;

    #[test]
    fn tenant_limit_lowers_class_demand() {
        let mut bins = vec![0.0; Bin::COUNT];
        bins[Bin::of(400.0).index()] = 4_000.0;
        let tail = Tail {
            established: Demand {
                bins,
                ..Demand::default()
            },
            names: 10,
            ..Tail::default()
        };
        for (tenant_limit, due) in [(50.0, 0.125), (500.0, 1.0), (f64::INFINITY, 1.0)] {
            let zones = vec![Some((&tail, 1.0)), None];
            let tails = ZoneTails {
                zones,
                floor: 0.0,
                tenant_limit,
            };
            assert!(
                (tails.within(0) / due - 1.0).abs() < 0.05,
                "{tenant_limit}: {}",
                tails.within(0)
            );
            assert_eq!(tails.within(1), 1.0, "a zone that cuts no names shows none");
            let alone = ZoneTails {
                zones: vec![Some((&tail, 1.0))],
                ..tails
            };
            let level = alone.level(1_000.0);
            assert_eq!(level.is_some(), tenant_limit > 100.0, "all of 10 names");
            assert!(
                level.is_none_or(|level| (level - 100.0).abs() < 5.0),
                "{level:?}"
            );
        }
    }
}
