//! The return after kills to the stages before them, and evidence that an operator begins anew.

use super::*;
use crate::admin::rollout_routes;
use crate::rollout::{Promotion, RolloutError, Rollouts};
use crate::state::Command;
use plimsoll_core::kill::Scope;

/// Buckets in shadow, canary and enforce, and a pattern.
fn stages(limit: u32, web: &str) -> String {
    format!(
        "buckets:\n  api: {{ limit: {limit}, mode: enforce }}\n  idle: {{ limit: 9, mode: shadow }}\n  \
         web: {{ limit: 9, mode: {web} }}\n  \"p/*\": {{ limit: 9, mode: enforce }}\nrollout: {{ require_gates: false }}\n"
    )
}

fn started() -> Fleet {
    settled(policy(&stages(1_000, "canary")))
}

fn alone(name: &str) -> Scope {
    Scope::Bucket(Bucket::new(name).unwrap())
}

fn kill(fleet: &mut Fleet, scope: &Scope) {
    fleet.brain.on_kill(scope, Command::default()).unwrap();
    fleet.tick();
}

fn ends(fleet: &mut Fleet, scope: &Scope) {
    let now = fleet.now();
    fleet.brain.on_kill_ends(now, scope);
    fleet.tick();
}

fn returning(fleet: &Fleet) -> Vec<&str> {
    fleet.brain.durable().returning().collect()
}

fn resume(fleet: &mut Fleet, name: &str) -> Result<Mode, RolloutError> {
    let to = Rollouts::resumed_stage(fleet.brain.durable(), fleet.brain.policy(), name)?;
    let change = fleet.brain.resume(name, to, &text("the fault is gone"))?;
    fleet.tick();
    assert_eq!((change.to, change.cause), (to, Cause::Resume));
    Ok(to)
}

#[test]
fn entries_return_to_their_stages() {
    let mut fleet = started();
    let before = fleet.brain.durable().stages.clone();
    let stages = |fleet: &Fleet| -> Vec<Mode> {
        let stages = fleet.brain.durable().stages.values();
        stages.map(|stage| stage.stage).collect()
    };
    kill(&mut fleet, &Scope::Fleet);
    // A restart forgets nothing, and neither does another kill.
    fleet.restarts();
    kill(&mut fleet, &alone("api"));
    assert_eq!(resume(&mut fleet, "api"), Err(RolloutError::Killed));
    ends(&mut fleet, &Scope::Fleet);
    assert_eq!(resume(&mut fleet, "api"), Err(RolloutError::Killed));
    ends(&mut fleet, &alone("api"));
    kill(&mut fleet, &Scope::Fleet);
    ends(&mut fleet, &Scope::Fleet);
    assert_eq!(stages(&fleet), [Mode::Shadow; 4]);
    assert_eq!(returning(&fleet), ["api", "p/*", "web"]);
    assert_eq!(mode(&fleet), Mode::Shadow);
    for (name, stage) in &before {
        let resumed = resume(&mut fleet, name);
        if name == "idle" {
            assert!(matches!(resumed, Err(RolloutError::NotKilled { .. })));
        } else {
            assert_eq!(resumed, Ok(stage.stage), "{name}");
        }
    }
    let before: Vec<Mode> = before.values().map(|stage| stage.stage).collect();
    assert_eq!((stages(&fleet), returning(&fleet)), (before, vec![]));
    fleet.run(1.0);
    assert_eq!(mode(&fleet), Mode::Enforce);
}

/// Of many entries, too: the history has room for 200 changes.
#[test]
fn history_need_not_hold_all_kills() {
    let buckets: String = (0..300)
        .map(|number| format!("b{number}: {{ limit: 1, mode: enforce }}, "))
        .collect();
    let policy = policy(&format!(
        "buckets: {{ {buckets} api: {{ limit: 1 }} }}\nrollout: {{ require_gates: false }}\n"
    ));
    let mut fleet = Fleet::new(policy, two_zones());
    kill(&mut fleet, &Scope::Fleet);
    ends(&mut fleet, &Scope::Fleet);
    assert_eq!(returning(&fleet).len(), 300);
    assert_eq!(resume(&mut fleet, "b0"), Ok(Mode::Enforce));
}

#[test]
fn earlier_kills_are_told_apart() {
    let mut fleet = started();
    kill(&mut fleet, &alone("web"));
    ends(&mut fleet, &alone("web"));
    kill(&mut fleet, &Scope::Fleet);
    let has_ended = |name| fleet.brain.durable().before_kill(name).unwrap().ended;
    assert_eq!(["api", "p/*", "web"].map(has_ended), [false, false, true]);
}

