//! The split of a key's allocation between zones: by traffic, with an even part for zones where traffic may
//! appear.

use crate::law::parameters;

/// One child of the controller, relative to all children.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SplitChild {
    /// The presence of the child: 0..=1.
    pub presence: f64,
    /// The sum of all presences: 1 or more.
    pub presences: f64,
}

impl SplitChild {
    /// Returns the child's part of a bucket's headroom, 0..=1: mostly even, because it is for traffic that is
    /// not there yet. `offered` is the rate of the bucket, and `own` that of the child in it.
    pub fn headroom_part(self, offered: f64, own: f64) -> f64 {
        let (share, even) = self.shares(offered, own);
        (1.0 - parameters::HEADROOM_EVEN) * share + parameters::HEADROOM_EVEN * even
    }

    /// The share by traffic and the even share.
    fn shares(self, offered: f64, own: f64) -> (f64, f64) {
        let even = self.presence / self.presences;
        let share = self.presence * own / offered;
        (if share.is_finite() { share } else { even }, even)
    }
}

/// The rates of one key over all zones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Whole {
    /// The offered rate in requests/s, each child times its presence.
    pub offered: f64,
    /// The allocation in requests/s.
    pub allocation: f64,
    /// The room in requests/s.
    pub room: f64,
}

/// The part of one child in one key.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ZonePart {
    /// The rate that may pass there, in requests/s.
    pub rate: f64,
    /// The rate of the guards there, in requests/s, before their slack.
    pub cap: f64,
}

impl Whole {
    /// Returns true if the allocation is below the offered rate.
    pub fn is_scarce(&self) -> bool {
        self.offered > self.allocation
    }

    /// Returns the part of a child that offers `offered` requests/s of the key. A scarce allocation follows
    /// the traffic, and each child keeps a fraction of the even part for traffic that appears there. An
    /// allocation that is not scarce has a margin on top, for chance. `scarce` is the child's share of a scarce
    /// allocation, if it is not its share of the traffic, as for a class.
    pub fn part(&self, child: SplitChild, offered: f64, scarce: Option<f64>) -> ZonePart {
        let (share, even) = child.shares(self.offered, offered);
        let cap = self.room * mixed(share, even);
        let rate = if self.is_scarce() {
            self.allocation * scarce.unwrap_or(share).max(parameters::EVEN_SHARE * even)
        } else {
            cap + parameters::margin(cap)
        };
        ZonePart { rate, cap }
    }

    /// Returns the key's contribution to the child's hold, its part of the limit while the
    /// controller is silent. `overloaded` is true if the demand on the bucket exceeds its target.
    /// Headroom is added to it.
    pub fn hold(&self, child: SplitChild, offered: f64, overloaded: bool) -> f64 {
        let (share, even) = child.shares(self.offered, offered);
        let share = if overloaded && self.is_scarce() {
            share.max(parameters::EVEN_SHARE * even)
        } else {
            mixed(share, even)
        };
        self.allocation * share
    }
}

/// Mixes the share by traffic with the even share.
pub(super) fn mixed(share: f64, even: f64) -> f64 {
    (1.0 - parameters::EVEN_SHARE) * share + parameters::EVEN_SHARE * even
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn thirds(presence: f64) -> SplitChild {
        SplitChild {
            presence,
            presences: 3.0,
        }
    }

    #[test]
    fn a_scarce_allocation_follows_the_traffic() {
        let whole = Whole {
            offered: 3_000.0,
            allocation: 900.0,
            room: 900.0,
        };
        for (offered, rate) in [(1_000.0, 300.0), (3_000.0, 900.0), (0.0, 30.0)] {
            assert!(
                (whole.part(thirds(1.0), offered, None).rate - rate).abs() < 1e-9,
                "{offered}"
            );
        }
    }

    proptest! {
        #[test]
        fn child_parts_make_up_the_headroom(offered in prop::collection::vec(0.0..1e6_f64, 1..9)) {
            let sum: f64 = offered.iter().sum();
            let child = SplitChild { presence: 1.0, presences: offered.len() as f64 };
            let parts: Vec<f64> =
                offered.iter().map(|own| child.headroom_part(sum, *own)).collect();
            prop_assert!((parts.iter().sum::<f64>() - 1.0).abs() < 1e-9);
            prop_assert!(parts.iter().all(|part| *part >= 0.6 / child.presences - 1e-12));
        }
    }

    #[test]
    fn an_idle_key_is_divided_evenly() {
        let whole = Whole {
            offered: 0.0,
            allocation: 0.0,
            room: 900.0,
        };
        let part = whole.part(thirds(1.0), 0.0, None);
        assert!(
            (part.cap - 300.0).abs() < 1e-9 && part.rate > 300.0 + 70.0,
            "{part:?}"
        );
        assert_eq!(
            whole.part(thirds(0.0), 0.0, None),
            ZonePart {
                rate: 0.0,
                cap: 0.0
            }
        );
    }

    proptest! {
        /// Caps and holds of all children sum to the room and the allocation; rates exceed them by no more
        /// than the even parts and margins.
        #[test]
        fn the_parts_sum_to_the_whole(
            offered in prop::collection::vec(0.0..1e5, 1..8), allocation in 0.0..1e5, extra in 0.0..1e5,
        ) {
            let sum: f64 = offered.iter().sum();
            let allocation: f64 = sum.min(allocation);
            let whole = Whole { offered: sum, allocation, room: allocation + extra };
            let child = SplitChild { presence: 1.0, presences: offered.len() as f64 };
            let parts: Vec<ZonePart> = offered.iter().map(|o| whole.part(child, *o, None)).collect();
            let caps: f64 = parts.iter().map(|part| part.cap).sum();
            prop_assert!((caps - whole.room).abs() < 1e-6 * whole.room.max(1.0));
            let holds: f64 = offered.iter().map(|o| whole.hold(child, *o, true)).sum();
            prop_assert!(holds >= allocation * (1.0 - 1e-9) && holds <= allocation * (1.1 + 1e-9));
            if whole.is_scarce() {
                let rates: f64 = parts.iter().map(|part| part.rate).sum();
                prop_assert!(rates >= allocation * (1.0 - 1e-9) && rates <= allocation * (1.1 + 1e-9));
            }
        }
    }
}
