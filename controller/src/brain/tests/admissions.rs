//! The check that the fleet admits what a limit allows, with clients that refuse more than their
//! directives.

use super::scripted::Behind;
use super::*;
use plimsoll_core::stats::AdmissionFigures;

fn figures(fleet: &Fleet) -> AdmissionFigures {
    fleet
        .brain
        .admission_figures()
        .find(|(name, _)| **name == bucket())
        .unwrap()
        .1
}

/// Two zones that offer 3 L, after 30 s; in one of them clients may refuse everything.
fn run(more: &str, behind: Behind) -> Fleet {
    let mut zones = two_zones();
    zones[0].offers("acme", 1_000.0);
    zones[1].puts_behind("acme", behind);
    let mut fleet = Fleet::new(policy(&enforced_with(more)), zones);
    fleet.run(30.0);
    fleet
}

#[test]
fn shortfall_counts_what_the_law_let_pass() {
    for (more, behind, expected) in [
        ("", Behind::Wall, Some(true)),
        ("", Behind::Service, Some(false)),
        // Another limit refuses after the coin.
        ("", Behind::Store, Some(false)),
        (", tenant_limit: 900", Behind::Wall, None),
    ] {
        let figures = figures(&run(more, behind));
        assert_eq!(figures.underadmitting, expected, "{more}: {figures:?}");
    }
    let fleet = run("", Behind::Wall);
    let refused = figures(&fleet).refused_ratio.unwrap();
    let shown = fleet.bucket_status();
    let law = shown.traffic.law_ratio;
    assert_eq!(shown.refusals_10_s.ratio(), refused);
    assert!(
        refused > law.unwrap() + 0.1,
        "{refused} of counts, {law:?} of the law"
    );
}

#[test]
fn killed_or_silent_traffic_is_not_judged() {
    let mut fleet = run("", Behind::Wall);
    fleet.zones[1].cut = true;
    fleet.run(5.0);
    assert_eq!(figures(&fleet).underadmitting, None);
    fleet.zones[1].cut = false;
    fleet.zones[1].reconnects();
    fleet.run(20.0);
    assert_eq!(figures(&fleet).underadmitting, Some(true));
    fleet
        .brain
        .on_policy(policy(&format!("kill_switch: true\n{}", enforced_with(""))));
    fleet.run(2.0);
    assert_eq!(figures(&fleet).underadmitting, None);
}
