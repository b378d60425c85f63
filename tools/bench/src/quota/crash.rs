//! `kill -9` under load, 200 times for each durability: the double grants.

use std::time::Duration;

use plimsoll_testing::quota_crashes::Crashes;

use crate::measure::report::Report;

const KILLS: u64 = 200;
/// Number of buckets, and about as many grants before a kill.
const BUCKETS: usize = 2_000;
const GRANTS: u64 = 20_000;

pub(super) fn measure(report: &mut Report) {
    for (durability, loses) in [("always", 0), ("interval:100ms", 100)] {
        let mut crashes = Crashes::new(durability, Duration::from_millis(loses), BUCKETS, 7);
        (0..KILLS).for_each(|_| crashes.crash(GRANTS));
        let totals = crashes.totals;
        let figure = format!(
            "{} of {} granted ({} may be; {} more than may be; {} without a reply)",
            totals.over_granted, totals.granted, totals.allowed, totals.beyond, totals.unanswered
        );
        let what = format!("`{durability}`, {KILLS} kills under load: tokens granted twice");
        if loses == 0 {
            report.row(&what, "0", figure, totals.over_granted == 0);
        } else {
            report.row(&what, "those of one interval", figure, totals.beyond == 0);
        }
        let figure = format!(
            "{} of {KILLS}, the slowest in {:.2} s",
            totals.kills,
            totals.slowest_start.as_secs_f64()
        );
        report.row(
            &format!("`{durability}`: starts after a kill"),
            "all",
            figure,
            totals.kills == KILLS,
        );
    }
}
