//! Good traffic goes up, bad comes down, and what is missing waits.

use plimsoll_core::names::Bucket;
use plimsoll_core::stats::{Bin, Histogram};
use plimsoll_policy::{ONE_CLASS_TENANTS, Source};
use plimsoll_core::report::Side;

use super::*;

const TICK: Duration = Duration::from_millis(500);

struct Scene {
    durable: Durable,
    rollout: Rollout,
    policy: Policy,
    stale: Option<Stale>,
    now: MonoTime,
}

/// What both sides see in one cycle.
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
        let mut durable = Durable::first_start();
        let mut rollout = Rollout::restored(&durable);
        durable.on_policy(&policy);
        rollout.settle(&mut durable, &policy, MonoTime::ZERO);
        Self { durable, rollout, policy, stale: None, now: MonoTime::ZERO }
    }

    fn stage(&self) -> Mode {
        self.durable.stages["b"].stage
    }

    /// Lets cycles pass until the stage changes; how many it took.
    fn pass(&mut self, cycles: u64, seen: Seen) -> u64 {
        let stage = self.stage();
        for cycle in 1..=cycles {
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
                let stand = Stand { bucket: Bucket::new("b").unwrap(), mode: self.stage(), side };
                self.rollout.enter(&self.durable, "b", &stand, &outcomes);
            }
            self.now = self.now + TICK;
            self.rollout.on_cycle(&mut self.durable, &self.policy, self.now, TICK, self.stale.as_ref());
            if self.stage() != stage {
                return cycle;
            }
        }
        cycles
    }

    fn rollout_policy(&self) -> &RolloutPolicy {
        self.policy.bucket(&Bucket::new("b").unwrap()).unwrap().rollout()
    }

    fn exhibit(&self) -> Exhibit {
        self.rollout.exhibit(self.now, "b", self.rollout_policy())
    }

    /// The query of an extra gate is answered now.
    fn finds(&mut self, query: &str, said: Result<f64, &str>) {
        let good_for = Duration::from_secs(90);
        let finding = Finding { at: self.now, good_for, said: said.map_err(ToOwned::to_owned) };
        self.rollout.find(&self.policy, "http://p", query, finding);
    }

    fn cause(&self) -> Cause {
        self.durable.history.back().unwrap().cause
    }
}

#[test]
fn good_traffic_goes_to_enforce_where_it_may_and_waits_for_a_word_where_not() {
    let mut scene = Scene::new("shadow", "  auto_promote: true\n");
    assert_eq!((scene.pass(1_000, GOOD), scene.stage(), scene.cause()), (20, Mode::Canary, Cause::Gate));
    assert_eq!((scene.pass(1_000, GOOD), scene.stage()), (20, Mode::Enforce));
    let evidence = scene.durable.history.back().unwrap().evidence.clone().unwrap();
    assert_eq!(
        (evidence.with_data_ms, evidence.canary.offered, evidence.canary.refused),
        (10_000, 10_000, 0)
    );
    assert_eq!(evidence.canary.p99_us, evidence.control.p99_us);
    assert_eq!(scene.pass(1_000, Seen { bad: 500, ..GOOD }), 1_000, "enforce is left by nobody's word");

    let mut scene = Scene::new("shadow", "");
    assert_eq!((scene.pass(1_000, GOOD), scene.stage()), (1_000, Mode::Shadow));
    let rollout = scene.policy.bucket(&Bucket::new("b").unwrap()).unwrap().rollout();
    assert_eq!(scene.rollout.judge(scene.now, &scene.durable, "b", rollout, None), Some(Judgement::Pass));
    // The file asks for all of it: one gate after the other.
    scene.durable.stages.get_mut("b").unwrap().pending = Some(Mode::Enforce);
    assert_eq!((scene.pass(1, GOOD), scene.stage()), (1, Mode::Canary));
    assert_eq!(scene.durable.stages["b"].pending, Some(Mode::Enforce));
    assert_eq!((scene.pass(1_000, GOOD), scene.stage()), (20, Mode::Enforce));
    assert_eq!(scene.durable.stages["b"].pending, None);
}

