//! The split of an aggregator's allocation between the aggregators below it and its own clients, which
//! together count as one more aggregator.

use super::split::mixed;

/// One participant in the allocation of one key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ZoneSharer {
    /// The presence of the participant: 0..=1.
    pub presence: f64,
    /// The rate offered through it, in requests/s.
    pub offered: f64,
}

/// The sums over all participants.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sharing {
    /// The sum of the presences.
    pub presences: f64,
    /// The offered rates in requests/s, each times its presence.
    pub offered: f64,
}

impl Sharing {
    /// Sums over the participants.
    pub fn of(sharers: impl IntoIterator<Item = ZoneSharer>) -> Self {
        sharers.into_iter().fold(Self::default(), |sum, one| Self {
            presences: sum.presences + one.presence,
            offered: sum.offered + one.presence * one.offered,
        })
    }

    /// Returns the part of one participant: `(1 - eta) * share + eta / n`, where `share` is its part of the
    /// offered rate, or `1 / n` where nothing is offered. The parts sum to at most 1, so that rates, caps and
    /// holds divide without excess.
    pub fn part(&self, one: ZoneSharer) -> f64 {
        let even = one.presence / self.presences.max(1.0);
        let share = one.presence * one.offered / self.offered;
        mixed(if share.is_finite() { share } else { even }, even)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parts(sharers: &[(f64, f64)]) -> Vec<f64> {
        let each = sharers.iter().map(|(presence, offered)| ZoneSharer {
            presence: *presence,
            offered: *offered,
        });
        let all = Sharing::of(each.clone());
        each.map(|one| all.part(one)).collect()
    }

    #[test]
    fn part_is_traffic_share_plus_even_part() {
        // presence and offered of each, and the parts
        for (sharers, due) in [
            (&[(1.0, 500.0)][..], &[1.0][..]),
            (
                &[(1.0, 900.0), (1.0, 100.0)],
                &[0.9 * 0.9 + 0.05, 0.9 * 0.1 + 0.05],
            ),
            (&[(1.0, 0.0), (1.0, 0.0)], &[0.5, 0.5]),
            (&[(1.0, 0.0), (1.0, 10.0)], &[0.05, 0.95]),
            (
                &[(1.0, 100.0), (0.5, 100.0)],
                &[0.9 / 1.5 + 0.1 / 1.5, (0.9 * 0.5 + 0.05) / 1.5],
            ),
            (&[(1.0, 100.0), (0.0, 100.0)], &[1.0, 0.0]),
            (&[(0.5, 100.0)], &[0.9 + 0.05]), // what nobody else is there for is not given to one who fades
        ] {
            let got = parts(sharers);
            let near = got
                .iter()
                .zip(due)
                .all(|(got, due)| (got - due).abs() < 1e-12);
            assert!(near && got.len() == due.len(), "{sharers:?}: {got:?}");
        }
    }

    proptest! {
        #[test]
        fn zone_parts_make_up_the_whole(
            sharers in prop::collection::vec((0.0..=1.0_f64, 0.0..1e6_f64), 1..9),
        ) {
            let parts = parts(&sharers);
            let sum: f64 = parts.iter().sum();
            let presences: f64 = sharers.iter().map(|(presence, _)| presence).sum();
            prop_assert!(sum <= 1.0 + 1e-9, "{}", sum);
            prop_assert!(presences < 1.0 || sum >= 1.0 - 1e-9, "{}", sum);
            prop_assert!(parts.iter().all(|part| (0.0..=1.0 + 1e-9).contains(part)));
        }
    }
}
