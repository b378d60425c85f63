//! Tests of the interner, also against a model.

use std::collections::{BTreeMap, HashMap, HashSet};

use proptest::prelude::*;

use super::log::Event;
use super::*;

#[track_caller]
fn found(names: &Interner, owner: u32, name: &str) -> u32 {
    let found = names.look_up(owner, name);
    found.id().unwrap_or_else(|| panic!("{name}: {found:?}"))
}

fn read(names: &Interner) -> (Vec<(u32, u32, String)>, Vec<u32>) {
    let log = names.take_log();
    let revived = log.events().filter_map(|event| match event {
        Event::Revived(id) => Some(id),
        Event::Inserted { .. } => None,
    });
    let events = (
        log.inserted()
            .map(|(id, owner, name)| (id, owner, name.to_owned()))
            .collect(),
        revived.collect(),
    );
    names.return_log(log);
    events
}

fn inserted(names: &Interner) -> Vec<u32> {
    read(names).0.into_iter().map(|(id, ..)| id).collect()
}

fn is_tombstone(names: &Interner, id: u32) -> bool {
    matches!(
        names.lock().state(id),
        Some(State::Tombstoned | State::Released)
    )
}

#[test]
fn names_get_dense_ids_by_owner() {
    let names = Interner::new(8, 7);
    let longest = &"x".repeat(NAME_BYTES_MAX);
    for _ in 0..2 {
        assert_eq!(found(&names, 0, "a"), 0);
        assert_eq!(found(&names, 1, "a"), 1);
        assert_eq!(found(&names, 0, longest), 2);
    }
    let events = [(0, 0, "a"), (1, 1, "a"), (2, 0, longest)];
    assert_eq!(
        read(&names),
        (
            events
                .map(|(id, owner, name)| (id, owner, name.to_owned()))
                .into(),
            vec![]
        )
    );
    assert_eq!(read(&names), (vec![], vec![]));
    for bad in [
        "",
        "no name",
        "caf\u{e9}",
        &"x".repeat(129),
        &"x".repeat(70_000),
    ] {
        assert_eq!(
            (names.look_up(0, bad), names.intern(0, bad)),
            (Lookup::Invalid, None),
            "{bad:?}"
        );
        assert_eq!(names.pin(0, bad), None, "{bad:?}");
    }
    // What a caller sends is no escape.
    let escaped = names.look_up_name(0, "a%7Cb");
    assert_eq!(
        (names.intern(0, "a%7Cb"), names.look_up(0, "a%7Cb")),
        (escaped.id(), Lookup::Invalid)
    );
}

#[test]
fn ids_are_bounded() {
    let names = Interner::new(2, 7);
    assert_eq!((found(&names, 0, "a"), found(&names, 0, "b")), (0, 1));
    let lookups: Vec<Lookup> = (0..9).map(|_| names.look_up(0, "c")).collect();
    assert_eq!(
        (lookups[0], lookups[6], lookups[7], lookups[8]),
        (Lookup::Rare, Lookup::Rare, Lookup::Full, Lookup::Full)
    );
    assert_eq!(found(&names, 0, "b"), 1);
}

#[test]
fn requests_await_log_room_but_handles_proceed() {
    let names = Interner::new(100_000, 7);
    let (mut entered, longest) = (0, "x".repeat(NAME_BYTES_MAX - 5));
    while let Lookup::Found(_) = names.look_up(0, &format!("{longest}{entered:05}")) {
        entered += 1;
    }
    assert!(entered > 1_000, "{entered}");
    assert_eq!(
        names.look_up(0, "an-average-name-is-not-that-long"),
        Lookup::Busy
    );
    assert!(names.pin(0, "handle").is_some() && names.intern(0, "directed").is_some());
    assert_eq!(inserted(&names).len(), entered + 2);
    assert!(
        names
            .look_up(0, "an-average-name-is-not-that-long")
            .id()
            .is_some()
    );
}

#[test]
fn beyond_half_only_frequent_names_get_ids() {
    let names = Interner::new(8, 7);
    for id in 0..5 {
        assert_eq!(found(&names, 0, &format!("early-{id}")), id);
    }
    assert_eq!(names.intern_if_roomy(0, "directed"), None);
    assert_eq!(names.intern_if_roomy(0, "early-3"), Some(3));
    for _ in 1..OFTEN {
        assert_eq!(names.look_up(0, "frequent"), Lookup::Rare);
    }
    assert_eq!(found(&names, 0, "frequent"), 5);
    assert_eq!(
        names.decay_waiting(),
        WaitingCounts::default(),
        "no name waits any longer"
    );
    // Four requests a second never come to eight.
    for _ in 0..20 {
        assert!((0..3).all(|_| names.look_up(0, "now-and-then") == Lookup::Rare));
        assert_ne!(names.decay_waiting(), WaitingCounts::default());
    }
    // A handle gets an id regardless of the traffic.
    assert_eq!(names.pin(0, "handle"), Some(6));
    assert_eq!(names.capacity(), Capacity { ids: 8, free: 1 });
}

#[test]
fn pinned_name_is_not_tombstoned() {
    let names = Interner::new(8, 7);
    let id = names.pin(0, "a").unwrap();
    names.pin_again(id);
    for _ in 0..2 {
        assert!(!names.tombstone(id));
        names.unpin(id);
    }
    assert!(names.tombstone(id));
    assert_eq!(names.pin(0, "a"), Some(id), "it is revived");
    assert!(
        !names.tombstone(id) && !names.tombstone(7),
        "and 7 was never assigned"
    );
}

