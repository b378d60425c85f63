//! The sightings of controllers other than the one that leads here. They are shown to operators and change
//! nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::directive::Leader;
use crate::quantity::MonoTime;

/// The time for which a sighting is shown after the last one, and after which a lasting one is logged again.
const SHOWN: Duration = Duration::from_secs(60);
/// The time for which a later epoch is claimed before the claim is shown: after the restart of a controller, a
/// client of several aggregators knows the new epoch earlier than one of them. Also the longest gap in a claim.
const SETTLED_AFTER: Duration = Duration::from_secs(10);
/// The most peers through which other controllers are seen that are remembered by name.
pub const SIGHTINGS_MAX: usize = 64;

/// A controller that does not lead here, as a child or the parent of this process names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sighting {
    /// The controller.
    pub other: Leader,
    /// True if it has the epoch of the one that leads: both run on copies of one state.
    pub is_rival: bool,
    since: MonoTime,
    at: MonoTime,
    logged_at: Option<MonoTime>,
}

/// The latest sightings, by the name of the peer.
#[derive(Clone, Debug, Default)]
pub struct OtherControllers {
    by_peer: BTreeMap<String, Sighting>,
}

impl OtherControllers {
    /// Notes that a peer names `other`, while `held` leads here. Returns true if that is another controller, of
    /// the same epoch or a later one.
    pub fn note(
        &mut self,
        now: MonoTime,
        held: Leader,
        other: Leader,
        peer: impl FnOnce() -> String,
    ) -> bool {
        let is_rival = held.is_rival_of(other);
        if !is_rival && other.epoch <= held.epoch {
            return false;
        }
        self.by_peer.retain(|_, sighting| now.since(sighting.at) < SHOWN);
        let (peer, is_full) = (peer(), self.by_peer.len() >= SIGHTINGS_MAX);
        if is_full && !self.by_peer.contains_key(&peer) {
            return true;
        }
        let new = Sighting { other, is_rival, since: now, at: now, logged_at: None };
        let sighting = self.by_peer.entry(peer).or_insert(new);
        if now.since(sighting.at) >= SETTLED_AFTER {
            sighting.since = now;
        }
        (sighting.other, sighting.is_rival, sighting.at) = (other, is_rival, now);
        true
    }

    /// The peers that name another controller at the epoch of the one that leads, and those that have claimed a
    /// later epoch for a while.
    pub fn iter(&self, now: MonoTime) -> impl Iterator<Item = (&str, &Sighting)> {
        let each = self.by_peer.iter().filter(move |(_, sighting)| sighting.is_shown(now));
        each.map(|(peer, sighting)| (peer.as_str(), sighting))
    }

    /// Returns true if two controllers run at one epoch.
    pub fn has_rival(&self, now: MonoTime) -> bool {
        self.iter(now).any(|(_, sighting)| sighting.is_rival)
    }

    /// The controller that would lead among those seen lately.
    pub fn latest(&self, now: MonoTime) -> Option<Leader> {
        let lately = self.by_peer.values().filter(|sighting| now.since(sighting.at) < SETTLED_AFTER);
        lately.map(|sighting| sighting.other).max()
    }

    /// Takes the sightings that are due for the log, each once a minute.
    pub fn take_unlogged(&mut self, now: MonoTime) -> Vec<(String, Sighting)> {
        let is_due = |sighting: &Sighting| {
            sighting.is_shown(now) && sighting.logged_at.is_none_or(|at| now.since(at) >= SHOWN)
        };
        let due = self.by_peer.iter_mut().filter(|(_, sighting)| is_due(sighting));
        due.map(|(peer, sighting)| {
            sighting.logged_at = Some(now);
            (peer.clone(), sighting.clone())
        })
        .collect()
    }
}

impl Sighting {
    fn is_shown(&self, now: MonoTime) -> bool {
        now.since(self.at) < SHOWN && (self.is_rival || self.at.since(self.since) >= SETTLED_AFTER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directive::Epoch;
    use crate::report::InstanceId;

    fn at(s: u64) -> MonoTime {
        MonoTime::from_elapsed(Duration::from_secs(s))
    }

    fn leader(epoch: u64, instance: u128) -> Leader {
        Leader { epoch: Epoch(epoch), instance: Some(InstanceId(instance)) }
    }

    fn shown(others: &OtherControllers, s: u64) -> Vec<(&str, Leader)> {
        others.iter(at(s)).map(|(peer, sighting)| (peer, sighting.other)).collect()
    }

    #[test]
    fn second_controller_of_one_epoch_is_shown_at_once_and_logged_once_a_minute() {
        let mut others = OtherControllers::default();
        let held = leader(2, 1);
        for none in [leader(2, 1), leader(1, 7), Leader { instance: None, ..held }] {
            assert!(!others.note(at(0), held, none, || unreachable!()));
        }
        assert!(others.note(at(0), held, leader(2, 7), || "a".to_owned()));
        assert_eq!(shown(&others, 0), [("a", leader(2, 7))]);
        assert!(others.has_rival(at(0)));
        let logged = |others: &mut OtherControllers, s| others.take_unlogged(at(s)).len();
        assert_eq!([0, 1, 59].map(|s| logged(&mut others, s)), [1, 0, 0]);
        assert!(others.note(at(59), held, leader(2, 7), || "a".to_owned()));
        assert_eq!([60, 61].map(|s| logged(&mut others, s)), [1, 0]);
        assert!(others.has_rival(at(118)) && !others.has_rival(at(119)));
    }

    #[test]
    fn later_epoch_is_shown_only_if_the_claim_lasts() {
        let mut others = OtherControllers::default();
        let claims = |others: &mut OtherControllers, s| {
            others.note(at(s), leader(2, 1), leader(3, 7), || "a".to_owned());
        };
        claims(&mut others, 0);
        claims(&mut others, 9);
        assert!(shown(&others, 9).is_empty());
        claims(&mut others, 30);
        assert!(shown(&others, 30).is_empty(), "another restart of the controller");
        (31..=40).for_each(|s| claims(&mut others, s));
        assert_eq!(shown(&others, 40), [("a", leader(3, 7))]);
        assert!(!others.has_rival(at(40)));
        assert_eq!(others.latest(at(40)), Some(leader(3, 7)));
        assert_eq!(others.latest(at(50)), None);
    }

    #[test]
    fn peers_are_bounded_and_those_that_ended_make_room() {
        let mut others = OtherControllers::default();
        for peer in 0..1_000 {
            assert!(others.note(at(0), leader(2, 1), leader(2, 7), || format!("peer {peer}")));
        }
        assert_eq!(shown(&others, 0).len(), SIGHTINGS_MAX);
        others.note(at(60), leader(2, 1), leader(2, 7), || "another".to_owned());
        assert_eq!(shown(&others, 60).len(), 1);
    }
}
