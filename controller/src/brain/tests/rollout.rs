//! What somebody asks for, what follows by itself, and policies that are held back, as aggregators hear of it.

use plimsoll_core::report::{Batches, CohortKey, Evidence, Outcomes, Side};
use plimsoll_core::decision::Mode;
use plimsoll_core::names::Text;

use super::*;
use crate::state::Cause;
use crate::rollout::Finding;

fn of(mode: &str, more: &str) -> Arc<Policy> {
    policy(&format!(
        "buckets: {{ api: {{ limit: 1000, mode: {mode} }}, \"x/*\": {{ limit: 1 }} }}\nrollout: {{ min_samples: 1 }}\n{more}"
    ))
}

fn words(text: &str) -> Text {
    Text::new(text).unwrap()
}

fn mode(fleet: &Fleet) -> Mode {
    fleet.zones[0].mode()
}

/// Every aggregator tells of so many requests of the cohort, and of how many of them were refused.
fn testify(fleet: &mut Fleet, mode: Mode, offered: u64, refused: u64) {
    let now = fleet.now();
    for zone in &mut fleet.zones {
        let mut report = zone.report(now);
        let mut evidence = Evidence::default();
        let stand = CohortKey { bucket: bucket(), mode, side: Side::Canary };
        evidence.add(&stand, &Outcomes { offered, refused, ..Outcomes::default() }, 1);
        report.evidence = Batches::one(report.seq, evidence);
        fleet.brain.on_report(now, zone.stream, report).unwrap();
    }
}

#[test]
fn somebody_promotes_and_aborts_and_is_refused_with_reasons() {
    let mut fleet = Fleet::new(of("shadow", ""), two_zones());
    fleet.run(5.0);
    let now = fleet.now();
    let refused = |brain: &mut Brain, entry: &str, force| brain.promote(now, entry, None, force).unwrap_err();
    assert!(matches!(refused(&mut fleet.brain, "api", None), RolloutError::Gate { to: Mode::Canary, .. }));
    assert!(refused(&mut fleet.brain, "apo", None).to_string().contains("it has `api`, `x/*`"));
    assert!(refused(&mut fleet.brain, "x/1", None).to_string().contains("falls under `x/*`"));

    let change = fleet.brain.promote(now, "api", None, Some(&words("a trial"))).unwrap();
    assert_eq!((change.cause, change.to, change.why[0].as_str()), (Cause::Forced, Mode::Canary, "a trial"));
    assert!(change.why.len() > 1, "what spoke against it is kept: {:?}", change.why);
    assert_eq!(fleet.zones[0].hear(&mut fleet.brain, now), None, "it is written down before it takes effect");
    save(&mut fleet.brain);
    fleet.tick();
    assert_eq!(mode(&fleet), Mode::Canary);
    fleet.brain.promote(now, "api", None, Some(&words("further"))).unwrap();
    assert_eq!(
        refused(&mut fleet.brain, "api", None),
        RolloutError::Reached { entry: "api".to_owned(), stage: Mode::Enforce }
    );
    fleet.tick();
    assert_eq!(mode(&fleet), Mode::Enforce);

    assert_eq!(fleet.brain.abort("api", Some(&words("enough"))).unwrap().unwrap().cause, Cause::Abort);
    fleet.tick();
    assert_eq!((mode(&fleet), fleet.brain.abort("api", None)), (Mode::Shadow, Ok(None)));
    assert!(fleet.brain.durable().history.iter().all(|change| change.at_s.is_some()), "ticks tell the time");

    fleet.brain.on_policy(of("shadow", "kill_switch: true\n"));
    assert_eq!(fleet.brain.promote(now, "api", None, Some(&words("now"))), Err(RolloutError::Killed));
}

#[test]
fn what_was_enforced_before_goes_back_there_in_one_step_if_somebody_says_why() {
    let mut fleet = Fleet::new(of("shadow", ""), two_zones());
    fleet.run(5.0);
    let now = fleet.now();
    let enforce = Some(Mode::Enforce);
    let refused = fleet.brain.promote(now, "api", enforce, None).unwrap_err().to_string();
    assert!(
        refused.contains("from shadow to enforce") && refused.contains("canary is left out"),
        "{refused}"
    );
    let change = fleet.brain.promote(now, "api", enforce, Some(&words("it was before"))).unwrap();
    assert_eq!((change.from, change.to, change.cause), (Some(Mode::Shadow), Mode::Enforce, Cause::Forced));
    assert_eq!(change.why.last().unwrap(), "canary is left out");
    fleet.tick();
    assert_eq!(mode(&fleet), Mode::Enforce);
    for to in [Mode::Shadow, Mode::Canary, Mode::Enforce] {
        let refused = fleet.brain.promote(now, "api", Some(to), Some(&words("again"))).unwrap_err();
        assert_eq!(refused, RolloutError::Reached { entry: "api".to_owned(), stage: Mode::Enforce });
    }
    assert_eq!(fleet.brain.abort("api", None).unwrap().unwrap().from, Some(Mode::Enforce));
}

