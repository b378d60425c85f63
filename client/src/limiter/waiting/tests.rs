//! Tests of waiting under tokio's paused clock: immediate, in order, cancelled, bounded, with a
//! cost and to the deadline.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use plimsoll_core::decision::token_bucket::TokenCount;
use plimsoll_core::decision::{Reason, Verdict};
use plimsoll_core::quantity::DropRatio;
use plimsoll_core::report::Counts;
use tokio::time::{Instant, sleep};

use super::super::tests::with_keys;
use super::queues::{Turn, WAITERS_MAX};
use super::*;
use crate::hot::directive_word::DirectiveWord;
use crate::limiter::{KeyHandle, Limiter, Request};

const MINUTE: Duration = Duration::from_secs(60);

struct Fixture {
    limiter: Limiter,
    key: KeyHandle,
}

fn word(ratio: f64) -> DirectiveWord {
    let ratio = DropRatio::new((ratio * f64::from(DropRatio::ONE)) as u32).unwrap();
    DirectiveWord::new(ratio).independent(true).enforced(true)
}

impl Fixture {
    fn new(word: DirectiveWord) -> Self {
        let limiter = with_keys(64, 7).0;
        let key = limiter.bucket("jobs").unwrap().key("acme");
        let fixture = Self { limiter, key };
        fixture.direct(word);
        fixture
    }

    fn direct(&self, word: DirectiveWord) {
        self.limiter.table.publish(self.key.place.default_key, word);
    }

    fn fill(&self, tokens: f64) {
        self.limiter.table.fill(
            self.key.place.default_key,
            TokenCount::new(tokens),
            TokenCount::new(100.0),
        );
        self.limiter.table.refill();
    }

    fn wait(&self, cost: u32, time: Duration) -> impl Future<Output = Verdict> + use<> {
        let (limiter, key) = (self.limiter.clone(), self.key.clone());
        async move {
            limiter
                .check_async(&key.request().cost(cost).within(time))
                .await
        }
    }

    fn counts(&self) -> Counts {
        self.key.counts()
    }

    /// Waiters now, admitted after a wait, timed out and overflowed.
    fn waits(&self) -> [u64; 4] {
        let waiting = &self.limiter.table.waiting;
        let [admitted, timed_out, overflowed] = waiting.results().map(|(_, count)| count);
        [waiting.waiters(), admitted, timed_out, overflowed]
    }

    async fn start(
        &self,
        n: usize,
        deadline: Duration,
    ) -> (
        Vec<tokio::task::JoinHandle<Verdict>>,
        Arc<Mutex<Vec<usize>>>,
    ) {
        let order: Arc<Mutex<Vec<usize>>> = Arc::default();
        let mut tasks = Vec::new();
        for number in 0..n {
            let (wait, order) = (self.wait(1, deadline), Arc::clone(&order));
            tasks.push(tokio::spawn(async move {
                let verdict = wait.await;
                if verdict.is_admit() {
                    order.lock().unwrap().push(number);
                }
                verdict
            }));
            tokio::task::yield_now().await;
        }
        (tasks, order)
    }
}

#[tokio::test(start_paused = true)]
async fn unrefused_request_never_waits() {
    let guarded = word(0.0).guarded(true);
    for (word, name) in [
        (DirectiveWord::NOTHING, "no directive"),
        (word(0.0), "no ratio"),
        (
            word(1.0).enforced(false),
            "shadow, killed or outside of the canary",
        ),
        (guarded.enforced(false), "an empty guard in shadow"),
    ] {
        let fixture = Fixture::new(word);
        let begun = Instant::now();
        for _ in 0..100 {
            assert!(fixture.wait(1, Duration::ZERO).await.is_admit(), "{name}");
        }
        assert_eq!(
            (begun.elapsed(), fixture.waits()),
            (Duration::ZERO, [0; 4]),
            "{name}"
        );
        assert_eq!(
            (fixture.counts().offered, fixture.counts().admitted()),
            (100, 100),
            "{name}"
        );
    }
    let fixture = Fixture::new(word(1.0));
    assert!(
        fixture
            .limiter
            .check_async(&Request::new("", "acme").within(MINUTE))
            .await
            .is_admit(),
        "an invalid bucket"
    );
}

#[tokio::test(start_paused = true)]
async fn wait_ends_at_its_deadline_with_refusal() {
    for (word, reason) in [
        (word(1.0), Reason::ClusterOverload),
        (word(1.0).at_tenant_limit(true), Reason::TenantLimit),
        (word(0.0).guarded(true), Reason::BurstGuard),
    ] {
        let fixture = Fixture::new(word);
        for deadline in [Duration::ZERO, Duration::from_millis(37), MINUTE] {
            let begun = Instant::now();
            let Verdict::Refuse(refusal) = fixture.wait(1, deadline).await else {
                panic!("admitted")
            };
            assert_eq!(refusal.reason(), reason);
            let late = begun.elapsed().saturating_sub(deadline);
            assert!(
                begun.elapsed() >= deadline && late <= Duration::from_millis(2),
                "{late:?} late"
            );
        }
        assert_eq!(fixture.waits(), [0, 0, 2, 0], "{reason:?}");
        let counts = fixture.counts();
        assert_eq!(counts.offered, counts.refused());
        assert!(
            counts.offered <= 60 * 4 + 4,
            "{} attempts in a minute",
            counts.offered
        );
        assert!(
            counts.offered >= 20,
            "{} attempts in a minute",
            counts.offered
        );
    }
}

