//! Rollouts with scripted evidence: good evidence moves up, bad evidence moves down, and missing evidence
//! waits.

use std::sync::Arc;

use plimsoll_core::names::{Bucket, Text};
use plimsoll_core::quantity::Rate;
use plimsoll_core::report::Side;
use plimsoll_core::stats::Bin;
use plimsoll_policy::ONE_CLASS_TENANTS;

use super::query_gates::GateAnswer;
use super::*;
use crate::brain::tests::policy_of;
use crate::state::Change;

const TICK: Duration = Duration::from_millis(500);

struct Scene {
    durable: DurableState,
    rollouts: Rollouts,
    policy: Arc<Policy>,
    stale: Option<StaleZone>,
    now: MonoTime,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    offered: u64,
    bad: u64,
    canary_ms: u64,
    control_ms: u64,
    /// True if requests without a latency are reported as not observable.
    is_behind_proxy: bool,
}

const GOOD: Seen = Seen {
    offered: 500,
    bad: 0,
    canary_ms: 20,
    control_ms: 20,
    is_behind_proxy: false,
};
const PROXIED: Seen = Seen {
    canary_ms: 0,
    control_ms: 0,
    is_behind_proxy: true,
    ..GOOD
};
const NOT_COMPARED: &str = "latency is not compared: no instance reports it";

fn policy(bucket: &str, more: &str, tenants: &str) -> Arc<Policy> {
    let text = format!(
        "buckets: {{ b: {{ {bucket} }} }}\nrollout:\n  shadow: {{ min_days: 0.0001157, window_h: 0.01 }}\n  \
         canary: {{ min_hours: 0.002777, window_min: 1 }}\n{more}"
    );
    policy_of(&text, tenants)
}

impl Scene {
    fn new(mode: &str, more: &str) -> Self {
        Self::of(policy(
            &format!("limit: 100, mode: {mode}"),
            more,
            ONE_CLASS_TENANTS,
        ))
    }

    fn of(policy: Arc<Policy>) -> Self {
        let mut durable = DurableState::first_start();
        let mut rollouts = Rollouts::restored(&durable);
        durable.on_policy(&policy);
        rollouts.close_ended_stages(&mut durable, &policy, MonoTime::ZERO);
        Self {
            durable,
            rollouts,
            policy,
            stale: None,
            now: MonoTime::ZERO,
        }
    }

    fn edit(&mut self, policy: Arc<Policy>) {
        self.durable.on_policy(&policy);
        self.rollouts
            .on_edit(&mut self.durable, &self.policy, &policy, 0);
        self.close();
        self.policy = policy;
    }

    fn moves(&mut self, limit: f64) {
        let bucket = Bucket::new("b").unwrap();
        let moving = MovingLimit {
            entry: "b",
            bucket: &bucket,
            limit: Rate::new(limit).unwrap(),
        };
        self.rollouts
            .on_limit(&mut self.durable, &self.policy, moving);
        self.close();
    }

    fn stage(&self) -> Mode {
        self.durable.stages["b"].stage
    }

    fn run(&mut self, ticks: u64, seen: Seen) -> u64 {
        let stage = self.stage();
        for tick in 1..=ticks {
            for side in [Side::Canary, Side::Control] {
                let ms = match side {
                    Side::Canary => seen.canary_ms,
                    Side::Control => seen.control_ms,
                };
                let mut outcomes = Outcomes {
                    offered: seen.offered,
                    ..Outcomes::default()
                };
                if ms > 0 {
                    let bin = Bin::of(Duration::from_millis(ms));
                    outcomes.latency.add(bin, seen.offered);
                }
                match (self.stage(), side) {
                    (Mode::Shadow, _) | (Mode::Canary, Side::Control) => {
                        outcomes.would_dropped = seen.bad
                    }
                    _ => outcomes.refused = seen.bad,
                }
                if seen.is_behind_proxy && ms == 0 {
                    outcomes.unobserved = seen.offered - outcomes.refused;
                }
                self.record("b", self.stage(), side, &outcomes);
            }
            self.now = self.now + TICK;
            self.rollouts.on_tick(
                &mut self.durable,
                &self.policy,
                self.now,
                TICK,
                self.stale.as_ref(),
            );
            if self.stage() != stage {
                return tick;
            }
        }
        ticks
    }

