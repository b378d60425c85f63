//! Rollouts as aggregators see them: operators' moves, automatic moves, and policies that are held back.

mod forecast;
mod recovery;
mod resume;
mod undo;

use plimsoll_core::decision::Mode;
use plimsoll_core::names::Text;
use plimsoll_core::report::{CohortKey, Evidence, Outcomes, Side};

use super::*;
use crate::brain::policies::AckError;
use crate::rollout::Promotion;
use crate::state::Cause;

fn of(mode: &str, more: &str) -> Arc<Policy> {
    policy(&format!(
        "buckets: {{ api: {{ limit: 1000, mode: {mode} }}, \"x/*\": {{ limit: 1 }} }}\nrollout: {{ min_samples: 1 }}\n{more}"
    ))
}

fn text(text: &str) -> Text {
    Text::new(text).unwrap()
}

fn mode(fleet: &Fleet) -> Mode {
    fleet.zones[0].mode()
}

fn report_evidence(fleet: &mut Fleet, mode: Mode, offered: u64, refused: u64) {
    let now = fleet.now();
    for zone in &mut fleet.zones {
        let mut report = zone.report(now);
        let mut evidence = Evidence::default();
        let cohort = CohortKey {
            bucket: bucket(),
            mode,
            side: Side::Canary,
        };
        evidence.add(
            &cohort,
            &Outcomes {
                offered,
                refused,
                ..Outcomes::default()
            },
            1,
        );
        report.evidence = evidence;
        fleet.brain.on_report(now, zone.stream, report).unwrap();
    }
}

#[test]
fn restart_without_reports_ends_the_canary() {
    let mut fleet = Fleet::new(of("canary", ""), two_zones());
    fleet.run(5.0);
    fleet.restarts();
    fleet.zones.iter_mut().for_each(|zone| zone.cut = true);
    fleet.run(60.0);
    assert_eq!(fleet.brain.durable().stages["api"].stage, Mode::Canary);
    fleet.run(1.0);
    assert_eq!(fleet.brain.durable().stages["api"].stage, Mode::Shadow);
    assert_eq!(
        fleet.brain.durable().history.back().unwrap().cause,
        Cause::Stale
    );
}

fn two_buckets(api: &str, web: u32, more: &str) -> Arc<Policy> {
    policy(&format!(
        "{more}buckets: {{ api: {{ {api} }}, web: {{ limit: {web}, mode: enforce }} }}\nrollout: {{ require_gates: false }}\n"
    ))
}

fn held(fleet: &Fleet) -> Vec<String> {
    fleet
        .brain
        .policies
        .held
        .as_ref()
        .map(|held| held.reasons.clone())
        .unwrap_or_default()
}

#[test]
fn policy_is_held_for_its_refusals() {
    let limit = |limit: u32| two_buckets(&format!("limit: {limit}, mode: enforce"), 9, "");
    let good = limit(1_000);
    let mut fleet = settled(Arc::clone(&good));
    for _ in 0..3 {
        assert_eq!(fleet.brain.offer(limit(100)), Offer::Held);
        assert_eq!(
            held(&fleet),
            ["api: 97.5 % of all requests would be refused, 75 % now"]
        );
        fleet.run(1.0);
        assert_eq!(
            (mode(&fleet), fleet.brain.policy().hash()),
            (Mode::Enforce, good.hash())
        );
        check_near(fleet.zones[0].ratio("acme").unwrap(), 0.75, 0.03);
        assert_eq!(fleet.brain.offer(Arc::clone(&good)), Offer::Taken);
        assert!(fleet.brain.policies.held.is_none());
        fleet.run(1.0);
    }
    let small = limit(100);
    fleet.brain.offer(Arc::clone(&small));
    let name = small.hash().to_string();
    let wrong = fleet.brain.acknowledge("0123456789abcdef", small.hash());
    assert!(matches!(wrong, Err(AckError::Other { .. })));
    assert!(matches!(
        fleet.brain.acknowledge(&name, good.hash()),
        Err(AckError::Changed { .. })
    ));
    assert_eq!(fleet.brain.policy().hash(), good.hash());
    assert_eq!(
        fleet.brain.acknowledge(&name, small.hash()),
        Ok(small.hash())
    );
    assert_eq!(fleet.brain.policy().hash(), small.hash());
    assert!(matches!(
        fleet.brain.acknowledge(&name, small.hash()),
        Err(AckError::Nothing { .. })
    ));
    let off = two_buckets("limit: 1, mode: enforce", 9, "guardrails: off\n");
    assert_eq!(fleet.brain.offer(off), Offer::Taken);
}

