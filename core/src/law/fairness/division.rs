//! Division of a rate between the tenants of a bucket: fairly by weight, or by one common ratio.

use super::debt::divide_in_debt;
use super::{Claim, Waterfill};
use crate::law::LawName;
use crate::names::Tenant;

/// The entry of the division that a key belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// A tenant that the policy lists: an entry of its own.
    Listed,
    /// The key of the class `default`: all tenants without a key of their own.
    Default,
    /// An unlisted tenant with a key of its own. It shares one entry with `default`; otherwise invented names
    /// would each collect a share and a floor.
    Unlisted,
}

impl Class {
    /// Returns the class of a tenant that the policy lists if `is_listed`.
    pub fn of(tenant: &Tenant, is_listed: bool) -> Self {
        match (tenant.is_default_class(), is_listed) {
            (true, _) => Self::Default,
            (false, true) => Self::Listed,
            (false, false) => Self::Unlisted,
        }
    }
}

/// One key and its demand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Claimant {
    /// Requests/s offered.
    pub offered: f64,
    /// The weight relative to others; ignored for `Unlisted` keys.
    pub weight: f64,
    /// The floor in requests/s, below which nothing is refused; ignored for `Unlisted` keys.
    pub floor: f64,
    /// The tenant limit in requests/s; infinite if there is none.
    pub tenant_limit: f64,
    /// The entry that the key belongs to.
    pub class: Class,
}

impl Claimant {
    /// Returns the offered rate, capped by the tenant limit.
    pub fn demand(&self) -> f64 {
        match self.class {
            // `default` represents many tenants, so the limit of one tenant does not apply.
            Class::Default => self.offered,
            Class::Listed | Class::Unlisted => self.offered.min(self.tenant_limit),
        }
    }

    /// Returns true if the tenant limit, and not the bucket's limit, stops a key with this allocation.
    pub fn is_stopped(&self, allocation: f64) -> bool {
        self.demand() < self.offered && allocation >= self.demand()
    }

    fn bounded(&self, rate: f64) -> f64 {
        if self.class == Class::Default { rate } else { rate.min(self.tenant_limit) }
    }
}

/// Divides a capacity between claimants. Keeps its scratch space, so that a warm instance allocates nothing.
#[derive(Debug, Default)]
pub struct Division {
    waterfill: Waterfill,
    entries: Vec<Claim>,
    shared: Vec<Claim>,
    entry_allocations: Vec<f64>,
    entry_rooms: Vec<f64>,
    shared_allocations: Vec<f64>,
    shared_rooms: Vec<f64>,
    allocations: Vec<f64>,
    rooms: Vec<f64>,
    headroom: Option<f64>,
}

impl Division {
    /// Returns the allocation of each claimant in requests/s, in their order.
    pub fn allocations(&self) -> &[f64] {
        &self.allocations
    }

    /// Returns the rate of each claimant's guards, in their order: its allocation, and in overload at least its
    /// part of the capacity by weight, to which it may grow back.
    pub fn rooms(&self) -> &[f64] {
        &self.rooms
    }

    /// Returns what the demand left of the target in requests/s, which all claimants share; `None` in
    /// overload.
    pub const fn headroom(&self) -> Option<f64> {
        self.headroom
    }

    /// Divides `target` requests/s. Listed tenants and the class `default` share it by weighted max-min with
    /// floors; inside the class, the unlisted keys share its part by max-min with equal weights. A target
    /// below `limit` repays a debt, for which tenants that fit at the limit do not pay. O(K log K).
    pub fn divide(&mut self, law: LawName, target: f64, limit: f64, claimants: &[Claimant]) {
        self.entries.clear();
        self.shared.clear();
        let mut class = Claim { demand: 0.0, weight: 1.0, floor: 0.0 };
        for claimant in claimants {
            let claim = Claim { demand: claimant.demand(), weight: claimant.weight, floor: claimant.floor };
            match claimant.class {
                Class::Listed => self.entries.push(claim),
                Class::Default => (class.weight, class.floor) = (claim.weight, claim.floor),
                Class::Unlisted => {}
            }
            if claimant.class != Class::Listed {
                class.demand += claim.demand;
                self.shared.push(Claim { weight: 1.0, floor: 0.0, ..claim });
            }
        }
        self.entries.push(class);
        let demand: f64 = self.entries.iter().map(|claim| claim.demand).sum();
        self.headroom = (demand <= target).then_some(target - demand);
        match law {
            LawName::Balanced if target < limit && limit < demand => {
                let allocations = &mut self.entry_allocations;
                divide_in_debt(&mut self.waterfill, target, limit, &self.entries, allocations);
            }
            LawName::Balanced => self.waterfill.divide(target, &self.entries, &mut self.entry_allocations),
            LawName::Proportional => {
                let part = if self.headroom.is_none() { target / demand } else { 1.0 };
                self.entry_allocations.clear();
                self.entry_allocations.extend(self.entries.iter().map(|claim| claim.demand * part));
            }
        }
        self.waterfill.rooms(target, &self.entries, &self.entry_allocations, &mut self.entry_rooms);
        let allocation = self.entry_allocations.pop().unwrap_or_default();
        let room = self.entry_rooms.pop().unwrap_or_default();
        self.waterfill.divide(allocation, &self.shared, &mut self.shared_allocations);
        self.waterfill.rooms(room, &self.shared, &self.shared_allocations, &mut self.shared_rooms);
        self.put_together(claimants);
    }

