//! Names with a plan: each is counted for the class of its plan, for its own line once it is listed, and for `default` where
//! the policy does not have the plan.

use plimsoll_core::directive::{LimitOwner, Values};
use plimsoll_core::report::CALLERS_PER_BUCKET_MAX;

use super::*;
use crate::zone::tests::scripted::{Client, Scene, Script, entitled, per_second};
use crate::zone::tests::tree::Tree;

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
        .names
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

#[test]
fn catalogue_has_the_plans_of_names_without_one() {
    let offering = || {
        let names = ["jo", "al", "flo%~pro"].into_iter();
        names.fold(Client::new(1), |client, name| client.offering(name, 20.0))
    };
    let catalogued = |hash, rows: &[(&'static str, &'static str)]| {
        let mut script = script(&["default", "%~free", "%~pro"]);
        script.catalogue = Some((hash, rows.to_vec()));
        script
    };
    let rows = [("jo", "%~free"), ("flo", "%~free")];
    let mut scene = Scene::new(catalogued(1, &rows), vec![offering()]);
    scene.run(2.0);
    let planned = named(&[("%~free", 20), ("%~pro", 20), ("default", 20)]);
    assert_eq!(
        lines(&mut scene),
        planned,
        "a plan of the request counts first"
    );
    let told = |scene: &Scene| scene.clients[0].classes.clone();
    let class = |name: &str, class: &str| (tenant(name), tenant(class));
    assert_eq!(told(&scene), [class("jo", "%~free")].into());
    assert!(scene.zone.report(scene.now()).names.asked.is_empty());

    // On a new stream each name is asked for again, and keeps its class meanwhile, also before the parent has a controller.
    scene.reconnect(catalogued(1, &rows));
    scene.roll_up();
    let mut asked = scene.zone.report(scene.now()).names.asked;
    asked.sort_unstable();
    assert_eq!(asked, ["acme", "al", "jo"].map(tenant));
    scene.zone.on_open(scene.now());
    let without_controller = Directives {
        seq: 1,
        ..Directives::default()
    };
    let taken = scene.zone.on_directives(scene.now(), without_controller);
    assert_eq!(taken, Ok(()));
    scene.reconnect(catalogued(1, &rows));
    assert_eq!(lines(&mut scene), planned);
    scene.controller = Some(catalogued(2, &[("jo", "%~pro"), ("al", "%~gone")]));
    scene.run(1.0);
    let planned = named(&[("%~pro", 40), ("default", 20)]);
    assert_eq!(lines(&mut scene), planned);
    scene.controller = Some(script(&["default", "%~free", "%~pro"]));
    scene.run(1.0);
    assert_eq!(lines(&mut scene), named(&[("%~pro", 20), ("default", 40)]));
    assert_eq!(told(&scene), [class("jo", "default")].into());
}

#[test]
fn listed_row_has_the_names_with_a_plan() {
    let catalogued = |entries: &[&str]| {
        let mut script = script(entries);
        script.catalogue = Some((1, vec![("jo", "%~free")]));
        script
    };
    let client = Client::new(1).offering("jo%~free", 20.0);
    let mut scene = Scene::new(catalogued(&["default", "%~free"]), vec![client]);
    scene.run(2.0);
    for (entries, line) in [
        (&["default", "%~free"][..], "%~free"),
        (&["default", "%~free", "jo"], "jo"),
        (&["default", "%~free"], "%~free"),
    ] {
        // The controller lists a row, and ends that, under one policy.
        scene.controller = Some(catalogued(entries));
        scene.run(1.0);
        assert_eq!(lines(&mut scene), named(&[(line, 20)]), "{entries:?}");
    }
}

#[test]
fn child_aggregators_are_told_what_they_asked_for() {
    let mut script = script(&["default", "%~free"]);
    script.catalogue = Some((1, vec![("jo", "%~free")]));
    let below = ["jo", "al"].map(|name| Client::new(1).offering(name, 20.0));
    let mut tree = Tree::new(
        script,
        below.into(),
        vec![Client::new(7).offering("jo", 20.0)],
    );
    tree.run(5.0);
    let lines = |zone: &Zone| -> Vec<String> {
        let all = zone.counts().filter(|(_, counts)| counts.offered > 60);
        all.map(|(key, _)| key.tenant.to_string()).collect()
    };
    assert_eq!(lines(&tree.lowers[0].zone), ["%~free"]);
    assert_eq!(lines(&tree.lowers[1].zone), ["default"]);
    let told = |client: &Client| client.classes.clone();
    let jo = [(tenant("jo"), tenant("%~free"))];
    assert_eq!(told(&tree.lowers[0].clients[0]), jo.clone().into());
    assert_eq!(told(&tree.clients[0]), jo.into());
    assert!(told(&tree.lowers[1].clients[0]).is_empty());
}

#[test]
fn busiest_names_are_reported_with_their_rates() {
    let name = |rank: usize| match rank % 3 {
        0 => format!("n{rank}%~free"),
        // The policy has no such plan.
        1 => format!("n{rank}%~pro"),
        _ => format!("n{rank}"),
    };
    let zipf = |rank: usize| 1_000.0 / rank as f64;
    let mut scene = Scene::new(
        script(&["default", "%~free", "acme"]),
        vec![Client::new(1).offering("acme", 5_000.0)],
    );
    let names: Vec<String> = (1..=1_000).map(name).collect();
    for tenths in 1..=400 {
        for (name, rank) in names.iter().zip(1..) {
            let requests = zipf(rank) * f64::from(tenths) / 10.0;
            scene.clients[0].counts(name).offered = requests.round() as u64;
        }
        scene.run(0.1);
    }

    let times: Vec<u64> = scene.callers.iter().map(|(at, _)| *at).collect();
    assert!((7..=8).contains(&times.len()), "{times:?}");
    let mut gaps = times.windows(2).map(|pair| pair[1] - pair[0]);
    assert!(gaps.all(|gap| gap == 5_000), "{times:?}");

    let (_, mut callers) = scene.callers.pop().unwrap();
    assert_eq!(callers.len(), CALLERS_PER_BUCKET_MAX);
    callers.sort_by(|one, other| other.1.per_second().total_cmp(&one.1.per_second()));
    for (rank, (key, rate)) in (1..=10).zip(&callers) {
        assert_eq!(key.tenant.as_str(), name(rank));
        let ratio = rate.per_second() / zipf(rank);
        assert!((ratio - 1.0).abs() < 0.05, "{key:?}: {ratio} of its rate");
    }
}
