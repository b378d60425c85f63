//! Rollouts with scripted evidence: good evidence moves up, bad evidence moves down, and missing evidence
//! waits.

use plimsoll_core::names::Bucket;
use plimsoll_core::report::Side;
use plimsoll_core::stats::{Bin, Histogram};
use plimsoll_policy::{ONE_CLASS_TENANTS, Source};

use super::query_gates::GateAnswer;
use super::*;

const TICK: Duration = Duration::from_millis(500);

struct Scene {
    durable: DurableState,
    rollouts: Rollouts,
    policy: Policy,
    stale: Option<StaleZone>,
    now: MonoTime,
}

/// The outcomes of both cohorts in one tick.
#[derive(Clone, Copy)]
struct Seen {
    offered: u64,
    bad: u64,
    canary_ms: u64,
    control_ms: u64,
}

const GOOD: Seen = Seen { offered: 500, bad: 0, canary_ms: 20, control_ms: 20 };

impl Scene {
    /// Gates of ten seconds each, and a thousand samples.
    fn new(mode: &str, more: &str) -> Self {
        let text = format!(
            "buckets: {{ b: {{ limit: 1, mode: {mode} }} }}\nrollout:\n  shadow: {{ min_days: 0.0001157, window_h: 0.01 }}\n  \
             canary: {{ min_hours: 0.002777, window_min: 1 }}\n{more}"
        );
        let source = Source { name: "policy.yaml", text: &text };
        let policy =
            Policy::read(source, Source { name: "tenants.yaml", text: ONE_CLASS_TENANTS }).unwrap().0;
        let mut durable = DurableState::first_start();
        let mut rollouts = Rollouts::restored(&durable);
        durable.on_policy(&policy);
        rollouts.close_ended_stages(&mut durable, &policy, MonoTime::ZERO);
        Self { durable, rollouts, policy, stale: None, now: MonoTime::ZERO }
    }

    fn stage(&self) -> Mode {
        self.durable.stages["b"].stage
    }

    /// Runs ticks until the stage changes, and returns their number.
    fn run(&mut self, ticks: u64, seen: Seen) -> u64 {
        let stage = self.stage();
        for tick in 1..=ticks {
            for side in [Side::Canary, Side::Control] {
                let Seen { offered, bad, canary_ms, control_ms } = seen;
                let ms = if side == Side::Canary { canary_ms } else { control_ms };
                let mut latency = Histogram::default();
                latency.add(Bin::of(Duration::from_millis(ms)), if ms > 0 { offered } else { 0 });
                let mut outcomes = Outcomes { offered, latency, ..Outcomes::default() };
                match (self.stage(), side) {
                    (Mode::Shadow, _) | (Mode::Canary, Side::Control) => outcomes.would_dropped = bad,
                    _ => outcomes.refused = bad,
                }
                let cohort = CohortKey { bucket: Bucket::new("b").unwrap(), mode: self.stage(), side };
                self.rollouts.record(&self.durable, "b", &cohort, &outcomes);
            }
            self.now = self.now + TICK;
            self.rollouts.on_tick(&mut self.durable, &self.policy, self.now, TICK, self.stale.as_ref());
            if self.stage() != stage {
                return tick;
            }
        }
        ticks
    }

    fn rollout_policy(&self) -> &RolloutPolicy {
        &self.policy.bucket(&Bucket::new("b").unwrap()).unwrap().rollout
    }

    fn evidence(&self) -> Evidence {
        self.rollouts.evidence(self.now, "b", self.rollout_policy())
    }

    /// Answers the query of a gate.
    fn answer(&mut self, query: &str, value: Result<f64, &str>) {
        let valid_for = Duration::from_secs(90);
        let answer = GateAnswer { at: self.now, valid_for, value: value.map_err(ToOwned::to_owned) };
        self.rollouts.answers.insert(&self.policy, "http://p", query, answer);
    }

    fn cause(&self) -> Cause {
        self.durable.history.back().unwrap().cause
    }
}

#[test]
fn good_evidence_moves_to_enforce_with_auto_promote_and_waits_without() {
    let mut scene = Scene::new("shadow", "  auto_promote: true\n");
    assert_eq!((scene.run(1_000, GOOD), scene.stage(), scene.cause()), (20, Mode::Canary, Cause::Gate));
    assert_eq!((scene.run(1_000, GOOD), scene.stage()), (20, Mode::Enforce));
    let evidence = scene.durable.history.back().unwrap().evidence.clone().unwrap();
    assert_eq!(
        (evidence.with_data_ms, evidence.canary.offered, evidence.canary.refused),
        (10_000, 10_000, 0)
    );
    assert_eq!(evidence.canary.p99_us, evidence.control.p99_us);
    assert_eq!(scene.run(1_000, Seen { bad: 500, ..GOOD }), 1_000, "no evidence leaves enforce");

    let mut scene = Scene::new("shadow", "");
    assert_eq!((scene.run(1_000, GOOD), scene.stage()), (1_000, Mode::Shadow));
    let rollout = &scene.policy.bucket(&Bucket::new("b").unwrap()).unwrap().rollout;
    assert_eq!(scene.rollouts.judge(scene.now, &scene.durable, "b", rollout, None), Some(Judgement::Pass));
    // The file asks for enforce: one gate after the other.
    scene.durable.stages.get_mut("b").unwrap().pending = Some(Mode::Enforce);
    assert_eq!((scene.run(1, GOOD), scene.stage()), (1, Mode::Canary));
    assert_eq!(scene.durable.stages["b"].pending, Some(Mode::Enforce));
    assert_eq!((scene.run(1_000, GOOD), scene.stage()), (20, Mode::Enforce));
    assert_eq!(scene.durable.stages["b"].pending, None);
}

