//! Small models of what threads share without a lock, run in every order in which they may see each other's writes.
//!
//! `cargo test -p plimsoll-client --no-default-features --features loom --lib loom_models`

use loom::sync::Arc;
use loom::thread;

use crate::hot::guard_pool::Pool;
use crate::hot::thread_slots::Seats;
use crate::hot::shared_key::SharedKey;
use crate::hot::thread_counters::{Outcome, Slab};
use crate::hot::sync::{AtomicU32, Ordering};
use crate::hot::directive_word::{SharedWord, Word};
use plimsoll_core::decision::coherent::DrawKey;
use plimsoll_core::decision::Coin;
use plimsoll_core::quantity::DropRatio;

/// Tries every order with up to two switches at points where a thread might have gone on: where a mistake needs more, it is
/// far from likely, and without a bound the number of orders has none.
fn model(run: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(run);
}

/// Two threads come and go; whoever has a seat writes to its cells with a load and a store. Nothing is lost when a seat
/// goes from one to the other.
#[test]
fn what_is_counted_outlives_the_thread_that_counted_it() {
    model(|| {
        let seats = Arc::new(Seats::new());
        let slabs = Arc::new([Slab::new(1), Slab::new(1)]);
        let decide = {
            let (seats, slabs) = (Arc::clone(&seats), Arc::clone(&slabs));
            move || {
                let Some(seat) = seats.take() else { return };
                slabs[seat].add(0, Outcome::Admitted, 1);
                seats.leave(seat);
            }
        };
        let other = thread::spawn(decide.clone());
        decide();
        decide();
        other.join().unwrap();
        assert_eq!(slabs.iter().map(|slab| slab.counts(0).offered).sum::<u64>(), 3);
    });
}

/// Two threads take from a pool of one while a refill makes what they took in advance void. Whatever the order, what is
/// used is known in the end.
#[test]
fn a_refill_that_overtakes_decisions_finds_out_what_they_used() {
    model(|| {
        let pool = Arc::new(Pool::default());
        let refills = Arc::new(AtomicU32::new(0));
        let slabs = Arc::new([Slab::new(1), Slab::new(1)]);
        pool.fill(1, 8.0, 1);
        let decide = |at: usize| {
            let (pool, refills, slabs) = (Arc::clone(&pool), Arc::clone(&refills), Arc::clone(&slabs));
            move || {
                let one = || {
                    let refill = refills.load(Ordering::Acquire) as u16;
                    let row = slabs[at].row(0).unwrap();
                    row.take(refill, true) || pool.take(&slabs[at], 0, refill, 1)
                };
                u32::from(one())
            }
        };
        let threads = [thread::spawn(decide(0)), thread::spawn(decide(1))];
        let used = || slabs.iter().map(|slab| slab.batch(0).used()).sum::<u32>();
        let before = used();
        pool.fill(u64::from(1_u32.saturating_sub(before) + 1), 8.0, 1);
        refills.fetch_add(1, Ordering::Release);
        let passed: u32 = threads.map(|thread| thread.join().unwrap()).into_iter().sum();
        assert_eq!(used(), passed, "every token is accounted for");
    });
}

/// A key that changes may be read as half of one and half of another, and never as none: who sees a word that goes by
/// traces sees halves that somebody has drawn.
#[test]
fn a_coherent_coin_never_draws_without_a_key() {
    model(|| {
        let shared = Arc::new((SharedWord::default(), SharedKey::default()));
        let half = Word::new(DropRatio::new(DropRatio::ONE / 2).unwrap()).enforced(true).coin(Coin::Coherent);
        let reader = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let (word, key) = &*shared;
                for _ in 0..2 {
                    if word.load().goes_by_trace() {
                        let (k0, k1) = key.load().halves();
                        assert!([1, 3].contains(&k0) && [2, 4].contains(&k1), "{k0} {k1}");
                    }
                }
            })
        };
        let (word, key) = &*shared;
        word.store(half);
        key.store(DrawKey::of_halves(1, 2));
        word.store(half.coherent(true));
        key.store(DrawKey::of_halves(3, 4));
        word.store(half.coherent(true));
        reader.join().unwrap();
    });
}

/// A directive is seen whole: never the ratio of one with the mode of another; and who sees a guard in it sees its tokens.
#[test]
fn a_directive_is_never_torn() {
    model(|| {
        let word = Arc::new(SharedWord::default());
        let pool = Arc::new(Pool::default());
        let half = Word::new(DropRatio::new(DropRatio::ONE / 2).unwrap()).enforced(true).guarded(true);
        let none = Word::new(DropRatio::NONE).coin(Coin::Independent);
        let reader = {
            let (word, pool) = (Arc::clone(&word), Arc::clone(&pool));
            thread::spawn(move || {
                for _ in 0..2 {
                    let seen = word.load();
                    assert!([Word::NOTHING, half, none].contains(&seen), "{seen:?}");
                    assert!(!seen.is_guarded() || !pool.is_empty(), "a guard without its tokens");
                }
            })
        };
        pool.fill(5, 5.0, 1);
        word.store(half);
        word.store(none);
        reader.join().unwrap();
    });
}