#[test]
fn where_no_gate_is_required_nobody_has_to_insist() {
    let text = "buckets: { api: { limit: 1000 } }\nrollout: { require_gates: false }\n";
    let mut fleet = Fleet::new(policy(text), two_zones());
    assert_eq!(fleet.brain.promote(at(0), "api", None, None).unwrap().cause, Cause::Promote);
}

#[test]
fn refusals_above_the_gate_return_to_shadow_within_one_cycle() {
    let mut fleet = Fleet::new(of("canary", ""), two_zones());
    fleet.run(5.0);
    assert_eq!(mode(&fleet), Mode::Canary);
    testify(&mut fleet, Mode::Canary, 10_000, 10);
    fleet.tick();
    assert_eq!(mode(&fleet), Mode::Canary, "0.1 % may be");
    testify(&mut fleet, Mode::Shadow, 10_000, 10_000);
    fleet.tick();
    assert_eq!(mode(&fleet), Mode::Canary, "of another stage");
    testify(&mut fleet, Mode::Canary, 10_000, 20);
    fleet.tick();
    assert_eq!(mode(&fleet), Mode::Shadow);
    let last = fleet.brain.durable().history.back().unwrap().clone();
    assert_eq!((last.cause, last.evidence.unwrap().canary.refused), (Cause::Breach, 60));
    fleet.restarts();
    fleet.run(5.0);
    assert_eq!(mode(&fleet), Mode::Shadow);
}

#[test]
fn a_zone_that_is_not_heard_for_a_minute_ends_the_canary_and_one_that_left_does_not() {
    for (file, kept) in [("canary", Mode::Shadow), ("enforce", Mode::Enforce)] {
        let mut fleet = Fleet::new(of(file, ""), two_zones());
        fleet.run(5.0);
        let before = mode(&fleet);
        fleet.zones[1].cut = true;
        fleet.run(59.0);
        assert_eq!(mode(&fleet), before);
        fleet.run(2.0);
        assert_eq!(mode(&fleet), kept);
        fleet.run(10.0);
        assert_eq!(fleet.brain.stale_feeds(fleet.now()).count(), 0, "nothing of it counts any more");
    }
    let mut fleet = Fleet::new(of("canary", ""), two_zones());
    fleet.run(5.0);
    let now = fleet.now();
    let farewell = Report { leaving: true, ..fleet.zones[1].report(now) };
    fleet.brain.on_report(now, fleet.zones[1].stream, farewell).unwrap();
    fleet.zones[1].cut = true;
    fleet.run(120.0);
    assert_eq!(mode(&fleet), Mode::Canary);
}

#[test]
fn a_controller_that_hears_nobody_at_all_ends_the_canary_and_one_that_starts_waits_for_those_it_knew() {
    let mut fleet = Fleet::new(of("canary", ""), two_zones());
    fleet.run(5.0);
    fleet.restarts();
    fleet.zones.iter_mut().for_each(|zone| zone.cut = true);
    fleet.run(60.0);
    assert_eq!(fleet.brain.durable().stages["api"].stage, Mode::Canary);
    fleet.run(1.0);
    assert_eq!(fleet.brain.durable().stages["api"].stage, Mode::Shadow);
    assert_eq!(fleet.brain.durable().history.back().unwrap().cause, Cause::Stale);
}

#[test]
fn a_drastic_policy_waits_and_what_it_lowers_or_kills_does_not() {
    let limit = |limit: u32, mode: &str, more: &str| {
        policy(&format!(
            "{more}buckets: {{ api: {{ limit: {limit}, mode: {mode} }} }}\nrollout: {{ require_gates: false }}\n"
        ))
    };
    let good = limit(1_000, "enforce", "");
    let mut fleet = settled(Arc::clone(&good));
    for round in 0..5 {
        assert_eq!(fleet.brain.offer(limit(100 + round, "enforce", "")), Offer::Held);
        fleet.run(1.0);
        assert_eq!((mode(&fleet), fleet.brain.policy().hash()), (Mode::Enforce, good.hash()));
        check_near(fleet.zones[0].ratio("acme").unwrap(), 0.75, 0.03);
        assert_eq!(fleet.brain.offer(Arc::clone(&good)), Offer::Taken);
        assert!(fleet.brain.held().is_none());
        fleet.run(1.0);
    }
    assert_eq!(fleet.brain.offer(limit(100, "shadow", "")), Offer::Held);
    fleet.tick();
    assert_eq!((mode(&fleet), fleet.brain.policy().hash()), (Mode::Shadow, good.hash()));
    // Back to the file in force: it never asked for anything else, and nothing rises by itself.
    fleet.brain.offer(Arc::clone(&good));
    fleet.tick();
    assert_eq!(mode(&fleet), Mode::Shadow);
    assert_eq!(fleet.brain.offer(limit(100, "enforce", "kill_switch: true\n")), Offer::Held);
    assert!(fleet.brain.durable().kill.is_killed());
    fleet.brain.offer(good);
    assert!(!fleet.brain.durable().kill.is_killed());

    let small = limit(100, "shadow", "");
    fleet.brain.offer(Arc::clone(&small));
    let name = small.hash().to_string();
    assert!(matches!(fleet.brain.acknowledge("0123456789abcdef"), Err(AckError::Other { .. })));
    assert_eq!(fleet.brain.acknowledge(&name), Ok(small.hash()));
    assert_eq!(fleet.brain.policy().hash(), small.hash());
    assert!(matches!(fleet.brain.acknowledge(&name), Err(AckError::Nothing { .. })));
    assert_eq!(fleet.brain.offer(limit(1, "shadow", "guardrails: off\n")), Offer::Taken);
}

