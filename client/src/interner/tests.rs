//! Tests of the interner: against a model, and between threads.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Barrier;

use proptest::prelude::*;

use super::*;

/// A long name, which occupies an overflow cell.
const LONG: &str = "a-workspace-with-a-name-so-long-that-it-takes-more-than-one-line/user";

#[test]
fn names_get_dense_ids_by_owner() {
    let names = Interner::new(8, 7);
    assert_eq!(names.look_up(0, "a"), Lookup::Id(0));
    assert_eq!(names.look_up(1, "a"), Lookup::Id(1));
    assert_eq!(names.look_up(0, LONG), Lookup::Id(2));
    assert_eq!(names.look_up(0, "a"), Lookup::Id(0));
    assert_eq!(names.look_up(0, LONG), Lookup::Id(2));
    assert_eq!(inserted(&names), [0, 1, 2]);
    assert!(inserted(&names).is_empty());
    assert_eq!(names.read(1), Some((1, "a".to_owned())));
    assert_eq!(names.read(2), Some((0, LONG.to_owned())));
    assert_eq!(names.read(3), None);
    for bad in ["", "no name", "caf\u{e9}", &"x".repeat(129), &"x".repeat(70_000)] {
        assert_eq!((names.look_up(0, bad), names.intern(0, bad)), (Lookup::Invalid, None), "{bad:?}");
        assert_eq!((names.try_pin(0, bad), names.pin(0, bad)), (Lookup::Invalid, None), "{bad:?}");
    }
}

fn inserted(names: &Interner) -> Vec<u32> {
    let mut ids = Vec::new();
    names.drain_inserted(|id| {
        ids.push(id);
        true
    });
    ids
}

#[test]
fn ids_and_cells_are_bounded() {
    let names = Interner::new(2, 7);
    assert_eq!(names.look_up(0, "a"), Lookup::Id(0));
    assert_eq!(names.look_up(0, "b"), Lookup::Id(1));
    let found: Vec<Lookup> = (0..9).map(|_| names.look_up(0, "c")).collect();
    assert_eq!(
        (found[0], found[6], found[7], found[8]),
        (Lookup::Rare, Lookup::Rare, Lookup::Full, Lookup::Full)
    );
    assert_eq!(names.look_up(0, "b"), Lookup::Id(1));

    let names = Interner::new(8, 7);
    assert_eq!(names.look_up(0, LONG), Lookup::Id(0));
    assert_eq!(names.look_up(1, LONG), Lookup::Full, "there is one cell");
    assert_eq!(names.look_up(0, "short"), Lookup::Id(1));
    assert_eq!(names.look_up(0, LONG), Lookup::Id(0));
}

#[test]
fn beyond_half_only_frequent_names_get_ids() {
    let names = Interner::new(8, 7);
    for id in 0..5 {
        assert_eq!(names.look_up(0, &format!("early-{id}")), Lookup::Id(id));
    }
    assert_eq!(names.intern_if_roomy(0, "directed"), None);
    assert_eq!(names.intern_if_roomy(0, "early-3"), Some(3));
    for _ in 1..OFTEN {
        assert_eq!(names.look_up(0, "frequent"), Lookup::Rare);
    }
    assert_eq!(names.look_up(0, "frequent"), Lookup::Id(5));
    assert_eq!(names.decay_waiting(), WaitingNames::default(), "no name waits any longer");
    // Four requests a second never come to eight.
    for _ in 0..20 {
        assert!((0..3).all(|_| names.look_up(0, "now-and-then") == Lookup::Rare));
        assert_ne!(names.decay_waiting(), WaitingNames::default());
    }
    // A handle gets an id whatever the traffic.
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
    assert!(!names.tombstone(id) && !names.tombstone(7), "and 7 was never assigned");
}

#[test]
fn tombstoned_name_is_revived_until_its_id_is_reused() {
    let names = Interner::new(2, 7);
    assert_eq!(names.look_up(0, "a"), Lookup::Id(0));
    assert!(names.tombstone(0));
    assert!(names.is_tombstone(0));
    assert_eq!(names.look_up(0, "a"), Lookup::Id(0));
    assert!(!names.is_tombstone(0) && !names.release(0), "it was revived");
    assert!(names.tombstone(0) && !names.release(0), "the taken ids were not read");
    assert!(inserted(&names).is_empty(), "it is read, but the name is tombstoned");
    assert!(names.release(0) && !names.release(0));
    assert_eq!(names.capacity(), Capacity { ids: 2, free: 2 });
    assert_eq!(names.look_up(0, "a"), Lookup::Id(0));
    assert_eq!(names.capacity(), Capacity { ids: 2, free: 1 });
    assert!(names.tombstone(0) && names.release(0), "though it never left the free list");
    assert_eq!(names.look_up(0, "b"), Lookup::Id(1));
    assert_eq!(names.look_up(0, "c"), Lookup::Id(0));
    assert_eq!(names.read(0), Some((0, "c".to_owned())));
    assert_eq!(names.intern(0, "a"), None);
    assert_eq!(inserted(&names), [1, 0]);
}

