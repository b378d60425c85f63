//! Load through a real Envoy: each stage of a rollout, a kill, and a sidecar that is killed or
//! hangs.

use std::time::Duration;

use plimsoll_core::names::Name;
use plimsoll_core::rollout::{Cohort, Percent};
use plimsoll_testing::fleet::TENANTS;
use plimsoll_testing::turns::turn;

use super::super::proxy::{Load, Rates, share};
use super::super::{Fleet, filled};
use super::process::Envoy;
use super::{ACME, CORNER_SHOP};
use crate::operators::kill::kill;

const LIMIT: f64 = 60.0;
/// Requests/s of each of two tenants.
const OFFERED: u32 = 100;
/// Span of rates: long enough for some 200 admitted requests.
const SPAN: Duration = Duration::from_secs(3);
/// Span without another event.
const QUIET: Duration = Duration::from_secs(1);

fn policy(mode: &str) -> String {
    format!(
        "rollout: {{ require_gates: false, canary_percent: 50 }}\nguardrails: off\n\
         buckets:\n  checkout: {{ limit: {LIMIT}, mode: {mode} }}\n"
    )
}

/// Returns the name of a sidecar with a canary that refuses requests of one tenant and not of the
/// other.
fn name() -> String {
    let cohort = Cohort {
        percent: Percent::new(50.0).unwrap(),
        salt: Cohort::salt_of("checkout"),
    };
    let divides = |name: &String| {
        let name = Name::new(name).unwrap();
        cohort.contains_key(&name, "acme") && !cohort.contains_key(&name, "corner-shop")
    };
    (0..)
        .map(|number| format!("edge-{number}"))
        .find(divides)
        .unwrap()
}

/// A fleet, Envoy before it, and a load of two tenants. `safety` is Envoy's own limit in
/// requests/s.
struct Scene {
    fleet: Fleet,
    envoy: Envoy,
    acme: Load,
    corner_shop: Load,
}

impl Scene {
    fn start(test: &str, mode: &str, safety: u32) -> Option<Self> {
        let rules = filled("envoy-rules.yaml", &[]);
        let fleet = Fleet::start(&policy(mode), TENANTS, Some(&rules), &["--name", &name()]);
        let tokens = format!("max_tokens: {0}, tokens_per_fill: {0}", safety / 4);
        let shipped = "max_tokens: 500, tokens_per_fill: 500";
        let envoy = Envoy::start(test, &fleet, &[(shipped, &tokens)])?;
        let load = |tenant| Load::start(envoy.ingress, "/checkout", &[&[tenant]], OFFERED);
        let (acme, corner_shop) = (load(ACME), load(CORNER_SHOP));
        Some(Self {
            fleet,
            envoy,
            acme,
            corner_shop,
        })
    }

    /// Waits until the limit holds for both tenants together.
    fn until_held(&self) {
        // Equal weights, so each has half.
        for load in [&self.acme, &self.corner_shop] {
            load.until_rates("half the limit for each tenant", SPAN, |rates| {
                rates.refused > 0.2 * f64::from(OFFERED)
                    && (rates.served / (LIMIT / 2.0) - 1.0).abs() < 0.2
            });
        }
    }

    /// Checks that no request has failed so far.
    fn check_answered(&self) {
        for load in [&self.acme, &self.corner_shop] {
            let counts = load.all();
            let expected = [200, 429].map(|status| share(&counts, None, status));
            assert!((expected[0] + expected[1] - 1.0).abs() < 1e-9, "{counts:?}");
        }
    }
}

fn passes(rates: &Rates) -> bool {
    rates.refused == 0.0 && rates.cut == 0.0 && rates.served > 0.7 * f64::from(OFFERED)
}

#[test]
fn stages_and_kills_reach_envoy_callers() {
    let _turn = turn(2 * OFFERED);
    let Some(scene) = Scene::start("stages_and_a_kill", "shadow", 2_000) else {
        return;
    };
    let Scene {
        fleet,
        acme,
        corner_shop,
        ..
    } = &scene;

    let would = |rates: &Rates| passes(rates) && rates.would > 0.3 * f64::from(OFFERED);
    for load in [acme, corner_shop] {
        load.until_rates("what shadow would refuse", SPAN, would);
        assert_eq!(share(&load.all(), None, 429), 0.0);
    }

    fleet.promote("checkout", "canary");
    acme.until_rates("the tenant in the canary to be refused", SPAN, |rates| {
        rates.refused > 0.3 * f64::from(OFFERED)
    });
    corner_shop.until_rates("the tenant outside to pass", QUIET, would);
    assert_eq!(share(&corner_shop.all(), None, 429), 0.0);

    fleet.promote("checkout", "enforce");
    scene.until_held();

    let controller = fleet.controller.url("admin");
    kill(&["on", "--reason", "a test", "--controller", &controller]);
    for load in [acme, corner_shop] {
        load.until_rates("no refusal while killed", QUIET, would);
    }
    kill(&["off", "--controller", &controller]);
    for load in [acme, corner_shop] {
        load.until_rates("shadow after the kill", QUIET, would);
    }
    scene.check_answered();
}

#[test]
fn envoy_keeps_its_safety_bucket_without_sidecar() {
    let safety = 120;
    let _turn = turn(2 * OFFERED);
    let Some(mut scene) = Scene::start("sidecar_is_down", "enforce", safety) else {
        return;
    };
    scene.until_held();

    let open = |scene: &Scene| {
        // One after the other: the tenants share the safety bucket in the order of their requests.
        for load in [&scene.acme, &scene.corner_shop] {
            load.until_rates("only Envoy's own refusals", SPAN, |rates| {
                rates.refused == 0.0 && rates.cut > 0.1 * f64::from(OFFERED)
            });
        }
        let served = scene
            .acme
            .until_rates("requests to pass", SPAN, |rates| rates.served > LIMIT / 2.0);
        assert!(served.served <= 1.2 * f64::from(safety), "{served:?}");
        scene.check_answered();
    };
    scene.fleet.kill_sidecar();
    open(&scene);
    scene.fleet.restart_sidecar();
    scene.until_held();

    // A hanging sidecar costs each request the timeout, and lets it pass.
    scene.fleet.sidecar.signal("STOP");
    open(&scene);
    scene.fleet.sidecar.signal("CONT");
    scene.until_held();
    scene.check_answered();
    assert!(
        scene
            .envoy
            .counter("envoy_cluster_ratelimit_failure_mode_allowed")
            > 0.0
    );
}
