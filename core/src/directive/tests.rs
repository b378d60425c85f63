//! Which directive may follow which, and what a reader of the board ends up with, whenever it looks.

use std::collections::BTreeSet;

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::kill::JUMP_MAX;
use crate::rate::Rate;

fn bucket(name: &str) -> Bucket {
    Bucket::new(name).unwrap()
}

fn tenant(name: &str) -> Tenant {
    Tenant::new(name).unwrap()
}

fn ratio(tenths: u32) -> DropRatio {
    DropRatio::new(DropRatio::ONE / 10 * tenths).unwrap()
}

fn per_second(rate: u32) -> Limit {
    Limit::PerSecond(Rate::new(f64::from(rate)).unwrap())
}

/// A directive for `b`: ratios in tenths.
fn directive(whole: bool, limit: Limit, keys: &[(&str, Option<u32>)]) -> BucketDirective {
    let keys = keys
        .iter()
        .map(|(name, tenths)| KeyDirective {
            tenant: tenant(name),
            values: Values { ratio: tenths.map(ratio), ..Values::default() },
        })
        .collect();
    BucketDirective { bucket: bucket("b"), whole, terms: Terms { limit, ..Terms::default() }, keys }
}

/// A message as (epoch, seq).
type Message = (Option<u64>, u64);

/// Messages, `None` in between for a new stream, and whether each is taken.
fn check_order(messages: &[(Option<Message>, Result<(), Stale>)]) {
    let mut order = Order::default();
    for (at, (message, expected)) in messages.iter().enumerate() {
        let Some((epoch, seq)) = message else {
            order.open();
            continue;
        };
        let before = order;
        assert_eq!(order.accept(epoch.map(Epoch), *seq), *expected, "message {at}");
        assert!(expected.is_ok() || order == before, "message {at} was refused but remembered");
        assert!(order.epoch() >= before.epoch(), "message {at} took the epoch back");
    }
}

#[test]
fn directives_only_move_forward() {
    let take = |epoch, seq| (Some((epoch, seq)), Ok(()));
    let seq = |epoch, got, held| (Some((epoch, got)), Err(Stale::Seq { held, got }));
    let older =
        |got, seq, held| (Some((Some(got), seq)), Err(Stale::Epoch { held: Epoch(held), got: Epoch(got) }));
    let new_stream = (None, Ok(()));

    // Within one stream numbers grow; a gap is no harm, since a message holds the whole state of what it names.
    check_order(&[
        take(Some(5), 1),
        take(Some(5), 2),
        seq(Some(5), 2, 2),
        seq(Some(5), 1, 2),
        take(Some(5), 9),
    ]);
    // A number is used up whatever epoch it comes with, and zero is none.
    check_order(&[seq(Some(5), 0, 0), take(Some(5), 1), seq(Some(6), 1, 1), take(Some(6), 2)]);
    // An older reign is refused on the stream on which the newer one was heard and on any other, and takes no
    // number with it.
    check_order(&[
        take(Some(5), 1),
        older(4, 2, 5),
        take(Some(5), 2),
        new_stream,
        older(4, 1, 5),
        older(4, 2, 5),
        take(Some(5), 1),
        take(Some(5 + JUMP_MAX), 2),
        new_stream,
        older(5, 1, 5 + JUMP_MAX),
    ]);
    // What cannot be true is not believed, whatever is held.
    for held in [None, Some(5)] {
        let got = held.unwrap_or(0) + JUMP_MAX + 1;
        let refused = Err(Stale::EpochJump { held: held.map(Epoch), got: Epoch(got) });
        check_order(&[take(held, 1), (Some((Some(got), 2)), refused), take(held, 2)]);
    }
    // Numbers start over on a new stream.
    check_order(&[take(Some(5), 7), new_stream, take(Some(5), 1), seq(Some(5), 1, 1)]);
    // A parent that heard no controller is listened to, and does not make what is held forgotten.
    check_order(&[
        take(None, 1),
        seq(None, 1, 1),
        take(Some(5), 2),
        take(None, 3),
        older(4, 4, 5),
        new_stream,
        take(None, 1),
        older(4, 2, 5),
    ]);
}

