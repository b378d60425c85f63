//! Eviction and commits of one shard.

use plimsoll_core::quota::Gcra;

use super::*;
use crate::store::Kind;

const ALL: u64 = 1_000;

fn key(number: u64) -> Box<[u8]> {
    Kind::Throttle.row_key(format!("{number:08}").as_bytes())[..].into()
}

fn shard(keys: usize) -> Shard {
    Shard::new(keys * (SLOT_BYTES + key(0).len()), 1)
}

fn place(number: u64) -> Place {
    Place {
        key: key(number).as_ref().into(),
        hash: number,
        shard: 0,
    }
}

fn insert(shard: &mut Shard, number: u64, commit: u64) -> Result<u32, Full> {
    shard.insert(
        &place(number),
        None,
        Saved {
            commit,
            settlings: 0,
        },
    )
}

fn changed_shard() -> (Shard, Vec<u32>) {
    let mut shard = shard(3);
    let slots: Vec<u32> = (0..3)
        .map(|number| insert(&mut shard, number, 0).unwrap())
        .collect();
    for slot in &slots {
        change(&mut shard, *slot);
    }
    (shard, slots)
}

fn change(shard: &mut Shard, slot: u32) -> u64 {
    shard
        .entry_mut(slot)
        .unwrap()
        .set(Some(State::Throttle(Gcra { arrival_ns: 7 })), 0, 0);
    shard.set_changed(slot)
}

#[test]
fn changed_bucket_stays_until_its_commit() {
    let mut shard = shard(2);
    for number in 0..2 {
        let slot = insert(&mut shard, number, 0).unwrap();
        assert_eq!(change(&mut shard, slot), 1);
    }
    assert_eq!(insert(&mut shard, 2, 0), Err(Full));
    let (mut rows, mut gathered) = (Rows::default(), Vec::new());
    shard.gather(1, &mut rows, &mut gathered);
    assert_eq!((rows.len(), gathered.len()), (2, 2));
    assert_eq!(
        insert(&mut shard, 2, 0),
        Err(Full),
        "the commit is under way"
    );
    let slot = shard.find(&place(0)).unwrap();
    assert_eq!(
        change(&mut shard, slot),
        2,
        "a change after the commit began is for the next one"
    );
    let saved = Saved {
        commit: 1,
        settlings: 1,
    };
    let third = |shard: &mut Shard, saved| shard.insert(&place(2), None, saved);
    assert_eq!(
        third(&mut shard, saved),
        Err(Full),
        "the row is in the log only"
    );
    let slots = shard.take_unsettled(ALL, 0);
    rows.clear();
    shard.begin_settling(&slots, &mut rows);
    assert_eq!((rows.len(), slots.len()), (2, 2));
    assert_eq!(
        third(
            &mut shard,
            Saved {
                settlings: 2,
                ..saved
            }
        ),
        Err(Full),
        "the row is not written yet"
    );
    shard.end_settling(&slots);
    third(
        &mut shard,
        Saved {
            settlings: 3,
            ..saved
        },
    )
    .unwrap();
    assert!(shard.find(&place(0)).is_some() && shard.find(&place(1)).is_none());
    assert_eq!(shard.len(), 2);
}

#[test]
fn failed_commit_rows_repeat_once() {
    let (mut shard, slots) = changed_shard();
    let (mut rows, mut gathered) = (Rows::default(), Vec::new());
    shard.gather(1, &mut rows, &mut gathered);
    change(&mut shard, slots[0]);
    for slot in std::mem::take(&mut gathered) {
        shard.put_back(1, slot);
    }
    rows.clear();
    shard.gather(2, &mut rows, &mut gathered);
    assert_eq!((rows.len(), gathered.len()), (3, 3));
}

#[test]
fn used_bucket_outlasts_an_unused_one() {
    let mut shard = shard(3);
    for number in 0..3 {
        insert(&mut shard, number, 0).unwrap();
    }
    insert(&mut shard, 3, 0).unwrap();
    // The hand has passed all, so only slots used again are spared.
    let left: Vec<u64> = (0..4)
        .filter(|number| shard.find(&place(*number)).is_some())
        .collect();
    let slot = shard.find(&place(left[0])).unwrap();
    shard.entry_mut(slot).unwrap().count(0, false);
    insert(&mut shard, 4, 0).unwrap();
    assert!(shard.find(&place(left[0])).is_some());
    assert!(shard.bytes() <= shard.bytes_max);
}

#[test]
fn bucket_changed_while_settling_settles_again() {
    let (mut shard, slots) = changed_shard();
    let mut rows = Rows::default();
    let taken = shard.take_unsettled(ALL, 0);
    change(&mut shard, slots[0]);
    shard.begin_settling(&taken, &mut rows);
    assert_eq!(rows.len(), 3, "with the change before their rows were made");
    change(&mut shard, slots[1]);
    shard.end_settling(&taken);
    assert_eq!(shard.take_unsettled(ALL, 0), [slots[1]]);
}

#[test]
fn unwritten_rows_are_settled_later() {
    let (mut shard, slots) = changed_shard();
    let mut rows = Rows::default();
    let taken = shard.take_unsettled(ALL, 0);
    shard.begin_settling(&taken[..2], &mut rows);
    change(&mut shard, slots[0]);
    shard.fail_settling(&taken);
    let again = shard.take_unsettled(ALL, 0);
    rows.clear();
    shard.begin_settling(&again, &mut rows);
    assert_eq!(rows.len(), 3, "each once: {again:?}");
}

#[test]
fn bucket_in_a_later_commit_stays_unsettled() {
    let mut shard = shard(3);
    let slots: Vec<u32> = (0..3)
        .map(|number| insert(&mut shard, number, 0).unwrap())
        .collect();
    let (mut rows, mut gathered) = (Rows::default(), Vec::new());
    for (number, changed) in [(1, &slots[..]), (2, &slots[1..]), (3, &slots[2..])] {
        for slot in changed {
            change(&mut shard, *slot);
        }
        shard.gather(number, &mut rows, &mut gathered);
    }
    // The third commit is running: its slots are in the second one, too, which is about to be
    // dropped.
    assert_eq!(shard.take_unsettled(2, 2), slots);
    shard.fail_settling(&slots);
    assert_eq!(
        shard.take_unsettled(2, 3),
        slots[..2],
        "the third commit is on disk"
    );
    assert_eq!(shard.take_unsettled(3, 3), slots[2..], "nothing was lost");
}
