//! On hold: a zone divides its part of the limit among its own keys while the controller is silent.

use super::{Claimant, Division};
use crate::law::parameters;

/// The part of one key in a hold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HeldPart {
    /// The allocation of the key in requests/s, without headroom, for the fast loop and the guards.
    pub rate: f64,
    /// True if the tenant limit stops the key, so that it has no part of the headroom.
    pub at_tenant_limit: bool,
}

/// Returns the part of each claimant of a zone, in their order, while the zone is on hold with `hold`
/// requests/s, and what its keys leave of it as headroom. Tenant limits and floors apply to the whole fleet,
/// so the zone takes its part of them: one of `presences` children.
///
/// Each claimant gets its fair part of the hold. A claimant that gets its whole demand has a margin for
/// chance. A split frozen at the last directive would starve every key that grows meanwhile; this one stays
/// inside the hold that the controller gave the zone. O(K log K).
pub fn divide_hold(
    division: &mut Division,
    hold: f64,
    presences: f64,
    claimants: &mut [Claimant],
) -> (Vec<HeldPart>, Option<f64>) {
    for claimant in claimants.iter_mut() {
        claimant.tenant_limit /= presences;
        claimant.floor /= presences;
    }
    division.divide(hold, hold, claimants);
    let each = claimants
        .iter()
        .zip(&division.allocations)
        .map(|(claimant, given)| HeldPart {
            rate: given
                + if *given >= claimant.offered {
                    parameters::margin(*given)
                } else {
                    0.0
                },
            at_tenant_limit: claimant.is_stopped(*given),
        });
    (each.collect(), division.headroom)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(offered: f64, weight: f64) -> Claimant {
        Claimant {
            offered,
            weight,
            floor: 0.0,
            tenant_limit: f64::INFINITY,
        }
    }

    fn held(hold: f64, claimants: &[Claimant]) -> (Vec<HeldPart>, Option<f64>) {
        let mut claimants = claimants.to_vec();
        divide_hold(&mut Division::default(), hold, 3.0, &mut claimants)
    }

    #[test]
    fn growing_tenant_on_hold_stays_fair() {
        // The hold was split 80, 80, 107 when the controller fell silent; now the third tenant offers eight
        // times as much.
        let (got, headroom) = held(
            267.0,
            &[listed(100.0, 4.0), listed(100.0, 1.0), listed(800.0, 0.25)],
        );
        assert!((got[2].rate - 67.0).abs() < 1e-9, "{got:?}");
        assert!(
            got[0].rate > 100.0 && got[1].rate > 100.0,
            "whole demand, and a margin: {got:?}"
        );
        assert_eq!(headroom, None);
    }

    #[test]
    fn unused_capacity_is_headroom_for_all() {
        let (got, headroom) = held(300.0, &[listed(0.0, 2.0), listed(30.0, 1.0)]);
        assert_eq!((got[0].rate, headroom), (0.0, Some(270.0)));
        assert!((got[1].rate - 55.0).abs() < 1e-9, "{got:?}");
    }

    #[test]
    fn holding_zone_scales_tenant_limits() {
        let limited = Claimant {
            tenant_limit: 300.0,
            ..listed(500.0, 1.0)
        };
        let (got, headroom) = held(1_000.0, &[limited, listed(10.0, 1.0)]);
        assert_eq!(
            got[0],
            HeldPart {
                rate: 100.0,
                at_tenant_limit: true
            },
            "a third of 300"
        );
        assert!(!got[1].at_tenant_limit);
        assert_eq!(headroom, Some(890.0));
        let floored = Claimant {
            floor: 60.0,
            ..listed(30.0, 1e-3)
        };
        let (got, _) = held(30.0, &[floored, listed(1_000.0, 1.0)]);
        assert!((got[0].rate - 20.0).abs() < 1e-9, "a third of 60: {got:?}");
    }
}
