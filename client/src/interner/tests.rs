//! What the table of names keeps, against a model and between threads.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Barrier;

use proptest::prelude::*;

use super::*;

/// A long name: one that takes a cell.
const LONG: &str = "a-workspace-with-a-name-so-long-that-it-takes-more-than-one-line/user";

#[test]
fn names_get_dense_ids_by_owner() {
    let names = Names::new(8, 7);
    assert_eq!(names.look_up(0, "a"), Found::Id(0));
    assert_eq!(names.look_up(1, "a"), Found::Id(1));
    assert_eq!(names.look_up(0, LONG), Found::Id(2));
    assert_eq!(names.look_up(0, "a"), Found::Id(0));
    assert_eq!(names.look_up(0, LONG), Found::Id(2));
    assert_eq!(entered(&names), [0, 1, 2]);
    assert!(entered(&names).is_empty());
    assert_eq!(names.read(1), Some((1, "a".to_owned())));
    assert_eq!(names.read(2), Some((0, LONG.to_owned())));
    assert_eq!(names.read(3), None);
    for bad in ["", "no name", "caf\u{e9}", &"x".repeat(129), &"x".repeat(70_000)] {
        assert_eq!((names.look_up(0, bad), names.intern(0, bad)), (Found::Invalid, None), "{bad:?}");
        assert_eq!((names.try_pin(0, bad), names.pin(0, bad)), (Found::Invalid, None), "{bad:?}");
    }
}

fn entered(names: &Names) -> Vec<u32> {
    let mut ids = Vec::new();
    names.entered(|id| {
        ids.push(id);
        true
    });
    ids
}

#[test]
fn ids_and_cells_are_bounded() {
    let names = Names::new(2, 7);
    assert_eq!(names.look_up(0, "a"), Found::Id(0));
    assert_eq!(names.look_up(0, "b"), Found::Id(1));
    let found: Vec<Found> = (0..9).map(|_| names.look_up(0, "c")).collect();
    assert_eq!(
        (found[0], found[6], found[7], found[8]),
        (Found::Rare, Found::Rare, Found::Full, Found::Full)
    );
    assert_eq!(names.look_up(0, "b"), Found::Id(1));

    let names = Names::new(8, 7);
    assert_eq!(names.look_up(0, LONG), Found::Id(0));
    assert_eq!(names.look_up(1, LONG), Found::Full, "there is one cell");
    assert_eq!(names.look_up(0, "short"), Found::Id(1));
    assert_eq!(names.look_up(0, LONG), Found::Id(0));
}

#[test]
fn beyond_half_only_frequent_names_get_ids() {
    let names = Names::new(8, 7);
    for id in 0..5 {
        assert_eq!(names.look_up(0, &format!("early-{id}")), Found::Id(id));
    }
    assert_eq!(names.intern_sparingly(0, "directed"), None);
    assert_eq!(names.intern_sparingly(0, "early-3"), Some(3));
    for _ in 1..OFTEN {
        assert_eq!(names.look_up(0, "frequent"), Found::Rare);
    }
    assert_eq!(names.look_up(0, "frequent"), Found::Id(5));
    assert_eq!(names.halve(), Waiting::default(), "nobody waits any longer");
    // Four requests a second never come to eight.
    for _ in 0..20 {
        assert!((0..3).all(|_| names.look_up(0, "now-and-then") == Found::Rare));
        assert_ne!(names.halve(), Waiting::default());
    }
    // A handle is somebody's wish, and not held against the traffic.
    assert_eq!(names.pin(0, "handle"), Some(6));
    assert_eq!(names.room(), Room { ids: 8, free: 1 });
}

#[test]
fn a_pinned_name_does_not_rest() {
    let names = Names::new(8, 7);
    let id = names.pin(0, "a").unwrap();
    names.pin_again(id);
    for _ in 0..2 {
        assert!(!names.rest(id));
        names.unpin(id);
    }
    assert!(names.rest(id));
    assert_eq!(names.pin(0, "a"), Some(id), "it wakes");
    assert!(!names.rest(id) && !names.rest(7), "and 7 was never given out");
}

#[test]
fn a_resting_name_wakes_with_its_id_until_another_takes_it() {
    let names = Names::new(2, 7);
    assert_eq!(names.look_up(0, "a"), Found::Id(0));
    assert!(names.rest(0));
    assert!(names.is_resting(0));
    assert_eq!(names.look_up(0, "a"), Found::Id(0));
    assert!(!names.is_resting(0) && !names.offer(0), "it is awake");
    assert!(names.rest(0) && !names.offer(0), "what was taken is not read");
    assert!(entered(&names).is_empty(), "it is read, but the name rests");
    assert!(names.offer(0) && !names.offer(0));
    assert_eq!(names.room(), Room { ids: 2, free: 2 });
    assert_eq!(names.look_up(0, "a"), Found::Id(0));
    assert_eq!(names.room(), Room { ids: 2, free: 1 });
    assert!(names.rest(0) && names.offer(0), "though it never left the line");
    assert_eq!(names.look_up(0, "b"), Found::Id(1));
    assert_eq!(names.look_up(0, "c"), Found::Id(0));
    assert_eq!(names.read(0), Some((0, "c".to_owned())));
    assert_eq!(names.intern(0, "a"), None);
    assert_eq!(entered(&names), [1, 0]);
}

