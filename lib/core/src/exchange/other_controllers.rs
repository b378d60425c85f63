//! The sightings of controllers other than the leader here. They are shown to operators and change
//! nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::directive::Leader;
use crate::quantity::MonoTime;
use crate::report::Role;

/// Time that a sighting is shown after the last one, and between log lines of a lasting one.
const SHOWN: Duration = Duration::from_secs(60);
/// Time that a later epoch is claimed before the claim is shown: after the restart of a controller,
/// a client of several aggregators knows the new epoch earlier than one of them. Also the longest
/// gap in a claim.
const SETTLED_AFTER: Duration = Duration::from_secs(10);
/// Time without a report before a peer makes room for another: more than two maximum intervals.
const SILENT_AFTER: Duration = Duration::from_secs(3);
/// Maximum number of peers that are remembered by name because they name other controllers.
pub const SIGHTINGS_MAX: usize = 64;

/// A controller that does not lead here, as a child or the parent of this process names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sighting {
    /// The controller.
    pub other: Leader,
    /// True if it has the epoch of the leader: both run on copies of one state.
    pub is_rival: bool,
    /// The start of sightings without a long gap, and the last one.
    since: MonoTime,
    at: MonoTime,
    logged_at: Option<MonoTime>,
    role: Role,
}

/// The latest sightings, by the name of the peer.
#[derive(Clone, Debug, Default)]
pub struct OtherControllers {
    by_peer: BTreeMap<String, Sighting>,
    /// The time since which log lines are counted, and their number: a peer that invents names fills no disk.
    logged: (MonoTime, usize),
}

impl OtherControllers {
    /// Notes that a peer with this `role` names `other`, while `held` leads here, if that is another controller of
    /// the same epoch or a later one.
    pub fn note(
        &mut self,
        now: MonoTime,
        held: Leader,
        other: Leader,
        role: Role,
        peer: impl FnOnce() -> String,
    ) {
        let is_rival = held.is_rival_of(other);
        if !is_rival && other.epoch <= held.epoch {
            return;
        }
        self.by_peer
            .retain(|_, sighting| now.since(sighting.at) < SHOWN);
        let peer = peer();
        if !self.by_peer.contains_key(&peer) && !self.makes_room(now, role) {
            return;
        }
        let new = Sighting {
            other,
            is_rival,
            since: now,
            at: now,
            logged_at: None,
            role,
        };
        let sighting = self.by_peer.entry(peer).or_insert(new);
        if now.since(sighting.at) >= SETTLED_AFTER {
            sighting.since = now;
        }
        (sighting.other, sighting.is_rival, sighting.at) = (other, is_rival, now);
    }

    /// Makes room for a sighting by another peer of this role, where there is none: removes a silent peer of the role, and
    /// for an aggregator any client; clients first, and of them the longest silent. Returns false if none may leave.
    fn makes_room(&mut self, now: MonoTime, role: Role) -> bool {
        if self.by_peer.len() < SIGHTINGS_MAX {
            return true;
        }
        let may_leave = |seen: &Sighting| {
            (role == Role::Aggregator && seen.role == Role::Client)
                || seen.role == role && now.since(seen.at) >= SILENT_AFTER
        };
        let leaving = self.by_peer.iter().filter(|(_, seen)| may_leave(seen));
        let first = leaving.min_by_key(|(_, seen)| (seen.role == Role::Aggregator, seen.at));
        let first = first.map(|(peer, _)| peer.clone());
        first.is_some_and(|peer| self.by_peer.remove(&peer).is_some())
    }

    /// The peers that name another controller at the epoch of the leader, and peers that have
    /// claimed a later epoch for a while.
    pub fn iter(&self, now: MonoTime) -> impl Iterator<Item = (&str, &Sighting)> {
        let each = self
            .by_peer
            .iter()
            .filter(move |(_, sighting)| sighting.is_shown(now));
        each.map(|(peer, sighting)| (peer.as_str(), sighting))
    }

    /// Returns true if two controllers run at one epoch.
    pub fn has_rival(&self, now: MonoTime) -> bool {
        self.iter(now).any(|(_, sighting)| sighting.is_rival)
    }

    /// The controller that would lead among those seen lately.
    pub fn latest(&self, now: MonoTime) -> Option<Leader> {
        let lately = self
            .by_peer
            .values()
            .filter(|sighting| now.since(sighting.at) < SETTLED_AFTER);
        lately.map(|sighting| sighting.other).max()
    }

