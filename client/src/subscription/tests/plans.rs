//! Names with a plan: they follow the class of the plan, whichever request brings them.

use super::*;
use crate::setup::SetupProblem;
use crate::{Limiter, Request};
use plimsoll_core::directive::{ClassTerms, Entitlement, LimitOwner, TailCut};
use plimsoll_core::law::Weight;
use plimsoll_core::law::tail::{Bin, Standing};
use plimsoll_core::names::KeyId;

const HALF: f64 = 0.5;

impl TestClient {
    fn refused_in_plan(&mut self, tenant: &str, plan: &str) -> f64 {
        let refused = (0..10_000).filter(|_| {
            let find = |place| self.table.target_in_plan(place, tenant, plan);
            let target = self.table.target_in("api", find).unwrap();
            let ctx = DecideCtx {
                counters: self.slab.block(0),
                draws: &mut self.draws,
            };
            self.table.decide(target, ctx) != Verdict::Admit
        });
        refused.count() as f64 / 10_000.0
    }

    #[track_caller]
    fn check_in_plan(&mut self, expected: &[(&str, &str, f64)]) {
        for (tenant, plan, share) in expected {
            let got = self.refused_in_plan(tenant, plan);
            assert!(
                (got - share).abs() < 0.02,
                "{tenant} in {plan}: {got} refused, not {share}"
            );
        }
    }

    /// Reports a name, and returns its id on the stream.
    fn id_on_the_stream(&mut self, tenant: &str) -> KeyId {
        self.subscription.report(now());
        let place = self.table.known_bucket("api").unwrap();
        let key = self.table.known_target(place, tenant, "").key;
        let session = self.subscription.sessions.get_mut(ONLY).unwrap();
        let keys_of = session.keys_of((0..10).map(KeyId));
        let id = keys_of.iter().position(|of| *of == Some(key)).unwrap();
        KeyId(id as u32)
    }

    fn reported(&mut self) -> Vec<String> {
        let counts = self.subscription.counts().into_keys();
        counts.map(|key| key.tenant.to_string()).collect()
    }
}

fn enforced(cut: TailCut) -> Terms {
    let mut terms = Terms {
        limit: Limit::PerSecond(Rate::new(100.0).unwrap()),
        mode: Mode::Enforce,
        ..Terms::default()
    };
    let of_class = ClassTerms {
        cut: Some(cut),
        new_share: None,
    };
    terms.set_classes([(Tenant::class_of_plan("free").unwrap(), of_class)]);
    terms
}

#[test]
fn names_follow_the_class_of_their_plan() {
    let mut client = TestClient::new();
    let keys = [
        ("%~free", ratio(HALF)),
        ("default", ratio(0.1)),
        ("listed", ratio(0.3)),
    ];
    client.direct(enforced(TailCut::default()), &keys);
    let expected = [
        ("jo", "free", HALF),
        ("al", "gone", 0.1),
        ("", "free", HALF),
        ("", "no plan", 0.1),
        ("a|b", "free", HALF),
    ];
    client.check_in_plan(&expected);
    assert_eq!(
        client.reported(),
        ["%~free", "a%7Cb%~free", "al%~gone", "default", "jo%~free"]
    );
    // With the next report the marks of the names are published, and a listed tenant is known.
    client.check_in_plan(&[("listed", "free", HALF)]);
    client.reported();
    client.direct(enforced(TailCut::default()), &keys);
    client.check_in_plan(&expected);
    client.check_in_plan(&[("listed", "free", 0.3)]);
    let problems = client.table.problems.list();
    assert!(matches!(&problems[..], [SetupProblem::UnknownPlan { plan }] if plan == "gone"));
    client.check_in_plan(&[("jo", "", HALF), ("jo", "other", HALF)]);
    assert_eq!(client.table.other_plans(), 10_000);

    client.direct(enforced(TailCut::default()), &keys[1..]);
    client.check_in_plan(&[("jo", "free", 0.1), ("", "free", 0.1)]);
    // A name that is new while the policy lacks the plan raises its problem, until the plan is back.
    let is_unknown = |client: &TestClient| {
        let problems = client.table.problems.list();
        problems.contains(&SetupProblem::UnknownPlan {
            plan: "free".to_owned(),
        })
    };
    client.check_in_plan(&[("eve", "free", 0.1)]);
    client.reported();
    assert!(is_unknown(&client));
    client.direct(enforced(TailCut::default()), &keys);
    assert!(!is_unknown(&client));
}