    fn rollout_policy(&self) -> &RolloutPolicy {
        let bucket = Bucket::new("b").unwrap();
        &self.policy.bucket(&bucket).unwrap().rollout
    }

    fn evidence(&self) -> Evidence {
        self.rollouts.evidence(self.now, "b", self.rollout_policy())
    }

    fn answer(&mut self, query: &str, value: Result<f64, &str>) {
        let valid_for = Duration::from_secs(90);
        let answer = GateAnswer {
            at: self.now,
            valid_for,
            value: value.map_err(ToOwned::to_owned),
        };
        self.rollouts
            .answers
            .insert(&self.policy, "http://p", query, answer);
    }

    fn last(&self) -> &Change {
        self.durable.history.back().unwrap()
    }

    fn cause(&self) -> Cause {
        self.last().cause
    }

    fn record(&mut self, entry: &str, mode: Mode, side: Side, outcomes: &Outcomes) {
        let bucket = Bucket::new("b").unwrap();
        let cohort = CohortKey { bucket, mode, side };
        self.rollouts
            .record(&self.durable, entry, &cohort, outcomes);
    }

    fn enter(&mut self, to: Mode, cause: Cause) {
        self.durable.enter_stage("b", to, cause, Vec::new());
    }

    fn close(&mut self) {
        self.rollouts
            .close_ended_stages(&mut self.durable, &self.policy, self.now);
    }

    fn promote_ready(&mut self, ready: &Ready) -> bool {
        self.rollouts.promote_ready(&mut self.durable, ready)
    }

    fn promote(&mut self, promotion: Promotion<'_>) -> Result<(), RolloutError> {
        let (durable, policy) = (&mut self.durable, &self.policy);
        self.rollouts
            .promote(durable, policy, self.now, None, promotion)
    }

    fn restart(&mut self) {
        let text = serde_json::to_string(&self.durable).unwrap();
        self.durable = serde_json::from_str(&text).unwrap();
        self.rollouts = Rollouts::restored(&self.durable);
    }
}

#[test]
fn only_auto_promote_enforces_good_evidence() {
    let mut scene = Scene::new("shadow", "  auto_promote: true\n");
    assert_eq!(
        (scene.run(1_000, GOOD), scene.stage(), scene.cause()),
        (20, Mode::Canary, Cause::Gate)
    );
    assert_eq!((scene.run(1_000, GOOD), scene.stage()), (20, Mode::Enforce));
    let evidence = scene.last().evidence.clone().unwrap();
    assert_eq!(
        (
            evidence.with_data_ms,
            evidence.canary.offered,
            evidence.canary.refused
        ),
        (10_000, 10_000, 0)
    );
    assert_eq!(evidence.canary.p99_us, evidence.control.p99_us);
    assert_eq!(
        scene.run(1_000, Seen { bad: 500, ..GOOD }),
        1_000,
        "no evidence leaves enforce"
    );

    let mut scene = Scene::new("shadow", "");
    assert_eq!(
        (scene.run(1_000, GOOD), scene.stage()),
        (1_000, Mode::Shadow)
    );
    let (now, rollout) = (scene.now, scene.rollout_policy());
    let judged = scene
        .rollouts
        .judge(now, &scene.durable, "b", rollout, None);
    assert_eq!(judged, Some(Judgement::Pass));
    // The file asks for enforce: one gate after the other.
    scene.durable.stages.get_mut("b").unwrap().pending = Some(Mode::Enforce);
    assert_eq!((scene.run(1, GOOD), scene.stage()), (1, Mode::Canary));
    assert_eq!(scene.durable.stages["b"].pending, Some(Mode::Enforce));
    assert_eq!((scene.run(1_000, GOOD), scene.stage()), (20, Mode::Enforce));
    assert_eq!(scene.durable.stages["b"].pending, None);
}

