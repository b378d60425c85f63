//! Tests of derived counts, and of the laws of addition and join.

use proptest::prelude::*;

use super::*;

/// The columns in order: offered, dropped, guard, would, would by guard.
fn counts([offered, dropped, guard_dropped, would_dropped, would_guard_dropped]: [u64; 5]) -> Counts {
    Counts { offered, dropped, guard_dropped, would_dropped, would_guard_dropped }
}

/// The derived counts: refused, admitted, passed, guarded.
fn summary(counts: Counts) -> [u64; 4] {
    [counts.refused(), counts.admitted(), counts.passed(), counts.guarded()]
}

#[test]
fn refused_admitted_passed_and_guarded_are_derived_from_the_columns() {
    const MAX: u64 = u64::MAX;
    let table = [
        ([0, 0, 0, 0, 0], [0, 0, 0, 0]),
        ([10, 0, 0, 0, 0], [0, 10, 10, 0]),
        ([10, 3, 0, 0, 0], [3, 7, 7, 0]),
        ([10, 3, 2, 0, 0], [5, 5, 5, 2]),
        // Would-dropped requests are admitted and yet do not pass.
        ([10, 0, 0, 4, 0], [0, 10, 6, 0]),
        ([10, 0, 0, 4, 3], [0, 10, 6, 3]),
        ([10, 3, 2, 4, 1], [5, 5, 1, 3]),
        ([10, 3, 2, 5, 5], [5, 5, 0, 7]),
        // Impossible counts do not wrap.
        ([10, 6, 6, 0, 0], [12, 0, 0, 6]),
        ([10, 3, 2, 9, 0], [5, 5, 0, 2]),
        ([MAX, MAX, MAX, MAX, MAX], [MAX, 0, 0, MAX]),
    ];
    for (columns, due) in table {
        assert_eq!(summary(counts(columns)), due, "{columns:?}");
    }
}

#[test]
fn counts_with_more_refused_than_offered_are_unsound() {
    const MAX: u64 = u64::MAX;
    let table = [
        ([0, 0, 0, 0, 0], true),
        ([10, 3, 2, 5, 5], true),
        ([10, 10, 0, 0, 0], true),
        ([10, 0, 10, 0, 0], true),
        ([10, 0, 0, 10, 10], true),
        ([MAX, MAX, 0, 0, 0], true),
        ([10, 11, 0, 0, 0], false),
        ([10, 0, 11, 0, 0], false),
        ([10, 0, 0, 11, 0], false),
        ([10, 3, 2, 6, 0], false),
        // The guard cannot have decided more would-drops than there are.
        ([10, 0, 0, 4, 5], false),
        ([10, 0, 0, 0, 1], false),
        // Not even where the sum goes round.
        ([MAX, MAX, 1, 0, 0], false),
        ([MAX, MAX, 0, 1, 0], false),
        ([MAX, 1, MAX, MAX, 0], false),
    ];
    for (columns, sound) in table {
        assert_eq!(counts(columns).is_consistent(), sound, "{columns:?}");
    }
}

#[test]
fn counts_cover_others_only_in_every_column() {
    let held = counts([50, 4, 3, 2, 1]);
    for column in 0..5 {
        let mut more = [50, 4, 3, 2, 1];
        more[column] += 1;
        let more = counts(more);
        assert!(more.covers(held) && !held.covers(more), "column {column}");
        assert_eq!((held.merge(more), more.merge(held)), (more, more), "column {column}");
        assert_eq!(held.plus(more.since(held)), more, "column {column}");
    }
}

fn any_counts() -> impl Strategy<Value = Counts> {
    any::<[u64; 5]>().prop_map(counts)
}

/// Sound counts: every request has one outcome.
fn sound_counts() -> impl Strategy<Value = (Counts, u64)> {
    let ends = [0..1_000u64, 0..1_000, 0..1_000, 0..1_000, 0..1_000];
    ends.prop_map(|[passed, dropped, guard, would_coin, would_guard]| {
        let would = would_coin + would_guard;
        (counts([passed + dropped + guard + would, dropped, guard, would, would_guard]), passed)
    })
}

fn any_tally() -> impl Strategy<Value = Tally> {
    (any_counts(), any_counts()).prop_map(|(counts, late)| Tally { counts, late })
}

proptest! {
    #[test]
    fn tallies_join_to_the_least_that_covers_both(a in any_tally(), b in any_tally(), c in any_tally()) {
        prop_assert_eq!(a.merge(a), a);
        prop_assert_eq!(a.merge(b), b.merge(a));
        prop_assert_eq!(a.merge(b).merge(c), a.merge(b.merge(c)));
        prop_assert!(a.merge(b).covers(a) && a.merge(b).covers(b));
        prop_assert_eq!(a.covers(b), a.merge(b) == a);
        prop_assert_eq!(a.merge(Tally::ZERO), a);
        prop_assert!(!(c.covers(a) && c.covers(b)) || c.covers(a.merge(b)));
    }

    #[test]
    fn what_came_since_makes_up_the_difference(a in any_tally(), b in any_tally()) {
        let later = a.merge(b);
        prop_assert_eq!(a.plus(later.since(a)), later);
        prop_assert_eq!(a.since(later), Tally::ZERO);
        prop_assert!(a.plus(b).covers(a));
    }

    #[test]
    fn every_request_meets_one_end((a, passed_a) in sound_counts(), (b, passed_b) in sound_counts()) {
        prop_assert!(a.is_consistent());
        prop_assert_eq!(a.passed(), passed_a);
        prop_assert_eq!(a.refused() + a.would_dropped + a.passed(), a.offered);
        prop_assert_eq!(a.admitted(), a.passed() + a.would_dropped);
        // The sum of two sound sources is sound.
        let both = a.plus(b);
        prop_assert!(both.is_consistent());
        prop_assert_eq!(both.passed(), passed_a + passed_b);
        prop_assert_eq!(both.guarded(), a.guarded() + b.guarded());
        prop_assert_eq!(both.since(a), b);
        // One more refusal than requests is not sound any more.
        let beyond = Counts { guard_dropped: a.guard_dropped + passed_a + 1, ..a };
        prop_assert!(!beyond.is_consistent());
    }
}
