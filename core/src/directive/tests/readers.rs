//! However rarely a reader of the board looks, it ends with what holds.

use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;

/// One value of a key, whichever, as something to compare.
type Value = (&'static str, String);

fn values(values: Values) -> [Option<Value>; 6] {
    let rate = |name, rate: Option<Rate>| rate.map(|rate| (name, format!("{rate:?}")));
    [
        values.ratio.map(|ratio| ("ratio", format!("{ratio:?}"))),
        rate("rate", values.rate),
        rate("cap", values.cap),
        values.entitlement.map(|entitlement| ("entitlement", format!("{entitlement:?}"))),
        rate("guard", values.guard),
        rate("offered", values.offered),
    ]
}

/// One who looks at a board now and then and keeps a board of its own by what it is told.
#[derive(Default)]
struct Reader {
    own: Board,
    seen: u64,
    told: BTreeSet<(Bucket, Tenant, Value)>,
}

impl Reader {
    fn look(&mut self, board: &Board) {
        for (bucket, _) in board.iter() {
            let Some(news) = board.since(bucket, self.seen) else { continue };
            assert!(news.keys.is_sorted_by(|a, b| a.tenant < b.tenant), "{bucket} is told out of order");
            self.own.apply(&news);
            for key in &news.keys {
                let values = values(key.values).into_iter().flatten();
                self.told.extend(values.map(|value| (bucket.clone(), key.tenant.clone(), value)));
            }
        }
        self.seen = board.version();
    }

    /// The same buckets with the same terms and tenants, and the same value wherever the board has one. Where the
    /// board has none, "keep what you hold": a reader that was not looking while values were cleared may hold one
    /// that it was told before, but never one made up, and none but an entitlement once the limit has no number.
    fn check_agrees(&self, board: &Board) {
        assert_eq!(self.own.len(), board.len());
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
    let limit = select(vec![Limit::Unlimited, Limit::Unknown, per_second(0), per_second(100)]);
    let limit = prop_oneof![1 => limit, 3 => Just(per_second(100))];
    let mode = select(vec![Mode::Shadow, Mode::Canary, Mode::Enforce]);
    let cohort = (select(vec![0.0, 5.0, 100.0]), 0..2u64)
        .prop_map(|(percent, salt)| Cohort { percent: Percent::new(percent).unwrap(), salt });
    let coin = select(vec![Coin::Dithered, Coin::Independent, Coin::Coherent]);
    let on_silence = select(vec![OnSilence::Allocation, OnSilence::Ratio]);
    let presences = option::of((1_000..1_003u32).prop_map(|number| Presences::new(number).unwrap()));
    let shares = (presences, option::of((0..3u32).prop_map(rate)), option::of(0..3u32));
    (limit, mode, cohort, coin, on_silence, shares).prop_map(
        |(limit, mode, cohort, coin, on_silence, (presences, hold, clients))| Terms {
            limit,
            mode,
            cohort,
            coin,
            on_silence,
            presences,
            hold,
            clients,
        },
    )
}

fn any_values() -> impl Strategy<Value = Values> {
    let any_rate = || option::of((0..3u32).prop_map(rate));
    let entitlement = option::of((0..4u32).prop_map(entitlement));
    (option::of((0..=10u32).prop_map(ratio)), any_rate(), any_rate(), entitlement, any_rate(), any_rate())
        .prop_map(|(ratio, rate, cap, entitlement, guard, offered)| Values {
            ratio,
            rate,
            cap,
            entitlement,
            guard,
            offered,
        })
}

/// Directives for few buckets and tenants, in any order, some tenants twice; most terms stay as they were.
fn any_directive() -> impl Strategy<Value = BucketDirective> {
    let terms = prop_oneof![any_terms(), Just(terms(per_second(100)))];
    let keys = vec((select(vec!["a", "b", "c", "default"]), any_values()), 0..5);
    (select(vec!["x", "y"]), any::<bool>(), terms, keys).prop_map(|(name, whole, terms, keys)| {
        BucketDirective { bucket: bucket(name), ..directive_of(whole, terms, &keys) }
    })
}

/// What the board should hold, by the rules alone: a map and no merging.
#[derive(Default)]
struct Model(BTreeMap<Bucket, (Terms, BTreeMap<Tenant, Values>)>);

impl Model {
    fn apply(&mut self, directive: &BucketDirective) {
        let (terms, held) = self.0.entry(directive.bucket.clone()).or_default();
        *terms = Terms { hold: directive.terms.hold.or(terms.hold), ..directive.terms };
        // Of two keys with one name, the later one.
        let named: BTreeMap<Tenant, Values> =
            directive.keys.iter().map(|key| (key.tenant.clone(), key.values)).collect();
        if directive.whole {
            held.retain(|tenant, _| named.contains_key(tenant));
        }
        for (tenant, values) in named {
            let held = held.entry(tenant).or_default();
            *held = values.or(*held);
        }
        if terms.limit.per_second().is_none() {
            held.values_mut().for_each(|values| *values = values.without_limit());
        }
    }

    fn check_agrees(&self, board: &Board) {
        let held = |(bucket, posted): (&Bucket, &Posted)| {
            let keys = posted.keys().map(|(tenant, values)| (tenant.clone(), values)).collect();
            (bucket.clone(), (*posted.terms(), keys))
        };
        assert_eq!(board.iter().map(held).collect::<BTreeMap<_, _>>(), self.0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn however_rarely_a_reader_looks_it_ends_with_what_holds(
        history in vec((any_directive(), any::<bool>()), 0..40),
    ) {
        let mut board = Board::default();
        let (mut often, mut rarely) = (Reader::default(), Reader::default());
        for (directive, looks) in &history {
            let before = board.version();
            let changed = board.apply(directive);
            prop_assert_eq!(board.version(), before + u64::from(changed));
            often.look(&board);
            often.check_agrees(&board);
            if *looks {
                rarely.look(&board);
                rarely.check_agrees(&board);
            }
        }
        rarely.look(&board);
        rarely.check_agrees(&board);
        // One who saw every change holds exactly what the board holds.
        for (bucket, posted) in board.iter() {
            let own = often.own.get(bucket).unwrap();
            prop_assert!(own.keys().eq(posted.keys()));
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