#[test]
fn what_is_bad_in_canary_returns_to_shadow_within_a_cycle_and_stays_there() {
    let slow = Seen { canary_ms: 40, ..GOOD };
    for (seen, reason) in [(Seen { bad: 1, ..GOOD }, "refused / offered"), (slow, "p99 of the canary cohort")]
    {
        let mut scene = Scene::new("canary", "");
        scene.durable.stages.get_mut("b").unwrap().pending = Some(Mode::Enforce);
        // Two cycles bring the thousand samples that it takes to judge at all.
        assert_eq!((scene.pass(1_000, seen), scene.stage(), scene.cause()), (2, Mode::Shadow, Cause::Breach));
        let last = scene.durable.history.back().unwrap();
        assert!(last.why[0].starts_with(reason), "{:?}", last.why);
        assert_eq!(last.evidence.as_ref().unwrap().canary.offered, 1_000);
        assert_eq!((scene.pass(1_000, GOOD), scene.stage()), (1_000, Mode::Shadow), "nobody has asked again");
    }
}

#[test]
fn a_stale_zone_returns_canary_to_shadow_and_leaves_enforce_alone() {
    let stale = Some(Stale { zone: "z".to_owned(), age: Duration::from_secs(61) });
    let mut scene = Scene::new("canary", "");
    scene.pass(5, GOOD);
    scene.stale = stale.clone();
    assert_eq!((scene.pass(9, GOOD), scene.stage(), scene.cause()), (1, Mode::Shadow, Cause::Stale));
    for mode in ["enforce", "shadow"] {
        let mut scene = Scene::new(mode, "  auto_promote: true\n");
        scene.stale = stale.clone();
        assert_eq!(scene.pass(100, GOOD), 100, "{mode}");
    }
}

#[test]
fn what_is_missing_waits() {
    let nobody = Seen { offered: 0, ..GOOD };
    let unwatched = Seen { canary_ms: 0, control_ms: 0, ..GOOD };
    let few = Seen { offered: 2, ..GOOD };
    for (mode, seen) in
        [("shadow", nobody), ("canary", nobody), ("canary", unwatched), ("shadow", few), ("canary", few)]
    {
        let mut scene = Scene::new(mode, "  auto_promote: true\n");
        assert_eq!(scene.pass(100, seen), 100, "{mode}");
    }
}

#[test]
fn evidence_of_another_mode_or_of_a_kill_is_none() {
    let mut scene = Scene::new("canary", "");
    let bad = Outcomes { offered: 5_000, refused: 5_000, ..Outcomes::default() };
    let stand = |mode| Stand { bucket: Bucket::new("b").unwrap(), mode, side: Side::Canary };
    for mode in [Mode::Shadow, Mode::Enforce] {
        scene.rollout.enter(&scene.durable, "b", &stand(mode), &bad);
    }
    scene.rollout.enter(&scene.durable, "c", &stand(Mode::Canary), &bad);
    assert_eq!((scene.pass(5, GOOD), scene.stage()), (5, Mode::Canary));
    scene.durable.kill = scene.durable.kill.turned(true);
    scene.rollout.enter(&scene.durable, "b", &stand(Mode::Canary), &bad);
    assert_eq!((scene.pass(5, GOOD), scene.exhibit().canary.offered), (5, 2_500));
}

#[test]
fn a_restart_goes_on_with_the_time_and_the_counts() {
    let mut scene = Scene::new("shadow", "  auto_promote: true\n  min_samples: 1\n");
    scene.pass(12, GOOD);
    scene.durable.trials = [("b".to_owned(), scene.rollout.trials["b"].saved())].into();
    let text = serde_json::to_string(&scene.durable).unwrap();
    scene.durable = serde_json::from_str(&text).unwrap();
    scene.rollout = Rollout::restored(&scene.durable);
    scene.durable.on_policy(&scene.policy);
    scene.rollout.settle(&mut scene.durable, &scene.policy, scene.now);
    assert_eq!((scene.pass(100, GOOD), scene.stage()), (8, Mode::Canary));
}

#[test]
fn what_was_seen_is_written_down_now_and_then() {
    let mut scene = Scene::new("shadow", "");
    let mut saves = 0;
    for _ in 0..3 * SAVED_EVERY {
        let stand = Stand { bucket: Bucket::new("b").unwrap(), mode: Mode::Shadow, side: Side::Control };
        let outcomes = Outcomes { offered: 1, ..Outcomes::default() };
        scene.rollout.enter(&scene.durable, "b", &stand, &outcomes);
        let cycle = scene.rollout.on_cycle(&mut scene.durable, &scene.policy, scene.now, TICK, None);
        saves += u32::from(cycle.saves);
    }
    assert_eq!((saves, scene.durable.trials["b"].cycles), (3, 3 * SAVED_EVERY));
}