#[test]
fn standing_of_a_name_is_cut_by_its_class() {
    let mut client = TestClient::new();
    let cut = TailCut {
        level: Some(Rate::new(Bin::of(10.0).rate() / 4.0).unwrap()),
        ..TailCut::default()
    };
    let keys = [("%~free", ratio(0.2)), ("default", ratio(0.1))];
    client.direct(enforced(cut), &keys);
    client.check_in_plan(&[("jo", "free", 0.2)]);
    client.reported();
    let id = client.id_on_the_stream("jo");
    let standing = Standing {
        established: true,
        bin: Some(Bin::of(10.0)),
    };
    let mut message = client.message(enforced(cut), &keys);
    message.standings = vec![(id, standing)];
    client.receive(message).unwrap();
    client.check_in_plan(&[("jo", "free", 0.75)]);
}

#[test]
fn limit_of_a_tenant_names_its_owner() {
    let mut client = TestClient::new();
    let limited = |per_second, owner| Values {
        entitlement: Some(Entitlement {
            weight: Weight::ONE,
            floor: Rate::ZERO,
            tenant_limit: Some(Rate::new(per_second).unwrap()),
            limit_owner: owner,
        }),
        ..ratio(0.0)
    };
    let keys = [
        ("%~free", limited(10.0, LimitOwner::Plan)),
        ("default", limited(20.0, LimitOwner::Bucket)),
        ("listed", limited(5_000.0, LimitOwner::Tenant)),
    ];
    client.direct(enforced(TailCut::default()), &keys);
    client.check_in_plan(&[
        ("jo", "free", 0.0),
        ("al", "", 0.0),
        ("listed", "free", 0.0),
    ]);
    client.reported();
    client.direct(enforced(TailCut::default()), &keys);
    let limiter = Limiter {
        table: Arc::clone(&client.table),
        control: None,
    };
    for (tenant, plan, expected) in [
        ("jo", "", (10.0, LimitOwner::Plan)),
        ("al", "", (20.0, LimitOwner::Bucket)),
        ("listed", "free", (5_000.0, LimitOwner::Tenant)),
        ("not seen yet", "free", (10.0, LimitOwner::Plan)),
    ] {
        let request = Request::new("api", tenant).plan(plan);
        let limit = limiter.tenant_limit(&request).unwrap();
        assert_eq!((limit.per_second, limit.owner), expected, "{tenant}");
    }
}

#[test]
fn name_follows_the_class_that_the_catalogue_has() {
    let mut client = TestClient::new();
    let keys = [("%~free", ratio(HALF)), ("default", ratio(0.1))];
    client.direct(enforced(TailCut::default()), &keys);
    client.check_in_plan(&[("jo", "", 0.1)]);
    let id = client.id_on_the_stream("jo");
    let free = [(id, Tenant::class_of_plan("free").unwrap())];
    let none = [(id, Tenant::default_class())];
    for (hash, opens, told, expected) in [
        (Some(1), false, &free[..], HALF),
        (Some(2), false, &[], HALF),
        (Some(2), false, &none, 0.1),
        (Some(2), false, &free, HALF),
        // A stream begins with the same catalogue, and with another one.
        (Some(2), true, &[], HALF),
        (None, true, &[], HALF),
        (Some(3), false, &[], 0.1),
        (Some(4), true, &free, HALF),
    ] {
        if opens {
            client.subscription.on_open(client.now);
            client.answer();
            assert_eq!(client.id_on_the_stream("jo"), id);
        }
        let mut message = client.message(enforced(TailCut::default()), &keys);
        message.catalogue.hash = hash;
        message.catalogue.keys = told.to_vec();
        let subscription = &mut client.subscription;
        subscription.on_directives(client.now, message).unwrap();
        client.check_in_plan(&[("jo", "", expected)]);
        // Exact quotas follow it, too.
        let place = client.table.known_bucket("api").unwrap();
        let key = client.table.known_target(place, "jo", "").key;
        let plan = (expected == HALF).then_some("free");
        assert_eq!(client.table.classes.plan_of(key), plan);
    }
}
