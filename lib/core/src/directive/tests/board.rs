//! The effect of a directive on the board: absent values are kept, and a limit without a number clears all
//! values.

use super::*;
use crate::kill::{Kill, KillGeneration};

fn check_posted_of(board: &Board, terms: Terms, keys: &[(&str, Values)]) {
    let posted = board.get(&bucket("b")).unwrap();
    let held: Vec<(&str, Values)> = posted
        .keys()
        .map(|(tenant, values)| (tenant.as_str(), values))
        .collect();
    assert_eq!((posted.terms(), held.as_slice()), (&terms, keys));
    for (name, values) in keys {
        assert_eq!(
            posted.own(name),
            Some(*values),
            "{name} is found by its name"
        );
        assert_eq!(posted.values(&tenant(name)), Some(*values), "{name}");
    }
}

fn check_posted(board: &Board, limit: Limit, keys: &[(&str, Option<u32>)]) {
    let keys: Vec<(&str, Values)> = keys
        .iter()
        .map(|(name, tenths)| (*name, drops(*tenths)))
        .collect();
    check_posted_of(board, terms(limit), &keys);
}

#[test]
fn each_absent_value_is_kept_independently() {
    let (held, news) = (everything(1), everything(2));
    let each: [fn(&mut Values, Values); 7] = [
        |to, from| to.ratio = from.ratio,
        |to, from| to.rate = from.rate,
        |to, from| to.cap = from.cap,
        |to, from| to.entitlement = from.entitlement,
        |to, from| to.guard = from.guard,
        |to, from| to.offered = from.offered,
        |to, from| to.at_tenant_limit = from.at_tenant_limit,
    ];
    let with_one = |take: fn(&mut Values, Values)| {
        let (mut told, mut due) = (Values::default(), held);
        take(&mut told, news);
        take(&mut due, news);
        (told, due)
    };
    let mut table = each.map(with_one).to_vec();
    table.extend([
        (Values::default(), held),
        (news, news),
        with_one(|to, _| to.rate = Some(Rate::ZERO)),
    ]);
    for whole in [false, true] {
        for (told, due) in table.clone() {
            let limited = || terms(per_second(100));
            let mut board = Board::default();
            board.apply(&directive_of(true, limited(), &[("a", held)]));
            let seen = board.version();
            let changed = board.apply(&directive_of(whole, limited(), &[("a", told)]));
            check_posted_of(&board, limited(), &[("a", due)]);
            assert_eq!(changed, due != held, "{told:?}");
            let news = changed.then(|| directive_of(false, limited(), &[("a", due)]));
            assert_eq!(
                board.since(&bucket("b"), seen),
                news,
                "told in full what changed in part"
            );
        }
    }
}

#[test]
fn unknown_limit_clears_all_but_entitlements() {
    let entitled = |number| Values {
        entitlement: Some(entitlement(number)),
        ..Values::default()
    };
    for limit in [Limit::Unlimited, Limit::Unknown] {
        let mut board = Board::default();
        board.apply(&directive_of(
            true,
            terms(per_second(100)),
            &[
                ("a", everything(1)),
                ("b", everything(2)),
                ("default", drops(Some(5))),
            ],
        ));
        assert!(board.apply(&directive_of(
            false,
            terms(limit),
            &[("a", everything(3)), ("c", everything(4))]
        )));
        let cleared = [
            ("a", entitled(3)),
            ("b", entitled(2)),
            ("c", entitled(4)),
            ("default", Values::default()),
        ];
        check_posted_of(&board, terms(limit), &cleared);
        assert!(
            !board.apply(&directive_of(false, terms(limit), &[("b", drops(Some(9)))])),
            "nothing to clear"
        );
        // With a number again, cleared values stay absent until a new value arrives.
        assert!(board.apply(&directive(false, per_second(100), &[])));
        check_posted_of(&board, terms(per_second(100)), &cleared);
    }
}

#[test]
fn a_limit_of_zero_is_a_number() {
    let mut board = Board::default();
    board.apply(&directive(true, per_second(0), &[("default", Some(10))]));
    check_posted(&board, per_second(0), &[("default", Some(10))]);
}

