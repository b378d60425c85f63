//! Tests of derived counts, and of the laws of addition and join.

use proptest::prelude::*;

use super::*;

/// The columns of coin and guard in order: offered, dropped, guard, would, would by guard.
fn counts(
    [
        offered,
        dropped,
        guard_dropped,
        would_dropped,
        would_guard_dropped,
    ]: [u64; 5],
) -> Counts {
    Counts {
        offered,
        dropped,
        guard_dropped,
        would_dropped,
        would_guard_dropped,
        ..Counts::ZERO
    }
}

/// The columns of quotas in order: refused, would be refused, refused from memory.
fn with_quotas(
    counts: Counts,
    [quota_dropped, would_quota_dropped, quota_repeated]: [u64; 3],
) -> Counts {
    Counts {
        quota_dropped,
        would_quota_dropped,
        quota_repeated,
        ..counts
    }
}

fn all([a, b, c, d, e, rest @ ..]: [u64; 9]) -> Counts {
    let [quotas @ .., retried] = rest;
    Counts {
        retried,
        ..with_quotas(counts([a, b, c, d, e]), quotas)
    }
}

fn summary(counts: Counts) -> [u64; 4] {
    [
        counts.refused(),
        counts.admitted(),
        counts.passed(),
        counts.guarded(),
    ]
}

#[test]
fn columns_yield_refused_admitted_passed_and_guarded() {
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
fn quota_refusal_has_passed_without_admission() {
    const MAX: u64 = u64::MAX;
    let table = [
        ([10, 3, 2, 4, 1], [0, 0, 0], [5, 5, 1, 3], 10),
        ([10, 3, 0, 0, 0], [2, 0, 0], [3, 5, 7, 0], 10),
        ([10, 3, 0, 0, 0], [7, 0, 0], [3, 0, 7, 0], 10),
        ([10, 3, 0, 4, 0], [0, 3, 0], [3, 7, 3, 0], 10),
        ([10, 3, 0, 0, 0], [2, 3, 90], [3, 5, 7, 0], 100),
        ([0, 0, 0, 0, 0], [0, 0, 90], [0, 0, 0, 0], 90),
        // Impossible counts do not wrap.
        ([10, 3, 0, 0, 0], [8, MAX, MAX], [3, 0, 7, 0], MAX),
    ];
    for (columns, quotas, due, asked) in table {
        let counts = with_quotas(counts(columns), quotas);
        assert_eq!(
            (summary(counts), counts.asked()),
            (due, asked),
            "{columns:?} {quotas:?}"
        );
    }
}

#[test]
fn excess_quota_refusals_make_counts_unsound() {
    const MAX: u64 = u64::MAX;
    let table = [
        ([10, 3, 2, 4, 1], [1, 0, MAX - 10], None),
        ([10, 0, 0, 0, 0], [6, 4, 0], None),
        ([10, 3, 2, 4, 1], [2, 0, 0], Some([1, 0, 0])),
        ([10, 0, 0, 0, 0], [6, 5, 0], Some([6, 4, 0])),
        ([10, 0, 0, 0, 0], [MAX, 1, 0], Some([10, 0, 0])),
        ([10, 0, 0, 0, 0], [0, 0, MAX], Some([0, 0, MAX - 10])),
        ([0, 0, 0, 0, 0], [1, 1, 1], Some([0, 0, 1])),
    ];
    for (columns, quotas, part) in table {
        let counts = with_quotas(counts(columns), quotas);
        assert_eq!(
            counts.is_consistent(),
            part.is_none(),
            "{columns:?} {quotas:?}"
        );
        assert_eq!(
            counts.consistent_part(),
            with_quotas(counts, part.unwrap_or(quotas))
        );
    }
}

#[test]
fn excess_refusals_make_counts_unsound() {
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
        // Not even where the sum overflows.
        ([MAX, MAX, 1, 0, 0], false),
        ([MAX, MAX, 0, 1, 0], false),
        ([MAX, 1, MAX, MAX, 0], false),
    ];
    for (columns, sound) in table {
        assert_eq!(counts(columns).is_consistent(), sound, "{columns:?}");
    }
}

#[test]
fn retries_are_part_of_the_offered() {
    let of = |retried| Counts {
        retried,
        ..counts([10, 0, 0, 0, 0])
    };
    assert!(of(10).is_consistent() && !of(11).is_consistent());
    assert_eq!(of(11).consistent_part(), of(10));
    assert_eq!(summary(of(10)), summary(of(0)), "no decision shows them");
}

#[test]
fn counts_cover_others_only_in_every_column() {
    let columns = [50, 4, 3, 2, 1, 8, 7, 6, 9];
    let held = all(columns);
    for column in 0..columns.len() {
        let mut more = columns;
        more[column] += 1;
        let more = all(more);
        assert!(more.covers(held) && !held.covers(more), "column {column}");
        assert_eq!(
            (held.merge(more), more.merge(held)),
            (more, more),
            "column {column}"
        );
        assert_eq!(held.plus(more.since(held)), more, "column {column}");
    }
}

fn any_counts() -> impl Strategy<Value = Counts> {
    any::<[u64; 9]>().prop_map(all)
}

/// Sound counts: every request has one outcome. Also requests that passed.
fn sound_counts() -> impl Strategy<Value = (Counts, u64)> {
    let ends: [_; 8] = std::array::from_fn(|_| 0..1_000u64);
    ends.prop_map(
        |[
            served,
            dropped,
            guard,
            would_coin,
            would_guard,
            quota,
            would_quota,
            repeated,
        ]| {
            let (would, passed) = (would_coin + would_guard, served + quota + would_quota);
            let of_coin = counts([
                passed + dropped + guard + would,
                dropped,
                guard,
                would,
                would_guard,
            ]);
            (with_quotas(of_coin, [quota, would_quota, repeated]), passed)
        },
    )
}

fn any_tally() -> impl Strategy<Value = Tally> {
    (any_counts(), any_counts()).prop_map(|(counts, late)| Tally { counts, late })
}

proptest! {
    #[test]
    fn joined_tallies_cover_both_minimally(a in any_tally(), b in any_tally(), c in any_tally()) {
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
        prop_assert_eq!(a.admitted() + a.quota_dropped, a.passed() + a.would_dropped);
        prop_assert_eq!(a.consistent_part(), a);
        // The sum of two sound sources is sound.
        let both = a.plus(b);
        prop_assert!(both.is_consistent());
        prop_assert_eq!(both.passed(), passed_a + passed_b);
        prop_assert_eq!(both.guarded(), a.guarded() + b.guarded());
        prop_assert_eq!(both.since(a), b);
        // One more refusal than requests is not sound any more.
        let beyond = Counts { guard_dropped: a.guard_dropped + passed_a + 1, ..a };
        prop_assert!(!beyond.is_consistent());
        let room = passed_a - a.quota_dropped - a.would_quota_dropped;
        let beyond = Counts { quota_dropped: a.quota_dropped + room + 1, ..a };
        prop_assert!(!beyond.is_consistent());
    }

    #[test]
    fn consistent_part_is_sound_whatever_the_counts(a in any_counts(), offered in 0..1_000_u64) {
        for counts in [a, Counts { offered, ..a }] {
            let part = counts.consistent_part();
            prop_assert!(part.is_consistent() && counts.covers(part), "{:?}", part);
            prop_assert_eq!(part.offered, counts.offered);
        }
    }
}
