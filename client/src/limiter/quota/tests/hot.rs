//! The path of requests that need no store: no allocation, and bounds.

use allocation_counter::measure;

use super::*;
use crate::limiter::quota::book::{Book, LeasedTokens};
use crate::limiter::quota::held::Waits;
use plimsoll_core::quantity::MonoTime;

#[tokio::test]
async fn leases_and_remembered_refusals_allocate_nothing() {
    let (memory, calls) = (
        Memory::new(),
        [
            hourly("calls", 1_000_000, 1_000),
            hourly("month", 1_000_000, 1_000),
        ],
    );
    let quotas = Quotas::on_memory(&memory, Duration::from_secs(5));
    // More than a quarter of each lease is left, so that no call ahead of need begins.
    while quotas.counters().leased < 1_400 {
        assert_eq!(take(&quotas, &calls, "acme", 1).await, Exact::Granted);
    }
    let spent = [hourly("spent", 1, 1)];
    take(&quotas, &spent, "acme", 2).await;
    let asked = [asked(&calls, "acme", 1)];
    let used = measure(|| {
        for _ in 0..10 {
            assert!(quotas.remembered(&asked).is_none());
            assert!(matches!(
                quotas.take(&asked, true),
                Taking::Ready(Exact::Granted)
            ));
            assert!(remembered(&quotas, &spent, "acme", 2).is_some());
        }
    });
    assert_eq!(used.count_total, 0);
}

#[test]
fn lease_book_is_bounded() {
    let (book, calls) = (
        Book::<Waits>::new(320, 1, TIMEOUT_DEFAULT),
        hourly("calls", 1_000, 100),
    );
    let at = |secs| MonoTime::from_elapsed(Duration::from_secs(secs));
    let enter = |name: &str, ends: u64, now: u64| {
        let (count, ends) = (10, at(ends));
        let id = book.id(&calls, name);
        book.with(&id, at(now), |holding| {
            holding.bank(&calls, LeasedTokens { count, ends }, at(now))
        })
        .is_some()
    };
    let entered = (0..2_000)
        .filter(|at| enter(&format!("tenant-{at}"), 100, 1))
        .count();
    assert_eq!((entered, book.held()), (320, (320, 3_200)));
    let entered = (0..2_000)
        .filter(|at| enter(&format!("late-{at}"), 200, 50))
        .count();
    assert_eq!(entered, 0, "all have tokens");
    let entered = (0..2_000)
        .filter(|at| enter(&format!("later-{at}"), 200, 101))
        .count();
    assert_eq!(
        (entered, book.held().0),
        (320, 320),
        "their leases have ended"
    );
}