#[test]
fn long_names_take_turns_with_their_cells() {
    let names = Names::new(16, 7);
    let long = |n: u32| format!("{LONG}-{n}");
    assert_eq!((names.intern(0, &long(0)), names.intern(0, &long(1))), (Some(0), Some(1)));
    assert_eq!(names.intern(0, &long(2)), None);
    entered(&names);
    assert!(names.rest(0) && names.offer(0));
    assert_eq!(names.intern(0, &long(2)), Some(0));
    assert_eq!(names.intern(0, &long(1)), Some(1));
    assert_eq!(names.intern(0, &long(0)), None);
    assert_eq!(entered(&names), [0]);
    // A short name that takes the last id of all gives the cell back.
    (2..16).for_each(|id| assert_eq!(names.intern(0, &format!("short-{id}")), Some(id)));
    entered(&names);
    assert!(names.rest(0) && names.offer(0) && names.rest(5) && names.offer(5));
    assert_eq!(names.intern(0, "a"), Some(5));
    assert_eq!(names.intern(0, "b"), Some(0));
    entered(&names);
    assert!(names.rest(5) && names.offer(5));
    assert_eq!(names.intern(0, &long(3)), Some(5));
}

#[test]
fn searches_stay_short_however_many_names_come_and_go() {
    let names = Names::new(1_024, 7);
    let mut gone = 0;
    for turn in 0..50_000u32 {
        let id = names.intern(turn % 3, &format!("tenant-{turn}")).unwrap();
        entered(&names);
        // Not in the order they came in.
        let others = (0..1_024).map(|n| (id * 389 + n) % 1_024).filter(|_| turn >= 900);
        gone += others.into_iter().find(|id| names.rest(*id) && names.offer(*id)).map_or(0, |_| 1);
    }
    assert!(gone > 40_000, "{gone}");
    let full = names.slots.iter().filter(|slot| slot.load(Ordering::Relaxed) != EMPTY).count();
    let longest = names.slots.split(|slot| slot.load(Ordering::Relaxed) == EMPTY).map(<[_]>::len).max();
    assert!(full <= 1_024 && longest < Some(PROBES_MAX), "{full} of 2,048 slots, {longest:?} in a row");
    let all = (0..1_024).filter_map(|id| names.read(id).map(|(owner, name)| (id, owner, name)));
    for (id, owner, name) in all {
        assert_eq!(names.intern(owner, &name), Some(id));
    }
}

#[test]
fn threads_that_meet_agree_on_one_id_for_each_name() {
    let names = Names::new(64, 7);
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
    assert_eq!(entered(&names).len(), 64);
}

