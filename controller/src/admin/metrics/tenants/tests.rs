//! Tests of the selection of tenants, and of their series on the page.

use std::time::Duration;

use plimsoll_core::exchange::{Parent, StreamId};
use plimsoll_core::names::{Bucket, Name, Zone};
use plimsoll_core::quantity::{MonoTime, Rate};
use plimsoll_core::report::{
    Counts, Identity, InstanceId, Outbox, Report, ReportedNames, Role, Tally,
};
use plimsoll_core::stats::metrics::text;

use super::*;
use crate::Controller;
use crate::admin::metrics;
use crate::tasks::tests::args;

fn of(
    bucket: &'static str,
    tenant: &'static str,
    offered: f64,
    limit: f64,
) -> LimitedTenant<'static> {
    LimitedTenant {
        labels: [bucket, tenant, ""],
        offered,
        limit,
    }
}

fn shown<'a>(nearest: &NearestTenants<'a>) -> Vec<&'a str> {
    nearest.shown.iter().map(|of| of.labels[1]).collect()
}

/// `count` tenants t000, t001 .. of a bucket, each of which offers the same.
fn many(count: usize, bucket: &'static str, offered: f64) -> Vec<LimitedTenant<'static>> {
    let name = |at| &*Box::leak(format!("t{at:03}").into_boxed_str());
    (0..count)
        .map(|at| of(bucket, name(at), offered, 10.0))
        .collect()
}

#[test]
fn nearest_are_shown_and_the_rest_summed() {
    let mut tenants = many(300, "a", 5.0);
    tenants.extend([
        of("b", "idle", 0.0, 0.0),
        of("b", "hot", 30.0, 20.0),
        of("b", "denied", 1.0, 0.0),
    ]);
    let nearest = NearestTenants::select(tenants.into_iter().rev(), &HashSet::new());
    let names = shown(&nearest);
    assert_eq!(names.len(), SHOWN_MAX);
    assert_eq!(
        names[..4],
        ["denied", "hot", "t000", "t001"],
        "ties are in the order of names"
    );
    assert_eq!(names[SHOWN_MAX - 1], "t047");
    let others = [("a", (252, 252.0 * 5.0)), ("b", (1, 0.0))];
    assert_eq!(nearest.others, others.into());
}

#[test]
fn shown_tenants_stay_in_chance_variation() {
    let mut tenants = many(100, "a", 5.0);
    let labels: Vec<[&str; 3]> = tenants[50..].iter().map(|of| of.labels).collect();
    let select = |tenants: &[LimitedTenant<'static>]| {
        shown(&NearestTenants::select(
            tenants.iter().copied(),
            &labels.iter().copied().collect(),
        ))
    };
    tenants[..50]
        .iter_mut()
        .for_each(|tenant| tenant.offered = 7.0);
    assert_eq!(select(&tenants)[0], "t050");
    tenants[49].offered = 8.0;
    let names = select(&tenants);
    assert_eq!((names[0], names[SHOWN_MAX - 1]), ("t049", "t098"));
}

const POLICY: &str =
    "buckets: { api: { limit: unlimited, mode: enforce, tenant_limit: 8 }, free: { limit: 5 } }
rollout: { require_gates: false }
";
const TENANTS: &str = "plans: { pro: { limits: { api: 20 } } }
tenants: { default: {}, acme: { plan: pro }, other: {} }
";

#[test]
fn page_has_listed_and_unlisted_tenants() {
    let directory = tempfile::tempdir().unwrap();
    let mut args = args(directory.path());
    std::fs::write(&args.policy, POLICY).unwrap();
    let tenants = directory.path().join("tenants.yaml");
    std::fs::write(&tenants, TENANTS).unwrap();
    args.tenants = Some(tenants);
    let controller = Controller::open(&args).unwrap();
    let key = |tenant: &str| Key {
        bucket: Bucket::new("api").unwrap(),
        tenant: Tenant::new(tenant).unwrap(),
    };
    let near = [("zoe%~pro", 30.0), ("acme%~pro", 7.0), ("ann", 5.0)];
    let mut outbox = Outbox::default();
    outbox.open();
    for step in 0..60_u64 {
        let now = MonoTime::from_elapsed(Duration::from_millis(500) * (step as u32 + 1));
        let identity = Identity {
            instance: InstanceId(1),
            name: Name::new("one").unwrap(),
            service: Name::new("aggregator").unwrap(),
            zone: Zone::new("a").unwrap(),
            role: Role::Aggregator,
        };
        let mut report = Report {
            greeting: (step == 0).then_some(identity).into(),
            time: Some(now),
            names: ReportedNames {
                limited: near
                    .map(|(name, rate)| (key(name), Rate::new(rate).unwrap()))
                    .into(),
                ..ReportedNames::default()
            },
            ..Report::default()
        };
        let counts = Counts {
            offered: 5 * step,
            ..Counts::ZERO
        };
        outbox.fill(&mut report, &[key("acme")], |_| Tally {
            counts,
            late: Counts::ZERO,
        });
        controller.commands.brain.with(|brain, _| {
            brain.on_report(now, StreamId(1), report).unwrap();
            brain.on_tick(now, 0);
            if let Some((number, _)) = brain.unsaved() {
                brain.on_saved(number);
            }
            if let Some(directives) = brain.directives(now, StreamId(1)) {
                outbox.on_echo(directives.echo);
                directives
                    .parent
                    .into_iter()
                    .for_each(|parent| outbox.on_answer(parent));
            }
        });
    }
    let page = text(&metrics::page(
        &controller.commands,
        &controller.counters,
        &controller.security,
        None,
    ));
    let lines: Vec<&str> = page
        .lines()
        .filter(|line| line.starts_with("plimsoll_tenant"))
        .collect();
    assert_eq!(
        lines[..],
        EXPECTED.trim().lines().map(str::trim).collect::<Vec<_>>()
    );
    assert_eq!(controller.counters.shown_tenants.lock().unwrap().len(), 4);
}

/// acme's requests are counted by its own key, although an aggregator still reports its name as unlisted.
const EXPECTED: &str = r#"
    plimsoll_tenant_offered_rps{bucket="api",tenant="zoe",plan="pro"} 30
    plimsoll_tenant_offered_rps{bucket="api",tenant="ann"} 5
    plimsoll_tenant_offered_rps{bucket="api",tenant="acme",plan="pro"} 10
    plimsoll_tenant_offered_rps{bucket="api",tenant="other"} 0
    plimsoll_tenant_limit_rps{bucket="api",tenant="zoe",plan="pro"} 20
    plimsoll_tenant_limit_rps{bucket="api",tenant="ann"} 8
    plimsoll_tenant_limit_rps{bucket="api",tenant="acme",plan="pro"} 20
    plimsoll_tenant_limit_rps{bucket="api",tenant="other"} 8
"#;
