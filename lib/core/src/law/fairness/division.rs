//! Division of a rate between the tenants of a bucket: fairly by weight.

use super::debt::divide_in_debt;
use super::{FillClaim, Waterfill};

/// One key and its demand: a listed tenant, or a class of unlisted names.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Claimant {
    /// Requests/s offered; of a class those within the tenant limit of each name.
    pub offered: f64,
    /// The weight relative to others.
    pub weight: f64,
    /// The floor in requests/s, below which nothing is refused; of a class the sum over its names.
    pub floor: f64,
    /// The tenant limit in requests/s; infinite if there is none, and for a class.
    pub tenant_limit: f64,
}

impl Claimant {
    /// Returns the offered rate, capped by the tenant limit.
    pub fn demand(&self) -> f64 {
        self.offered.min(self.tenant_limit)
    }

    /// Returns true if the tenant limit, and not the bucket's limit, stops a key with this allocation.
    pub fn is_stopped(&self, allocation: f64) -> bool {
        self.demand() < self.offered && allocation >= self.demand()
    }
}

/// Divides a capacity between claimants. Keeps its scratch space, so that a warm instance allocates nothing.
#[derive(Debug, Default)]
pub struct Division {
    waterfill: Waterfill,
    claims: Vec<FillClaim>,
    /// The allocation of each claimant in requests/s, in their order.
    pub allocations: Vec<f64>,
    /// The requests/s that each may pass without harm to the others, in their order.
    pub rooms: Vec<f64>,
    /// The requests/s that all share; `None` in overload.
    pub headroom: Option<f64>,
}

impl Division {
    /// Divides `target` requests/s by water-filling. While the demands fit, the rest of the target is the shared
    /// headroom. A target below the bucket's `limit` repays a debt. O(K log K) for K claimants.
    pub fn divide(&mut self, target: f64, limit: f64, claimants: &[Claimant]) {
        let Self {
            waterfill,
            claims,
            allocations,
            rooms,
            ..
        } = self;
        claims.clear();
        claims.extend(claimants.iter().map(|claimant| FillClaim {
            demand: claimant.demand(),
            weight: claimant.weight,
            floor: claimant.floor,
        }));
        let demand: f64 = claims.iter().map(|claim| claim.demand).sum();
        self.headroom = (demand <= target).then_some(target - demand);
        if target < limit && limit < demand {
            divide_in_debt(waterfill, target, limit, claims, allocations);
        } else {
            waterfill.divide(target, claims, allocations);
        }
        if self.headroom.is_some() {
            rooms.clone_from(allocations);
            return;
        }
        waterfill.rooms(target, claims, allocations, rooms);
        for (room, (claimant, allocation)) in
            rooms.iter_mut().zip(claimants.iter().zip(allocations))
        {
            *room = room.min(claimant.tenant_limit).max(*allocation);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn claimant(offered: f64, weight: f64) -> Claimant {
        Claimant {
            offered,
            weight,
            floor: 0.0,
            tenant_limit: f64::INFINITY,
        }
    }

    #[test]
    fn no_tenant_passes_its_limit() {
        let limited = |offered| Claimant {
            tenant_limit: 200.0,
            ..claimant(offered, 1.0)
        };
        let claimants = [limited(900.0), limited(900.0), claimant(400.0, 1.0)];
        let mut division = Division::default();
        division.divide(10_000.0, 10_000.0, &claimants);
        assert_eq!(division.allocations, [200.0, 200.0, 400.0]);
        assert_eq!(
            division.headroom,
            Some(9_200.0),
            "there is room, they may only not use it"
        );
        assert_eq!(division.rooms, division.allocations);
        assert!(claimants[0].is_stopped(200.0) && !claimants[0].is_stopped(199.0));
        assert!(!claimants[2].is_stopped(400.0));
        division.divide(600.0, 600.0, &claimants);
        assert_eq!(division.headroom, None);
        assert_eq!(division.rooms[..2], [200.0, 200.0]);
    }

    proptest! {
        #[test]
        fn allocations_sum_to_the_capacity(
            capacity in 0.0..1e6, offered in prop::collection::vec((0.0..1e6, 0.01..100.0), 0..12),
        ) {
            let claimants: Vec<Claimant> =
                offered.iter().map(|(offered, weight)| claimant(*offered, *weight)).collect();
            let mut division = Division::default();
            division.divide(capacity, capacity, &claimants);
            let given: f64 = division.allocations.iter().sum();
            let asked: f64 = offered.iter().map(|(offered, ..)| offered).sum();
            prop_assert!((given - asked.min(capacity)).abs() <= 1e-6 * capacity.max(1.0), "{given}");
            prop_assert_eq!(division.headroom.is_some(), asked <= capacity);
            if let Some(headroom) = division.headroom {
                let caps: f64 = division.rooms.iter().sum();
                let sum = caps + headroom;
                prop_assert!(headroom >= 0.0 && (sum - capacity).abs() <= 1e-9 * capacity.max(1.0), "{sum}");
            }
            for ((claimant, allocation), room) in
                claimants.iter().zip(&division.allocations).zip(&division.rooms)
            {
                prop_assert!(*allocation <= claimant.offered * (1.0 + 1e-9) && room >= allocation);
            }
        }
    }
}