#[test]
fn bad_canary_returns_to_shadow_within_a_tick_and_stays_there() {
    let slow = Seen { canary_ms: 40, ..GOOD };
    for (seen, reason) in
        [(Seen { bad: 1, ..GOOD }, "drop ratio of the canary cohort"), (slow, "p99 of the canary cohort")]
    {
        let mut scene = Scene::new("canary", "");
        scene.durable.stages.get_mut("b").unwrap().pending = Some(Mode::Enforce);
        // Two ticks bring the thousand samples that the gate needs.
        assert_eq!((scene.run(1_000, seen), scene.stage(), scene.cause()), (2, Mode::Shadow, Cause::Breach));
        let last = scene.durable.history.back().unwrap();
        assert!(last.why[0].starts_with(reason), "{:?}", last.why);
        assert_eq!(last.evidence.as_ref().unwrap().canary.offered, 1_000);
        assert_eq!(
            (scene.run(1_000, GOOD), scene.stage()),
            (1_000, Mode::Shadow),
            "the pending mode was dropped"
        );
    }
}

#[test]
fn stale_zone_returns_canary_to_shadow_and_keeps_enforce() {
    let stale = Some(StaleZone { zone: "z".to_owned(), age: Duration::from_secs(61) });
    let mut scene = Scene::new("canary", "");
    scene.run(5, GOOD);
    scene.stale = stale.clone();
    assert_eq!((scene.run(9, GOOD), scene.stage(), scene.cause()), (1, Mode::Shadow, Cause::Stale));
    for mode in ["enforce", "shadow"] {
        let mut scene = Scene::new(mode, "  auto_promote: true\n");
        scene.stale = stale.clone();
        assert_eq!(scene.run(100, GOOD), 100, "{mode}");
    }
}

#[test]
fn missing_evidence_waits() {
    let idle = Seen { offered: 0, ..GOOD };
    let unwatched = Seen { canary_ms: 0, control_ms: 0, ..GOOD };
    let few = Seen { offered: 2, ..GOOD };
    for (mode, seen) in
        [("shadow", idle), ("canary", idle), ("canary", unwatched), ("shadow", few), ("canary", few)]
    {
        let mut scene = Scene::new(mode, "  auto_promote: true\n");
        assert_eq!(scene.run(100, seen), 100, "{mode}");
    }
}

#[test]
fn evidence_of_another_mode_or_during_a_kill_is_dropped() {
    let mut scene = Scene::new("canary", "");
    let bad = Outcomes { offered: 5_000, refused: 5_000, ..Outcomes::default() };
    let cohort = |mode| CohortKey { bucket: Bucket::new("b").unwrap(), mode, side: Side::Canary };
    for mode in [Mode::Shadow, Mode::Enforce] {
        scene.rollouts.record(&scene.durable, "b", &cohort(mode), &bad);
    }
    scene.rollouts.record(&scene.durable, "c", &cohort(Mode::Canary), &bad);
    assert_eq!((scene.run(5, GOOD), scene.stage()), (5, Mode::Canary));
    scene.durable.kill = scene.durable.kill.switched(true);
    scene.rollouts.record(&scene.durable, "b", &cohort(Mode::Canary), &bad);
    assert_eq!((scene.run(5, GOOD), scene.evidence().canary.offered), (5, 2_500));
}

#[test]
fn restart_keeps_time_and_counts() {
    let mut scene = Scene::new("shadow", "  auto_promote: true\n  min_samples: 1\n");
    scene.run(12, GOOD);
    scene.durable.stage_stats = [("b".to_owned(), scene.rollouts.stats["b"].saved())].into();
    let text = serde_json::to_string(&scene.durable).unwrap();
    scene.durable = serde_json::from_str(&text).unwrap();
    scene.rollouts = Rollouts::restored(&scene.durable);
    scene.durable.on_policy(&scene.policy);
    scene.rollouts.close_ended_stages(&mut scene.durable, &scene.policy, scene.now);
    assert_eq!((scene.run(100, GOOD), scene.stage()), (8, Mode::Canary));
}

