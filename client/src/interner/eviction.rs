//! Who gives its id back: keys that nobody asks for, and when ids are scarce those that are asked for least. Pure, and
//! off the request path.

use std::time::Duration;

use plimsoll_core::quantity::MonoTime;

use crate::interner::Room;
use crate::interner::frequency::Waiting;

/// A key that nobody asked for in so long leaves.
const IDLE: Duration = Duration::from_secs(60);
/// When more than 3/4 of the ids are taken, it leaves after so long.
const IDLE_WHEN_CROWDED: Duration = Duration::from_secs(10);
/// Of the ids, 1 in so many is kept free for names that become frequent.
const RESERVE: u32 = 16;
/// A key makes room only for a name that was asked for so many times as often.
const OUTDONE: u32 = 2;

/// How much each id was asked for lately. 32 bytes for each.
#[derive(Debug, Default)]
pub(crate) struct Idle {
    keys: Vec<Activity>,
}

#[derive(Clone, Copy, Debug)]
struct Activity {
    /// Requests counted up to the last sweep.
    seen: u64,
    /// Requests by the last sweep, each sweep's by half as much as the next one's. `None` until a sweep has measured it.
    recent: Option<u32>,
    /// When a sweep last found new requests, or first measured it.
    active: Option<MonoTime>,
}

/// A key that may leave, and the requests counted for it so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub(crate) id: u32,
    pub(crate) offered: u64,
    /// It is not to leave, whatever happens.
    pub(crate) stays: bool,
}

impl Idle {
    /// A key has taken an id, for which `offered` requests were counted before.
    pub(crate) fn enter(&mut self, id: u32, offered: u64) {
        let fresh = Activity { seen: offered, recent: None, active: None };
        let at = id as usize;
        if at >= self.keys.len() {
            self.keys.resize(at + 1, fresh);
        }
        self.keys[at] = fresh;
    }

    /// A second has passed: measures every key and says who leaves. `resting` ids will be free soon; `waiting` are the
    /// names without an id. Linear in the keys, and when the table is full n log n in those that may leave.
    pub(crate) fn sweep(
        &mut self,
        now: MonoTime,
        candidates: impl Iterator<Item = Candidate>,
        room: Room,
        resting: u32,
        waiting: &Waiting,
    ) -> Vec<u32> {
        let taken = room.ids.saturating_sub(room.free).saturating_sub(resting);
        let patience = if taken > room.ids - room.ids / 4 { IDLE_WHEN_CROWDED } else { IDLE };
        let mut leaving = Vec::new();
        let mut others = Vec::new();
        for Candidate { id, offered, stays } in candidates {
            let Some(key) = self.keys.get_mut(id as usize) else { continue };
            let was_measured = key.recent.is_some();
            let active = key.measure(now, offered);
            if stays {
                continue;
            }
            if now.since(active) >= patience {
                leaving.push(id);
            } else if was_measured {
                others.push((key.recent.unwrap_or_default(), id));
            }
        }
        let soon_free = room.free + resting + u32::try_from(leaving.len()).unwrap_or(u32::MAX);
        let wanted = room.ids.div_ceil(RESERVE).saturating_sub(soon_free);
        if wanted > 0 {
            others.sort_unstable();
            let outdone = others.into_iter().zip(waiting.most_frequent_first()).take(wanted as usize);
            let outdone = outdone.take_while(|((recent, _), asked)| recent.saturating_mul(OUTDONE) <= *asked);
            leaving.extend(outdone.map(|((_, id), _)| id));
        }
        leaving
    }
}

impl Activity {
    /// Returns when it was last active.
    fn measure(&mut self, now: MonoTime, offered: u64) -> MonoTime {
        // A count read while it is being written may seem to go back.
        let fresh = offered.saturating_sub(self.seen);
        self.seen += fresh;
        let active = self.active.filter(|_| fresh == 0).unwrap_or(now);
        self.active = Some(active);
        let fresh = u32::try_from(fresh).unwrap_or(u32::MAX);
        self.recent = Some((self.recent.unwrap_or_default() / 2).saturating_add(fresh));
        active
    }
}

#[cfg(test)]
#[cfg(not(feature = "loom"))]
mod tests {
    use super::*;

    fn at(seconds: u64) -> MonoTime {
        MonoTime::from_elapsed(Duration::from_secs(1_000 + seconds))
    }

    /// Keys with so many requests a second each, swept every second for as long as said; who left, and when.
    fn left(ids: u32, rates: &[u64], stays: &[u32], until: u64, waiting: &[u32]) -> Vec<(u32, u64)> {
        let mut idle = Idle::default();
        let mut left: Vec<(u32, u64)> = Vec::new();
        let keys = || 0..rates.len() as u32;
        keys().for_each(|id| idle.enter(id, 7));
        let mut names = Waiting::default();
        waiting.iter().for_each(|count| names.add(*count));
        for second in 1..=until {
            let present: Vec<u32> = keys().filter(|id| left.iter().all(|(gone, _)| gone != id)).collect();
            let (taken, resting) = (rates.len() as u32, left.len() as u32);
            let room = Room { ids, free: ids - taken };
            let candidates = present.into_iter().map(|id| Candidate {
                id,
                offered: 7 + rates[id as usize] * second,
                stays: stays.contains(&id),
            });
            let leaving = idle.sweep(at(second), candidates, room, resting, &names);
            left.extend(leaving.into_iter().map(|id| (id, second)));
        }
        left
    }

    #[test]
    fn an_idle_key_leaves_after_a_minute_and_sooner_when_crowded() {
        assert_eq!(left(8, &[1, 0, 1], &[], 70, &[]), [(1, 61)]);
        assert_eq!(left(8, &[1, 0, 1, 1, 1, 1], &[], 70, &[]), [(1, 61)], "3/4 is not more than 3/4");
        assert_eq!(left(8, &[1, 0, 1, 1, 1, 1, 1], &[], 70, &[]), [(1, 11)]);
        assert_eq!(left(8, &[1, 0, 1], &[1], 700, &[]), [], "it is to stay");
    }

    #[test]
    fn a_full_table_makes_room_for_those_who_ask_at_least_twice_as_often() {
        let rates: Vec<u64> = (1..=32).rev().collect();
        for (waiting, gone) in [
            (&[][..], &[][..]),
            (&[1][..], &[]),
            (&[3][..], &[(31, 2)]),
            (&[100][..], &[(31, 2), (30, 3)]),
            (&[100, 1][..], &[(31, 2), (30, 3)]),
            (&[100, 100][..], &[(31, 2), (30, 2)]),
            (&[4_095; 9][..], &[(31, 2), (30, 2)]),
        ] {
            assert_eq!(left(32, &rates, &[], 40, waiting), gone, "{waiting:?}");
        }
        assert_eq!(left(32, &rates, &[31, 30], 3, &[4_095; 9]), [(29, 2), (28, 2)]);
        assert_eq!(left(34, &rates, &[], 3, &[4_095; 9]), [(31, 2)], "two of 34 are free, three are kept");
        assert_eq!(left(40, &rates, &[], 40, &[4_095; 9]), [], "there is room enough");
    }

    #[test]
    fn nothing_that_waits_displaces_a_hot_key() {
        assert_eq!(left(4, &[2_000; 4], &[], 40, &[4_095; 100]), []);
    }

    #[test]
    fn a_key_is_measured_for_a_second_before_it_is_compared() {
        assert_eq!(left(2, &[1, 1], &[], 1, &[4_095; 9]), []);
        assert_eq!(left(2, &[1, 1], &[], 2, &[4_095; 9]), [(0, 2)]);
    }
}
