//! Refusals of tenants by their plan.

use plimsoll_client::Limiter;
use plimsoll_core::decision::Mode;
use plimsoll_core::directive::{
    BucketDirective, Directives, Entitlement, Epoch, KeyDirective, LimitOwner, Terms, Values,
};
use plimsoll_core::exchange::Child;
use plimsoll_core::law::Weight;
use plimsoll_core::names::{Bucket, Name, Tenant, Zone};
use plimsoll_core::quantity::{DropRatio, Limit, MonoTime, Rate};
use plimsoll_core::report::{Identity, InstanceId, Role};

use super::*;

/// Returns a limiter whose bucket refuses every tenant: with the plan `free` for its 10 requests/s, and without one for
/// the 20 of the bucket.
fn refusing() -> Limiter {
    let identity = Identity {
        instance: InstanceId(1),
        name: Name::new("sidecar").unwrap(),
        service: Name::new("sidecar").unwrap(),
        zone: Zone::new("a").unwrap(),
        role: Role::Client,
    };
    let (limiter, mut subscription) = Limiter::without_transport(identity, 64, 4, 7);
    limiter.bucket("checkout").unwrap();
    subscription.on_open(MonoTime::ZERO);
    subscription.report(MonoTime::ZERO);
    let class = |tenant, per_second, limit_owner| KeyDirective {
        tenant,
        values: Values {
            ratio: Some(DropRatio::ALL),
            at_tenant_limit: Some(true),
            entitlement: Some(Entitlement {
                weight: Weight::ONE,
                floor: Rate::ZERO,
                tenant_limit: Rate::new(per_second).ok(),
                limit_owner,
            }),
            ..Values::default()
        },
    };
    let free = Tenant::class_of_plan("free").unwrap();
    let bucket = BucketDirective {
        bucket: Bucket::new("checkout").unwrap(),
        whole: true,
        terms: Terms {
            limit: Limit::PerSecond(Rate::new(100.0).unwrap()),
            mode: Mode::Enforce,
            ..Terms::default()
        },
        keys: vec![
            class(free, 10.0, LimitOwner::Plan),
            class(Tenant::default_class(), 20.0, LimitOwner::Bucket),
        ],
    };
    let directives = Directives {
        lead: Epoch(7).into(),
        seq: 1,
        parent: Some(InstanceId(2)),
        buckets: vec![bucket],
        ..Directives::default()
    };
    subscription
        .on_directives(MonoTime::ZERO, directives)
        .unwrap();
    limiter
}

#[test]
fn refusal_names_the_limit_of_the_plan() {
    let mut port = Port::new();
    let rules = Rules::read(Source {
        name: "rules.yaml",
        text: "http: { plan: { header: x-plan } }",
    });
    let limits = Limits::new(refusing(), rules.unwrap().0).unwrap();
    port.service = Arc::new(Service::new(limits, Access::default()));
    for (plan, owner, limit) in [("free", "plan", "10"), ("", "bucket", "20")] {
        // A tenant without a key: only the request knows its plan.
        let fields = [
            ("x-plimsoll-bucket", "checkout"),
            ("x-plimsoll-tenant", ""),
            ("x-plan", plan),
        ];
        let answer = port.get("/check", &fields);
        assert_eq!(answer.json()["limit-of"], owner);
        assert_eq!(answer.header("x-ratelimit-limit"), Some(limit), "{plan}");
    }
}