#[test]
fn names_that_come_and_go_between_threads_are_never_taken_for_each_other() {
    let names = Names::new(32, 7);
    let name = |n: u32| if n.is_multiple_of(5) { format!("{LONG}{n}") } else { format!("tenant-{n}") };
    let all: Vec<String> = (0..64).map(name).collect();
    let done = std::sync::atomic::AtomicBool::new(false);
    // The caller rests and offers while others look up; each id is held back until every reader has gone round once,
    // so that what is found may be compared.
    let rounds: Vec<_> = (0..3).map(|_| std::sync::atomic::AtomicU64::new(0)).collect();
    std::thread::scope(|scope| {
        for (reader, round) in rounds.iter().enumerate() {
            let (names, all, done) = (&names, &all, &done);
            scope.spawn(move || {
                let mut at = reader * 17;
                while !done.load(Ordering::Relaxed) {
                    at = (at + 7) % all.len();
                    if let Found::Id(id) = names.look_up(1, &all[at]) {
                        assert_eq!(names.read(id), Some((1, all[at].clone())));
                    }
                    round.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        let mut replaced = 0;
        let mut known: BTreeMap<u32, String> = BTreeMap::new();
        for turn in 0..100u32 {
            names.entered(|id| {
                let name = names.read(id).unwrap().1;
                replaced += u32::from(known.insert(id, name.clone()).is_some_and(|before| before != name));
                true
            });
            let rested: Vec<u32> = (0..8).map(|n| (turn * 8 + n) % 32).filter(|id| names.rest(*id)).collect();
            let round = |round: &std::sync::atomic::AtomicU64| round.load(Ordering::SeqCst);
            let before: Vec<u64> = rounds.iter().map(round).collect();
            while rounds.iter().zip(&before).any(|(now, before)| round(now) <= before + 1) {
                std::thread::yield_now();
            }
            rested.into_iter().for_each(|id| _ = names.offer(id));
            names.intern(0, &name(1_000 + turn));
        }
        done.store(true, Ordering::Relaxed);
        assert!(replaced > 10, "{replaced}");
    });
}

#[test]
fn what_a_table_takes_is_what_its_documentation_says() {
    for ids in [1, 100, 1_000, 10_000, 100_000] {
        let info = allocation_counter::measure(|| drop(std::hint::black_box(Names::new(ids, 7))));
        assert_eq!(info.bytes_max, Names::bytes_for(ids) as u64, "{ids}");
    }
    // 10,000 names, all told.
    assert_eq!(Names::bytes_for(10_000) / 10_000, 102);
}

/// What is done to a table.
#[derive(Clone, Debug)]
enum Step {
    LookUp(u32, usize),
    Intern(u32, usize),
    Rest(u32),
    Offer(u32),
    Read,
    Halve,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..2u32, 0..24usize).prop_map(|(owner, name)| Step::LookUp(owner, name)),
        2 => (0..2u32, 0..24usize).prop_map(|(owner, name)| Step::Intern(owner, name)),
        4 => (0..12u32).prop_map(Step::Rest),
        4 => (0..12u32).prop_map(Step::Offer),
        2 => Just(Step::Read),
        1 => Just(Step::Halve),
    ]
}

proptest! {
    /// The model: who has which id, and which of them rest or are offered. An id changes hands only when it was offered;
    /// a name has one id as long as nobody took it; free ids are counted right.
    #[test]
    fn a_name_has_one_id_until_another_takes_it(steps in prop::collection::vec(step(), 1..400)) {
        const IDS: usize = 12;
        let names = Names::new(IDS, 7);
        let name = |n: usize| "abcdefgh-".repeat(n / 3 + 1) + &n.to_string();
        let mut owners: HashMap<u32, (u32, usize)> = HashMap::new();
        let (mut resting, mut offered) = (HashSet::new(), HashSet::new());
        let mut unread = HashSet::new();
        for step in steps {
            let (owner, asked, id) = match step {
                Step::LookUp(owner, n) => {
                    let found = names.look_up(owner, &name(n));
                    let Found::Id(id) = found else {
                        let had = owners.iter().find(|(_, has)| **has == (owner, n));
                        prop_assert!(had.is_none_or(|(id, _)| resting.contains(id)), "{found:?}");
                        continue;
                    };
                    (owner, n, id)
                }
                Step::Intern(owner, n) => match names.intern(owner, &name(n)) {
                    Some(id) => (owner, n, id),
                    None => {
                        let had = owners.values().any(|has| *has == (owner, n));
                        let no_cell = name(n).len() > 56;
                        prop_assert!(!had && (no_cell || owners.len() == IDS && offered.is_empty()));
                        continue;
                    }
                },
                Step::Rest(id) => {
                    let rested = names.rest(id);
                    prop_assert_eq!(rested, owners.contains_key(&id) && !offered.contains(&id));
                    if rested {
                        resting.insert(id);
                    }
                    continue;
                }
                Step::Offer(id) => {
                    let was_offered = names.offer(id);
                    prop_assert!(!was_offered || resting.contains(&id) && !offered.contains(&id));
                    if !was_offered && resting.contains(&id) && !offered.contains(&id) {
                        // What was taken, or passed over, has to be read first.
                        names.entered(|id| {
                            unread.remove(&id);
                            true
                        });
                        prop_assert!(names.offer(id));
                    }
                    if resting.contains(&id) {
                        offered.insert(id);
                    }
                    continue;
                }
                Step::Read => {
                    names.entered(|id| {
                        unread.remove(&id);
                        true
                    });
                    unread.clear();
                    for (id, (owner, n)) in &owners {
                        assert_eq!(names.read(*id), Some((*owner, name(*n))));
                    }
                    continue;
                }
                Step::Halve => {
                    names.halve();
                    continue;
                }
            };
            match owners.insert(id, (owner, asked)) {
                Some(before) if before == (owner, asked) => {}
                before => {
                    prop_assert!(before.is_none() || offered.contains(&id), "{id} was {before:?}");
                    let others = owners.iter().filter(|(other, has)| **other != id && **has == (owner, asked));
                    prop_assert_eq!(others.count(), 0, "two ids for one name");
                    unread.insert(id);
                }
            }
            resting.remove(&id);
            offered.remove(&id);
            let free = (IDS - owners.len() + offered.len()) as u32;
            prop_assert_eq!(names.room().free, free);
        }
    }
}