#[test]
fn tombstoned_name_revives_until_its_id_moves() {
    let names = Interner::new(2, 7);
    assert_eq!(found(&names, 0, "a"), 0);
    assert!(names.tombstone(0) && is_tombstone(&names, 0));
    assert_eq!(found(&names, 0, "a"), 0);
    assert!(
        !is_tombstone(&names, 0) && !names.release(0),
        "it was revived"
    );
    assert!(names.tombstone(0) && names.release(0) && !names.release(0));
    assert_eq!(names.capacity(), Capacity { ids: 2, free: 2 });
    assert_eq!(found(&names, 0, "a"), 0);
    assert_eq!(names.capacity(), Capacity { ids: 2, free: 1 });
    assert_eq!(read(&names).1, [0, 0]);
    assert!(
        names.tombstone(0) && names.release(0),
        "though it never left the queue of released ids"
    );
    assert_eq!((found(&names, 0, "b"), found(&names, 0, "c")), (1, 0));
    assert_eq!(names.intern(0, "a"), None);
    assert_eq!(inserted(&names), [1, 0]);
}

#[test]
fn lookups_stay_short_under_churn() {
    let names = Interner::new(1_024, 7);
    let (mut released, mut known) = (0, BTreeMap::new());
    for turn in 0..50_000u32 {
        let (owner, name) = (turn % 3, format!("tenant-{turn}"));
        let id = names.intern(owner, &name).unwrap();
        known.insert(id, (owner, name));
        inserted(&names);
        // Not in the order of insertion.
        let others = (0..1_024)
            .map(|n| (id * 389 + n) % 1_024)
            .filter(|_| turn >= 900);
        released += others
            .into_iter()
            .find(|id| names.tombstone(*id) && names.release(*id))
            .map_or(0, |_| 1);
    }
    assert!(released > 40_000, "{released}");
    let farthest = names.slots.farthest.load(Ordering::Relaxed);
    assert!(farthest < 40, "{farthest}");
    for (id, (owner, name)) in known {
        assert_eq!(names.intern(owner, &name), Some(id));
    }
}

#[test]
fn memory_is_as_documented() {
    let info = allocation_counter::measure(|| drop(std::hint::black_box(Interner::new(10_000, 7))));
    // Bytes of each of 10,000 names.
    assert_eq!(info.bytes_max / 10_000, 113);
}

#[derive(Clone, Debug)]
enum Step {
    LookUp(u32, usize),
    Intern(u32, usize),
    Tombstone(u32),
    Release(u32),
    Read,
    Decay,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..2u32, 0..24usize).prop_map(|(owner, name)| Step::LookUp(owner, name)),
        2 => (0..2u32, 0..24usize).prop_map(|(owner, name)| Step::Intern(owner, name)),
        4 => (0..12u32).prop_map(Step::Tombstone),
        4 => (0..12u32).prop_map(Step::Release),
        2 => Just(Step::Read),
        1 => Just(Step::Decay),
    ]
}

proptest! {
    /// The model holds the name of each id, the ids that are tombstoned or released, and the events since the
    /// last reading. Only a released id gets another name, a name keeps its id until then, the number of free
    /// ids is exact, and the log has every change.
    #[test]
    fn name_keeps_its_id_until_reuse(steps in prop::collection::vec(step(), 1..400)) {
        const IDS: usize = 12;
        let names = Interner::new(IDS, 7);
        let name = |n: usize| "abcdefgh-".repeat(n / 3 + 1) + &n.to_string();
        let mut owners: HashMap<u32, (u32, usize)> = HashMap::new();
        let (mut tombstoned, mut released) = (HashSet::new(), HashSet::new());
        let mut unread = (Vec::new(), Vec::new());
        for step in steps {
            let (owner, asked, id) = match step {
                Step::LookUp(owner, n) => {
                    let found = names.look_up(owner, &name(n));
                    let Some(id) = found.id() else {
                        let had = owners.iter().find(|(_, has)| **has == (owner, n));
                        prop_assert!(had.is_none_or(|(id, _)| tombstoned.contains(id)), "{found:?}");
                        continue;
                    };
                    (owner, n, id)
                }
                Step::Intern(owner, n) => match names.intern(owner, &name(n)) {
                    Some(id) => (owner, n, id),
                    None => {
                        let had = owners.values().any(|has| *has == (owner, n));
                        prop_assert!(!had && owners.len() == IDS && released.is_empty());
                        continue;
                    }
                },
                Step::Tombstone(id) => {
                    let is_tombstoned = names.tombstone(id);
                    prop_assert_eq!(is_tombstoned, owners.contains_key(&id) && !tombstoned.contains(&id));
                    tombstoned.extend(is_tombstoned.then_some(id));
                    continue;
                }
                Step::Release(id) => {
                    let is_released = names.release(id);
                    prop_assert_eq!(is_released, tombstoned.contains(&id) && !released.contains(&id));
                    released.extend(is_released.then_some(id));
                    continue;
                }
                Step::Read => {
                    prop_assert_eq!(read(&names), std::mem::take(&mut unread));
                    continue;
                }
                Step::Decay => {
                    names.decay_waiting();
                    continue;
                }
            };
            let is_tombstoned = tombstoned.remove(&id);
            let is_released = released.remove(&id);
            match owners.insert(id, (owner, asked)) {
                Some(before) if before == (owner, asked) => unread.1.extend(is_tombstoned.then_some(id)),
                before => {
                    prop_assert!(before.is_none() || is_released, "{id} was {before:?}");
                    let others = owners.iter().filter(|(other, has)| **other != id && **has == (owner, asked));
                    prop_assert_eq!(others.count(), 0, "two ids for one name");
                    unread.0.push((id, owner, name(asked)));
                }
            }
            let free = (IDS - owners.len() + released.len()) as u32;
            prop_assert_eq!(names.capacity().free, free);
        }
    }
}
