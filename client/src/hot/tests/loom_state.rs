//! Loom models of the lock-free state that threads share.

use loom::sync::Arc;
use loom::thread;

use crate::hot::directive_word::{DirectiveWord, KeyWord};
use crate::hot::guard_pool::GuardPool;
use crate::hot::shared_key::SharedKey;
use crate::hot::sync::{AtomicU32, AtomicU64, Ordering};
use crate::hot::thread_counters::slots::ThreadSlots;
use crate::hot::thread_counters::{Counters, Outcome};
use plimsoll_core::decision::coherent::DrawKey;
use plimsoll_core::quantity::DropRatio;

fn publish(shared: &AtomicU64, directive: DirectiveWord) {
    KeyWord::new(1, directive).store(shared);
}

/// Runs every interleaving with up to two preemptions: an error that needs more is unlikely, and without a
/// bound their number explodes.
fn model(run: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(run);
}

/// Two threads take and release slots; the holder of a slot writes its counters with a load and a store. No
/// count is lost when a slot passes from one thread to the other.
#[test]
fn counts_outlive_the_thread_that_made_them() {
    model(|| {
        let slots = Arc::new(ThreadSlots::new());
        let blocks = Arc::new(Counters::new(1, 2));
        let decide = {
            let (slots, blocks) = (Arc::clone(&slots), Arc::clone(&blocks));
            move || {
                let Some(slot) = slots.take() else { return };
                blocks.block(slot).add(0, Outcome::Admitted, 1);
                slots.release(slot);
            }
        };
        let other = thread::spawn(decide.clone());
        decide();
        decide();
        other.join().unwrap();
        let offered = [0, 1].map(|thread| blocks.block(thread).counts(0).offered);
        assert_eq!(offered.into_iter().sum::<u64>(), 3);
    });
}

/// Two threads take from a pool of one token while a refill voids their batches. Under every interleaving,
/// all used tokens are recorded in the end.
#[test]
fn refill_during_decisions_accounts_for_every_token() {
    model(|| {
        let pool = Arc::new(GuardPool::default());
        let refills = Arc::new(AtomicU32::new(0));
        let blocks = Arc::new(Counters::new(1, 2));
        pool.fill(1, 8.0, 1);
        let decide = |at: usize| {
            let (pool, refills, blocks) =
                (Arc::clone(&pool), Arc::clone(&refills), Arc::clone(&blocks));
            move || {
                let take_one = || {
                    let refill = refills.load(Ordering::Acquire) as u16;
                    let state = blocks.block(at).state(0).unwrap();
                    state.take(refill, true) || pool.take(blocks.block(at), 0, refill, 1, false)
                };
                u32::from(take_one())
            }
        };
        let threads = [thread::spawn(decide(0)), thread::spawn(decide(1))];
        let used = || {
            [0, 1]
                .map(|thread| blocks.block(thread).batch(0).used())
                .into_iter()
                .sum::<u32>()
        };
        let before = used();
        pool.fill(u64::from(1_u32.saturating_sub(before) + 1), 8.0, 1);
        refills.fetch_add(1, Ordering::Release);
        let passed: u32 = threads
            .map(|thread| thread.join().unwrap())
            .into_iter()
            .sum();
        assert_eq!(used(), passed, "every token is accounted for");
    });
}

/// A thread with an empty guard draws on the headroom while the headroom is lost. It takes no token
/// if it sees the refill that takes them away, and a used one is recorded.
#[test]
fn lost_headroom_refills_no_tokens() {
    model(|| {
        let headroom = Arc::new(GuardPool::default());
        let refills = Arc::new(AtomicU32::new(0));
        let counters = Arc::new(Counters::new(2, 1));
        headroom.fill(2, 8.0, 1);
        let decide = {
            let (headroom, refills, counters) = (
                Arc::clone(&headroom),
                Arc::clone(&refills),
                Arc::clone(&counters),
            );
            move || {
                let (guard, block) = (GuardPool::default(), counters.block(0));
                let refill = refills.load(Ordering::Acquire) as u16;
                let has_token = guard.take(block, 0, refill, 1, false)
                    || headroom.take(block, 1, refill, 1, false);
                assert!(
                    refill == 0 || !has_token,
                    "a token after the headroom was lost"
                );
                u32::from(has_token)
            }
        };
        let thread = thread::spawn(decide);
        headroom.fill(0, 0.0, 1);
        refills.fetch_add(1, Ordering::Release);
        let passed = thread.join().unwrap();
        let used = [0, 1].map(|id| counters.block(0).batch(id).used());
        assert_eq!(used, [0, passed], "the token is accounted for");
    });
}

/// A key that changes may be read as halves of two keys, but never as no key: a reader that sees a coherent
/// directive sees halves of stored keys.
#[test]
fn coherent_coin_never_draws_without_a_key() {
    model(|| {
        let shared = Arc::new((AtomicU64::new(0), SharedKey::default()));
        let half = DirectiveWord::new(DropRatio::new(DropRatio::ONE / 2).unwrap())
            .enforced(true)
            .independent(true);
        let reader = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let (word, key) = &*shared;
                for _ in 0..2 {
                    if KeyWord::load(word).directive().uses_trace() {
                        let (k0, k1) = key.load().halves();
                        assert!([1, 3].contains(&k0) && [2, 4].contains(&k1), "{k0} {k1}");
                    }
                }
            })
        };
        let (word, key) = &*shared;
        publish(word, half);
        key.store(DrawKey::of_halves(1, 2));
        publish(word, half.coherent(true));
        key.store(DrawKey::of_halves(3, 4));
        publish(word, half.coherent(true));
        reader.join().unwrap();
    });
}

/// A reader sees a whole directive, never the ratio of one with the mode of another. A reader that sees a
/// guard sees the guard's tokens.
#[test]
fn directive_is_never_torn() {
    model(|| {
        let word = Arc::new(AtomicU64::new(0));
        let pool = Arc::new(GuardPool::default());
        let half = DirectiveWord::new(DropRatio::new(DropRatio::ONE / 2).unwrap())
            .enforced(true)
            .guarded(true);
        let none = DirectiveWord::new(DropRatio::NONE).independent(true);
        let reader = {
            let (word, pool) = (Arc::clone(&word), Arc::clone(&pool));
            thread::spawn(move || {
                for _ in 0..2 {
                    let seen = KeyWord::load(&word).directive();
                    assert!(
                        [DirectiveWord::NOTHING, half, none].contains(&seen),
                        "{seen:?}"
                    );
                    assert!(
                        !seen.is_guarded() || !pool.is_empty(),
                        "a guard without its tokens"
                    );
                }
            })
        };
        pool.fill(5, 5.0, 1);
        publish(&word, half);
        publish(&word, none);
        reader.join().unwrap();
    });
}
