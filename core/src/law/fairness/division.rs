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
    /// The key of the class `default`: requests without a tenant, and all tenants without a key of their own.
    /// Its weight and floor are those of the one entry that all unlisted tenants share; otherwise invented
    /// names would each collect a share and a floor.
    Default,
    /// An unlisted tenant with a key of its own that has had traffic for long enough. All of them divide the
    /// part of the class evenly.
    Established,
    /// An unlisted tenant with a key of its own that was seen only lately. All of them and the key of the
    /// class count as one established tenant; otherwise a flood of invented names would take the part of the
    /// class.
    New,
}

impl Class {
    /// Returns the class of a tenant that the policy lists if `is_listed`, and that has had traffic for long
    /// enough if `is_established`.
    pub fn of(tenant: &Tenant, is_listed: bool, is_established: bool) -> Self {
        match (tenant.is_default_class(), is_listed, is_established) {
            (true, ..) => Self::Default,
            (false, true, _) => Self::Listed,
            (false, false, true) => Self::Established,
            (false, false, false) => Self::New,
        }
    }

    /// Returns true for a tenant with a key of its own that the policy does not list.
    pub const fn is_unlisted(self) -> bool {
        matches!(self, Self::Established | Self::New)
    }
}

/// One key and its demand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Claimant {
    /// Requests/s offered.
    pub offered: f64,
    /// The weight relative to others; ignored for unlisted tenants.
    pub weight: f64,
    /// The floor in requests/s, below which nothing is refused; ignored for unlisted tenants.
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
            Class::Listed | Class::Established | Class::New => self.offered.min(self.tenant_limit),
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
    /// Listed tenants, and last the class `default`.
    listed: Group,
    /// Established tenants, and last all new ones.
    established: Group,
    /// New tenants and the key of the class.
    new: Group,
    allocations: Vec<f64>,
    rooms: Vec<f64>,
    headroom: Option<f64>,
}

/// Claims that divide one part of the capacity.
#[derive(Debug, Default)]
struct Group {
    claims: Vec<Claim>,
    allocations: Vec<f64>,
    rooms: Vec<f64>,
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
    /// floors; inside the class, established tenants and all new ones together share its part by max-min with
    /// equal weights, and so do the new ones inside theirs. A target below `limit` repays a debt, for which
    /// tenants that fit at the limit do not pay. O(K log K).
    pub fn divide(&mut self, law: LawName, target: f64, limit: f64, claimants: &[Claimant]) {
        for group in [&mut self.listed, &mut self.established, &mut self.new] {
            group.claims.clear();
        }
        let mut class = Claim { demand: 0.0, weight: 1.0, floor: 0.0 };
        for claimant in claimants {
            let claim = Claim { demand: claimant.demand(), weight: claimant.weight, floor: claimant.floor };
            let equal = Claim { weight: 1.0, floor: 0.0, ..claim };
            match claimant.class {
                Class::Listed => self.listed.claims.push(claim),
                Class::Established => self.established.claims.push(equal),
                Class::Default => {
                    (class.weight, class.floor) = (claim.weight, claim.floor);
                    self.new.claims.push(equal);
                }
                Class::New => self.new.claims.push(equal),
            }
        }
        self.established.claims.push(Claim { demand: self.new.demand(), weight: 1.0, floor: 0.0 });
        class.demand = self.established.demand();
        self.listed.claims.push(class);
        let demand = self.listed.demand();
        self.headroom = (demand <= target).then_some(target - demand);
        let Group { claims, allocations, .. } = &mut self.listed;
        match law {
            LawName::Balanced if target < limit && limit < demand => {
                divide_in_debt(&mut self.waterfill, target, limit, claims, allocations);
            }
            LawName::Balanced => self.waterfill.divide(target, claims, allocations),
            LawName::Proportional => {
                let part = if self.headroom.is_none() { target / demand } else { 1.0 };
                allocations.clear();
                allocations.extend(claims.iter().map(|claim| claim.demand * part));
            }
        }
        let (allocation, room) = self.listed.last_after(&mut self.waterfill, target);
        self.waterfill.divide(allocation, &self.established.claims, &mut self.established.allocations);
        let (allocation, room) = self.established.last_after(&mut self.waterfill, room);
        self.waterfill.divide(allocation, &self.new.claims, &mut self.new.allocations);
        self.waterfill.rooms(room, &self.new.claims, &self.new.allocations, &mut self.new.rooms);
        self.put_together(claimants);
    }

