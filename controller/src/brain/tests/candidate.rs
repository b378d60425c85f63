//! The candidate limit: it counts the requests that it would refuse, and refuses none.

use super::*;
use crate::admin::status::CandidateStatus;

fn with_candidate(candidate: &str) -> Fleet {
    settled(policy(&enforced_with(&format!(", candidate: {candidate}"))))
}

fn figures(fleet: &Fleet) -> CandidateStatus {
    fleet.bucket_status().candidate.unwrap()
}

#[test]
fn candidate_counts_refusals_and_refuses_nothing() {
    for (candidate, due) in [
        ("2000", 0.5),
        ("500", 0.875),
        ("1000", 0.75),
        ("8000", 0.0),
        ("0", 1.0),
    ] {
        let mut fleet = with_candidate(candidate);
        let plain = settled(enforced());
        assert_eq!(
            fleet.zones[0].ratio("acme"),
            plain.zones[0].ratio("acme"),
            "{candidate} changes no ratio"
        );
        let before = figures(&fleet);
        check_near(before.drop_ratio, due, 0.01);
        fleet.run(20.0);
        let after = figures(&fleet);
        let offered = (after.offered - before.offered) as f64;
        check_near(offered, 80_000.0, 2_000.0);
        check_near(
            (after.would_dropped - before.would_dropped) as f64 / offered,
            due,
            0.01,
        );
    }
}

#[test]
fn only_a_changed_candidate_begins_anew() {
    let mut fleet = with_candidate("500");
    let before = figures(&fleet);
    fleet
        .brain
        .on_policy(policy(&enforced_with(", candidate: 500, burst_s: 0.3")));
    assert_eq!(figures(&fleet), before);
    fleet
        .brain
        .on_policy(policy(&enforced_with(", candidate: 600")));
    assert_eq!(
        (figures(&fleet).offered, figures(&fleet).limit_rps),
        (0, 600.0)
    );
    fleet.brain.on_policy(enforced());
    assert_eq!(fleet.bucket_status().candidate, None);
}

#[test]
fn counts_after_silence_spare_the_candidate() {
    let mut fleet = with_candidate("2000");
    fleet.zones[0].cut = true;
    fleet.run(10.0);
    fleet.zones[0].cut = false;
    fleet.run(1.0);
    check_near(figures(&fleet).drop_ratio, 0.5, 0.05);
}