#[test]
fn recorded_promotion_waits_unlike_returns() {
    let mut scene = Scene::new("shadow", "  auto_promote: true\n");
    scene.rollouts.ready = Some(Vec::new());
    assert_eq!((scene.run(100, GOOD), scene.stage()), (100, Mode::Shadow));
    let ready = scene.rollouts.ready.clone().unwrap();
    assert_eq!(
        (ready.len(), ready[0].from, ready[0].to),
        (1, Mode::Shadow, Mode::Canary)
    );
    assert!(scene.promote_ready(&ready[0]));
    assert_eq!((scene.stage(), scene.cause()), (Mode::Canary, Cause::Gate));
    assert!(!scene.promote_ready(&ready[0]), "it is made once");
    scene.run(1_000, Seen { bad: 1, ..GOOD });
    assert_eq!(
        (scene.stage(), scene.cause()),
        (Mode::Shadow, Cause::Breach)
    );
    // A stage that has changed since.
    assert_eq!(scene.run(100, GOOD), 100);
    let ready = scene.rollouts.ready.clone().unwrap();
    scene.enter(Mode::Shadow, Cause::Abort);
    assert!(!scene.promote_ready(&ready[0]));
    assert_eq!(scene.stage(), Mode::Shadow);
}

#[test]
fn bad_canary_returns_to_shadow_immediately() {
    let slow = Seen {
        canary_ms: 40,
        ..GOOD
    };
    for (seen, reason) in [
        (Seen { bad: 1, ..GOOD }, "drop ratio of the canary cohort"),
        (slow, "p99 of the canary cohort"),
    ] {
        let mut scene = Scene::new("canary", "");
        scene.durable.stages.get_mut("b").unwrap().pending = Some(Mode::Enforce);
        // Two ticks bring the thousand samples that the gate needs.
        assert_eq!(
            (scene.run(1_000, seen), scene.stage(), scene.cause()),
            (2, Mode::Shadow, Cause::Breach)
        );
        let last = scene.last();
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
fn stale_zone_ends_only_the_canary() {
    let stale = Some(StaleZone {
        zone: "z".to_owned(),
        age: Duration::from_secs(61),
    });
    let mut scene = Scene::new("canary", "");
    scene.run(5, GOOD);
    scene.stale = stale.clone();
    assert_eq!(
        (scene.run(9, GOOD), scene.stage(), scene.cause()),
        (1, Mode::Shadow, Cause::Stale)
    );
    for mode in ["enforce", "shadow"] {
        let mut scene = Scene::new(mode, "  auto_promote: true\n");
        scene.stale = stale.clone();
        assert_eq!(scene.run(100, GOOD), 100, "{mode}");
    }
}

#[test]
fn foreign_or_killed_evidence_is_dropped() {
    let mut scene = Scene::new("canary", "");
    let bad = Outcomes {
        offered: 5_000,
        refused: 5_000,
        ..Outcomes::default()
    };
    for mode in [Mode::Shadow, Mode::Enforce] {
        scene.record("b", mode, Side::Canary, &bad);
    }
    scene.record("c", Mode::Canary, Side::Canary, &bad);
    assert_eq!((scene.run(5, GOOD), scene.stage()), (5, Mode::Canary));
    scene.durable.kill = scene.durable.kill.switched(true);
    scene.record("b", Mode::Canary, Side::Canary, &bad);
    assert_eq!(
        (scene.run(5, GOOD), scene.evidence().canary.offered),
        (5, 2_500)
    );
}

#[test]
fn stats_are_saved_every_sixty_ticks() {
    let mut scene = Scene::new("shadow", "");
    let mut saves = 0;
    for _ in 0..3 * SAVED_EVERY {
        let outcomes = Outcomes {
            offered: 1,
            ..Outcomes::default()
        };
        scene.record("b", Mode::Shadow, Side::Control, &outcomes);
        let outcome =
            scene
                .rollouts
                .on_tick(&mut scene.durable, &scene.policy, scene.now, TICK, None);
        saves += u32::from(outcome.saves);
    }
    let saved = &scene.durable.stage_stats["b"];
    assert_eq!((saves, saved.with_data_ms), (3, 3 * SAVED_EVERY * 500));
}

const QUERIES: &str = "  auto_promote: true\n  queries:\n    - { name: tickets, url: http://p, query: t, max: 20 }\n    \
                     - { name: budget, url: http://p, query: b, min: 0.1 }\n";

#[test]
fn query_gate_waits_for_its_answer() {
    let mut scene = Scene::new("shadow", QUERIES);
    assert_eq!(scene.run(100, GOOD), 100, "no query is answered");
    scene.answer("t", Ok(3.0));
    assert_eq!(scene.run(20, GOOD), 20, "one answer is missing");
    for value in [
        Ok(0.05),
        Ok(f64::NAN),
        Ok(f64::INFINITY),
        Err("the query yields no series"),
    ] {
        scene.answer("b", value);
        assert_eq!(scene.run(20, GOOD), 20, "{value:?}");
    }
    let queries = scene.evidence().queries;
    assert_eq!(
        (queries[0].value, queries[0].max, queries[0].age_ms),
        (Some(3.0), Some(20.0), Some(50_000))
    );
    assert_eq!((queries[1].value, queries[1].min), (None, Some(0.1)));
    assert_eq!(
        queries[1].unknown.as_deref(),
        Some("is unknown: the query yields no series")
    );
    scene.answer("b", Ok(0.5));
    assert_eq!(
        (scene.run(20, GOOD), scene.stage(), scene.cause()),
        (1, Mode::Canary, Cause::Gate)
    );
    let evidence = scene.last().evidence.clone().unwrap();
    let values: Vec<_> = evidence.queries.iter().map(|query| query.value).collect();
    assert_eq!(values, [Some(3.0), Some(0.5)]);
    // The saved state is restored without changes.
    let text = serde_json::to_string(&scene.durable).unwrap();
    assert_eq!(
        serde_json::from_str::<DurableState>(&text).unwrap(),
        scene.durable
    );
}

#[test]
fn excess_value_ends_the_canary() {
    let mut scene = Scene::new("canary", QUERIES);
    scene.answer("t", Ok(20.0));
    scene.answer("b", Ok(0.1));
    assert_eq!(scene.run(5, GOOD), 5);
    // The server is lost, and its last answer is too old.
    scene.answer("t", Err("the server cannot be reached"));
    assert_eq!((scene.run(395, GOOD), scene.stage()), (395, Mode::Canary));
    let unknown = scene.evidence().queries[1].unknown.clone().unwrap();
    assert_eq!(
        unknown,
        "has an answer 200 s old, older than the maximum of 90 s"
    );
    // The server answers one query again, and then both.
    scene.answer("t", Ok(0.0));
    assert_eq!(scene.run(10, GOOD), 10);
    scene.answer("b", Ok(0.2));
    assert_eq!((scene.run(10, GOOD), scene.stage()), (1, Mode::Enforce));

    let mut scene = Scene::new("canary", QUERIES);
    scene.answer("t", Ok(21.0));
    assert_eq!(
        (scene.run(10, GOOD), scene.stage(), scene.cause()),
        (1, Mode::Shadow, Cause::Breach)
    );
    let last = scene.last();
    assert_eq!(last.why, ["tickets is 21, above the maximum of 20"]);
    assert_eq!(last.evidence.as_ref().unwrap().queries[0].value, Some(21.0));
}

#[test]
fn answer_leaves_with_its_query() {
    let mut scene = Scene::new("shadow", QUERIES);
    let rollout = scene.rollout_policy().clone();
    scene.answer("t", Ok(1.0));
    scene.answer("b", Ok(1.0));
    scene.answer("not in the policy", Ok(1.0));
    let without = Scene::new("shadow", "");
    scene.rollouts.answers.retain_asked(&without.policy);
    for query in scene.rollouts.evidence(scene.now, "b", &rollout).queries {
        assert_eq!(
            query.unknown.as_deref(),
            Some("has no answer yet"),
            "{}",
            query.name
        );
    }
    scene.policy = without.policy;
    scene.answer("t", Ok(1.0));
    let evidence = scene.rollouts.evidence(scene.now, "b", &rollout);
    assert_eq!(evidence.queries[0].value, None, "not in the policy");
}

/// Number of ticks that stragglers are left out after evidence begins anew.
const STRAGGLING_TICKS: u64 = (STRAGGLING.as_millis() / TICK.as_millis()) as u64;
const TENANTS: &str =
    "tenants: { default: {}, a: { weight: 4 } }\nfairness: { min_floor_rps: 5 }\n";

#[test]
fn stricter_edit_restarts_evidence() {
    let auto = "  auto_promote: true\n";
    let before = |mode: &str| {
        policy(
            &format!("limit: 100, tenant_limit: 50, mode: {mode}"),
            auto,
            TENANTS,
        )
    };
    for (mode, next) in [(Mode::Shadow, Mode::Canary), (Mode::Canary, Mode::Enforce)] {
        for (bucket, tenants, why) in [
            ("limit: 61, tenant_limit: 50", TENANTS, "limit 100 -> 61"),
            (
                "limit: { learned: {} }, tenant_limit: 50",
                TENANTS,
                "limit 100 -> learned",
            ),
            (
                "limit: 100, tenant_limit: 49",
                TENANTS,
                "tenant_limit 50 -> 49",
            ),
            (
                "limit: 100, tenant_limit: 50, burst_s: 0.2",
                TENANTS,
                "burst_s 0.25 -> 0.2",
            ),
            (
                "limit: 100, tenant_limit: 50, coin: coherent",
                TENANTS,
                "coin dithered -> coherent",
            ),
            (
                "limit: 100, tenant_limit: 50, rollout: { canary_percent: 6 }",
                TENANTS,
                "rollout.canary_percent 5 -> 6",
            ),
            (
                "limit: 100, tenant_limit: 50",
                "tenants: { default: {}, a: { weight: 8 } }\nfairness: { min_floor_rps: 5 }\n",
                "tenants.a.weight 4 -> 8",
            ),
            (
                "limit: 100, tenant_limit: 50",
                "tenants: { default: {}, a: { weight: 4 }, z: { weight: 2 } }\nfairness: { min_floor_rps: 5 }\n",
                "tenants.z.weight 1 -> 2",
            ),
            (
                "limit: 100, tenant_limit: 50",
                "tenants: { default: {}, a: { weight: 4, limits: { b: 30 } } }\nfairness: { min_floor_rps: 5 }\n",
                "limit of a 50 -> 30",
            ),
            (
                "limit: 100, tenant_limit: 50",
                "tenants: { default: {}, a: { weight: 4 } }\n",
                "fairness.min_floor_rps 5 -> 0",
            ),
        ] {
            let mut scene = Scene::of(before(mode.as_str()));
            assert_eq!(scene.run(15, GOOD), 15, "five ticks before the gate passes");
            let change = scene.durable.changes;
            scene.edit(policy(&format!("{bucket}, mode: {mode}"), auto, tenants));
            let last = scene.last().clone();
            assert_eq!(
                (last.from, last.to, last.cause),
                (Some(mode), mode, Cause::Edit),
                "{why}"
            );
            assert_eq!(last.why, [why]);
            assert_eq!(
                last.evidence.unwrap().with_data_ms,
                7_500,
                "what was seen before is kept in the history"
            );
            assert_eq!(scene.durable.changes, change + 1);
            assert_eq!(scene.evidence(), Evidence::default(), "{why}");
            let due = STRAGGLING_TICKS + 19;
            assert_eq!(
                (scene.run(due, GOOD), scene.stage()),
                (due, mode),
                "{why}: the gate waits anew"
            );
            assert_eq!((scene.run(9, GOOD), scene.stage()), (1, next), "{why}");
        }
    }
}

#[test]
fn edit_that_cannot_refuse_more_keeps_evidence() {
    let tenants =
        "tenants: { default: {}, a: { weight: 4, boost: 2, boost_until: 1969-12-01T00:00:00Z } }\n";
    let auto = "  auto_promote: true\n";
    let mut scene = Scene::of(policy("limit: 100, tenant_limit: 50", auto, tenants));
    scene.run(5, GOOD);
    for (bucket, more, tenants) in [
        ("limit: 120, tenant_limit: 60", "", tenants),
        ("limit: 120", "", tenants),
        (
            "limit: 120, burst_s: 1, candidate: 7, release: never",
            "",
            tenants,
        ),
        (
            "limit: 120, burst_s: 1",
            "  canary_percent: 1\n  min_samples: 7\n",
            tenants,
        ),
        // A tenant with the settings that it had unlisted, and a boost that had ended.
        (
            "limit: 120, burst_s: 1",
            "  canary_percent: 1\n",
            "tenants: { default: {}, a: { weight: 4 }, z: {} }\n",
        ),
        (
            "limit: unlimited, burst_s: 1",
            "  canary_percent: 1\n",
            "tenants: { default: {}, a: { weight: 7 } }\n",
        ),
    ] {
        let changes = scene.durable.changes;
        scene.edit(policy(bucket, &format!("{auto}{more}"), tenants));
        assert_eq!(scene.durable.changes, changes, "{bucket}");
    }
    assert_eq!((scene.run(1_000, GOOD), scene.stage()), (15, Mode::Canary));
    // An enforced entry has no gate.
    let mut scene = Scene::new("enforce", "");
    scene.run(5, GOOD);
    scene.edit(policy("limit: 1, mode: enforce", "", ONE_CLASS_TENANTS));
    assert_eq!(scene.durable.changes, 1);
}

#[test]
fn edit_keeps_a_pending_mode_waiting() {
    let mut scene = Scene::new("shadow", "");
    scene.run(19, GOOD);
    scene.edit(policy("limit: 61, mode: enforce", "", ONE_CLASS_TENANTS));
    assert_eq!(scene.durable.stages["b"].pending, Some(Mode::Enforce));
    scene.run(STRAGGLING_TICKS + 5, GOOD);
    scene.restart();
    let same = policy("limit: 61, mode: enforce", "", ONE_CLASS_TENANTS);
    scene.edit(same);
    let since = scene
        .durable
        .change(scene.durable.stages["b"].change)
        .unwrap();
    assert_eq!(
        (since.cause, &since.why[..]),
        (Cause::Edit, &["limit 100 -> 61".to_owned()][..])
    );
    // The stats between the edit and the first latency were saved.
    assert_eq!(
        scene.run(18, GOOD),
        18,
        "the stats from before the edit are not restored"
    );
    assert_eq!((scene.run(9, GOOD), scene.stage()), (1, Mode::Canary));
}

#[test]
fn promotion_past_edits_explains_the_gate() {
    let mut scene = Scene::new("shadow", "");
    scene.run(20, GOOD);
    let promotion = Promotion {
        entry: "b",
        ..Promotion::default()
    };
    let mut unedited = Scene::new("shadow", "");
    unedited.run(20, GOOD);
    assert_eq!(unedited.promote(promotion), Ok(()));
    scene.edit(policy("limit: 61", "", ONE_CLASS_TENANTS));
    scene.durable.stamp(1_796_083_200);
    scene.run(STRAGGLING_TICKS + 4, GOOD);
    let refused = scene.promote(promotion).unwrap_err().to_string();
    assert_eq!(
        refused,
        "the gate from shadow to canary is not passed: 2 s with data of the 10 s due; evidence counts since \
         2026-12-01T00:00:00Z: limit 100 -> 61; promote past it with --force --reason TEXT"
    );
}

#[test]
fn only_a_far_fallen_limit_restarts_evidence() {
    let auto = "  auto_promote: true\n";
    let learned = policy("limit: { learned: {} }", auto, ONE_CLASS_TENANTS);
    let mut scene = Scene::of(learned);
    scene.run(4, GOOD);
    for limit in [100.0, 140.0, 91.0, 100.0, 90.0] {
        scene.moves(limit);
        scene.run(2, GOOD);
    }
    assert_eq!(
        scene.durable.changes, 1,
        "a limit within 10 % keeps the evidence"
    );
    scene.moves(89.0);
    let last = scene.last();
    assert_eq!(
        (last.cause, &last.why[..]),
        (Cause::Drift, &["limit of b 100.0 -> 89.0".to_owned()][..])
    );
    scene.run(STRAGGLING_TICKS, GOOD);
    // The lowest limit counts, also after a higher one and a restart.
    for limit in [89.0, 200.0, 81.0] {
        scene.run(2, GOOD);
        scene.moves(limit);
    }
    scene.durable.stage_stats = [("b".to_owned(), scene.rollouts.stats["b"].saved())].into();
    scene.rollouts = Rollouts::restored(&scene.durable);
    scene.moves(81.0);
    assert_eq!(scene.durable.changes, 2);
    scene.moves(80.0);
    assert_eq!(scene.last().why, ["limit of b 89.0 -> 80.0"]);
    assert_eq!(
        (scene.run(100, GOOD), scene.stage()),
        (STRAGGLING_TICKS + 20, Mode::Canary)
    );
}

#[test]
fn creeping_limit_passes_only_slowly() {
    // The window is 72 ticks, and the gate needs a thousand samples and 10 s.
    let learned = || policy("limit: { learned: {} }", "", ONE_CLASS_TENANTS);
    let mut slow = Scene::of(learned());
    slow.run(1, GOOD);
    for limit in [100.0, 95.0, 90.3, 85.8, 81.5, 77.5] {
        slow.moves(limit);
        for _ in 0..150 {
            slow.run(1, GOOD);
            slow.moves(limit);
        }
    }
    assert_eq!(
        slow.durable.changes, 1,
        "each limit was judged for a whole window"
    );
    let mut fast = Scene::of(learned());
    fast.run(1, GOOD);
    for limit in [100.0, 95.0, 90.3, 85.8] {
        fast.moves(limit);
        fast.run(1, GOOD);
    }
    assert_eq!(fast.last().why, ["limit of b 100.0 -> 85.8"]);
}

#[test]
fn ended_boost_may_restart_evidence() {
    let tenants = |boost: f64| {
        format!(
            "tenants: {{ default: {{}}, a: {{ weight: 2, boost: {boost}, boost_until: 1970-01-01T00:01:40Z }} }}\n"
        )
    };
    let after = |boost, from_s, to_s| {
        let mut scene = Scene::of(policy("limit: 100", "", &tenants(boost)));
        scene.run(1, GOOD);
        scene
            .rollouts
            .on_boosts_ended(&mut scene.durable, &scene.policy, from_s, to_s);
        scene.last().clone()
    };
    let last = after(2.0, 99, 100);
    assert_eq!(last.cause, Cause::Drift);
    assert_eq!(
        last.why,
        ["the boost of a ended", "share of tenant a 80.0 % -> 66.7 %"]
    );
    assert_eq!(
        after(0.5, 99, 100).why[1],
        "share of tenant default 50.0 % -> 33.3 %"
    );
    for (boost, from_s, to_s) in [(1.1, 99, 100), (2.0, 98, 99), (2.0, 100, 101)] {
        assert_eq!(
            after(boost, from_s, to_s).cause,
            Cause::Appeared,
            "{boost} from {from_s} to {to_s}"
        );
    }
}

#[test]
fn late_evidence_of_former_canaries_is_ignored() {
    let mut scene = Scene::new("canary", "");
    scene.run(2, GOOD);
    for to in [Mode::Shadow, Mode::Canary] {
        scene.enter(to, Cause::Forced);
        scene.close();
    }
    let bad = Seen { bad: 500, ..GOOD };
    let late = STRAGGLING_TICKS;
    assert_eq!(
        (scene.run(late, bad), scene.evidence().canary.offered),
        (late, 0)
    );
    assert_eq!(
        (scene.run(20, bad), scene.stage()),
        (2, Mode::Shadow),
        "later evidence is of this canary"
    );
}

#[test]
fn evidence_goes_to_the_first_change() {
    let mut scene = Scene::new("canary", "");
    scene.run(2, GOOD);
    // A kill and the mode of the file move the entry in the same load.
    for to in [Mode::Shadow, Mode::Canary] {
        scene.enter(to, Cause::File);
    }
    scene.close();
    let changes = scene.durable.history.iter();
    let evidence: Vec<_> = changes.map(|change| change.evidence.clone()).collect();
    assert_eq!((&evidence[0], &evidence[2]), (&None, &None));
    assert_eq!(evidence[1].as_ref().unwrap().canary.offered, 1_000);
}

#[test]
fn proxied_canary_moves_only_by_refusals() {
    let mut scene = Scene::new("shadow", "  auto_promote: true\n");
    assert_eq!((scene.run(100, PROXIED), scene.stage()), (20, Mode::Canary));
    let why = |scene: &Scene| scene.last().why.clone();
    assert_eq!(
        why(&scene),
        ["auto_promote"],
        "the gate out of shadow compares no latency anyway"
    );
    assert_eq!(
        (scene.run(100, PROXIED), scene.stage()),
        (20, Mode::Enforce)
    );
    assert_eq!(why(&scene), ["auto_promote", NOT_COMPARED]);
    let evidence = scene.last().evidence.clone().unwrap();
    assert!(evidence.latency_unreported);
    assert_eq!(
        (evidence.canary.unobserved, evidence.canary.samples),
        (10_000, 0)
    );

    let mut scene = Scene::new("canary", "  auto_promote: true\n");
    assert_eq!(
        (scene.run(100, Seen { bad: 1, ..PROXIED }), scene.stage()),
        (2, Mode::Shadow)
    );
    assert_eq!(
        why(&scene),
        [
            "drop ratio of the canary cohort 0.200 % exceeds the maximum of 0.1 %",
            NOT_COMPARED
        ]
    );

    // A promotion by an operator, with the gate passed and past it.
    for (ticks, force, first) in [
        (30, None, "the gate is passed"),
        (3, Some("a test"), "a test"),
    ] {
        let mut scene = Scene::new("canary", "");
        scene.run(ticks, PROXIED);
        assert!(scene.rollouts.is_latency_unreported("b"));
        let force = force.map(|reason| Text::new(reason).unwrap());
        let calm = Text::new("a calm night").unwrap();
        let promotion = Promotion {
            entry: "b",
            to: None,
            force: force.as_ref(),
            reason: Some(&calm),
        };
        scene.promote(promotion).unwrap();
        let why = why(&scene);
        assert_eq!((&*why[0], &**why.last().unwrap()), (first, NOT_COMPARED));
        let is_kept = why.contains(&calm.to_string());
        assert_eq!(is_kept, force.is_none());
    }

    // Instances that say nothing about responses wait, as ever.
    let mut scene = Scene::new("canary", "  auto_promote: true\n");
    let silent = Seen {
        is_behind_proxy: false,
        ..PROXIED
    };
    assert_eq!(scene.run(100, silent), 100);
}

#[test]
fn restart_remembers_that_latencies_were_reported() {
    // One latency, and a crash right after the next tick.
    let mut scene = Scene::new("canary", "  auto_promote: true\n");
    scene.run(1, Seen { offered: 1, ..GOOD });
    scene.restart();
    assert_eq!(
        (scene.run(300, PROXIED), scene.stage()),
        (300, Mode::Canary)
    );
    // Without any, the counts of unobserved requests survive.
    let mut scene = Scene::new("canary", "");
    scene.run(SAVED_EVERY, PROXIED);
    let before = scene.evidence();
    scene.restart();
    assert_eq!(scene.evidence(), before);
    assert!(before.latency_unreported && before.control.unobserved == before.control.offered);
}