const EXTRA: &str = "  auto_promote: true\n  queries:\n    - { name: tickets, url: http://p, query: t, max: 20 }\n    \
                     - { name: budget, url: http://p, query: b, min: 0.1 }\n";

#[test]
fn an_extra_gate_waits_for_its_answer_and_then_passes_or_not() {
    let mut scene = Scene::new("shadow", EXTRA);
    assert_eq!(scene.pass(100, GOOD), 100, "nobody has answered");
    scene.finds("t", Ok(3.0));
    assert_eq!(scene.pass(20, GOOD), 20, "one is missing");
    for said in [Ok(0.05), Ok(f64::NAN), Ok(f64::INFINITY), Err("the query yields no series")] {
        scene.finds("b", said);
        assert_eq!(scene.pass(20, GOOD), 20, "{said:?}");
    }
    let queries = scene.exhibit().queries;
    assert_eq!((queries[0].value, queries[0].max, queries[0].age_ms), (Some(3.0), Some(20.0), Some(50_000)));
    assert_eq!((queries[1].value, queries[1].min), (None, Some(0.1)));
    assert_eq!(queries[1].unknown.as_deref(), Some("is not known: the query yields no series"));
    scene.finds("b", Ok(0.5));
    assert_eq!((scene.pass(20, GOOD), scene.stage(), scene.cause()), (1, Mode::Canary, Cause::Gate));
    let evidence = scene.durable.history.back().unwrap().evidence.clone().unwrap();
    assert_eq!(evidence.queries.iter().map(|query| query.value).collect::<Vec<_>>(), [Some(3.0), Some(0.5)]);
    // What was written down is read again as it was.
    let text = serde_json::to_string(&scene.durable).unwrap();
    assert_eq!(serde_json::from_str::<Durable>(&text).unwrap(), scene.durable);
}

#[test]
fn a_known_breach_of_an_extra_gate_ends_the_canary_and_a_lost_answer_waits() {
    let mut scene = Scene::new("canary", EXTRA);
    scene.finds("t", Ok(20.0));
    scene.finds("b", Ok(0.1));
    assert_eq!(scene.pass(5, GOOD), 5);
    // The server is lost, and what it said last is too old.
    scene.finds("t", Err("the server cannot be reached"));
    assert_eq!((scene.pass(395, GOOD), scene.stage()), (395, Mode::Canary));
    let unknown = scene.exhibit().queries[1].unknown.clone().unwrap();
    assert_eq!(unknown, "was answered 200 s ago, and that counts for 90 s");
    // It is back with one of them, and then with both.
    scene.finds("t", Ok(0.0));
    assert_eq!(scene.pass(10, GOOD), 10);
    scene.finds("b", Ok(0.2));
    assert_eq!((scene.pass(10, GOOD), scene.stage()), (1, Mode::Enforce));

    let mut scene = Scene::new("canary", EXTRA);
    scene.finds("t", Ok(21.0));
    assert_eq!((scene.pass(10, GOOD), scene.stage(), scene.cause()), (1, Mode::Shadow, Cause::Breach));
    let last = scene.durable.history.back().unwrap();
    assert_eq!(last.why, ["tickets is 21, at most 20 may be"]);
    assert_eq!(last.evidence.as_ref().unwrap().queries[0].value, Some(21.0));
}

#[test]
fn a_query_that_is_new_in_the_policy_is_awaited_and_one_that_is_gone_is_forgotten() {
    let mut scene = Scene::new("shadow", EXTRA);
    let rollout = scene.rollout_policy().clone();
    scene.finds("t", Ok(1.0));
    scene.finds("b", Ok(1.0));
    scene.finds("nobody asks", Ok(1.0));
    let without = Scene::new("shadow", "");
    scene.rollout.on_policy(&without.policy);
    for query in scene.rollout.exhibit(scene.now, "b", &rollout).queries {
        assert_eq!(query.unknown.as_deref(), Some("has not been answered yet"), "{}", query.name);
    }
    scene.rollout.find(
        &without.policy,
        "http://p",
        "t",
        Finding { at: scene.now, good_for: TICK, said: Ok(1.0) },
    );
    assert_eq!(scene.rollout.exhibit(scene.now, "b", &rollout).queries[0].value, None, "nobody asks");
}
