//! Who has which bucket after which losses and returns, and when.

use super::*;
use proptest::prelude::*;

/// A client's picture, with books that a test turns over.
struct Scenery {
    spread: Spread,
    now: MonoTime,
    unsettled: bool,
    wordless: bool,
    unled: bool,
}

struct Told {
    settled: bool,
    word: bool,
    led: bool,
}

impl Scene for Told {
    fn is_settled(&self, _: usize, _: EndpointId) -> bool {
        self.settled
    }

    fn has_word(&self, _: usize, _: EndpointId) -> bool {
        self.word
    }

    fn is_led(&self, _: EndpointId) -> bool {
        self.led
    }
}

const BUCKETS: usize = 40;

fn names(count: usize) -> Vec<Arc<str>> {
    (0..count).map(|at| format!("http://aggregator-{at}:7410").into()).collect()
}

impl Scenery {
    /// Forty buckets and so many endpoints, all live and steady.
    fn new(count: usize) -> Self {
        let mut scenery = Self {
            spread: Spread::new(GRACE),
            now: MonoTime::from_elapsed(Duration::from_secs(100)),
            unsettled: false,
            wordless: false,
            unled: false,
        };
        scenery.spread.list(scenery.now, &names(count));
        (0..BUCKETS).for_each(|bucket| scenery.spread.add(&format!("bucket-{bucket}")));
        (0..count).for_each(|at| scenery.live(at));
        scenery.pass(STEADY);
        scenery
    }

    fn live(&mut self, at: usize) {
        self.spread.on_live(self.now, EndpointId(at as u32));
    }

    fn lose(&mut self, at: usize) {
        self.spread.on_lost(self.now, EndpointId(at as u32));
    }

    fn tick(&mut self) -> Vec<Turn> {
        let told = Told { settled: !self.unsettled, word: !self.wordless, led: !self.unled };
        self.spread.on_tick(self.now, &told)
    }

    /// Lets time pass, a tick every 100 ms; what changed.
    fn pass(&mut self, span: Duration) -> Vec<Turn> {
        let mut turns = Vec::new();
        for _ in 0..span.as_millis() / 100 {
            self.now = self.now + Duration::from_millis(100);
            turns.extend(self.tick());
        }
        turns
    }

    fn owners(&self) -> Vec<usize> {
        (0..BUCKETS).map(|bucket| self.spread.owner(bucket).unwrap().0 as usize).collect()
    }
}

fn moves(turns: &[Turn]) -> usize {
    turns.iter().filter(|turn| matches!(turn, Turn::Moved { .. })).count()
}

fn seconds(s: u64) -> Duration {
    Duration::from_secs(s)
}

#[test]
fn a_lost_endpoint_keeps_its_buckets_for_the_grace_and_then_only_they_move() {
    let mut scenery = Scenery::new(3);
    let before = scenery.owners();
    scenery.lose(1);
    assert_eq!(scenery.pass(GRACE - Duration::from_millis(100)), []);
    assert_eq!(scenery.owners(), before);
    let turns = scenery.pass(Duration::from_millis(100));
    let after = scenery.owners();
    assert_eq!(moves(&turns), before.iter().filter(|owner| **owner == 1).count());
    for (before, after) in before.iter().zip(&after) {
        assert!(if *before == 1 { *after != 1 } else { after == before });
    }
    assert!(
        [0, 2].iter().all(|to| before.iter().zip(&after).any(|(before, after)| *before == 1 && after == to))
    );
}

#[test]
fn one_that_is_back_within_the_grace_keeps_its_buckets() {
    let mut scenery = Scenery::new(3);
    let before = scenery.owners();
    scenery.lose(1);
    scenery.pass(GRACE - seconds(1));
    scenery.live(1);
    assert_eq!(scenery.pass(seconds(60)), []);
    assert_eq!(scenery.owners(), before);
}

#[test]
fn a_returning_endpoint_takes_its_buckets_back_once_it_is_steady_and_the_books_are_settled() {
    let mut scenery = Scenery::new(3);
    let before = scenery.owners();
    scenery.lose(1);
    scenery.pass(GRACE + WORDS_FOLLOW);
    scenery.live(1);
    scenery.unsettled = true;
    assert_eq!(scenery.pass(STEADY - Duration::from_millis(100)), []);
    assert!((0..BUCKETS).all(|bucket| !scenery.spread.is_withheld(bucket)));
    scenery.pass(seconds(1));
    for (bucket, before) in before.iter().enumerate() {
        assert_eq!(scenery.spread.is_withheld(bucket), *before == 1, "{bucket}");
        assert_eq!(scenery.spread.listens(bucket), *before != 1, "{bucket}");
    }
    scenery.unsettled = false;
    let turns = scenery.pass(Duration::from_millis(100));
    assert_eq!(scenery.owners(), before);
    // The ratios follow later than the counts.
    assert_eq!(turns.len(), moves(&turns));
    assert_eq!(scenery.pass(WORDS_FOLLOW).len(), turns.len());
    assert!((0..BUCKETS).all(|bucket| scenery.spread.listens(bucket)));
}