/// What a bucket on the board is expected to hold: tenants and ratios in tenths.
fn check_posted(board: &Board, limit: Limit, keys: &[(&str, Option<u32>)]) {
    let posted = board.get(&bucket("b")).unwrap();
    let expected: Vec<(Tenant, Option<DropRatio>)> =
        keys.iter().map(|(name, tenths)| (tenant(name), tenths.map(ratio))).collect();
    let held: Vec<(Tenant, Option<DropRatio>)> =
        posted.ratios().map(|(tenant, ratio)| (tenant.clone(), ratio)).collect();
    assert_eq!((posted.limit(), held), (limit, expected));
}

#[test]
fn absent_ratios_are_kept_and_never_read_as_zero() {
    let limit = per_second(100);
    let mut board = Board::default();
    assert!(board.apply(&directive(true, limit, &[("a", None), ("default", Some(5))])));
    check_posted(&board, limit, &[("a", None), ("default", Some(5))]);
    let follows = board.get(&bucket("b")).unwrap().ratio(&tenant("a"));
    assert_eq!(follows, Some(ratio(5)), "as long as it holds nothing of its own");

    assert!(board.apply(&directive(false, limit, &[("a", Some(2)), ("default", None)])));
    check_posted(&board, limit, &[("a", Some(2)), ("default", Some(5))]);
    assert!(!board.apply(&directive(false, limit, &[("a", None), ("default", None)])), "nothing new");
    assert!(board.apply(&directive(false, limit, &[("a", Some(0))])), "zero is a ratio");
    check_posted(&board, limit, &[("a", Some(0)), ("default", Some(5))]);
}

#[test]
fn a_tenant_without_a_directive_follows_the_default_class() {
    let mut board = Board::default();
    board.apply(&directive(true, per_second(100), &[("a", Some(1)), ("default", Some(5))]));
    let posted = board.get(&bucket("b")).unwrap();
    assert_eq!(posted.ratio(&tenant("a")), Some(ratio(1)));
    assert_eq!(posted.ratio(&tenant("nobody")), Some(ratio(5)));
}

#[test]
fn a_limit_without_a_number_clears_every_ratio_also_those_it_does_not_name() {
    for limit in [Limit::Unlimited, Limit::Unknown] {
        let mut board = Board::default();
        board.apply(&directive(true, per_second(100), &[("a", Some(1)), ("default", Some(5))]));
        assert!(board.apply(&directive(false, limit, &[("a", Some(3))])));
        check_posted(&board, limit, &[("a", None), ("default", None)]);
        // The number is back: what was cleared stays so until a ratio comes.
        board.apply(&directive(false, per_second(100), &[]));
        check_posted(&board, per_second(100), &[("a", None), ("default", None)]);
    }
}

#[test]
fn a_limit_of_zero_is_a_number() {
    let mut board = Board::default();
    board.apply(&directive(true, per_second(0), &[("default", Some(10))]));
    check_posted(&board, per_second(0), &[("default", Some(10))]);
}

#[test]
fn whole_directives_take_tenants_away_and_others_do_not() {
    let limit = per_second(100);
    let mut board = Board::default();
    board.apply(&directive(true, limit, &[("a", Some(1)), ("b", Some(2))]));
    let seen = board.version();
    assert!(!board.apply(&directive(false, limit, &[("a", Some(1))])));
    check_posted(&board, limit, &[("a", Some(1)), ("b", Some(2))]);
    assert!(board.apply(&directive(true, limit, &[("a", Some(1))])));
    check_posted(&board, limit, &[("a", Some(1))]);
    assert_eq!(board.since(&bucket("b"), seen), Some(directive(true, limit, &[("a", Some(1))])));
}