#[tokio::test(start_paused = true)]
async fn waiters_are_admitted_in_order() {
    let fixture = Fixture::new(word(0.0).guarded(true));
    fixture.fill(0.0);
    let (tasks, order) = fixture.start(20, MINUTE).await;
    assert_eq!(fixture.waits()[0], 20);
    let refused_first = fixture.counts().offered;
    for round in 1..=5 {
        fixture.fill(4.0);
        sleep(Duration::from_millis(200)).await;
        assert_eq!(
            order.lock().unwrap().len(),
            4 * round,
            "each token admits one"
        );
    }
    for task in tasks {
        assert!(task.await.unwrap().is_admit());
    }
    assert_eq!(*order.lock().unwrap(), (0..20).collect::<Vec<_>>());
    assert_eq!(fixture.waits(), [0, 20, 0, 0]);
    let counts = fixture.counts();
    assert_eq!(counts.admitted(), 20, "counted once each");
    assert!(
        counts.guard_dropped - refused_first.min(counts.guard_dropped) <= 5,
        "looks are not counted"
    );
}

#[tokio::test(start_paused = true)]
async fn dropped_wait_passes_its_place_on() {
    let fixture = Fixture::new(word(0.0).guarded(true));
    fixture.fill(0.0);
    let (mut tasks, order) = fixture.start(10, MINUTE).await;
    // The first, one in the middle, and the last.
    for at in [9, 5, 0] {
        tasks.remove(at).abort();
        sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(fixture.waits(), [7, 0, 0, 0]);
    fixture.fill(7.0);
    for task in tasks {
        assert!(task.await.unwrap().is_admit());
    }
    assert_eq!(*order.lock().unwrap(), [1, 2, 3, 4, 6, 7, 8]);
    assert_eq!(
        (fixture.counts().admitted(), fixture.waits()),
        (7, [0, 7, 0, 0])
    );
    assert_eq!(fixture.waits()[0], 0);
}

#[tokio::test(start_paused = true)]
async fn all_waiters_pass_when_refusals_end() {
    for after in [word(1.0).enforced(false), word(0.0), DirectiveWord::NOTHING] {
        let fixture = Fixture::new(word(1.0));
        let (tasks, order) = fixture.start(1_000, MINUTE).await;
        sleep(Duration::from_secs(1)).await;
        assert_eq!(order.lock().unwrap().len(), 0);
        let ended = Instant::now();
        fixture.direct(after);
        for task in tasks {
            assert!(task.await.unwrap().is_admit());
        }
        assert!(
            ended.elapsed() <= Duration::from_millis(200),
            "{:?}",
            ended.elapsed()
        );
        assert_eq!(*order.lock().unwrap(), (0..1_000).collect::<Vec<_>>());
    }
}

#[tokio::test(start_paused = true)]
async fn surplus_waiter_is_refused_uncounted() {
    let fixture = Fixture::new(word(1.0));
    let (tasks, _) = fixture.start(WAITERS_MAX, MINUTE).await;
    let (begun, offered) = (Instant::now(), fixture.counts().offered);
    assert!(!fixture.wait(1, MINUTE).await.is_admit());
    assert!(
        !fixture
            .limiter
            .check_async(&Request::new("other", "acme").within(MINUTE))
            .await
            .is_admit(),
        "of all keys together"
    );
    assert_eq!(
        (begun.elapsed(), fixture.counts().offered),
        (Duration::ZERO, offered)
    );
    assert_eq!(fixture.waits(), [WAITERS_MAX as u64, 0, 0, 2]);
    tasks.into_iter().for_each(|task| task.abort());
    sleep(Duration::from_millis(1)).await;
    assert_eq!(fixture.waits(), [0, 0, 0, 2]);
}

#[tokio::test(start_paused = true)]
async fn cost_waits_for_all_its_tokens() {
    let fixture = Fixture::new(word(0.0).guarded(true));
    fixture.fill(0.0);
    let wait = tokio::spawn(fixture.wait(10, MINUTE));
    tokio::task::yield_now().await;
    let before = fixture.counts().offered;
    for tokens in [3.0, 6.0, 9.0] {
        fixture.fill(tokens);
        sleep(Duration::from_millis(100)).await;
        assert!(!wait.is_finished());
    }
    assert_eq!(fixture.counts().offered, before, "looks are not counted");
    fixture.fill(10.0);
    assert!(wait.await.unwrap().is_admit());
    assert_eq!(fixture.counts().admitted(), 10);
}

#[tokio::test(start_paused = true)]
async fn keys_wait_apart_with_bounded_paces() {
    let fixture = Fixture::new(word(1.0));
    let blocked = tokio::spawn(fixture.wait(1, MINUTE));
    tokio::task::yield_now().await;
    assert!(
        fixture
            .limiter
            .check_async(&Request::new("free", "acme").within(MINUTE))
            .await
            .is_admit()
    );
    let mut queues = Queues::default();
    for key in 0..10 * super::queues::PACES_MAX as u32 {
        let ticket = queues.enter(key).unwrap();
        let outlook = || pace::Outlook {
            is_enforced: true,
            ratio: 0.0,
            has_tokens: true,
            offered: 0,
        };
        assert_eq!(
            queues.step(MonoTime::ZERO, &ticket, 1, outlook, || Verdict::Admit),
            Turn::Decided(Verdict::Admit)
        );
        queues.leave(&ticket);
    }
    assert!(
        queues.queues.len() <= super::queues::PACES_MAX,
        "{}",
        queues.queues.len()
    );
    blocked.abort();
}
