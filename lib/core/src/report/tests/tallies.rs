//! Tests of columns of tallies against a map.

use std::collections::BTreeMap;

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

use super::*;

fn any_tally() -> impl Strategy<Value = Tally> {
    (0..9u64, prop_oneof![4 => Just(0), 1 => 0..9u64]).prop_map(|(counts, late)| Tally {
        counts: offered(counts),
        late: offered(late),
    })
}

fn any_map() -> impl Strategy<Value = BTreeMap<KeyId, Tally>> {
    btree_map((0..20u32).prop_map(KeyId), any_tally(), 0..12)
}

fn tallies(map: &BTreeMap<KeyId, Tally>) -> Tallies {
    map.iter().map(|(id, tally)| (*id, *tally)).collect()
}

proptest! {
    #[test]
    fn they_are_the_map_they_stand_for(a in any_map()) {
        let ours = tallies(&a);
        prop_assert_eq!(ours.iter().collect::<BTreeMap<_, _>>(), a.clone());
        prop_assert!(ours.iter().is_sorted_by_key(|(id, _)| id));
        prop_assert_eq!((ours.len(), ours.is_empty()), (a.len(), a.is_empty()));
        prop_assert_eq!(ours.has_late(), a.values().any(|tally| tally.late != Counts::ZERO));
        prop_assert_eq!(ours.last_id(), a.keys().last().copied());
        for id in (0..20).map(KeyId) {
            prop_assert_eq!(ours.get(id), a.get(&id).copied());
        }
    }

    #[test]
    fn later_of_two_tallies_counts(pairs in vec((0..6u32, any_tally()), 0..12)) {
        let pairs = pairs.into_iter().map(|(id, tally)| (KeyId(id), tally));
        let map: BTreeMap<KeyId, Tally> = pairs.clone().collect();
        prop_assert_eq!(pairs.collect::<Tallies>(), tallies(&map));
    }
}

#[test]
fn tally_ids_must_ascend() {
    let mut tallies = Tallies::default();
    assert!(tallies.push(KeyId(3), tally(1)));
    for id in [0, 2, 3] {
        assert!(!tallies.push(KeyId(id), tally(9)));
    }
    assert_eq!(tallies, [(KeyId(3), tally(1))].into());
    assert!(tallies.push(KeyId(4), tally(2)));
}