    fn put_together(&mut self, claimants: &[Claimant]) {
        self.allocations.clear();
        self.rooms.clear();
        let [mut listed, mut established, mut new] =
            [&self.listed, &self.established, &self.new].map(Group::parts);
        for claimant in claimants {
            let next = match claimant.class {
                Class::Listed => listed.next(),
                Class::Established => established.next(),
                Class::Default | Class::New => new.next(),
            };
            let (allocation, room) = next.unwrap_or_default();
            self.allocations.push(allocation);
            let room =
                if self.headroom.is_some() { allocation } else { claimant.bounded(room).max(allocation) };
            self.rooms.push(room);
        }
    }
}

impl Group {
    fn demand(&self) -> f64 {
        self.claims.iter().map(|claim| claim.demand).sum()
    }

    /// Fills the rooms for `capacity`, and returns the allocation and the room of the last claim.
    fn last_after(&mut self, waterfill: &mut Waterfill, capacity: f64) -> (f64, f64) {
        waterfill.rooms(capacity, &self.claims, &self.allocations, &mut self.rooms);
        self.allocations.last().copied().zip(self.rooms.last().copied()).unwrap_or_default()
    }

    /// The allocation and the room of each claim.
    fn parts(&self) -> impl Iterator<Item = (f64, f64)> {
        self.allocations.iter().copied().zip(self.rooms.iter().copied())
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
        for class in [Class::Established, Class::New] {
            let mut claimants =
                vec![claimant(1_000.0, 1.0, Class::Listed), claimant(0.0, 1.0, Class::Default)];
            claimants.extend((0..20).map(|_| claimant(1_000.0, 1.0, class)));
            let got = divided(LawName::Balanced, 1_000.0, &claimants);
            assert_eq!((got[0], got[1]), (500.0, 0.0));
            assert!(got[2..].iter().all(|allocation| *allocation == 25.0), "{got:?}");
        }
    }

    #[test]
    fn new_names_together_count_as_one_established_tenant() {
        let mut claimants = vec![claimant(9_000.0, 1.0, Class::Listed), claimant(50.0, 1.0, Class::Default)];
        claimants.extend([200.0, 900.0, 900.0].map(|offered| claimant(offered, 1.0, Class::Established)));
        assert_eq!(divided(LawName::Balanced, 1_000.0, &claimants), [500.0, 50.0, 150.0, 150.0, 150.0]);
        claimants.extend((0..25).map(|_| claimant(400.0, 1.0, Class::New)));
        let got = divided(LawName::Balanced, 1_000.0, &claimants);
        assert_eq!(got[..5], [500.0, 5.0, 125.0, 125.0, 125.0], "the listed tenant has what it had");
        assert!(got[5..].iter().all(|allocation| *allocation == 5.0), "{got:?}");
        // What they do not use goes to the others.
        claimants.truncate(6);
        claimants[5].offered = 10.0;
        claimants[1].offered = 0.0;
        let got = divided(LawName::Balanced, 1_000.0, &claimants);
        assert_eq!(got, [500.0, 0.0, 163.0, 163.0, 163.0, 10.0]);
    }

    #[test]
    fn small_unlisted_tenants_get_their_whole_demand() {
        let claimants = [
            claimant(30.0, 1.0, Class::Default),
            claimant(20.0, 1.0, Class::Established),
            claimant(900.0, 1.0, Class::New),
        ];
        assert_eq!(divided(LawName::Balanced, 100.0, &claimants), [30.0, 20.0, 50.0]);
        assert_eq!(divided(LawName::Proportional, 95.0, &claimants), [30.0, 20.0, 45.0]);
    }

    #[test]
    fn no_tenant_passes_its_limit_and_the_class_of_many_has_none() {
        let limited = |offered, class| Claimant { tenant_limit: 200.0, ..claimant(offered, 1.0, class) };
        let claimants =
            [limited(900.0, Class::Listed), limited(900.0, Class::New), limited(400.0, Class::Default)];
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
            capacity in 0.0..1e6, offered in prop::collection::vec((0.0..1e6, 0.01..100.0, 0..4u8), 0..12),
        ) {
            let claimants: Vec<Claimant> = offered
                .iter()
                .map(|(offered, weight, class)| {
                    let classes = [Class::Listed, Class::Default, Class::Established, Class::New];
                    let class = classes[usize::from(*class)];
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
