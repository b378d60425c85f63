//! `kill -9` under load: the store opens every time, and no bucket grants more than its durability
//! allows.

use std::time::Duration;

use plimsoll_testing::quota_crashes::{Crashes, Totals};
use plimsoll_testing::turns::{IDLE, turn};

/// Kills of each durability.
const KILLS: u64 = 5;
/// Number of buckets, and grants before a kill.
const BUCKETS: usize = 200;
const GRANTS: u64 = 1_000;

#[test]
fn always_grants_no_token_twice() {
    let totals = crash("always", Duration::ZERO);
    assert_eq!(totals.over_granted, 0, "{totals:?}");
}

#[test]
fn crash_grants_one_interval_twice_at_most() {
    let totals = crash("interval:100ms", Duration::from_millis(100));
    assert_eq!(totals.beyond, 0, "{totals:?}");
}

#[test]
fn store_without_durability_opens_after_every_kill() {
    // No bucket has more than it had, or less than its takes explain: the audit checks both.
    crash("none", Duration::ZERO);
}

fn crash(durability: &str, loses: Duration) -> Totals {
    let _turn = turn(IDLE);
    let mut crashes = Crashes::new(durability, loses, BUCKETS, 1);
    (0..KILLS).for_each(|_| crashes.crash(GRANTS));
    let totals = crashes.totals;
    assert_eq!(totals.kills, KILLS);
    assert!(totals.granted >= KILLS, "{totals:?}");
    totals
}
