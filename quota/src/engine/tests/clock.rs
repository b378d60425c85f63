//! Contents of a data directory for the server's clock.

use std::fs::{self, File};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::support::*;
use crate::clock::Clock;
use crate::store::OpenError;

const DAYS: Duration = Duration::from_secs(400 * 86_400);

#[test]
fn restart_goes_on_with_the_saved_time() {
    let data = tempfile::tempdir().unwrap();
    File::create(data.path().join("synced"))
        .unwrap()
        .set_modified(SystemTime::now() + DAYS)
        .unwrap();
    let first = Clock::open(data.path()).unwrap().now();
    let ahead = u64::try_from(DAYS.as_millis()).unwrap();
    let unix_ms = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_millis() as u64;
    assert!(
        first.ms.abs_diff(unix_ms + ahead) < 60_000,
        "rows of the earlier version are not ahead"
    );
    assert!(first.wall_ms().abs_diff(unix_ms) < 60_000);
    fs::remove_file(data.path().join("synced")).unwrap();
    let second = Clock::open(data.path()).unwrap().now();
    assert!(second.ms >= first.ms && second.ms - first.ms < 60_000);
    assert_eq!(
        second.ms - first.ms,
        second.wall_ms() - first.wall_ms(),
        "AT keeps its place"
    );
}

#[test]
fn damaged_clock_is_refused() {
    let data = tempfile::tempdir().unwrap();
    let path = data.path().join("clock");
    Clock::open(data.path()).unwrap();
    let good = fs::read(&path).unwrap();
    for at in 0..good.len() {
        for bad in [
            good[..at].to_vec(),
            [&good[..at], &[good[at] ^ 1], &good[at + 1..]].concat(),
        ] {
            fs::write(&path, &bad).unwrap();
            let opened = Clock::open(data.path());
            assert!(
                matches!(opened, Err(OpenError::Damaged { .. })),
                "{}",
                String::from_utf8_lossy(&bad)
            );
        }
    }
    fs::write(&path, good).unwrap();
    Clock::open(data.path()).unwrap();
}

#[tokio::test]
async fn debit_of_the_earlier_version_is_kept() {
    let data = tempfile::tempdir().unwrap();
    let engine = open(data.path(), INTERVAL);
    assert_eq!(tokens(&engine, bucket("a", 10)).await, 10);
    run(&engine, reduce(bucket("a", 10), 4)).await.unwrap();
    engine.close().await.unwrap();
    drop(engine);
    fs::remove_file(data.path().join("clock")).unwrap();
    assert_eq!(
        tokens(&open(data.path(), INTERVAL), bucket("a", 10)).await,
        6
    );
}
