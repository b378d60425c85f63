//! Sidecars that share one exact quota never admit more than it has, with any fault meanwhile.

use std::time::Duration;

use plimsoll_testing::quota_sidecars::{Fault, LEASE, MAX, SIDECARS, Sidecars};
use plimsoll_testing::turns::turn;

#[test]
fn sidecars_share_one_quota_through_failures() {
    let _turn = turn(2_000);
    let mut sidecars = Sidecars::start();
    let stalls = Fault::StoreStalls(Duration::from_millis(60));
    for (fault, lost_max) in [
        (Fault::Restarts, 0),
        (stalls, 0),
        (Fault::SidecarKilled, LEASE),
    ] {
        let before = sidecars.counted_as_lost();
        let books = sidecars.use_up(fault);
        let counted = (sidecars.counted_as_lost() - before) as u64;
        assert!(books.admitted <= MAX, "{fault:?}: {books:?}");
        // Tokens may be lost with an answer on its way.
        let lost_max = lost_max + counted + books.unanswered;
        assert!(
            books.lost <= lost_max,
            "{fault:?}: {books:?}, {counted} counted by {SIDECARS} sidecars"
        );
    }
}