#[test]
fn resume_respects_the_policy_file() {
    let mut fleet = started();
    kill(&mut fleet, &Scope::Fleet);
    // The limit of one entry changes in the kill, and the mode of another.
    fleet.brain.on_policy(policy(&stages(2_000, "shadow")));
    ends(&mut fleet, &Scope::Fleet);
    let edited = resume(&mut fleet, "api").unwrap_err();
    assert!(
        matches!(edited, RolloutError::Edited { .. })
            && edited
                .to_string()
                .contains("`plimsoll rollout promote api`"),
        "{edited}"
    );
    let lowered = resume(&mut fleet, "web");
    assert!(matches!(lowered, Err(RolloutError::Lowered { .. })));
    assert_eq!(resume(&mut fleet, "p/*"), Ok(Mode::Enforce));

    // Weights are shared by all entries with a limit.
    let mut fleet = started();
    kill(&mut fleet, &Scope::Fleet);
    ends(&mut fleet, &Scope::Fleet);
    let tenants = "tenants: { default: {}, acme: { weight: 9 } }\n";
    fleet
        .brain
        .on_policy(policy_of(&stages(1_000, "canary"), tenants));
    let edited = resume(&mut fleet, "web");
    assert!(matches!(edited, Err(RolloutError::Edited { .. })));
}

#[test]
fn moves_after_a_kill_count_more() {
    let mut fleet = started();
    kill(&mut fleet, &Scope::Fleet);
    ends(&mut fleet, &Scope::Fleet);
    assert!(fleet.brain.abort("web", None).unwrap().is_some());
    assert!(fleet.brain.abort("web", None).unwrap().is_none());
    let now = fleet.now();
    let promotion = Promotion {
        entry: "api",
        to: Some(Mode::Canary),
        force: Some(&text("a test")),
        reason: None,
    };
    fleet.brain.promote(now, promotion).unwrap();
    assert_eq!(returning(&fleet), ["p/*"]);
    let unknown = resume(&mut fleet, "ap");
    assert!(matches!(unknown, Err(RolloutError::Unknown { .. })));
}

#[test]
fn bucket_killed_alone_follows_its_pattern_again() {
    let bucket = Bucket::new("p/1").unwrap();
    let mode = |fleet: &Fleet| {
        let durable = fleet.brain.durable();
        durable.mode_of(&bucket, durable.stages["p/*"].stage)
    };
    let mut fleet = started();
    kill(&mut fleet, &alone("p/1"));
    assert_eq!(resume(&mut fleet, "p/1"), Err(RolloutError::Killed));
    ends(&mut fleet, &alone("p/1"));
    assert_eq!(
        (mode(&fleet), returning(&fleet)),
        (Mode::Shadow, vec!["p/1"])
    );
    assert_eq!(resume(&mut fleet, "p/1"), Ok(Mode::Enforce));
    assert_eq!((mode(&fleet), returning(&fleet)), (Mode::Enforce, vec![]));

    // Not above the stage that it had, though its pattern is.
    let mut fleet = started();
    fleet.brain.abort("p/*", None).unwrap();
    let now = fleet.now();
    let force = text("a test");
    let promotion = Promotion {
        entry: "p/*",
        force: Some(&force),
        ..Promotion::default()
    };
    let promote = |fleet: &mut Fleet| fleet.brain.promote(now, promotion).unwrap();
    promote(&mut fleet);
    kill(&mut fleet, &alone("p/1"));
    promote(&mut fleet);
    ends(&mut fleet, &alone("p/1"));
    let raised = resume(&mut fleet, "p/1");
    assert!(
        matches!(raised, Err(RolloutError::Raised { .. })),
        "{raised:?}"
    );
    assert_eq!(mode(&fleet), Mode::Shadow);
}

#[test]
fn reset_begins_evidence_anew() {
    let mut fleet = Fleet::new(of("canary", ""), two_zones());
    fleet.run(5.0);
    report_evidence(&mut fleet, Mode::Canary, 10, 0);
    assert_eq!(counted(&mut fleet), 20);
    let change = fleet.brain.reset("api", &text("a new build")).unwrap();
    let (from, why) = (change.from, &change.why);
    assert_eq!((from, change.to), (Some(Mode::Canary), Mode::Canary));
    assert_eq!((change.cause, &why[0][..]), (Cause::Reset, "a new build"));
    assert_eq!(change.evidence.unwrap().canary.offered, 20);
    assert_eq!(counted(&mut fleet), 0);
    let mut fleet = settled(enforced());
    let refused = fleet.brain.reset("api", &text("x"));
    assert!(matches!(refused, Err(RolloutError::NoGate { .. })));
}

#[test]
fn limit_of_zero_refuses_all_after_a_kill() {
    let mut fleet = started();
    fleet.brain.on_policy(policy(&stages(0, "enforce")));
    kill(&mut fleet, &Scope::Fleet);
    let now = fleet.now();
    let returning = rollout_routes::returning(&mut fleet.brain, now);
    let api = returning.iter().find(|row| row.entry == "api").unwrap();
    assert_eq!((api.killed, api.would_refuse), (true, Some(1.0)));
}