#[test]
fn long_names_reuse_overflow_cells() {
    let names = Interner::new(16, 7);
    let long = |n: u32| format!("{LONG}-{n}");
    assert_eq!((names.intern(0, &long(0)), names.intern(0, &long(1))), (Some(0), Some(1)));
    assert_eq!(names.intern(0, &long(2)), None);
    inserted(&names);
    assert!(names.tombstone(0) && names.release(0));
    assert_eq!(names.intern(0, &long(2)), Some(0));
    assert_eq!(names.intern(0, &long(1)), Some(1));
    assert_eq!(names.intern(0, &long(0)), None);
    assert_eq!(inserted(&names), [0]);
    // A short name that takes the id of a long one frees the cell.
    (2..16).for_each(|id| assert_eq!(names.intern(0, &format!("short-{id}")), Some(id)));
    inserted(&names);
    assert!(names.tombstone(0) && names.release(0) && names.tombstone(5) && names.release(5));
    assert_eq!(names.intern(0, "a"), Some(5));
    assert_eq!(names.intern(0, "b"), Some(0));
    inserted(&names);
    assert!(names.tombstone(5) && names.release(5));
    assert_eq!(names.intern(0, &long(3)), Some(5));
}

#[test]
fn lookups_stay_short_under_churn() {
    let names = Interner::new(1_024, 7);
    let mut released = 0;
    for turn in 0..50_000u32 {
        let id = names.intern(turn % 3, &format!("tenant-{turn}")).unwrap();
        inserted(&names);
        // Not in the order of insertion.
        let others = (0..1_024).map(|n| (id * 389 + n) % 1_024).filter(|_| turn >= 900);
        released += others.into_iter().find(|id| names.tombstone(*id) && names.release(*id)).map_or(0, |_| 1);
    }
    assert!(released > 40_000, "{released}");
    let full = names.slots.iter().filter(|slot| slot.load(Ordering::Relaxed) != EMPTY).count();
    let longest = names.slots.split(|slot| slot.load(Ordering::Relaxed) == EMPTY).map(<[_]>::len).max();
    assert!(full <= 1_024 && longest < Some(PROBES_MAX), "{full} of 2,048 slots, {longest:?} in a row");
    let all = (0..1_024).filter_map(|id| names.read(id).map(|(owner, name)| (id, owner, name)));
    for (id, owner, name) in all {
        assert_eq!(names.intern(owner, &name), Some(id));
    }
}

#[test]
fn racing_threads_agree_on_one_id_for_each_name() {
    let names = Interner::new(64, 7);
    let start = Barrier::new(4);
    let all: Vec<Vec<u32>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    start.wait();
                    (0..64).map(|i| names.intern(3, &format!("tenant-{i}")).unwrap()).collect()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(all.windows(2).all(|pair| pair[0] == pair[1]));
    assert_eq!(all[0].iter().collect::<HashSet<_>>().len(), 64);
    assert_eq!(inserted(&names).len(), 64);
}