#[test]
fn terms_are_replaced_except_for_absent_ones() {
    let of_plan = ClassTerms {
        cut: Some(cut(1)),
        new_share: None,
    };
    let plans: BTreeMap<_, _> = [(Tenant::class_of_plan("free").unwrap(), of_plan)].into();
    let first = Terms {
        named: true,
        unlisted: Some(Unlisted::new(Some(&bucket("meant")))),
        limit: per_second(100),
        mode: Mode::Canary,
        kill: Kill {
            fleet: KillGeneration(4),
            bucket: KillGeneration(2),
        },
        cohort: Cohort {
            percent: Percent::new(5.0).unwrap(),
            salt: 7,
        },
        coin: Coin::Coherent,
        coherence: Some(salted(1)),
        presences: Some(Presences::new(2_500).unwrap()),
        hold: Some(rate(40)),
        headroom: Some(Headroom::Shared(rate(7))),
        clients: Some(9),
        pool: Some(pool(3)),
        cut: Some(cut(2)),
        new_share: Some(new_share(1)),
        plans: plans.clone(),
        quotas: Some(quotas(7)),
    };
    let bare = terms(per_second(100));
    let mut board = Board::default();
    assert!(board.apply(&directive_of(true, first.clone(), &[])));
    check_posted_of(&board, first.clone(), &[]);

    let unchanged = Terms {
        hold: None,
        headroom: None,
        pool: None,
        cut: None,
        new_share: None,
        plans: BTreeMap::new(),
        quotas: None,
        ..first.clone()
    };
    assert!(
        !board.apply(&directive_of(true, unchanged, &[])),
        "nothing new"
    );
    check_posted_of(&board, first.clone(), &[]);

    assert!(board.apply(&directive_of(false, bare.clone(), &[])));
    let Terms {
        hold,
        headroom,
        pool,
        cut,
        new_share,
        plans,
        quotas,
        ..
    } = first;
    let kept = Terms {
        hold,
        headroom,
        pool,
        cut,
        new_share,
        plans: plans.clone(),
        quotas: quotas.clone(),
        ..bare.clone()
    };
    check_posted_of(&board, kept, &[]);

    let none = Terms {
        hold: Some(Rate::ZERO),
        quotas: Some(BucketQuotas::default()),
        ..bare
    };
    assert!(
        board.apply(&directive_of(false, none.clone(), &[])),
        "zero is a hold, and no quota a change"
    );
    check_posted_of(
        &board,
        Terms {
            headroom,
            pool,
            cut,
            new_share,
            plans,
            ..none
        },
        &[],
    );
}

#[test]
fn a_change_of_any_term_is_sent() {
    let held = Terms {
        hold: Some(rate(40)),
        ..terms(per_second(100))
    };
    let changes: [fn(&mut Terms); 13] = [
        |it| it.limit = per_second(101),
        |it| it.unlisted = Some(Unlisted::new(None)),
        |it| it.mode = Mode::Enforce,
        |it| it.cohort.percent = Percent::new(1.0).unwrap(),
        |it| it.cohort.salt = 1,
        |it| it.coin = Coin::Coherent,
        |it| it.coherence = Some(salted(1)),
        |it| it.presences = Some(Presences::ONE),
        |it| it.hold = Some(rate(41)),
        |it| it.clients = Some(0),
        |it| it.headroom = Some(Headroom::None),
        |it| it.pool = Some(pool(3)),
        |it| it.quotas = Some(quotas(7)),
    ];
    for change in changes {
        let mut changed = held.clone();
        change(&mut changed);
        let mut board = Board::default();
        board.apply(&directive_of(true, held.clone(), &[("a", everything(1))]));
        let seen = board.version();
        assert!(
            board.apply(&directive_of(false, changed.clone(), &[])),
            "{changed:?}"
        );
        let news = directive_of(false, changed, &[]);
        assert_eq!(
            board.since(&bucket("b"), seen),
            Some(news),
            "and no key with it"
        );
    }
}

#[test]
fn headroom_and_pool_wait_with_the_values() {
    let bare = terms(per_second(100));
    let full = Terms {
        headroom: Some(Headroom::None),
        pool: Some(pool(3)),
        ..bare.clone()
    };
    let mut board = Board::default();
    board.apply(&directive_of(true, full.clone(), &[("a", everything(1))]));
    for (values, sent, key) in [
        (true, full, everything(1)),
        (false, bare, Values::default()),
    ] {
        let update = board.update(&bucket("b"), 0, values).unwrap();
        assert_eq!(*update.directive(), directive_of(true, sent, &[("a", key)]));
    }
}

#[test]
fn tenant_outside_the_board_follows_default_class() {
    let mut board = Board::default();
    board.apply(&directive(true, per_second(100), &[("a", Some(1))]));
    let posted = board.get(&bucket("b")).unwrap();
    assert_eq!(
        (posted.own("nobody"), posted.values(&tenant("nobody"))),
        (None, None)
    );

    board.apply(&directive(false, per_second(100), &[("default", Some(5))]));
    let posted = board.get(&bucket("b")).unwrap();
    assert_eq!(posted.values(&tenant("a")), Some(drops(Some(1))));
    assert_eq!(posted.values(&tenant("nobody")), Some(drops(Some(5))));
    assert_eq!(posted.own("nobody"), None);
}

