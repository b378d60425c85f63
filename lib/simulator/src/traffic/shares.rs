//! The division of a load between the clients, and of the clients between zones.

use plimsoll_policy::Number;
use serde::Deserialize;

/// From `at_s` on, the clients before number `first` carry the share `of_load` of the load.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Share {
    pub(crate) at_s: Number,
    pub(crate) first: u32,
    pub(crate) of_load: Number,
}

/// Part of the load of each client, before number `first` and from it on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Parts {
    pub(crate) first: u32,
    pub(crate) each_of_first: f64,
    pub(crate) each_of_others: f64,
}

/// Returns the parts at `t` among `joined` clients. Clients that crashed still count: their part of
/// the load is lost.
pub(crate) fn parts(shares: &[Share], t: f64, joined: u32) -> Parts {
    let after = shares.partition_point(|share| share.at_s.0 <= t);
    let others = |first: u32, load: f64| {
        if joined > first {
            load / f64::from(joined - first)
        } else {
            0.0
        }
    };
    match after.checked_sub(1).and_then(|at| shares.get(at)) {
        Some(share) => Parts {
            first: share.first,
            each_of_first: share.of_load.0 / f64::from(share.first.max(1)),
            each_of_others: others(share.first, 1.0 - share.of_load.0),
        },
        None => Parts {
            first: 0,
            each_of_first: 0.0,
            each_of_others: others(0, 1.0),
        },
    }
}

/// Returns the zone of each of `clients` that join together: an even division in blocks, so that
/// the first clients are in the first zone.
pub(crate) fn zones_of(clients: u32, zones: u32) -> impl Iterator<Item = u32> {
    let zones = u64::from(zones);
    (0..u64::from(clients)).map(move |client| (client * zones / u64::from(clients)) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_is_even_before_the_first_share() {
        let shares = [
            Share {
                at_s: Number(10.0),
                first: 1,
                of_load: Number(0.01),
            },
            Share {
                at_s: Number(20.0),
                first: 1,
                of_load: Number(0.9),
            },
            Share {
                at_s: Number(30.0),
                first: 4,
                of_load: Number(1.0),
            },
        ];
        let at = |t| parts(&shares, t, 4);
        assert_eq!(
            at(0.0),
            Parts {
                first: 0,
                each_of_first: 0.0,
                each_of_others: 0.25
            }
        );
        assert_eq!(
            at(10.0),
            Parts {
                first: 1,
                each_of_first: 0.01,
                each_of_others: 0.33
            }
        );
        let hot = at(25.0);
        assert_eq!((hot.first, hot.each_of_first), (1, 0.9));
        assert!((hot.each_of_others - 0.1 / 3.0).abs() < 1e-12);
        assert_eq!(
            at(30.0),
            Parts {
                first: 4,
                each_of_first: 0.25,
                each_of_others: 0.0
            }
        );
    }

    #[test]
    fn clients_are_spread_evenly_in_blocks() {
        let zones: Vec<u32> = zones_of(7, 3).collect();
        assert_eq!(zones, [0, 0, 0, 1, 1, 2, 2]);
        assert_eq!(zones_of(2, 3).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(zones_of(0, 3).count(), 0);
        let mut counts = [0; 10];
        zones_of(99, 10).for_each(|zone| counts[zone as usize] += 1);
        assert!(
            counts.iter().all(|count| (9..=10).contains(count)),
            "{counts:?}"
        );
    }
}
