//! A tenant that has used its exact quota and continues asking, and the other tenants.

use super::scripted::Behind;
use super::*;

/// A tenant that stays below the limit, and a tenant that asks three times the limit.
fn beside(behind: Behind) -> Fleet {
    let zones = ["a", "b"].into_iter().zip(1..).map(|(zone, number)| {
        let mut zone = Scripted::new(zone, number)
            .offering("calm", 300.0)
            .offering("hungry", 1500.0);
        zone.puts_behind("hungry", behind);
        zone
    });
    let policy = policy_of(&enforced_with(""), &tenants("calm: {}, hungry: {}", 0));
    let mut fleet = Fleet::new(policy, zones.collect());
    fleet.run(30.0);
    fleet
}

fn through_coin(fleet: &Fleet, name: &str) -> u64 {
    let counts = fleet.zones.iter().map(|zone| zone.counts(name));
    counts.map(|counts| counts.offered - counts.dropped).sum()
}

fn rate_through_coin(fleet: &mut Fleet, seconds: f64) -> [f64; 2] {
    let names = ["calm", "hungry"];
    let before = names.map(|name| through_coin(fleet, name));
    fleet.run(seconds);
    let after = names.map(|name| through_coin(fleet, name));
    [0, 1].map(|at| (after[at] - before[at]) as f64 / seconds)
}

#[test]
fn memory_refusals_leave_other_tenants_unharmed() {
    let mut remembered = beside(Behind::Memory);
    let [calm, hungry] = rate_through_coin(&mut remembered, 20.0);
    check_near(calm, 600.0, 0.5);
    check_near(hungry, 0.0, 0.0);
    assert_eq!(remembered.zones[0].ratio("calm"), Some(0.0));
    check_near(remembered.balance(), 0.25 * LIMIT, 1.0);

    // The same traffic, if every request were offered: requests that no service receives take half
    // of the limit.
    let mut asked = beside(Behind::Store);
    let [calm, hungry] = rate_through_coin(&mut asked, 20.0);
    check_near(calm, 500.0, 10.0);
    check_near(hungry, 500.0, 10.0);
    assert!(asked.balance() < 0.1 * LIMIT, "{}", asked.balance());
}