#[test]
fn a_reader_is_told_no_more_than_it_needs() {
    let limit = per_second(100);
    let mut board = Board::default();
    assert_eq!(board.since(&bucket("b"), 0), None, "nothing is posted");
    board.apply(&directive(true, limit, &[("a", Some(1)), ("b", Some(2))]));
    let seen = board.version();
    assert_eq!(board.since(&bucket("b"), seen), None, "nothing is new");
    board.apply(&directive(false, limit, &[("b", Some(3))]));
    assert_eq!(board.since(&bucket("b"), seen), Some(directive(false, limit, &[("b", Some(3))])));
    // A change of another bucket is not news of this one.
    let seen = board.version();
    board.apply(&BucketDirective { bucket: bucket("other"), ..directive(true, limit, &[]) });
    assert_eq!(board.since(&bucket("b"), seen), None);
    assert!(board.since(&bucket("other"), seen).is_some());
}

/// One who looks at a board now and then and keeps a board of its own by what it is told.
#[derive(Default)]
struct Reader {
    own: Board,
    seen: u64,
    told: BTreeSet<(Bucket, Tenant, DropRatio)>,
}

impl Reader {
    fn look(&mut self, board: &Board) {
        for (bucket, _) in board.iter() {
            let Some(news) = board.since(bucket, self.seen) else { continue };
            self.own.apply(&news);
            for key in &news.keys {
                self.told.extend(key.ratio.map(|ratio| (bucket.clone(), key.tenant.clone(), ratio)));
            }
        }
        self.seen = board.version();
    }

    /// The same buckets with the same limits, modes and tenants, and the same ratio wherever the board has one.
    /// Where the board has none, "keep what you hold": a reader that was not looking while ratios were cleared may
    /// hold one that it was told before, but never one made up, and none at all once the limit has no number.
    fn check_agrees(&self, board: &Board) {
        assert_eq!(self.own.len(), board.len());
        for (bucket, posted) in board.iter() {
            let own = self.own.get(bucket).unwrap();
            assert_eq!((own.limit(), own.mode()), (posted.limit(), posted.mode()), "{bucket}");
            let tenants = |posted: &Posted| -> Vec<Tenant> {
                posted.ratios().map(|(tenant, _)| tenant.clone()).collect()
            };
            assert_eq!(tenants(own), tenants(posted), "{bucket}");
            for ((tenant, held), (_, due)) in own.ratios().zip(posted.ratios()) {
                match (held, due) {
                    (held, Some(due)) => assert_eq!(held, Some(due), "{bucket} {tenant}"),
                    (None, None) => {}
                    (Some(held), None) => {
                        assert!(
                            posted.limit().per_second().is_some(),
                            "{bucket} {tenant}: {held:?} not cleared"
                        );
                        assert!(
                            self.told.contains(&(bucket.clone(), tenant.clone(), held)),
                            "{bucket} {tenant}: {held:?} was never told"
                        );
                    }
                }
            }
        }
    }
}

fn any_directive() -> impl Strategy<Value = BucketDirective> {
    let limit = select(vec![Limit::Unlimited, Limit::Unknown, per_second(0), per_second(100)]);
    let limit = prop_oneof![1 => limit, 3 => Just(per_second(100))];
    let mode = select(vec![Mode::Shadow, Mode::Canary, Mode::Enforce]);
    let keys = btree_map(select(vec!["a", "b", "c", "default"]), option::of(0..=10u32), 0..4);
    (select(vec!["x", "y"]), any::<bool>(), limit, mode, keys).prop_map(|(name, whole, limit, mode, keys)| {
        let keys: Vec<(&str, Option<u32>)> = keys.into_iter().collect();
        BucketDirective { bucket: bucket(name), mode, ..directive(whole, limit, &keys) }
    })
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
            prop_assert!(own.ratios().eq(posted.ratios()));
        }
    }
}
