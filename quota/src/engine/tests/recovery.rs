//! Look-ups by operators while the disk hangs, and attempts to recover from a disk that fails.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::support::*;
use crate::args::Durability;
use crate::engine::commits::REOPEN_DELAY;
use crate::store::Kind;

/// Far longer than an answer from memory takes.
const SOON: Duration = Duration::from_secs(10);

#[tokio::test]
async fn figures_never_await_a_hanging_disk() {
    let data = tempfile::tempdir().unwrap();
    let (engine, faults) = faulty(&settings(data.path(), Durability::Always));
    run(&engine, reduce(bucket("a", 10), 1)).await.unwrap();
    eventually("size known", async || engine.stats().disk_bytes > 0).await;
    faults.hang(true);
    let (sender, size) = mpsc::channel();
    let asked = engine.clone();
    thread::spawn(move || sender.send(asked.stats().disk_bytes));
    let size = size.recv_timeout(SOON);
    faults.hang(false);
    assert!(size.unwrap() > 0);
}

#[tokio::test]
async fn store_failing_again_reopens_after_a_pause() {
    let data = tempfile::tempdir().unwrap();
    let (engine, faults) = faulty(&settings(data.path(), Durability::Always));
    run(&engine, reduce(bucket("a", 10), 1)).await.unwrap();
    faults.syncs(Some(Sync::Fails));
    assert!(run(&engine, reduce(bucket("a", 10), 1)).await.is_err());
    eventually("opened again", async || faults.reopened() > 0).await;
    let began = Instant::now();
    let before = faults.reopened();
    eventually("opened twice more", async || {
        faults.reopened() >= before + 2
    })
    .await;
    assert!(began.elapsed() >= REOPEN_DELAY);
    faults.syncs(None);
    eventually("ready", async || engine.is_ready()).await;
}

#[tokio::test]
async fn database_panic_is_a_disk_error() {
    let data = tempfile::tempdir().unwrap();
    let (engine, faults) = faulty(&settings(data.path(), Durability::Always));
    run(&engine, reduce(bucket("a", 10), 1)).await.unwrap();
    faults.syncs(Some(Sync::Panics));
    assert!(run(&engine, reduce(bucket("a", 10), 1)).await.is_err());
    eventually("noticed", async || engine.stats().store_errors > 0).await;
    faults.syncs(None);
    eventually("granted", async || {
        run(&engine, reduce(bucket("a", 10), 0)).await.is_ok()
    })
    .await;
    eventually("ready", async || engine.is_ready()).await;
}

#[tokio::test]
async fn settled_debit_survives_a_failed_commit() {
    let data = tempfile::tempdir().unwrap();
    // So long that no operation waits for a commit.
    let interval = Durability::Interval(Duration::from_secs(3_600));
    let (engine, faults) = faulty(&settings(data.path(), interval));
    let a = bucket("a", 100);
    faults.syncs(Some(Sync::FailsLate));
    run(&engine, reduce(a, 10)).await.unwrap();
    engine.shared.want_commit();
    eventually("written", async || faults.commits() == 1).await;
    // The log has 90 tokens; the row of the bucket has 80.
    run(&engine, reduce(a, 10)).await.unwrap();
    let groups = engine.shared.settling.groups();
    engine.shared.settling.want_room();
    eventually("settled", async || engine.shared.settling.groups() > groups).await;
    faults.syncs(None);
    eventually("saved", async || faults.commits() == 2 && engine.is_ready()).await;
    // This empties the log.
    assert_eq!(engine.get(b"a").await.unwrap().len(), 1);
    drop(engine);
    assert_eq!(tokens(&open(data.path(), INTERVAL), a).await, 80);
}

#[tokio::test]
async fn unwritable_rows_reopen_an_unchanged_store() {
    let data = tempfile::tempdir().unwrap();
    let (engine, faults) = faulty(&settings(data.path(), Durability::Always));
    run(&engine, reduce(bucket("a", 10), 1)).await.unwrap();
    faults.settlings_fail(true);
    faults.syncs(Some(Sync::Fails));
    engine.shared.settling.want_room();
    eventually("opened again", async || faults.reopened() > 0).await;
    assert!(!engine.is_ready());
    faults.syncs(None);
    faults.settlings_fail(false);
    eventually("ready", async || engine.is_ready()).await;
    assert_eq!(engine.get(b"a").await.unwrap().len(), 1);
}

#[tokio::test]
async fn room_is_made_once_disk_accepts_rows() {
    let data = tempfile::tempdir().unwrap();
    let (engine, faults) = faulty(&settings(data.path(), Durability::Always));
    let a = bucket("a", 10);
    run(&engine, reduce(a, 1)).await.unwrap();
    faults.settlings_fail(true);
    engine.shared.settling.want_room();
    eventually("noticed", async || engine.stats().store_errors > 0).await;
    faults.settlings_fail(false);
    let row_key = Kind::Tokens(a.rate).row_key(a.key);
    eventually("settled", async || {
        engine.shared.store.get(&row_key).unwrap().is_some()
    })
    .await;
}