#[test]
fn stats_are_saved_every_sixty_ticks() {
    let mut scene = Scene::new("shadow", "");
    let mut saves = 0;
    for _ in 0..3 * SAVED_EVERY {
        let cohort = CohortKey { bucket: Bucket::new("b").unwrap(), mode: Mode::Shadow, side: Side::Control };
        let outcomes = Outcomes { offered: 1, ..Outcomes::default() };
        scene.rollouts.record(&scene.durable, "b", &cohort, &outcomes);
        let outcome = scene.rollouts.on_tick(&mut scene.durable, &scene.policy, scene.now, TICK, None);
        saves += u32::from(outcome.saves);
    }
    assert_eq!((saves, scene.durable.stage_stats["b"].cycles), (3, 3 * SAVED_EVERY));
}

const QUERIES: &str = "  auto_promote: true\n  queries:\n    - { name: tickets, url: http://p, query: t, max: 20 }\n    \
                     - { name: budget, url: http://p, query: b, min: 0.1 }\n";

#[test]
fn query_gate_waits_for_its_answer() {
    let mut scene = Scene::new("shadow", QUERIES);
    assert_eq!(scene.run(100, GOOD), 100, "no query is answered");
    scene.answer("t", Ok(3.0));
    assert_eq!(scene.run(20, GOOD), 20, "one answer is missing");
    for value in [Ok(0.05), Ok(f64::NAN), Ok(f64::INFINITY), Err("the query yields no series")] {
        scene.answer("b", value);
        assert_eq!(scene.run(20, GOOD), 20, "{value:?}");
    }
    let queries = scene.evidence().queries;
    assert_eq!((queries[0].value, queries[0].max, queries[0].age_ms), (Some(3.0), Some(20.0), Some(50_000)));
    assert_eq!((queries[1].value, queries[1].min), (None, Some(0.1)));
    assert_eq!(queries[1].unknown.as_deref(), Some("is unknown: the query yields no series"));
    scene.answer("b", Ok(0.5));
    assert_eq!((scene.run(20, GOOD), scene.stage(), scene.cause()), (1, Mode::Canary, Cause::Gate));
    let evidence = scene.durable.history.back().unwrap().evidence.clone().unwrap();
    assert_eq!(evidence.queries.iter().map(|query| query.value).collect::<Vec<_>>(), [Some(3.0), Some(0.5)]);
    // The saved state is restored without changes.
    let text = serde_json::to_string(&scene.durable).unwrap();
    assert_eq!(serde_json::from_str::<DurableState>(&text).unwrap(), scene.durable);
}

#[test]
fn value_beyond_its_bound_ends_the_canary_and_a_lost_answer_waits() {
    let mut scene = Scene::new("canary", QUERIES);
    scene.answer("t", Ok(20.0));
    scene.answer("b", Ok(0.1));
    assert_eq!(scene.run(5, GOOD), 5);
    // The server is lost, and its last answer is too old.
    scene.answer("t", Err("the server cannot be reached"));
    assert_eq!((scene.run(395, GOOD), scene.stage()), (395, Mode::Canary));
    let unknown = scene.evidence().queries[1].unknown.clone().unwrap();
    assert_eq!(unknown, "has an answer 200 s old, older than the maximum of 90 s");
    // The server answers one query again, and then both.
    scene.answer("t", Ok(0.0));
    assert_eq!(scene.run(10, GOOD), 10);
    scene.answer("b", Ok(0.2));
    assert_eq!((scene.run(10, GOOD), scene.stage()), (1, Mode::Enforce));

    let mut scene = Scene::new("canary", QUERIES);
    scene.answer("t", Ok(21.0));
    assert_eq!((scene.run(10, GOOD), scene.stage(), scene.cause()), (1, Mode::Shadow, Cause::Breach));
    let last = scene.durable.history.back().unwrap();
    assert_eq!(last.why, ["tickets is 21, above the maximum of 20"]);
    assert_eq!(last.evidence.as_ref().unwrap().queries[0].value, Some(21.0));
}

#[test]
fn answer_is_forgotten_once_the_policy_drops_its_query() {
    let mut scene = Scene::new("shadow", QUERIES);
    let rollout = scene.rollout_policy().clone();
    scene.answer("t", Ok(1.0));
    scene.answer("b", Ok(1.0));
    scene.answer("not in the policy", Ok(1.0));
    let without = Scene::new("shadow", "");
    scene.rollouts.answers.retain_asked(&without.policy);
    for query in scene.rollouts.evidence(scene.now, "b", &rollout).queries {
        assert_eq!(query.unknown.as_deref(), Some("has no answer yet"), "{}", query.name);
    }
    scene.rollouts.answers.insert(
        &without.policy,
        "http://p",
        "t",
        GateAnswer { at: scene.now, valid_for: TICK, value: Ok(1.0) },
    );
    assert_eq!(
        scene.rollouts.evidence(scene.now, "b", &rollout).queries[0].value,
        None,
        "the policy has no such query"
    );
}