#[test]
fn kills_of_a_held_policy_apply() {
    let good = two_buckets("limit: 1000, mode: enforce", 9, "");
    let mut fleet = settled(Arc::clone(&good));
    assert_eq!(
        fleet
            .brain
            .offer(two_buckets("limit: 100, mode: shadow", 90, "")),
        Offer::Held
    );
    assert_eq!(
        held(&fleet),
        ["web: limit 9 -> 90 is more than 2 times up"],
        "api is in shadow"
    );
    fleet.tick();
    assert_eq!(
        (mode(&fleet), fleet.brain.policy().hash()),
        (Mode::Shadow, good.hash())
    );
    // The file returns to the current policy. It asks for the same mode as before, so no stage
    // rises.
    fleet.brain.offer(Arc::clone(&good));
    fleet.tick();
    assert_eq!(mode(&fleet), Mode::Shadow);
    let tenants = |names: &str| {
        let text = format!(
            "kill_switch: {}\nbuckets: {{ api: {{ limit: 9 }} }}\n",
            names.is_empty()
        );
        policy_of(&text, &format!("tenants: {{ default: {{}}, {names} }}\n"))
    };
    fleet.brain.on_policy(tenants("acme: {}, free: {}"));
    assert_eq!(fleet.brain.offer(tenants("")), Offer::Held);
    assert_eq!(held(&fleet), ["2 of 3 tenants are removed, more than 20 %"]);
    assert!(fleet.brain.durable().kill.is_killed());
    fleet.brain.offer(tenants("acme: {}, free: {}"));
    assert!(!fleet.brain.durable().kill.is_killed());
}

fn counted(fleet: &mut Fleet) -> u64 {
    fleet.tick();
    let rollout = &fleet.brain.policy().bucket(&bucket()).unwrap().rollout;
    fleet
        .brain
        .rollouts
        .evidence(fleet.now(), "api", rollout)
        .canary
        .offered
}

#[test]
fn evidence_needs_timely_counts_and_limits() {
    let mut fleet = Fleet::new(of("canary", ""), two_zones());
    fleet.run(5.0);
    report_evidence(&mut fleet, Mode::Canary, 10, 0);
    assert_eq!(counted(&mut fleet), 20);
    // One zone was cut off for a while, which is no reason to leave out the other.
    fleet.zones[0].cut = true;
    fleet.run(4.0);
    fleet.zones[0].cut = false;
    report_evidence(&mut fleet, Mode::Canary, 10, 0);
    assert_eq!(counted(&mut fleet), 30);

    let queried =
        "buckets: { api: { limit: { prometheus: { url: http://p, query: q } }, mode: canary } }\n";
    let mut fleet = Fleet::new(policy(queried), two_zones());
    fleet.run(5.0);
    report_evidence(&mut fleet, Mode::Canary, 10, 0);
    assert_eq!(
        counted(&mut fleet),
        0,
        "the limit is unknown, so nothing could be refused"
    );
}

#[test]
fn small_fleet_gate_says_so() {
    let few = "the evidence rests on 2 instances alone";
    let mut fleet = Fleet::new(of("canary", ""), two_zones());
    fleet.run(5.0);
    report_evidence(&mut fleet, Mode::Canary, 10_000, 0);
    fleet.tick();
    let now = fleet.now();
    let mut promotion = Promotion {
        entry: "api",
        ..Promotion::default()
    };
    let refused = fleet.brain.promote(now, promotion).unwrap_err();
    assert!(refused.to_string().contains(few), "{refused}");
    let reason = text("tried elsewhere");
    promotion.force = Some(&reason);
    let change = fleet.brain.promote(now, promotion).unwrap();
    assert!(change.at_s.is_some());
    assert_eq!(change.why.last().unwrap(), few);
    assert_eq!(change.evidence.unwrap().canary.instances, 2);
}
