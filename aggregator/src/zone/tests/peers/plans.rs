//! Names with a plan: each is counted for the class of its plan, for its own line once it is listed, and for `default` where
//! the policy does not have the plan.

use plimsoll_core::directive::{LimitOwner, Values};

use super::*;
use crate::zone::tests::scripted::{Client, Scene, Script, entitled, per_second};

const NAMES: [&str; 3] = ["jo%~free", "al%~pro", "%~free"];

fn scene(entries: &[&str]) -> Scene {
    let client = NAMES
        .iter()
        .fold(Client::new(1), |client, name| client.offering(name, 20.0));
    Scene::new(script(entries), vec![client])
}

fn script(entries: &[&str]) -> Script {
    let rates: Vec<(&str, f64)> = entries.iter().map(|entry| (*entry, 300.0)).collect();
    Script::rates(&rates)
}

/// Returns the lines with counts in the last seconds, with the requests/s of each.
fn lines(scene: &mut Scene) -> Vec<(String, u64)> {
    let counts = |scene: &Scene| -> std::collections::BTreeMap<String, u64> {
        let all = scene.zone.counts();
        all.map(|(key, counts)| (key.tenant.to_string(), counts.offered))
            .collect()
    };
    let before = counts(scene);
    scene.run(5.0);
    let now = counts(scene).into_iter();
    now.filter_map(|(line, offered)| {
        let rate = (offered - before.get(&line).copied().unwrap_or_default()) / 5;
        (rate > 0).then_some((line, rate))
    })
    .collect()
}

fn named(lines: &[(&str, u64)]) -> Vec<(String, u64)> {
    let own = |(line, rate): &(&str, u64)| ((*line).to_owned(), *rate);
    lines.iter().map(own).collect()
}

#[test]
fn names_count_for_the_class_of_their_plan() {
    let mut scene = scene(&["default", "%~free"]);
    scene.run(2.0);
    assert_eq!(lines(&mut scene), named(&[("%~free", 40), ("default", 20)]));
    for (entries, expected) in [
        // A plan is new, then a tenant of it is listed, and at last neither is there.
        (
            &["default", "%~free", "%~pro"][..],
            &[("%~free", 40), ("%~pro", 20)][..],
        ),
        (
            &["default", "%~free", "%~pro", "jo"],
            &[("%~free", 20), ("%~pro", 20), ("jo", 20)],
        ),
        (
            &["default", "%~free", "%~pro"],
            &[("%~free", 40), ("%~pro", 20)],
        ),
        (&["default"], &[("default", 60)]),
        (&["default", "%~free"], &[("%~free", 40), ("default", 20)]),
    ] {
        let mut next = script(entries);
        next.policy_hash = Some(expected.len() as u64 * 10 + entries.len() as u64);
        scene.controller = Some(next);
        scene.run(1.0);
        assert_eq!(lines(&mut scene), named(expected), "{entries:?}");
    }
}

#[test]
fn limit_of_a_name_is_its_part_of_the_zone() {
    let mut client = Client::new(1);
    client.offers("jo%~free", 100.0);
    client.offers("al%~free", 10.0);
    let limited = |values: &mut Values| {
        let mut entitlement = entitled(1.0);
        entitlement.tenant_limit = Some(per_second(20.0));
        entitlement.limit_owner = LimitOwner::Plan;
        values.entitlement = Some(entitlement);
    };
    let script = script(&["default", "%~free"]).with("%~free", limited);
    let mut scene = Scene::new(script, vec![client]);
    scene.run(10.0);
    let ratio = |scene: &Scene| scene.clients[0].ratio("jo");
    assert!((ratio(&scene) - 0.8).abs() < 0.01, "{}", ratio(&scene));
    assert!(
        scene.clients[0].posted().own("al").is_none(),
        "far from its limit"
    );

    let report = scene.zone.report(scene.now());
    let mut reported: Vec<&str> = report
        .limited
        .iter()
        .map(|(key, _)| key.tenant.as_str())
        .collect();
    reported.sort_unstable();
    assert_eq!(reported, ["al%~free", "jo%~free"]);
    let jo = Key {
        bucket: bucket(),
        tenant: tenant("jo%~free"),
    };
    let part = (jo, per_second(2.0));
    scene.controller.as_mut().unwrap().limits = Some(vec![part]);
    scene.run(2.0);
    assert!((ratio(&scene) - 0.98).abs() < 0.01, "{}", ratio(&scene));
}