#[test]
fn an_extra_gate_is_a_gate_like_any_other() {
    let queries = "queries: [ { name: tickets, url: http://p, query: t, max: 20 } ]";
    let of = |mode: &str, queries: &str| {
        policy(&format!(
            "buckets: {{ api: {{ limit: 1000, mode: {mode} }} }}\nrollout: {{ min_samples: 1, shadow: {{ min_days: 0 }}, \
             canary: {{ min_hours: 0 }}, {queries} }}\n"
        ))
    };
    let says = |fleet: &mut Fleet, said: Result<f64, &str>| {
        let (good_for, said) = (Duration::from_secs(90), said.map_err(ToOwned::to_owned));
        let finding = Finding { at: fleet.now(), good_for, said };
        fleet.brain.on_finding("http://p", "t", finding);
    };
    let mut fleet = Fleet::new(of("shadow", queries), two_zones());
    fleet.run(5.0);
    let promote = |fleet: &mut Fleet| fleet.brain.promote(fleet.now(), "api", None, None);
    let shows = |fleet: &mut Fleet| {
        let now = fleet.now();
        for zone in &mut fleet.zones {
            let mut report = zone.report(now);
            let mut evidence = Evidence::default();
            let stand = CohortKey { bucket: bucket(), mode: Mode::Shadow, side: Side::Control };
            evidence.add(&stand, &Outcomes { offered: 1_000, ..Outcomes::default() }, 1);
            report.evidence = Batches::one(report.seq, evidence);
            fleet.brain.on_report(now, zone.stream, report).unwrap();
        }
        fleet.tick();
    };
    shows(&mut fleet);
    // Not answered yet, lost, bad, and too old.
    for (said, why) in [
        (None, "tickets has not been answered yet"),
        (Some(Err("it is away")), "tickets is not known: it is away"),
        (Some(Ok(20.5)), "tickets is 20.5, at most 20 may be"),
    ] {
        if let Some(said) = said {
            says(&mut fleet, said);
        }
        let RolloutError::Gate { why: against, .. } = promote(&mut fleet).unwrap_err() else { panic!() };
        assert_eq!(against, [why]);
    }
    says(&mut fleet, Ok(20.0));
    fleet.run(91.0);
    assert!(promote(&mut fleet).unwrap_err().to_string().contains("tickets was answered 91 s ago"));
    says(&mut fleet, Ok(20.0));
    let change = promote(&mut fleet).unwrap();
    assert_eq!((change.cause, change.evidence.unwrap().queries[0].value), (Cause::Promote, Some(20.0)));

    // In canary what is lost waits, over a restart too, and what is bad ends it within a cycle.
    fleet.tick();
    assert_eq!(mode(&fleet), Mode::Canary);
    says(&mut fleet, Err("it is away"));
    fleet.run(200.0);
    fleet.restarts();
    fleet.run(10.0);
    assert_eq!(mode(&fleet), Mode::Canary);
    says(&mut fleet, Ok(21.0));
    fleet.tick();
    assert_eq!(mode(&fleet), Mode::Shadow);
    let last = fleet.brain.durable().history.back().unwrap().clone();
    assert_eq!((last.cause, last.why[0].as_str()), (Cause::Breach, "tickets is 21, at most 20 may be"));

    // A policy without it, and the same again: what was answered before counts no more.
    fleet.brain.on_policy(of("shadow", "auto_promote: false"));
    assert!(fleet.brain.exhibit(fleet.now(), "api", &rollout_of(&fleet)).queries.is_empty());
    fleet.brain.on_policy(of("shadow", queries));
    let found = fleet.brain.exhibit(fleet.now(), "api", &rollout_of(&fleet)).queries;
    assert_eq!(found[0].unknown.as_deref(), Some("has not been answered yet"));
}

fn rollout_of(fleet: &Fleet) -> plimsoll_policy::RolloutPolicy {
    fleet.brain.policy().bucket(&bucket()).unwrap().rollout().clone()
}
