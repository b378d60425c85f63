//! A reader of the board ends with the current state, however rarely it reads.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;

type Value = (&'static str, String);

fn values(values: Values) -> [Option<Value>; 6] {
    let rate = |name, rate: Option<Rate>| rate.map(|rate| (name, format!("{rate:?}")));
    [
        values.ratio.map(|ratio| ("ratio", format!("{ratio:?}"))),
        rate("rate", values.rate),
        rate("cap", values.cap),
        values
            .entitlement
            .map(|entitlement| ("entitlement", format!("{entitlement:?}"))),
        rate("guard", values.guard),
        rate("offered", values.offered),
    ]
}

#[derive(Default)]
struct Reader {
    own: Board,
    seen: u64,
    told: BTreeSet<(Bucket, Tenant, Value)>,
}

impl Reader {
    /// Reads as one of an audience, which shares its updates.
    fn look_in_company(&mut self, board: &mut Board) {
        let audience = board.audience(board.iter().map(|(bucket, _)| bucket.clone()).collect());
        let update = board.audience_update(&audience, self.seen, true);
        for news in update.iter().flat_map(|update| update.iter()) {
            self.own.apply(news.directive());
            for key in &news.directive().keys {
                let values = values(key.values).into_iter().flatten();
                self.told.extend(
                    values
                        .map(|value| (news.directive().bucket.clone(), key.tenant.clone(), value)),
                );
            }
        }
        self.seen = board.version();
    }

    /// Both have equal buckets, terms and tenants, and equal values wherever the board has one. Where the
    /// board has none, a reader that missed the clearing may still hold a value that was sent before, but
    /// never an invented one, and only an entitlement once the limit has no number.
    fn check_agrees(&self, board: &Board) {
        assert_eq!(self.own.iter().count(), board.iter().count());
        for (bucket, posted) in board.iter() {
            let own = self.own.get(bucket).unwrap();
            assert_eq!(own.terms(), posted.terms(), "{bucket}");
            let tenants = |posted: &Posted| -> Vec<Tenant> {
                posted.keys().map(|(tenant, _)| tenant.clone()).collect()
            };
            assert_eq!(tenants(own), tenants(posted), "{bucket}");
            for ((tenant, held), (_, due)) in own.keys().zip(posted.keys()) {
                if posted.terms().limit.per_second().is_none() {
                    assert_eq!(held, held.without_limit(), "{bucket} {tenant}: not cleared");
                }
                for (held, due) in values(held).into_iter().zip(values(due)) {
                    match (held, due) {
                        (held, Some(due)) => assert_eq!(held, Some(due), "{bucket} {tenant}"),
                        (None, None) => {}
                        (Some(held), None) => {
                            let told = (bucket.clone(), tenant.clone(), held);
                            assert!(self.told.contains(&told), "{told:?} was never told");
                        }
                    }
                }
            }
        }
    }
}

fn any_terms() -> impl Strategy<Value = Terms> {
    let limit = select(vec![
        Limit::Unlimited,
        Limit::Unknown,
        per_second(0),
        per_second(100),
    ]);
    let limit = prop_oneof![1 => limit, 3 => Just(per_second(100))];
    let mode = select(vec![Mode::Shadow, Mode::Canary, Mode::Enforce]);
    let cohort = (select(vec![0.0, 5.0, 100.0]), 0..2u64).prop_map(|(percent, salt)| Cohort {
        percent: Percent::new(percent).unwrap(),
        salt,
    });
    let coin = select(vec![Coin::Dithered, Coin::Coherent]);
    let presences =
        option::of((1_000..1_003u32).prop_map(|number| Presences::new(number).unwrap()));
    let headroom = prop_oneof![
        Just(Headroom::None),
        (0..3u32).prop_map(|number| Headroom::Shared(rate(number)))
    ];
    let headrooms = (option::of(headroom), option::of((0..3u32).prop_map(pool)));
    let tail = (
        option::of((0..3u32).prop_map(cut)),
        option::of((0..3u32).prop_map(new_share)),
    );
    let shares = (
        presences,
        option::of((0..3u32).prop_map(rate)),
        option::of(0..3u32),
        headrooms,
        tail,
    );
    let coherence = option::of(0..3u64).prop_map(|salt| salt.map(salted));
    let quotas = option::of((0..3u64).prop_map(quotas));
    (limit, mode, cohort, (coin, coherence), shares, quotas).prop_map(
        |(limit, mode, cohort, (coin, coherence), shares, quotas)| {
            let (presences, hold, clients, (headroom, pool), (cut, new_share)) = shares;
            Terms {
                named: presences.is_some(),
                unlisted: None,
                limit,
                mode,
                kill: crate::kill::Kill::default(),
                cohort,
                coin,
                coherence,
                presences,
                hold,
                headroom,
                clients,
                pool,
                plans: cut
                    .map(|cut| {
                        let terms = ClassTerms {
                            cut: Some(cut),
                            new_share,
                        };
                        (Tenant::class_of_plan("free").unwrap(), terms)
                    })
                    .into_iter()
                    .collect(),
                cut,
                new_share,
                quotas,
            }
        },
    )
}

fn any_values() -> impl Strategy<Value = Values> {
    let any_rate = || option::of((0..3u32).prop_map(rate));
    let entitlement = option::of((0..4u32).prop_map(entitlement));
    let ratio = option::of((0..=10u32).prop_map(ratio));
    let at_tenant_limit = option::of(any::<bool>());
    (
        ratio,
        any_rate(),
        any_rate(),
        entitlement,
        any_rate(),
        any_rate(),
        at_tenant_limit,
    )
        .prop_map(
            |(ratio, rate, cap, entitlement, guard, offered, at_tenant_limit)| Values {
                ratio,
                rate,
                cap,
                entitlement,
                guard,
                offered,
                at_tenant_limit,
            },
        )
}

/// Directives for few buckets and tenants, in any order, some tenants twice; most terms are unchanged.
fn any_directive() -> impl Strategy<Value = BucketDirective> {
    let terms = prop_oneof![any_terms(), Just(terms(per_second(100)))];
    let keys = vec((select(vec!["a", "b", "c", "default"]), any_values()), 0..5);
    (select(vec!["x", "y"]), any::<bool>(), terms, keys).prop_map(|(name, whole, terms, keys)| {
        BucketDirective {
            bucket: bucket(name),
            ..directive_of(whole, terms, &keys)
        }
    })
}

/// The reference model of the board: a map without merging.
#[derive(Default)]
struct Model(BTreeMap<Bucket, (Terms, BTreeMap<Tenant, Values>)>);

impl Model {
    fn apply(&mut self, directive: &BucketDirective) {
        let (terms, held) = self.0.entry(directive.bucket.clone()).or_default();
        let (hold, headroom, pool, quotas) =
            (terms.hold, terms.headroom, terms.pool, terms.quotas.take());
        let (cut, new_share) = (terms.cut, terms.new_share);
        let plans = std::mem::take(&mut terms.plans);
        *terms = directive.terms.clone();
        terms.hold = terms.hold.or(hold);
        terms.headroom = terms.headroom.or(headroom);
        terms.pool = terms.pool.or(pool);
        terms.cut = terms.cut.or(cut);
        terms.new_share = terms.new_share.or(new_share);
        if terms.plans.is_empty() {
            terms.plans = plans;
        }
        terms.quotas = terms.quotas.take().or(quotas);
        // The later of two keys with one name counts.
        let named: BTreeMap<Tenant, Values> = directive
            .keys
            .iter()
            .map(|key| (key.tenant.clone(), key.values))
            .collect();
        if directive.whole {
            held.retain(|tenant, _| named.contains_key(tenant));
        }
        for (tenant, values) in named {
            let held = held.entry(tenant).or_default();
            *held = values.or(*held);
        }
        if terms.limit.per_second().is_none() {
            held.values_mut()
                .for_each(|values| *values = values.without_limit());
        }
    }

    fn check_agrees(&self, board: &Board) {
        let held = |(bucket, posted): (&Bucket, &Posted)| {
            let keys = posted
                .keys()
                .map(|(tenant, values)| (tenant.clone(), values))
                .collect();
            (bucket.clone(), (posted.terms().clone(), keys))
        };
        assert_eq!(board.iter().map(held).collect::<BTreeMap<_, _>>(), self.0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn readers_together_end_with_the_truth(
        history in vec((any_directive(), any::<u16>()), 0..40),
    ) {
        let mut board = Board::default();
        let mut readers: [Reader; 9] = Default::default();
        for (directive, who) in &history {
            board.apply(directive);
            for (number, reader) in readers.iter_mut().enumerate() {
                // The first reads each time, the others each less often than the one before.
                if who % (1 << number) == 0 {
                    reader.look_in_company(&mut board);
                    reader.check_agrees(&board);
                }
            }
        }
        for reader in &mut readers {
            reader.look_in_company(&mut board);
            reader.check_agrees(&board);
        }
        for (bucket, posted) in board.iter() {
            prop_assert!(readers[0].own.get(bucket).unwrap().keys().eq(posted.keys()));
        }
    }

    #[test]
    fn a_board_holds_what_the_rules_say(history in vec(any_directive(), 0..20)) {
        let mut board = Board::default();
        let mut model = Model::default();
        for directive in &history {
            let before = board.version();
            let held = format!("{:?}", model.0);
            board.apply(directive);
            model.apply(directive);
            model.check_agrees(&board);
            let changed = format!("{:?}", model.0) != held;
            prop_assert_eq!(board.version() > before, changed, "a change is a version, and nothing else is");
        }
    }
}

#[test]
fn slow_readers_get_the_whole_state() {
    let mut board = Board::default();
    let change = |board: &mut Board, tenths: u32| {
        board.apply(&directive(
            false,
            per_second(100),
            &[("a", Some(tenths)), ("b", Some(1))],
        ));
        board.version()
    };
    let versions: Vec<u64> = (0..9).map(|tenths| change(&mut board, tenths)).collect();
    let buckets: BTreeSet<Bucket> = [bucket("b"), bucket("other")].into();
    let audience = board.audience(buckets.clone());
    assert!(
        Arc::ptr_eq(&audience, &board.audience(buckets)),
        "who hears about the same is one audience"
    );
    let update =
        |board: &mut Board, seen: u64| board.audience_update(&audience, seen, true).unwrap();
    let latest = update(&mut board, versions[7]);
    assert!(Arc::ptr_eq(&latest, &update(&mut board, versions[7])));
    assert_eq!(
        *latest[0].directive(),
        directive(false, per_second(100), &[("a", Some(8))])
    );
    let keys = |update: &AudienceUpdate| {
        (
            update[0].directive().whole,
            update[0].directive().keys.len(),
        )
    };
    let told: Vec<_> = (0..7)
        .rev()
        .map(|at| keys(&update(&mut board, versions[at])))
        .collect();
    assert_eq!(
        told,
        [[(false, 1); 3].as_slice(), &[(true, 2); 4]].concat(),
        "four cache, then the whole"
    );
    assert!(Arc::ptr_eq(
        &update(&mut board, versions[0])[0],
        &update(&mut board, versions[1])[0]
    ));
    assert!(
        board
            .audience_update(&audience, versions[8], true)
            .is_none(),
        "who has seen all hears nothing"
    );
    let bare = board
        .audience_update(&audience, versions[7], false)
        .unwrap();
    assert_eq!(
        *bare[0].directive(),
        directive(false, per_second(100), &[("a", None)])
    );
    let mut encoded = 0;
    for _ in 0..2 {
        latest[0].encoded(|_| {
            encoded += 1;
            Box::default()
        });
    }
    assert_eq!(encoded, 1);
}