    fn put_together(&mut self, claimants: &[Claimant]) {
        self.allocations.clear();
        self.rooms.clear();
        let mut listed = self.entry_allocations.iter().zip(&self.entry_rooms);
        let mut shared = self.shared_allocations.iter().zip(&self.shared_rooms);
        for claimant in claimants {
            let next = if claimant.class == Class::Listed { listed.next() } else { shared.next() };
            let (allocation, room) = next.map_or((0.0, 0.0), |(allocation, room)| (*allocation, *room));
            self.allocations.push(allocation);
            let room =
                if self.headroom.is_some() { allocation } else { claimant.bounded(room).max(allocation) };
            self.rooms.push(room);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn claimant(offered: f64, weight: f64, class: Class) -> Claimant {
        Claimant { offered, weight, floor: 0.0, tenant_limit: f64::INFINITY, class }
    }

    fn divided(law: LawName, capacity: f64, claimants: &[Claimant]) -> Vec<f64> {
        let mut division = Division::default();
        division.divide(law, capacity, capacity, claimants);
        division.allocations().iter().map(|allocation| allocation.round()).collect()
    }

    #[test]
    fn invented_names_share_one_entry() {
        // Twenty unlisted names against one listed tenant: half and half, not one in twenty-one.
        let mut claimants = vec![claimant(1_000.0, 1.0, Class::Listed), claimant(0.0, 1.0, Class::Default)];
        claimants.extend((0..20).map(|_| claimant(1_000.0, 1.0, Class::Unlisted)));
        let got = divided(LawName::Balanced, 1_000.0, &claimants);
        assert_eq!((got[0], got[1]), (500.0, 0.0));
        assert!(got[2..].iter().all(|allocation| *allocation == 25.0), "{got:?}");
    }

    #[test]
    fn small_unlisted_tenants_get_their_whole_demand() {
        let claimants = [
            claimant(30.0, 1.0, Class::Default),
            claimant(20.0, 1.0, Class::Unlisted),
            claimant(900.0, 1.0, Class::Unlisted),
        ];
        assert_eq!(divided(LawName::Balanced, 100.0, &claimants), [30.0, 20.0, 50.0]);
        assert_eq!(divided(LawName::Proportional, 95.0, &claimants), [30.0, 20.0, 45.0]);
    }

    #[test]
    fn no_tenant_passes_its_limit_and_the_class_of_many_has_none() {
        let limited = |offered, class| Claimant { tenant_limit: 200.0, ..claimant(offered, 1.0, class) };
        let claimants =
            [limited(900.0, Class::Listed), limited(900.0, Class::Unlisted), limited(400.0, Class::Default)];
        let mut division = Division::default();
        division.divide(LawName::Balanced, 10_000.0, 10_000.0, &claimants);
        assert_eq!(division.allocations(), [200.0, 200.0, 400.0]);
        assert_eq!(division.headroom(), Some(9_200.0), "there is room, they may only not use it");
        assert_eq!(division.rooms(), division.allocations());
        assert!(claimants[0].is_stopped(200.0) && !claimants[0].is_stopped(199.0));
        assert!(!claimants[2].is_stopped(400.0));
        division.divide(LawName::Balanced, 600.0, 600.0, &claimants);
        assert_eq!(division.headroom(), None);
        assert_eq!(division.rooms()[..2], [200.0, 200.0]);
    }

    #[test]
    fn the_proportional_law_gives_every_listed_tenant_the_same_ratio() {
        let claimants = [claimant(3_000.0, 4.0, Class::Listed), claimant(1_000.0, 0.25, Class::Default)];
        assert_eq!(divided(LawName::Proportional, 1_000.0, &claimants), [750.0, 250.0]);
    }

    proptest! {
        #[test]
        fn the_allocations_sum_to_the_capacity(
            capacity in 0.0..1e6, offered in prop::collection::vec((0.0..1e6, 0.01..100.0, 0..3u8), 0..12),
        ) {
            let claimants: Vec<Claimant> = offered
                .iter()
                .map(|(offered, weight, class)| {
                    let class = [Class::Listed, Class::Default, Class::Unlisted][usize::from(*class)];
                    claimant(*offered, *weight, class)
                })
                .collect();
            for law in [LawName::Balanced, LawName::Proportional] {
                let mut division = Division::default();
                division.divide(law, capacity, capacity, &claimants);
                let given: f64 = division.allocations().iter().sum();
                let asked: f64 = offered.iter().map(|(offered, ..)| offered).sum();
                prop_assert!((given - asked.min(capacity)).abs() <= 1e-6 * capacity.max(1.0), "{given}");
                prop_assert_eq!(division.headroom().is_some(), asked <= capacity);
                if let Some(headroom) = division.headroom() {
                    let caps: f64 = division.rooms().iter().sum();
                    let sum = caps + headroom;
                    prop_assert!(headroom >= 0.0 && (sum - capacity).abs() <= 1e-9 * capacity.max(1.0), "{sum}");
                }
                for ((claimant, allocation), room) in
                    claimants.iter().zip(division.allocations()).zip(division.rooms())
                {
                    prop_assert!(*allocation <= claimant.offered * (1.0 + 1e-9) && room >= allocation);
                }
            }
        }
    }
}