#[test]
fn reused_ids_are_never_confused_between_threads() {
    let names = Interner::new(32, 7);
    let name = |n: u32| if n.is_multiple_of(5) { format!("{LONG}{n}") } else { format!("tenant-{n}") };
    let all: Vec<String> = (0..64).map(name).collect();
    let done = std::sync::atomic::AtomicBool::new(false);
    // This thread tombstones and releases ids while the others look names up. It waits for a full round of
    // every reader before a release, so that a reader can compare the name it has found.
    let rounds: Vec<_> = (0..3).map(|_| std::sync::atomic::AtomicU64::new(0)).collect();
    std::thread::scope(|scope| {
        for (reader, round) in rounds.iter().enumerate() {
            let (names, all, done) = (&names, &all, &done);
            scope.spawn(move || {
                let mut at = reader * 17;
                while !done.load(Ordering::Relaxed) {
                    at = (at + 7) % all.len();
                    if let Lookup::Id(id) = names.look_up(1, &all[at]) {
                        assert_eq!(names.read(id), Some((1, all[at].clone())));
                    }
                    round.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        let mut replaced = 0;
        let mut known: BTreeMap<u32, String> = BTreeMap::new();
        for turn in 0..100u32 {
            names.drain_inserted(|id| {
                let name = names.read(id).unwrap().1;
                replaced += u32::from(known.insert(id, name.clone()).is_some_and(|before| before != name));
                true
            });
            let tombstoned: Vec<u32> =
                (0..8).map(|n| (turn * 8 + n) % 32).filter(|id| names.tombstone(*id)).collect();
            let round = |round: &std::sync::atomic::AtomicU64| round.load(Ordering::SeqCst);
            let before: Vec<u64> = rounds.iter().map(round).collect();
            while rounds.iter().zip(&before).any(|(now, before)| round(now) <= before + 1) {
                std::thread::yield_now();
            }
            tombstoned.into_iter().for_each(|id| _ = names.release(id));
            names.intern(0, &name(1_000 + turn));
        }
        done.store(true, Ordering::Relaxed);
        assert!(replaced > 10, "{replaced}");
    });
}

#[test]
fn memory_is_as_documented() {
    for ids in [1, 100, 1_000, 10_000, 100_000] {
        let info = allocation_counter::measure(|| drop(std::hint::black_box(Interner::new(ids, 7))));
        assert_eq!(info.bytes_max, Interner::bytes_for(ids) as u64, "{ids}");
    }
    // Bytes of each of 10,000 names.
    assert_eq!(Interner::bytes_for(10_000) / 10_000, 102);
}

/// One operation on the interner.
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
    /// The model holds the name of each id, and the ids that are tombstoned or released. Only a released id
    /// gets another name, a name keeps its id until then, and the number of free ids is exact.
    #[test]
    fn name_keeps_one_id_until_it_is_reused(steps in prop::collection::vec(step(), 1..400)) {
        const IDS: usize = 12;
        let names = Interner::new(IDS, 7);
        let name = |n: usize| "abcdefgh-".repeat(n / 3 + 1) + &n.to_string();
        let mut owners: HashMap<u32, (u32, usize)> = HashMap::new();
        let (mut tombstoned, mut released) = (HashSet::new(), HashSet::new());
        let mut unread = HashSet::new();
        for step in steps {
            let (owner, asked, id) = match step {
                Step::LookUp(owner, n) => {
                    let found = names.look_up(owner, &name(n));
                    let Lookup::Id(id) = found else {
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
                        let no_cell = name(n).len() > 56;
                        prop_assert!(!had && (no_cell || owners.len() == IDS && released.is_empty()));
                        continue;
                    }
                },
                Step::Tombstone(id) => {
                    let done = names.tombstone(id);
                    prop_assert_eq!(done, owners.contains_key(&id) && !released.contains(&id));
                    if done {
                        tombstoned.insert(id);
                    }
                    continue;
                }
                Step::Release(id) => {
                    let was_released = names.release(id);
                    prop_assert!(!was_released || tombstoned.contains(&id) && !released.contains(&id));
                    if !was_released && tombstoned.contains(&id) && !released.contains(&id) {
                        // Ids that were taken or skipped must be read first.
                        names.drain_inserted(|id| {
                            unread.remove(&id);
                            true
                        });
                        prop_assert!(names.release(id));
                    }
                    if tombstoned.contains(&id) {
                        released.insert(id);
                    }
                    continue;
                }
                Step::Read => {
                    names.drain_inserted(|id| {
                        unread.remove(&id);
                        true
                    });
                    unread.clear();
                    for (id, (owner, n)) in &owners {
                        assert_eq!(names.read(*id), Some((*owner, name(*n))));
                    }
                    continue;
                }
                Step::Decay => {
                    names.decay_waiting();
                    continue;
                }
            };
            match owners.insert(id, (owner, asked)) {
                Some(before) if before == (owner, asked) => {}
                before => {
                    prop_assert!(before.is_none() || released.contains(&id), "{id} was {before:?}");
                    let others = owners.iter().filter(|(other, has)| **other != id && **has == (owner, asked));
                    prop_assert_eq!(others.count(), 0, "two ids for one name");
                    unread.insert(id);
                }
            }
            tombstoned.remove(&id);
            released.remove(&id);
            let free = (IDS - owners.len() + released.len()) as u32;
            prop_assert_eq!(names.capacity().free, free);
        }
    }
}