#[test]
fn keys_are_sorted_without_duplicates() {
    let limit = per_second(100);
    for held in [&[][..], &[("b", Some(9)), ("d", Some(4))][..]] {
        let mut board = Board::default();
        board.apply(&directive(true, limit, held));
        let disorder = [
            ("c", Some(3)),
            ("a", Some(1)),
            ("b", Some(2)),
            ("a", Some(7)),
            ("a", Some(6)),
        ];
        assert!(board.apply(&directive(true, limit, &disorder)));
        check_posted(
            &board,
            limit,
            &[("a", Some(6)), ("b", Some(2)), ("c", Some(3))],
        );
        assert!(
            !board.apply(&directive(true, limit, &disorder)),
            "nothing new"
        );

        // Sorted, but each key twice.
        assert!(board.apply(&directive(false, limit, &[("b", Some(5)), ("b", Some(8))])));
        check_posted(
            &board,
            limit,
            &[("a", Some(6)), ("b", Some(8)), ("c", Some(3))],
        );
    }
}

#[test]
fn only_whole_directives_remove_tenants() {
    let limit = per_second(100);
    let mut board = Board::default();
    board.apply(&directive(
        true,
        limit,
        &[("a", Some(1)), ("b", Some(2)), ("c", Some(3))],
    ));
    let seen = board.version();
    assert!(!board.apply(&directive(false, limit, &[("a", Some(1))])));
    check_posted(
        &board,
        limit,
        &[("a", Some(1)), ("b", Some(2)), ("c", Some(3))],
    );
    assert!(board.apply(&directive(true, limit, &[("b", None)])));
    check_posted(&board, limit, &[("b", Some(2))]);
    assert_eq!(
        board.since(&bucket("b"), seen),
        Some(directive(true, limit, &[("b", Some(2))]))
    );
    // One tenant is added as another is removed: the first, the last, and one posted before.
    assert!(board.apply(&directive(true, limit, &[("a", None), ("d", Some(4))])));
    check_posted(&board, limit, &[("a", None), ("d", Some(4))]);
    assert!(board.apply(&directive(true, limit, &[])));
    check_posted(&board, limit, &[]);
    assert!(
        !board.apply(&directive(true, limit, &[])),
        "nothing is left to take away"
    );
}

#[test]
fn reader_gets_only_newer_changes() {
    let limit = per_second(100);
    let mut board = Board::default();
    assert_eq!(board.since(&bucket("b"), 0), None, "nothing is posted");
    board.apply(&directive(true, limit, &[("a", Some(1)), ("b", Some(2))]));
    let seen = board.version();
    assert_eq!(board.since(&bucket("b"), seen), None, "nothing is new");
    board.apply(&directive(false, limit, &[("b", Some(3))]));
    assert_eq!(
        board.since(&bucket("b"), seen),
        Some(directive(false, limit, &[("b", Some(3))]))
    );
    // A change of another bucket does not count as a change of this one.
    let seen = board.version();
    board.apply(&BucketDirective {
        bucket: bucket("other"),
        ..directive(true, limit, &[])
    });
    assert_eq!(board.since(&bucket("b"), seen), None);
    assert!(board.since(&bucket("other"), seen).is_some());
}

#[test]
fn quotas_reach_new_readers_and_changes() {
    let with = |quotas| Terms {
        quotas,
        ..terms(per_second(100))
    };
    let mut board = Board::default();
    board.apply(&directive_of(
        true,
        with(Some(quotas(7))),
        &[("a", drops(Some(1)))],
    ));
    let seen = board.version();
    let ratio = [("a", drops(Some(2)))];
    assert!(board.apply(&directive_of(false, with(Some(quotas(7))), &ratio)));
    assert_eq!(
        board.since(&bucket("b"), seen),
        Some(directive_of(false, with(None), &ratio)),
        "unchanged"
    );
    for values in [true, false] {
        let first = board.update(&bucket("b"), 0, values).unwrap();
        assert_eq!(
            first.directive().terms.quotas,
            Some(quotas(7)),
            "a definition is no value"
        );
    }
    for changed in [quotas(8), BucketQuotas::default()] {
        let seen = board.version();
        assert!(board.apply(&directive_of(false, with(Some(changed.clone())), &[])));
        assert_eq!(
            board.since(&bucket("b"), seen),
            Some(directive_of(false, with(Some(changed)), &[]))
        );
    }
}

/// A restarted controller draws a new salt: that costs one entry per bucket, and not all its tenants again.
#[test]
fn new_salt_is_sent_without_keys() {
    let salted_terms = |salt| Terms {
        coherence: Some(salted(salt)),
        ..terms(per_second(100))
    };
    let told = [("a", drops(Some(2))), ("default", drops(Some(5)))];
    let mut board = Board::default();
    board.apply(&directive_of(true, salted_terms(1), &told));
    let seen = board.version();
    assert!(
        !board.apply(&directive_of(true, salted_terms(1), &told)),
        "nothing new"
    );
    assert!(board.apply(&directive_of(true, salted_terms(2), &told)));
    let news = board.since(&bucket("b"), seen).unwrap();
    assert_eq!(
        (news.terms, news.keys.len(), news.whole),
        (salted_terms(2), 0, false)
    );
    assert_eq!(board.since(&bucket("b"), board.version()), None);
}
