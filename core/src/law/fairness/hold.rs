//! On hold: a zone divides its part of the limit among its own keys while the controller is silent.

use super::{Claimant, Class, Division};
use crate::law::{LawName, Parameters};

/// Returns the allocation of each claimant of a zone in requests/s, in their order, while the zone is on hold
/// with `hold` requests/s. The fast loop and the guards both use it. Tenant limits and floors apply to the
/// whole fleet, so the zone takes its part of them: one of `presences` children.
///
/// Each claimant gets its fair part of the hold. Unused capacity becomes room to grow, by weight. A claimant
/// that gets its whole demand has a margin for chance. A split frozen at the last directive would starve
/// every key that grows meanwhile; this one stays inside the hold that the controller gave the zone. O(K log
/// K).
pub fn divide_hold(
    division: &mut Division,
    hold: f64,
    presences: f64,
    claimants: &mut [Claimant],
    parameters: &Parameters,
) -> Vec<f64> {
    for claimant in claimants.iter_mut() {
        claimant.tenant_limit /= presences;
        claimant.floor /= presences;
    }
    division.divide(LawName::Balanced, hold, claimants);
    let given: f64 = division.allocations().iter().sum();
    let left = (hold - given).max(0.0);
    let class_members = claimants.iter().filter(|claimant| claimant.class != Class::Listed).count();
    let weight_of = |claimant: &Claimant| match claimant.class {
        Class::Listed | Class::Default => claimant.weight,
        Class::Unlisted => 0.0,
    };
    let weights: f64 = claimants.iter().map(weight_of).sum();
    let class_weight: f64 =
        claimants.iter().filter(|claimant| claimant.class == Class::Default).map(weight_of).sum();
    let of_left = |claimant: &Claimant| {
        let weight = match claimant.class {
            Class::Listed => claimant.weight,
            Class::Default | Class::Unlisted => class_weight / class_members as f64,
        };
        if weights > 0.0 { left * weight / weights } else { 0.0 }
    };
    let each = claimants.iter().zip(division.allocations());
    each.map(|(claimant, given)| {
        let stopped = claimant.demand() < claimant.offered;
        let contented = *given >= claimant.offered;
        given
            + if stopped { 0.0 } else { of_left(claimant) }
            + if contented { parameters.margin(*given) } else { 0.0 }
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(offered: f64, weight: f64) -> Claimant {
        Claimant { offered, weight, floor: 0.0, tenant_limit: f64::INFINITY, class: Class::Listed }
    }

    fn held(hold: f64, claimants: &[Claimant]) -> Vec<f64> {
        let mut claimants = claimants.to_vec();
        divide_hold(&mut Division::default(), hold, 3.0, &mut claimants, &Parameters::default())
    }

    #[test]
    fn a_tenant_that_grows_on_hold_gets_its_fair_part() {
        // The hold was split 80, 80, 107 when the controller fell silent; now the third tenant offers eight
        // times as much.
        let got = held(267.0, &[listed(100.0, 4.0), listed(100.0, 1.0), listed(800.0, 0.25)]);
        assert!((got[2] - 67.0).abs() < 1e-9, "{got:?}");
        assert!(got[0] > 100.0 && got[1] > 100.0, "who gets all it asks for has a margin: {got:?}");
    }

    #[test]
    fn unused_capacity_is_room_by_weight() {
        let got = held(300.0, &[listed(0.0, 2.0), listed(0.0, 1.0)]);
        assert!((got[0] - 200.0).abs() < 1e-9 && (got[1] - 100.0).abs() < 1e-9, "{got:?}");
    }

    #[test]
    fn limits_and_floors_of_tenants_are_the_zones_part_of_them() {
        let limited = Claimant { tenant_limit: 300.0, ..listed(500.0, 1.0) };
        let got = held(1_000.0, &[limited, listed(10.0, 1.0)]);
        assert!((got[0] - 100.0).abs() < 1e-9, "a third of 300, and nothing of what is left: {got:?}");
        let floored = Claimant { floor: 60.0, ..listed(30.0, 1e-3) };
        let got = held(30.0, &[floored, listed(1_000.0, 1.0)]);
        assert!((got[0] - 20.0).abs() < 1e-9, "a third of 60: {got:?}");
    }

    #[test]
    fn unlisted_tenants_share_the_room_of_the_class() {
        let class = |class| Claimant { class, ..listed(0.0, 1.0) };
        let got = held(300.0, &[class(Class::Default), class(Class::Unlisted), listed(0.0, 1.0)]);
        assert!(got.iter().zip([75.0, 75.0, 150.0]).all(|(got, due)| (got - due).abs() < 1e-9), "{got:?}");
    }
}