#[test]
fn what_is_not_confirmed_does_not_leave_and_is_tried_again() {
    let mut scenery = Scenery::new(2);
    scenery.lose(1);
    scenery.pass(GRACE + WORDS_FOLLOW);
    scenery.live(1);
    scenery.unsettled = true;
    let turns = scenery.pass(STEADY + WITHHELD_MAX + seconds(1));
    assert_eq!(moves(&turns), 0);
    assert!(!turns.is_empty(), "they are listened to again");
    assert!((0..BUCKETS).all(|bucket| !scenery.spread.is_withheld(bucket)));
    scenery.unsettled = false;
    assert_eq!(moves(&scenery.pass(RETRY)), turns.len());
}

#[test]
fn buckets_stay_where_they_are_while_the_new_place_knows_nothing() {
    let waits =
        [|scenery: &mut Scenery| scenery.wordless = true, |scenery: &mut Scenery| scenery.unled = true];
    for wait in waits {
        let mut scenery = Scenery::new(2);
        scenery.lose(1);
        scenery.pass(GRACE + WORDS_FOLLOW);
        scenery.live(1);
        wait(&mut scenery);
        assert_eq!(scenery.pass(seconds(60)), []);
    }
    // Nor do they leave a dead one for one that the controller does not lead.
    let mut scenery = Scenery::new(2);
    scenery.lose(1);
    scenery.unled = true;
    assert_eq!(scenery.pass(GRACE * 3), []);
    scenery.unled = false;
    assert!(moves(&scenery.pass(seconds(1))) > 0);
}

#[test]
fn where_nobody_is_left_everything_stays() {
    let mut scenery = Scenery::new(3);
    let before = scenery.owners();
    (0..3).for_each(|at| scenery.lose(at));
    assert_eq!(scenery.pass(GRACE * 10), []);
    assert_eq!(scenery.owners(), before);
}

#[test]
fn one_that_was_never_reached_is_not_waited_for_as_long() {
    let mut spread = Spread::new(GRACE);
    let now = MonoTime::from_elapsed(seconds(1));
    spread.list(now, &names(2));
    (0..BUCKETS).for_each(|bucket| spread.add(&format!("bucket-{bucket}")));
    spread.on_live(now, EndpointId(0));
    let told = Told { settled: true, word: true, led: true };
    assert_eq!(spread.on_tick(now + Duration::from_millis(2_900), &told), []);
    assert!(moves(&spread.on_tick(now + NEVER_REACHED, &told)) > 0);
    assert!((0..BUCKETS).all(|bucket| spread.owner(bucket) == Some(EndpointId(0))));
}

#[test]
fn a_new_endpoint_takes_its_share_and_one_that_is_no_longer_listed_gives_up_all() {
    let mut scenery = Scenery::new(2);
    let before = scenery.owners();
    let new = scenery.spread.list(scenery.now, &names(3));
    assert_eq!(new, [(EndpointId(2), names(3).remove(2))]);
    assert_eq!(scenery.pass(seconds(60)), [], "not before it answers");
    scenery.live(2);
    let turns = scenery.pass(seconds(60));
    let after = scenery.owners();
    assert!(before.iter().zip(&after).all(|(before, after)| before == after || *after == 2));
    assert_eq!(moves(&turns), after.iter().filter(|owner| **owner == 2).count());
    // It leaves again: in good order, as it is live.
    scenery.spread.list(scenery.now, &names(2));
    assert_eq!(scenery.spread.retire(), []);
    scenery.pass(seconds(10));
    assert_eq!(scenery.owners(), before);
    assert_eq!(scenery.spread.retire(), [EndpointId(2)]);
    assert_eq!(scenery.spread.retire(), []);
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Live(usize),
    Lose(usize),
    Settle(bool),
    Lead(bool),
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..4usize).prop_map(Step::Live),
        (0..4usize).prop_map(Step::Lose),
        any::<bool>().prop_map(Step::Settle),
        any::<bool>().prop_map(Step::Lead),
        (1..300u64).prop_map(Step::Pass),
    ]
}

proptest! {
    #[test]
    fn whatever_happens_clients_that_end_up_seeing_the_same_agree(
        one in prop::collection::vec(step(), 0..40), other in prop::collection::vec(step(), 0..40),
        live in prop::collection::vec(any::<bool>(), 4),
    ) {
        let mut owners = Vec::new();
        for steps in [one, other] {
            let mut scenery = Scenery::new(4);
            for step in steps {
                match step {
                    Step::Live(at) => scenery.live(at),
                    Step::Lose(at) => scenery.lose(at),
                    Step::Settle(yes) => scenery.unsettled = !yes,
                    Step::Lead(yes) => scenery.unled = !yes,
                    Step::Pass(ticks) => {
                        for turn in scenery.pass(Duration::from_millis(100) * ticks as u32) {
                            let Turn::Moved { from, to, .. } = turn else { continue };
                            prop_assert!(from != Some(to) && scenery.spread.is_live(to));
                        }
                    }
                }
            }
            (scenery.unsettled, scenery.unled) = (false, false);
            for (at, live) in live.iter().enumerate() {
                if *live { scenery.live(at) } else { scenery.lose(at) }
            }
            scenery.pass(GRACE + RETRY + STEADY + WORDS_FOLLOW);
            prop_assert!((0..BUCKETS).all(|bucket| scenery.spread.listens(bucket)));
            owners.push(scenery.owners());
        }
        if live.contains(&true) {
            prop_assert_eq!(&owners[0], &owners[1]);
            prop_assert!(owners[0].iter().all(|owner| live[*owner]));
        }
    }
}
