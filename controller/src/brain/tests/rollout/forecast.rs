//! The forecast of an edited policy, compared with what it then refuses.

use super::*;
use plimsoll_policy::{Forecast, Shift};

const TENANTS: [&str; 3] = ["acme", "free", "zeta"];
/// Shares may differ by two points.
const POINTS_MAX: f64 = 0.02;

fn edited(limit: u32, free: f64) -> Arc<Policy> {
    policy_of(
        &format!(
            "buckets: {{ api: {{ limit: {limit}, mode: enforce, burst_s: 0.1 }} }}\nrollout: {{ require_gates: false }}\n"
        ),
        &format!(
            "tenants: {{ default: {{}}, acme: {{ weight: 4 }}, free: {{ weight: {free} }}, zeta: {{}} }}\n"
        ),
    )
}

/// The shares of each tenant's requests that are refused over a while.
fn refused(fleet: &mut Fleet) -> [f64; 3] {
    let counts = |fleet: &Fleet| {
        TENANTS.map(|name| {
            let counts = fleet.zones.iter().map(|zone| zone.counts(name));
            counts.fold((0, 0), |(offered, dropped), counts| {
                (offered + counts.offered, dropped + counts.dropped)
            })
        })
    };
    let before = counts(fleet);
    fleet.run(20.0);
    let after = counts(fleet);
    [0, 1, 2].map(|at| {
        let offered = after[at].0 - before[at].0;
        (after[at].1 - before[at].1) as f64 / offered as f64
    })
}

fn find<'a>(forecast: &'a Forecast, tenant: &str) -> Option<&'a Shift> {
    let (more, less) = (
        &forecast.refused_more.largest,
        &forecast.refused_less.largest,
    );
    more.iter().chain(less).find(|shift| {
        shift
            .tenant
            .as_ref()
            .is_some_and(|name| name.as_str() == tenant)
    })
}

#[test]
fn forecast_agrees_with_what_follows() {
    for (limit, free) in [
        (500, 1.0),
        (1_500, 1.0),
        (1_000, 8.0),
        (400, 0.25),
        (5_000, 1.0),
    ] {
        let zones = two_zones()
            .into_iter()
            .map(|zone| zone.offering("free", 700.0).offering("zeta", 60.0));
        let mut fleet = Fleet::new(edited(1_000, 1.0), zones.collect());
        fleet.run(400.0);
        let now = refused(&mut fleet);
        let offered = edited(limit, free);
        let forecast = fleet.brain.trial(&offered).forecast();
        assert_eq!(
            fleet.brain.policy().hash(),
            edited(1_000, 1.0).hash(),
            "nothing changes"
        );
        fleet.brain.on_policy(offered);
        fleet.run(20.0);
        let then = refused(&mut fleet);
        for (at, name) in TENANTS.into_iter().enumerate() {
            match find(&forecast, name) {
                Some(shift) => {
                    check_near(shift.before, now[at], POINTS_MAX);
                    check_near(shift.after, then[at], POINTS_MAX);
                }
                None => check_near(then[at], now[at], POINTS_MAX),
            }
        }
    }
}