    /// Takes the sightings that are due for the log, each once a minute and sightings of
    /// aggregators first.
    pub fn take_unlogged(&mut self, now: MonoTime) -> Vec<(String, Sighting)> {
        let is_due = |sighting: &Sighting| {
            sighting.is_shown(now) && sighting.logged_at.is_none_or(|at| now.since(at) >= SHOWN)
        };
        if now.since(self.logged.0) >= SHOWN {
            self.logged = (now, 0);
        }
        let due = self
            .by_peer
            .iter_mut()
            .filter(|(_, sighting)| is_due(sighting));
        let mut due: Vec<(&String, &mut Sighting)> = due.collect();
        due.sort_by_key(|(_, sighting)| sighting.role != Role::Aggregator);
        due.truncate(SIGHTINGS_MAX - self.logged.1);
        self.logged.1 += due.len();
        due.into_iter()
            .map(|(peer, sighting)| {
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
        Leader {
            epoch: Epoch(epoch),
            instance: Some(InstanceId(instance)),
        }
    }

    fn shown(others: &OtherControllers, s: u64) -> Vec<(&str, Leader)> {
        others
            .iter(at(s))
            .map(|(peer, sighting)| (peer, sighting.other))
            .collect()
    }

    #[test]
    fn second_controller_is_rarely_logged() {
        let mut others = OtherControllers::default();
        let held = leader(2, 1);
        for none in [
            leader(2, 1),
            leader(1, 7),
            Leader {
                instance: None,
                ..held
            },
        ] {
            others.note(at(0), held, none, Role::Client, || unreachable!());
        }
        others.note(at(0), held, leader(2, 7), Role::Client, || "a".to_owned());
        assert_eq!(shown(&others, 0), [("a", leader(2, 7))]);
        assert!(others.has_rival(at(0)));
        let logged = |others: &mut OtherControllers, s| others.take_unlogged(at(s)).len();
        assert_eq!([0, 1, 59].map(|s| logged(&mut others, s)), [1, 0, 0]);
        others.note(at(59), held, leader(2, 7), Role::Client, || "a".to_owned());
        assert_eq!([60, 61].map(|s| logged(&mut others, s)), [1, 0]);
        assert!(others.has_rival(at(118)) && !others.has_rival(at(119)));
    }

    #[test]
    fn later_epoch_is_shown_if_it_lasts() {
        let mut others = OtherControllers::default();
        let claims = |others: &mut OtherControllers, s| {
            others.note(at(s), leader(2, 1), leader(3, 7), Role::Client, || {
                "a".to_owned()
            });
        };
        claims(&mut others, 0);
        claims(&mut others, 9);
        assert!(shown(&others, 9).is_empty());
        claims(&mut others, 30);
        assert!(
            shown(&others, 30).is_empty(),
            "another restart of the controller"
        );
        (31..=40).for_each(|s| claims(&mut others, s));
        assert_eq!(shown(&others, 40), [("a", leader(3, 7))]);
        assert!(!others.has_rival(at(40)));
        assert_eq!(others.latest(at(40)), Some(leader(3, 7)));
        assert_eq!(others.latest(at(50)), None);
    }

    #[test]
    fn ended_peers_make_room_within_bounds() {
        let mut others = OtherControllers::default();
        let note = |others: &mut OtherControllers, s, role, peer: String| {
            others.note(at(s), leader(2, 1), leader(2, 7), role, || peer);
        };
        for peer in 0..1_000 {
            note(&mut others, 0, Role::Client, format!("peer {peer}"));
        }
        assert_eq!(shown(&others, 0).len(), SIGHTINGS_MAX);
        note(&mut others, 60, Role::Client, "another".to_owned());
        assert_eq!(shown(&others, 60).len(), 1);
    }

    #[test]
    fn clients_do_not_hide_what_others_name() {
        let mut others = OtherControllers::default();
        let note = |others: &mut OtherControllers, s, role, peer: String| {
            others.note(at(s), leader(2, 1), leader(2, 7), role, || peer);
        };
        (0..SIGHTINGS_MAX)
            .for_each(|peer| note(&mut others, 0, Role::Client, format!("peer {peer}")));
        note(&mut others, 0, Role::Aggregator, "the parent".to_owned());
        // Sightings of clients that have fallen silent make room for an active client.
        note(&mut others, 10, Role::Client, "honest".to_owned());
        (0..SIGHTINGS_MAX)
            .for_each(|peer| note(&mut others, 10, Role::Client, format!("other {peer}")));
        let is_shown = |peer: &str| shown(&others, 10).iter().any(|(shown, _)| *shown == peer);
        assert!(is_shown("the parent") && is_shown("honest"));
        assert_eq!(shown(&others, 10).len(), SIGHTINGS_MAX);
    }

    #[test]
    fn name_flood_is_logged_in_part() {
        let mut others = OtherControllers::default();
        let mut logged = Vec::new();
        for s in 0..60 {
            for peer in 0..SIGHTINGS_MAX {
                others.note(at(s), leader(2, 1), leader(2, 7), Role::Client, || {
                    format!("peer {s} {peer}")
                });
            }
            others.note(at(s), leader(2, 1), leader(2, 7), Role::Aggregator, || {
                "zone".to_owned()
            });
            logged.extend(
                others
                    .take_unlogged(at(s))
                    .into_iter()
                    .map(|(peer, _)| peer),
            );
        }
        assert_eq!(logged.first().map(String::as_str), Some("zone"));
        assert!(logged.len() <= SIGHTINGS_MAX, "{}", logged.len());
    }
}
