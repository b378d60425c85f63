//! The room of a zone with a bucket that is not overloaded, divided between its keys by their
//! present demand.

use crate::law::fairness::{Claimant, Division};
use crate::law::parameters;

/// One key of a zone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ZoneClaimant {
    /// Requests/s offered just now.
    pub offered: f64,
    /// The rate of the key's guards in requests/s, before their slack.
    pub cap: f64,
    /// The rate in requests/s that the key may pass if its tenant limit stops it; it has no part of the
    /// headroom then.
    pub stopped_at: Option<f64>,
    /// The weight relative to others.
    pub weight: f64,
}

/// Returns the allocation of each key in requests/s, in their order. `room` is what the zone may pass: the
/// caps of all keys and the headroom. Each key has what it was using, up to its cap; excesses share the rest
/// of the room by weight, and each key may use what is left then. O(K log K).
pub fn divide_room(division: &mut Division, room: f64, claimants: &[ZoneClaimant]) -> Vec<f64> {
    let with_margin = |rate: f64| rate + parameters::margin(rate);
    let mut rest = with_margin(room);
    let excesses: Vec<Claimant> = claimants
        .iter()
        .map(|claimant| {
            let own = claimant.offered.min(
                claimant
                    .stopped_at
                    .unwrap_or_else(|| with_margin(claimant.cap)),
            );
            rest -= own;
            let excess = if claimant.stopped_at.is_some() {
                0.0
            } else {
                claimant.offered - own
            };
            Claimant {
                offered: excess,
                weight: claimant.weight,
                floor: 0.0,
                tenant_limit: f64::INFINITY,
            }
        })
        .collect();
    let rest = rest.max(0.0);
    division.divide(rest, rest, &excesses);
    let left = division.headroom.unwrap_or_default();
    let each = claimants.iter().zip(&excesses).zip(&division.allocations);
    each.map(|((claimant, excess), given)| {
        if let Some(rate) = claimant.stopped_at {
            return rate;
        }
        let allocation = claimant.offered - excess.offered + given + left;
        if left > 0.0 {
            allocation.max(with_margin(claimant.cap))
        } else {
            allocation
        }
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(offered: f64, cap: f64) -> ZoneClaimant {
        ZoneClaimant {
            offered,
            cap,
            stopped_at: None,
            weight: 1.0,
        }
    }

    fn divided(room: f64, claimants: &[ZoneClaimant]) -> Vec<f64> {
        divide_room(&mut Division::default(), room, claimants)
    }

    /// In millions: the margin for chance is a small part of them.
    fn in_millions(room: f64, claimants: &[ZoneClaimant]) -> Vec<f64> {
        let many = claimants.iter().map(|claimant| ZoneClaimant {
            offered: claimant.offered * 1e6,
            cap: claimant.cap * 1e6,
            stopped_at: claimant.stopped_at.map(|rate| rate * 1e6),
            ..*claimant
        });
        divided(room * 1e6, &many.collect::<Vec<_>>())
            .into_iter()
            .map(|rate| rate / 1e6)
            .collect()
    }

    #[test]
    fn any_key_may_use_the_headroom() {
        let stopped = ZoneClaimant {
            stopped_at: Some(200.0),
            ..key(900.0, 200.0)
        };
        let heavy = ZoneClaimant {
            weight: 3.0,
            ..key(900.0, 100.0)
        };
        for (claimants, expected) in [
            // 800 of 1,000 are headroom. Both may use all that the other leaves.
            (
                &[key(100.0, 100.0), key(100.0, 100.0)][..],
                &[900.0, 900.0][..],
            ),
            (&[key(700.0, 100.0), key(100.0, 100.0)], &[900.0, 300.0]),
            // One surges: it gets what the others leave, and they keep what they use.
            (&[key(5_000.0, 100.0), key(100.0, 100.0)], &[900.0, 100.0]),
            // A key below its cap leaves room, and may come back to the cap while there is any.
            (&[key(500.0, 100.0), key(0.0, 400.0)], &[1_000.0, 500.0]),
            // Two surges divide the room above what they used, by weight.
            (&[key(900.0, 100.0), heavy], &[300.0, 700.0]),
            // A key at its tenant limit has its rate, regardless of the room.
            (&[stopped, key(100.0, 100.0)], &[200.0, 800.0]),
        ] {
            let got = in_millions(1_000.0, claimants);
            let near = got
                .iter()
                .zip(expected)
                .all(|(got, due)| (got - due).abs() < 0.5);
            assert!(near, "{claimants:?}: {got:?}");
        }
    }

    proptest! {
        #[test]
        fn passes_fit_the_room_and_its_margin(
            headroom in 0.0..1e5_f64,
            keys in prop::collection::vec((0.0..1e5_f64, 0.0..1e4_f64, 0.01..100.0_f64), 1..12),
        ) {
            let claimants: Vec<ZoneClaimant> = keys
                .iter()
                .map(|(offered, cap, weight)| ZoneClaimant { weight: *weight, ..key(*offered, *cap) })
                .collect();
            let room = headroom + keys.iter().map(|(_, cap, ..)| cap).sum::<f64>();
            let allocations = divided(room, &claimants);
            let passes: f64 = claimants.iter().zip(&allocations).map(|(key, a)| key.offered.min(*a)).sum();
            let own: f64 =
                claimants.iter().map(|key| key.offered.min(key.cap + parameters::margin(key.cap))).sum();
            let most = own.max(room + parameters::margin(room));
            prop_assert!(passes <= most * (1.0 + 1e-9), "{passes} of {most}");
            for (key, allocation) in claimants.iter().zip(&allocations) {
                let used = key.offered.min(key.cap);
                prop_assert!(*allocation >= used * (1.0 - 1e-9), "{key:?}: {allocation}");
            }
        }
    }
}
